"""Compiled kernels of :mod:`kmip_data.pipelines.openstreetmap.network.construction`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kmip_data.arrays import I64
from kmip_data.runtime.threads import njit_nogil


@njit_nogil()
def components(num_nodes: int, source: I64, target: I64) -> I64:
    """Return for each node the least node of its weakly connected component (union-find)."""
    parent = np.arange(num_nodes)
    for edge in range(len(source)):
        a, b = source[edge], target[edge]
        while parent[a] != a:
            parent[a] = parent[parent[a]]
            a = parent[a]
        while parent[b] != b:
            parent[b] = parent[parent[b]]
            b = parent[b]
        # The root is the least node, so a node's parent never comes after it.
        if a < b:
            parent[b] = a
        elif b < a:
            parent[a] = b
    for node in range(num_nodes):
        parent[node] = parent[parent[node]]
    return parent


@njit_nogil()
def follow_streets(
    ptr: I64, target: I64, endpoint: NDArray[np.bool_]
) -> tuple[I64, I64, I64, NDArray[np.bool_]]:
    """Follow each street from an endpoint over other nodes to the next endpoint.

    ``target[ptr[u]:ptr[u + 1]]`` are the distinct successors of u. A node that is not an endpoint has
    exactly two neighbours, so of its successors at most one is neither the node before nor the first.

    Gives ``path_ptr, steps, last, passed``: street p goes over the positions
    ``steps[path_ptr[p]:path_ptr[p + 1]]`` of ``target`` to the node ``last[p]``, mostly an endpoint;
    ``passed`` marks the nodes between.
    """
    num_nodes = len(ptr) - 1
    steps = np.empty(len(target), np.int64)
    path_ptr = np.empty(len(target) + 1, np.int64)
    last = np.empty(len(target), np.int64)
    passed = np.zeros(num_nodes, np.bool_)
    paths = size = 0
    path_ptr[0] = 0
    for first in range(num_nodes):
        if not endpoint[first]:
            continue
        for start in range(ptr[first], ptr[first + 1]):
            if endpoint[target[start]]:
                continue
            before, here = first, target[start]
            steps[size] = start
            size += 1
            while not endpoint[here]:
                onward = back = -1
                for step in range(ptr[here], ptr[here + 1]):
                    if target[step] == first:
                        back = step
                    elif target[step] != before:
                        onward = step
                if onward < 0 and before != first:
                    onward = back  # a loop: the street ends where it began
                if onward < 0:
                    break  # one-way streets that meet head-on
                passed[here] = True
                before, here = here, target[onward]
                steps[size] = onward
                size += 1
            last[paths] = here
            paths += 1
            path_ptr[paths] = size
    return path_ptr[: paths + 1], steps[:size], last[:paths], passed
