"""Force-directed layout for graphs without node positions."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from kmip_data.arrays import F32, F64, I64, Array
from kmip_data.errors import UsageError
from kmip_data.runtime.parallel import njit_nogil, run_in_ranges

if TYPE_CHECKING:
    from scipy.sparse import csr_array

SMALL = 0.05  #: of the nodes; smaller components would form a rim around the others
ROW_GAP = 1.0  #: between components in rows
GRAVITY = 0.1  #: attraction of the origin, relative to that of a neighbour
SPRING_STEPS = 0.5  #: fraction of the steps in which the attraction grows with the distance itself
MAX_NODES = 20_000
MAX_PAIRS = 1_500_000_000  #: maximum number of node pairs compared over all steps


def spring_layout(edge_index: I64, nodes: int) -> F64:
    """Return a position for each node, (N, 2), about one apart.

    Nodes are laid out by the forces of ForceAtlas2 (Jacomy et al., 2014), which move hubs apart, and in
    the end by its LinLog mode (Noack, 2007), which moves communities apart. Components with less than
    :data:`SMALL` of the nodes stand in rows below the others. The start is fixed, so that results are
    reproducible. Raises ``UsageError`` for more than :data:`MAX_NODES` nodes.
    """
    if nodes > MAX_NODES:
        raise UsageError(
            f"The graph cannot be drawn: it has {nodes:,} nodes without a position, "
            f"more than {MAX_NODES:,}.",
            steps="choose smaller graphs",
        )
    if not nodes:
        return np.zeros((0, 2))
    adjacency = adjacency_matrix(edge_index[:, edge_index[0] != edge_index[1]], nodes)
    adjacency = (adjacency + adjacency.T).tocsr()
    component, is_small = small_components(adjacency)
    pos = np.zeros((nodes, 2))
    for part in np.flatnonzero(~is_small), np.flatnonzero(is_small):
        if len(part):
            balanced = _balanced_positions(adjacency[part][:, part])
            pos[part] = balanced * np.sqrt(len(part)) / max(np.ptp(balanced, axis=0).max(), 1e-6)
    _stand_in_rows(pos, component, is_small)
    return pos


def small_components(adjacency: csr_array) -> tuple[I64, Array]:
    """Return the component of each node, (N,), and True if it is a small one, bool (N,)."""
    from scipy.sparse.csgraph import connected_components

    component = connected_components(adjacency, directed=False)[1]
    counts = np.bincount(component, minlength=1)
    is_small = counts < SMALL * len(component)
    is_small[counts.argmax()] = False  # the largest has others below it
    return component, is_small[component]


def _stand_in_rows(pos: F64, component: I64, is_small: Array) -> None:
    """Move the small components, from the largest to single nodes, into rows below the others."""
    start, bottom = pos[~is_small].min(axis=0)
    width = max(np.ptp(pos[~is_small, 0]), np.sqrt(is_small.sum()))
    right = np.inf  # end of the current row: the first component begins a new one
    numbers, counts = np.unique(component[is_small], return_counts=True)
    for number in numbers[np.argsort(-counts, kind="stable")]:
        members = np.flatnonzero(component == number)
        corner = pos[members].min(axis=0)
        across, up = np.ptp(pos[members], axis=0)
        if right + across > start + width:
            right = start
            top = bottom - ROW_GAP
        pos[members] += (right, top - up) - corner
        right += across + ROW_GAP
        bottom = min(bottom, top - up)


def adjacency_matrix(edge_index: I64, nodes: int) -> csr_array:
    """Return the sparse bool matrix (N, N) that is True for each edge from row to column."""
    from scipy import sparse

    entries = (np.ones(edge_index.shape[1], bool), (edge_index[0], edge_index[1]))
    return sparse.coo_array(entries, shape=(nodes, nodes)).tocsr()


def _balanced_positions(adjacency: csr_array) -> F32:
    """Return positions (N, 2) in which the forces of a symmetric adjacency (N, N) are balanced.

    A node repels by its mass, one more than its neighbours, over the distance. Neighbours attract it by
    the distance, which unfolds the graph, and later by its logarithm, both over its own mass.
    """
    masses = (np.diff(adjacency.indptr) + 1).astype(np.float32)
    generator = np.random.Generator(np.random.PCG64(0))
    spread = float(np.sqrt(masses.sum()))
    pos: F32 = (generator.random((len(masses), 2), np.float32) - 0.5) * spread
    force = np.empty_like(pos)
    steps = int(np.clip(MAX_PAIRS // len(masses) ** 2, 40, 400))
    fill = partial(_write_repulsion, pos, masses, force)
    springs = adjacency.astype(np.float32)
    sources, targets = springs.nonzero()
    for step in range(steps):
        run_in_ranges(fill, len(masses), grain=64)
        if step >= SPRING_STEPS * steps:
            lengths = np.linalg.norm(pos[sources] - pos[targets], axis=1) + 1e-3
            springs.data = np.log1p(lengths) / lengths
        pull = springs @ pos - springs.sum(axis=1)[:, None] * pos
        force += pull / masses[:, None] - GRAVITY * pos
        length = np.linalg.norm(force, axis=1, keepdims=True)
        # The maximum displacement per step decreases.
        max_displacement = spread * 0.1 * (1 - step / steps)
        pos += force / np.maximum(length, 1e-6) * np.minimum(length, max_displacement)
    return pos


@njit_nogil(fastmath=True)  # the last bits of positions are invisible
def _write_repulsion(
    pos: F32,
    masses: F32,
    out: F32,
    first: int,
    last: int,
) -> None:  # pragma: no cover -- compiled
    """Write the accelerations of nodes ``first:last`` away from all nodes: mass over distance."""
    for i in range(first, last):
        x = pos[i, 0]
        y = pos[i, 1]
        fx = np.float32(0.0)
        fy = np.float32(0.0)
        for j in range(pos.shape[0]):
            dx = x - pos[j, 0]
            dy = y - pos[j, 1]
            push = masses[j] / (dx * dx + dy * dy + np.float32(1e-4))
            fx += dx * push
            fy += dy * push
        out[i, 0] = fx
        out[i, 1] = fy
