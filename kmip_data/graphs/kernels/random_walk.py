"""Compiled kernel of :mod:`kmip_data.graphs.encodings.rwse`."""

from __future__ import annotations

import numpy as np

from kmip_data.arrays import F32, F64, I64, Bools
from kmip_data.runtime.parallel import njit_nogil


@njit_nogil()
def _edge_probabilities(first: I64) -> F64:
    """Return the probability of each edge out of a node, (N,); 0 if there is none."""
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
    now: F64,
    then: F64,
    seen: Bools,
    order: I64,
    reached: int,
) -> int:
    """Move the mass of the reached nodes, the first of ``order``, along their edges.

    Returns the number of nodes reached afterwards.
    """
    more = reached
    for slot in range(reached):
        u = order[slot]
        mass = now[u] * inverse[u]
        if mass == 0.0:
            continue
        for e in range(first[u], first[u + 1]):
            v = targets[e]
            then[v] += mass
            if not seen[v]:
                seen[v] = True
                order[more] = v
                more += 1
    return more


@njit_nogil()
def return_probabilities(
    first: I64, targets: I64, reversible: Bools, out: F32, start: int, stop: int
) -> None:
    """Fill the rows ``start:stop`` of ``out`` (N, T) with return probabilities.

    Node i has the edges ``first[i]:first[i + 1]``; where ``reversible`` (N,), its graph has every
    edge as often in one direction as in the other.

    The distribution of the walker is kept only where it can be: on the nodes reached so far. A
    reversible walk needs half the steps, because :math:`P^s_{ij} d_i = P^s_{ji} d_j`, so
    :math:`P^{s+t}_{ii} = d_i Σ_j P^s_{ij} P^t_{ij} / d_j`.
    """
    nodes = len(first) - 1
    steps = out.shape[1]
    inverse = _edge_probabilities(first)
    now = np.zeros(nodes)
    then = np.zeros(nodes)
    seen = np.zeros(nodes, np.bool_)
    order = np.empty(nodes, np.int64)
    # 1. One walker after the other, over buffers that are left empty for the next.
    for i in range(start, stop):
        degree = first[i + 1] - first[i]
        now[i] = 1.0
        seen[i] = True
        order[0] = i
        reached = 1
        # A reversible walk meets itself in the middle: half the steps give all chances.
        taken = (steps + 1) // 2 if reversible[i] else steps
        for t in range(1, taken + 1):
            # 2. One step: the mass of each reached node moves along its edges.
            before = reached
            reached = _advance_walk(first, targets, inverse, now, then, seen, order, before)
            # 3. Step t gives the returns after 2t - 1 and 2t steps, weighted by the degree.
            if reversible[i]:
                odd = 0.0
                even = 0.0
                for slot in range(reached):
                    u = order[slot]
                    weight = then[u] * inverse[u]
                    odd += now[u] * weight
                    even += then[u] * weight
                out[i, 2 * t - 2] = odd * degree
                if 2 * t <= steps:
                    out[i, 2 * t - 1] = even * degree
            else:
                # Without that symmetry only the mass at the start itself is the return.
                out[i, t - 1] = then[i]
            for slot in range(before):
                now[order[slot]] = 0.0
            now, then = then, now
        for slot in range(reached):
            u = order[slot]
            now[u] = 0.0
            then[u] = 0.0
            seen[u] = False


@njit_nogil()
def walk_to_targets(first: I64, targets: I64, out: F32, start: int, stop: int) -> None:
    """Fill the rows of ``out`` (E, T) whose edges begin at the nodes ``start:stop``.

    Node i has the edges ``first[i]:first[i + 1]``. Row e gets the chances that a walk from its
    source is at ``targets[e]`` after 1, 2, … T steps. As in :func:`return_probabilities` the distribution is kept
    only on the nodes reached so far; half the steps do not suffice here, as source and target
    differ.
    """
    nodes = len(first) - 1
    steps = out.shape[1]
    inverse = _edge_probabilities(first)
    now = np.zeros(nodes)
    then = np.zeros(nodes)
    seen = np.zeros(nodes, np.bool_)
    order = np.empty(nodes, np.int64)
    for i in range(start, stop):
        # No edge begins here: no row to fill.
        if inverse[i] == 0.0:
            continue
        now[i] = 1.0
        seen[i] = True
        order[0] = i
        reached = 1
        for t in range(steps):
            before = reached
            reached = _advance_walk(first, targets, inverse, now, then, seen, order, before)
            for slot in range(before):
                now[order[slot]] = 0.0
            now, then = then, now
            # The mass at the end of each edge is its column of this step.
            for e in range(first[i], first[i + 1]):
                out[e, t] = now[targets[e]]
        for slot in range(reached):
            u = order[slot]
            now[u] = 0.0
            then[u] = 0.0
            seen[u] = False
