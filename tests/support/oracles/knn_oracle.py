"""The rule of torch_cluster the slow, obvious way."""

from __future__ import annotations

import numpy as np

from kmip_data.graphs.reference import points_by_distance


def torch_cluster_edges(pos: np.ndarray, k: int, *, every: int = 1) -> np.ndarray:
    """Upstream's rule: of the k + 1 nearest points, the point itself too, all but the point itself."""
    edges = [
        (j, i)
        for i in range(0, len(pos), every)
        for j in points_by_distance(pos, i)[: k + 1]
        if j != i
    ]
    return np.array(edges, np.int64).reshape(-1, 2).T
