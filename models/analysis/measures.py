"""Distance of k-MIP attention to full attention, and attention weight of the k best keys.

Both put the keys of each query in order, a block of queries at a time. All sums are float64: these are
analyses, whose figures should not depend on the order of a sum.

The paper's figure of the distance (appendix "Not an approximation of full attention") was computed with the
keys in the wrong order; ``published`` repeats that computation, ``error`` is the right one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kmip_data.errors import UsageError

SCRATCH = 64 * 2**20  #: bytes of a block


class ApproximationError(NamedTuple):
    """Mean Euclidean distances to the output of full attention, over nodes and heads."""

    error: NDArray[np.float64]  #: (len(ks),) of k-MIP attention; 0 where k ≥ n
    published: NDArray[np.float64]  #: (len(ks),) of what the published code computed
    random: float  #: of standard normal outputs, the paper's yardstick


def approximation_error(
    queries: Tensor, keys: Tensor, values: Tensor, ks: Sequence[int], *, seed: int = 0
) -> ApproximationError:
    """Compare k-MIP attention for each of rising k with full attention (both scaled by 1/√d).

    Queries are (H, m, d), keys (H, n, d), values (H, n, v): m queries against the n keys of one graph. Where
    k ≥ n both are the same and the distance is 0. ``seed`` is that of the normal outputs of ``random``.

    The published code sorted ascending, so its "k-MIP" output sums the k *smallest* scores; divided
    that by the sum of k + 1 weights; and left graphs with n < k at 0 (at k = n it failed; 0 here).
    """
    ks = check_ks(ks)
    n = keys.shape[1]
    generator = torch.Generator().manual_seed(seed)
    error, published = torch.zeros(len(ks), dtype=torch.float64), torch.zeros(len(ks), dtype=torch.float64)
    random = 0.0
    for head, scores in _score_blocks(queries, keys, values.shape[2]):
        value = values[head].double()
        full = torch.softmax(scores, -1) @ value
        noise = torch.randn(full.shape, generator=generator, dtype=torch.float64)
        random += float((noise - full).norm(dim=-1).sum())
        for distances, largest_first in ((error, True), (published, False)):
            weights, order = _ranked_weights(scores, largest_first=largest_first)
            numerators, denominators = _prefix_sums(weights, value[order], ks)
            if not largest_first:
                beyond = [min(k, n - 1) for k in ks]  # the (k + 1)-th smallest joins the denominator only
                denominators = denominators + weights[:, beyond]
            distance = (numerators / denominators[..., None] - full[:, None]).norm(dim=-1)
            distances += distance.sum(0)  # noqa: PLW2901 -- in place
    count = queries.shape[0] * queries.shape[1]
    inside = torch.tensor(ks) < n
    return ApproximationError(
        torch.where(inside, error / count, 0.0).numpy(),
        torch.where(inside, published / count, 0.0).numpy(),
        random / count,
    )


def cumulative_weight(queries: Tensor, keys: Tensor, ks: Sequence[int]) -> NDArray[np.float64]:
    """Return the sum of the k largest softmax weights, mean over queries and heads, for each k: (len(ks),).

    As the published code computes it: scores are scaled by 1/√d, and the sum over queries is a mean;
    the formula in the paper's text has neither. Queries (H, m, d), keys (H, n, d) of one graph; values of k
    rise, and where k ≥ n it is 1.
    """
    ks = check_ks(ks)
    last = torch.tensor(ks).clamp_max(keys.shape[1]) - 1
    total = torch.zeros(len(ks), dtype=torch.float64)
    for _, scores in _score_blocks(queries, keys, 1):
        total += _ranked_weights(scores)[0].cumsum(1)[:, last].sum(0)
    return (total / (queries.shape[0] * queries.shape[1])).numpy()


def paper_ks(largest: int) -> tuple[int, ...]:
    """Return the values of k of the paper's experiment, up to ``largest``, which is the last.

    A geometric progression of ratio 1.2, rounded, each value once.

    >>> paper_ks(20)
    (1, 2, 3, 4, 5, 6, 7, 9, 11, 13, 15, 18, 20)
    """
    found = []
    value = 1.0
    while round(value) < largest:
        found.append(round(value))
        value *= 1.2
    return (*dict.fromkeys(found), largest)


def check_ks(ks: Sequence[int]) -> tuple[int, ...]:
    """Return ``ks`` as a tuple; raise UsageError unless they increase from 1 or more."""
    ks = tuple(ks)
    if not ks or ks[0] < 1 or any(low >= high for low, high in pairwise(ks)):
        raise UsageError("The values of k are wrong.", expected="whole numbers ≥ 1 that rise", found=str(ks))
    return ks


def _score_blocks(queries: Tensor, keys: Tensor, width: int) -> Iterator[tuple[int, Tensor]]:
    """Yield a head and float64 scores q · k / √d (rows, n) of some of its queries, in blocks of bounded size.

    ``width``: further float64 numbers that each pair of a query and a key needs.
    """
    step = max(1, SCRATCH // (8 * max(1, keys.shape[1]) * (width + 4)))
    for head in range(queries.shape[0]):
        every = keys[head].double().mT
        for some in torch.split(queries[head], step):
            yield head, some.double() @ every / math.sqrt(queries.shape[2])


def _ranked_weights(scores: Tensor, *, largest_first: bool = True) -> tuple[Tensor, Tensor]:
    """Return softmax weights and keys, both (rows, n), in order of score; equal ones by index."""
    ranked, order = scores.sort(dim=-1, descending=largest_first, stable=True)
    return torch.softmax(ranked, -1), order


def _prefix_sums(weights: Tensor, values: Tensor, ks: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Return Σ_{j<k} w_j v_j (rows, len(ks), v) and Σ_{j<k} w_j (rows, len(ks)), for each k."""
    bounds = [min(k, weights.shape[1]) for k in (0, *ks)]
    parts = [slice(start, stop) for start, stop in pairwise(bounds)]
    numerators = torch.stack([(weights[:, None, p] @ values[:, p]).squeeze(1) for p in parts], 1)
    denominators = torch.stack([weights[:, p].sum(1) for p in parts], 1)
    return numerators.cumsum(1), denominators.cumsum(1)
