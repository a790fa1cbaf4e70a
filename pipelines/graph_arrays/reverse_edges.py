"""Edges in both directions: all of them back behind all there, each back next to it, or sorted."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from kmip_data.arrays import I64, Integers

Number = TypeVar("Number", bound=np.integer)


def append_reverse_edges(edges: I64) -> I64:
    """Return edges (2, E) and, after all of them, their reverses: (2, 2·E)."""
    return np.concatenate([edges, edges[::-1]], axis=1)


def interleave_reverse_edges(edges: NDArray[Number]) -> NDArray[Number]:
    """Return each edge of (E, 2) and, next to it, its reverse: (2, 2·E)."""
    # Written in place: a stack and its transpose would take the memory twice.
    both = np.empty((2, 2 * len(edges)), edges.dtype)
    both[:, 0::2] = edges.T
    both[:, 1::2] = edges.T[::-1]
    return both


def undirected_edges(edges: Integers, nodes: int) -> I64:
    """Return both directions of each edge of (E, 2), sorted by source and target, each once: (2, E').

    PyTorch Geometric's ``ToUndirected``.
    """
    first, second = edges.T.astype(np.int64)
    # A pair as one number sorts as the pair does.
    pairs: I64 = np.concatenate([first * nodes + second, second * nodes + first])
    pairs.sort()
    is_new = np.ones(len(pairs), np.bool_)
    is_new[1:] = pairs[1:] != pairs[:-1]
    return np.stack(np.divmod(pairs[is_new], nodes))
