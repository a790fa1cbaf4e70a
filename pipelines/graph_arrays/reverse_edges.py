"""Add reverse edges: after all edges, next to each edge, or sorted."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from kmip_data.arrays import I64, Integers

Number = TypeVar("Number", bound=np.integer)


def append_reverse_edges(edges: I64) -> I64:
    """Return edges (2, E) followed by their reverses: (2, 2·E)."""
    return np.concatenate([edges, edges[::-1]], axis=1)


def interleave_reverse_edges(edges: NDArray[Number]) -> NDArray[Number]:
    """Return each edge of (E, 2) followed by its reverse: (2, 2·E)."""
    # Fill one array: stacking and transposing would need twice the memory.
    interleaved = np.empty((2, 2 * len(edges)), edges.dtype)
    interleaved[:, 0::2] = edges.T
    interleaved[:, 1::2] = edges.T[::-1]
    return interleaved


def edges_in_both_directions(edges: Integers, nodes: int) -> I64:
    """Return the distinct edges in both directions of (E, 2), sorted by source and target: (2, E').

    Same as PyTorch Geometric's ``ToUndirected``.
    """
    first, second = edges.T.astype(np.int64)
    # Numbers sort in the same order as the pairs that they encode.
    pairs: I64 = np.concatenate([first * nodes + second, second * nodes + first])
    pairs.sort()
    is_new = np.ones(len(pairs), np.bool_)
    is_new[1:] = pairs[1:] != pairs[:-1]
    return np.stack(np.divmod(pairs[is_new], nodes))
