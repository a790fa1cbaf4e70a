"""Share of the attention weight that the k keys with the largest inner product hold."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kmip_data.models.analysis.ranked import check_ks, ranked_weights, row_blocks


def cumulative_weight(queries: Tensor, keys: Tensor, ks: Sequence[int]) -> NDArray[np.float64]:
    """Sum of the k largest softmax weights of a query, mean over queries and heads.

    As the published code computes it: scores are scaled by 1/√d, and the sum over queries is a mean;
    the formula in the paper's text has neither.

    Parameters
    ----------
    queries, keys
        (H, m, d) and (H, n, d): m queries against the n keys of one graph.
    ks
        Rising values of k.

    Returns
    -------
    numpy.ndarray
        (len(ks),), in 0 … 1; 1 where k ≥ n.
    """
    ks = check_ks(ks)
    last = torch.tensor(ks).clamp_max(keys.shape[1]) - 1
    total = torch.zeros(len(ks), dtype=torch.float64)
    for _, _, scores in row_blocks(queries, keys, 1):
        weights, _ = ranked_weights(scores)
        total += weights.cumsum(1)[:, last].sum(0)
    return (total / (queries.shape[0] * queries.shape[1])).numpy()
