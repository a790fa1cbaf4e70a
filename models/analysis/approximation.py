"""How far the output of k-MIP attention is from that of full attention with the same projections.

The paper's figure of this (appendix "Not an approximation of full attention") was computed with the
keys in the wrong order; ``published`` repeats that computation, ``error`` is the right one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kmip_data.models.analysis.ranked import check_ks, ranked_weights, row_blocks


class ApproximationError(NamedTuple):
    """Mean Euclidean distances to the output of full attention, over nodes and heads."""

    error: NDArray[np.float64]  #: (len(ks),) of k-MIP attention; 0 where k ≥ n
    published: NDArray[np.float64]  #: (len(ks),) of what the published code computed
    random: float  #: of standard normal outputs, the paper's yardstick


def approximation_error(
    queries: Tensor, keys: Tensor, values: Tensor, ks: Sequence[int], *, seed: int = 0
) -> ApproximationError:
    """Compare k-MIP attention for each k with full attention (both scaled by 1/√d).

    Parameters
    ----------
    queries, keys, values
        (H, m, d), (H, n, d), (H, n, v): m queries against the n keys of one graph.
    ks
        Rising values of k. Where k ≥ n both are the same and the distance is 0.
    seed
        Of the normal outputs of ``random``.

    Notes
    -----
    The published code sorted ascending, so its "k-MIP" output sums the k *smallest* scores; divided
    that by the sum of k + 1 weights; and left graphs with n < k at 0 (at k = n it failed; 0 here).
    """
    ks = check_ks(ks)
    n = keys.shape[1]
    generator = torch.Generator().manual_seed(seed)
    error, published = torch.zeros(len(ks), dtype=torch.float64), torch.zeros(len(ks), dtype=torch.float64)
    random = 0.0
    for head, _, scores in row_blocks(queries, keys, values.shape[2]):
        value = values[head].double()
        full = torch.softmax(scores, -1) @ value
        noise = torch.randn(full.shape, generator=generator, dtype=torch.float64)
        random += float((noise - full).norm(dim=-1).sum())
        for distances, largest_first in ((error, True), (published, False)):
            weights, order = ranked_weights(scores, largest_first=largest_first)
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


def _prefix_sums(weights: Tensor, values: Tensor, ks: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Σ_{j<k} w_j v_j as (rows, len(ks), v) and Σ_{j<k} w_j as (rows, len(ks)), for each k."""
    bounds = [min(k, weights.shape[1]) for k in (0, *ks)]
    parts = [slice(start, stop) for start, stop in pairwise(bounds)]
    numerators = torch.stack([(weights[:, None, p] @ values[:, p]).squeeze(1) for p in parts], 1)
    denominators = torch.stack([weights[:, p].sum(1) for p in parts], 1)
    return numerators.cumsum(1), denominators.cumsum(1)
