"""Full attention with the keys of each query in order, a block of queries at a time.

All sums are float64: these are analyses, whose figures should not depend on the order of a sum.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from kmip_data.errors import UsageError

SCRATCH = 64 * 2**20  #: bytes of a block


def paper_ks(largest: int) -> tuple[int, ...]:
    """Values of k that the paper's experiment took, up to ``largest``, which is the last.

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
    """Return ``ks`` as a tuple; raises :class:`UsageError` unless they rise from 1 or more."""
    ks = tuple(ks)
    if not ks or ks[0] < 1 or any(low >= high for low, high in pairwise(ks)):
        raise UsageError("The values of k are wrong.", expected="whole numbers ≥ 1 that rise", found=str(ks))
    return ks


def row_blocks(queries: Tensor, keys: Tensor, width: int) -> Iterator[tuple[int, slice, Tensor]]:
    """Yield (head, rows, scores (rows, n) float64 of these rows) with q · k / √d, in blocks of bounded size.

    ``width`` is how many more float64 numbers each pair of a query and a key needs.
    """
    heads, count, dim = queries.shape
    step = max(1, SCRATCH // (8 * max(1, keys.shape[1]) * (width + 4)))
    for head in range(heads):
        every = keys[head].double().mT
        for start in range(0, count, step):
            rows = slice(start, min(start + step, count))
            yield head, rows, queries[head, rows].double() @ every / math.sqrt(dim)


def ranked_weights(scores: Tensor, *, largest_first: bool = True) -> tuple[Tensor, Tensor]:
    """Softmax over all keys and the keys themselves in order of their score; equal ones by index.

    Returns
    -------
    weights, order : Tensor
        (rows, n) float64 that sum to one, and (rows, n) int64.
    """
    ranked, order = scores.sort(dim=-1, descending=largest_first, stable=True)
    return torch.softmax(ranked, -1), order
