"""Influence of other nodes on the output of a node, and their distance in hops."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def node_influence(outputs: Tensor, x: Tensor, node: int) -> NDArray[np.float64]:
    """Return Σ |∂ outputs[node, c] / ∂ x[u, f]| over c and f for every node u: (N,) float64.

    ``outputs`` (N, C) must have been computed from ``x`` (N, F), which requires a gradient; one backward pass
    per output. k-MIP attention is differentiated as in training, through the chosen pairs.
    """
    total = torch.zeros(len(x), dtype=torch.float64, device=x.device)
    for output in outputs[node]:
        (gradient,) = torch.autograd.grad(output, x, retain_graph=True)
        total += gradient.abs().sum(1)
    return total.cpu().numpy()


def hop_distances(edge_index: Tensor, nodes: int, targets: list[int]) -> NDArray[np.float64]:
    """Return the edges on the shortest path from each node to each target: (targets, N); inf without one."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import dijkstra

    source, target = edge_index.cpu().numpy()
    backwards = coo_array((np.ones(len(source)), (target, source)), (nodes, nodes)).tocsr()
    return np.asarray(dijkstra(backwards, indices=targets, unweighted=True))


def by_distance(values: NDArray[np.float64], distances: NDArray[np.float64], hops: int) -> dict[str, Any]:
    """Sum influence ``values`` (S, N) of S nodes by their ``distances`` (S, N).

    ``rows`` have one hop each: ``nodes`` at that distance, their ``total`` influence, ``influence`` relative
    to the node itself, and ``each``, that per node; all are means over the S nodes. ``R`` is the mean
    distance of influence within ``hops``, as in City-Networks; ``R_all`` over all distances; ``beyond`` and
    ``unreached`` are the shares of influence from beyond ``hops`` and from other components.
    """
    reached = np.isfinite(distances)
    farthest = max(hops, int(distances[reached].max()))
    totals, counts = np.zeros((2, len(values), farthest + 1))
    for row in range(len(values)):
        there = distances[row, reached[row]].astype(np.int64)
        totals[row] = np.bincount(there, values[row, reached[row]], farthest + 1)
        counts[row] = np.bincount(there, minlength=farthest + 1)
    near, whole, mean = totals[:, : hops + 1], values.sum(1), totals.mean(0)
    share, there = mean / mean[0], counts.mean(0)
    columns = {"hop": range(hops + 1), "nodes": there, "total": mean, "influence": share}
    columns["each"] = share / np.maximum(there, 1)
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=False)]
    return {
        "R": float((near @ np.arange(hops + 1) / near.sum(1)).mean()),
        "R_all": float((totals @ np.arange(farthest + 1) / totals.sum(1)).mean()),
        "beyond": float((totals[:, hops + 1 :].sum(1) / whole).mean()),
        "unreached": float((1 - totals.sum(1) / whole).mean()),
        "rows": rows,
    }
