"""Compiled random walks for the encodings ``rwse`` and ``edge_rwse``."""

from __future__ import annotations

import numpy as np

from kmip_data.arrays import F32, F64, I64, Bools
from kmip_data.runtime.parallel import njit_nogil


@njit_nogil()
def _edge_probabilities(first: I64) -> F64:
    """Return the probability of each out-edge of a node, (N,); 0 if it has none."""
    inverse = np.zeros(len(first) - 1)
    for i in range(len(inverse)):
        degree = first[i + 1] - first[i]
        if degree > 0:
            inverse[i] = 1.0 / degree
    return inverse


@njit_nogil(inline="always")
def _advance_walk(
    first: I64,
    targets: I64,
    inverse: F64,
    current: F64,
    following: F64,
    is_reached: Bools,
    order: I64,
    reached: int,
) -> int:
    """Move the probability mass of the reached nodes, ``order[:reached]``, along their edges.

    Returns the new number of reached nodes.
    """
    reached_next = reached
    for slot in range(reached):
        u = order[slot]
        mass = current[u] * inverse[u]
        if mass == 0.0:
            continue
        for e in range(first[u], first[u + 1]):
            v = targets[e]
            following[v] += mass
            if not is_reached[v]:
                is_reached[v] = True
                order[reached_next] = v
                reached_next += 1
    return reached_next


@njit_nogil()
def return_probabilities(
    first: I64, targets: I64, reversible: Bools, out: F32, start: int, stop: int
) -> None:
    """Fill the rows ``start:stop`` of ``out`` (N, T) with return probabilities.

    Node i has the edges ``first[i]:first[i + 1]``. ``reversible`` (N,) is True if its graph has
    every edge equally often in both directions.

    The distribution of the walk is kept only on the nodes reached so far. A reversible walk needs
    half the steps, because :math:`P^s_{ij} d_i = P^s_{ji} d_j`, so :math:`P^{s+t}_{ii} = d_i Σ_j
    P^s_{ij} P^t_{ij} / d_j`.
    """
    nodes = len(first) - 1
    steps = out.shape[1]
    inverse = _edge_probabilities(first)
    current = np.zeros(nodes)
    following = np.zeros(nodes)
    is_reached = np.zeros(nodes, np.bool_)
    order = np.empty(nodes, np.int64)
    # 1. Walk from one node after another, in buffers that each walk leaves zeroed.
    for i in range(start, stop):
        degree = first[i + 1] - first[i]
        current[i] = 1.0
        is_reached[i] = True
        order[0] = i
        reached = 1
        # A reversible walk meets itself in the middle: half the steps give all probabilities.
        walk_steps = (steps + 1) // 2 if reversible[i] else steps
        for t in range(1, walk_steps + 1):
            # 2. One step: the mass of each reached node moves along its edges.
            reached_before = reached
            reached = _advance_walk(
                first, targets, inverse, current, following, is_reached, order, reached_before
            )
            # 3. Step t gives the return probabilities after 2t - 1 and 2t steps.
            if reversible[i]:
                odd = 0.0
                even = 0.0
                for slot in range(reached):
                    u = order[slot]
                    weight = following[u] * inverse[u]
                    odd += current[u] * weight
                    even += following[u] * weight
                out[i, 2 * t - 2] = odd * degree
                if 2 * t <= steps:
                    out[i, 2 * t - 1] = even * degree
            else:
                # Otherwise the return probability is the mass at the start node.
                out[i, t - 1] = following[i]
            for slot in range(reached_before):
                current[order[slot]] = 0.0
            current, following = following, current
        for slot in range(reached):
            u = order[slot]
            current[u] = 0.0
            following[u] = 0.0
            is_reached[u] = False


@njit_nogil()
def walk_to_targets(first: I64, targets: I64, out: F32, start: int, stop: int) -> None:
    """Fill the rows of ``out`` (E, T) whose edges start at the nodes ``start:stop``.

    Node i has the edges ``first[i]:first[i + 1]``. Row e gets the probabilities that a walk from its
    source is at ``targets[e]`` after 1, 2, … T steps. As in :func:`return_probabilities`, the
    distribution is kept only on the nodes reached so far. Half the steps do not suffice, because
    source and target differ.
    """
    nodes = len(first) - 1
    steps = out.shape[1]
    inverse = _edge_probabilities(first)
    current = np.zeros(nodes)
    following = np.zeros(nodes)
    is_reached = np.zeros(nodes, np.bool_)
    order = np.empty(nodes, np.int64)
    for i in range(start, stop):
        # Without out-edges there is no row to fill.
        if inverse[i] == 0.0:
            continue
        current[i] = 1.0
        is_reached[i] = True
        order[0] = i
        reached = 1
        for t in range(steps):
            reached_before = reached
            reached = _advance_walk(
                first, targets, inverse, current, following, is_reached, order, reached_before
            )
            for slot in range(reached_before):
                current[order[slot]] = 0.0
            current, following = following, current
            # The mass at the end of each edge is its column of this step.
            for e in range(first[i], first[i + 1]):
                out[e, t] = current[targets[e]]
        for slot in range(reached):
            u = order[slot]
            current[u] = 0.0
            following[u] = 0.0
            is_reached[u] = False
