"""Random regular graphs that are good expanders, drawn as permutations (Exphormer's ``Random-d``)."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kmip_data.errors import UsageError

COMPLETE: Final = 10  #: graphs of at most so many nodes are complete instead
DRAWS: Final = 100  #: at most; the best is kept where none is good enough
_TOLERANCE: Final = 1e-3  #: relative, of the eigenvalue: the bound has a slack of 0.1


def expander_targets(num_nodes: int, degree: int, rng: np.random.Generator) -> NDArray[np.int32]:
    """Draw a 2d-regular multigraph on N nodes: d = ``degree`` permutations, edges in both directions.

    Permutations are drawn again until the second eigenvalue of the Laplacian is at least
    2d - 2√(2d - 1) - 0.1, nearly that of the best expanders (Friedman). Loops and repeated edges stay, as
    in upstream ``graphgps/transform/expander_edges.py`` of Exphormer, which filters its loops and then
    returns what it had before. Raises ``UsageError`` where ``degree`` is less than 1.

    Returns
    -------
    numpy.ndarray
        int32 (N, d): node i has edges to and from each of row i. All are −1 where the graph has at most
        :data:`COMPLETE` nodes: it is then complete, without loops. From column N - 1 on they are −1 where
        d is not below N.
    """
    if degree < 1:
        raise UsageError("There is no such degree.", expected="1 or more", found=str(degree))
    targets = np.full((num_nodes, degree), -1, np.int32)
    if num_nodes <= COMPLETE:
        return targets
    bound = max(0.0, 2 * degree - 2 * math.sqrt(2 * degree - 1) - 0.1)
    drawn, best = targets[:, : num_nodes - 1], -1.0
    for _ in range(DRAWS):
        candidate = np.stack([rng.permutation(num_nodes) for _ in range(drawn.shape[1])], axis=1)
        # Of a disconnected graph it is 0, which rounding must not take below the bound of d = 1.
        found = max(0.0, second_eigenvalue(candidate))
        if found > best:
            best, drawn[:] = found, candidate
        if found >= bound:
            break
    return targets


def second_eigenvalue(targets: NDArray[np.integer]) -> float:
    """Second smallest eigenvalue of the Laplacian of the graph that permutations (N, d) make, N > 2.

    A loop counts in the degree of its node, and repeated edges as often as they are there, so every degree
    is 2d, and the eigenvalue is 2d less that of the adjacency matrix without loops. Deterministic.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.linalg import eigsh

    nodes, degree = targets.shape
    source, target = np.repeat(np.arange(nodes), degree), targets.ravel()
    proper = source != target
    source, target = source[proper], target[proper]
    both = np.concatenate([source, target]), np.concatenate([target, source])
    adjacency = csr_array((np.ones(len(both[0])), both), shape=(nodes, nodes))
    start = np.random.Generator(np.random.PCG64(0)).standard_normal(nodes)
    values = eigsh(adjacency, 2, which="LA", tol=_TOLERANCE, v0=start, return_eigenvectors=False)
    return float(2 * degree - values.min())
