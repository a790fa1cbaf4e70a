"""Bends of streets that are seen on a map, which the simplified network leaves out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kmip_data.arrays import F64, I32, I64
from kmip_data.pipelines.datasets.openstreetmap.extract import UNITS_PER_DEGREE, Ways
from kmip_data.pipelines.datasets.openstreetmap.ground import shortening, visible_length

if TYPE_CHECKING:
    from kmip_data.pipelines.datasets.openstreetmap.network import StreetGraph

MAX_BENDS = 100_000  #: on a card, which has at most 16 MiB


def visible_bends(ways: Ways, ptr: I64, steps: I32) -> dict[tuple[int, int], F64]:
    """Return the bends (n, 2) of streets that are seen on a map of the ways, by the ids of both ends.

    The streets are those of :func:`~.network.follow_streets`: two-way ones in both directions. Bends
    run from the smaller id to the larger one. Streets that return to their first node have none, nor
    has a map across the antimeridian.
    """
    import shapely

    bounds = ways.bounds
    if bounds[2] - bounds[0] > 180:
        return {}

    # 1. List the nodes of each street, one more than it has segments.
    starts = ptr[:-1]
    node = np.insert(steps[1], starts, steps[0, starts])
    street = np.insert(
        np.repeat(np.arange(len(starts)), np.diff(ptr)), starts, np.arange(len(starts))
    )
    ends = ways.node_id[np.stack([steps[0, starts], steps[1, ptr[1:] - 1]])]
    is_open = ends[0] != ends[1]

    # 2. Simplify their lines where degrees are equally long in both directions.
    scale = np.array([shortening(bounds), 1.0]) / UNITS_PER_DEGREE
    kept = is_open[street]
    points = np.stack([ways.x[node[kept]], ways.y[node[kept]]], axis=1) * scale
    lines = shapely.linestrings(points, indices=(np.cumsum(is_open) - 1)[street[kept]])
    lines = shapely.simplify(lines, visible_length(bounds), preserve_topology=False)
    is_bent = shapely.get_num_points(lines) > 2

    # 3. Drop the ends of each line, which are nodes of the graph, and return to the file's integers.
    bends = {}
    for (first, last), line in zip(ends.T[is_open][is_bent].tolist(), lines[is_bent], strict=True):
        inner = np.rint(shapely.get_coordinates(line)[1:-1] / scale) / UNITS_PER_DEGREE
        bends[min(first, last), max(first, last)] = inner if first < last else inner[::-1]
    return bends


def bends_of_streets(graph: StreetGraph) -> dict[str, str]:
    """Return the bends of each street between two nodes, whose positions are in its name.

    They are a MULTIPOINT in degrees and well-known text. Parallel streets, which a city joins to one
    edge, have none. Of many streets, those with most bends are returned.
    """
    import shapely

    # 1. Find the nodes by their ids; those outside the area are no longer there.
    ends = np.array([*graph.bends], np.int64).reshape(-1, 2)
    nodes = np.searchsorted(graph.node_id, ends).clip(max=graph.num_nodes - 1)
    is_inside = (graph.node_id[nodes] == ends).all(axis=1)

    # 2. Count the streets of each pair, in the direction that has more.
    pairs = graph.source.astype(np.int64) * graph.num_nodes + graph.target
    pairs, streets = np.unique(pairs, return_counts=True)
    most = np.zeros(len(ends), np.int64)
    for first, last in ((0, 1), (1, 0)):
        wanted = nodes[:, first] * graph.num_nodes + nodes[:, last]
        index = np.searchsorted(pairs, wanted).clip(max=len(pairs) - 1)
        np.maximum(most, np.where(pairs[index] == wanted, streets[index], 0), out=most)

    # 3. Write the bends, as long as there is room.
    bends = [*graph.bends.values()]
    sizes = np.array([len(points) for points in bends])
    kept = np.flatnonzero(is_inside & (most == 1))
    kept = kept[np.argsort(-sizes[kept], kind="stable")]
    kept = kept[np.cumsum(sizes[kept]) <= MAX_BENDS]
    return {
        "{} {}".format(*nodes[street]): shapely.to_wkt(shapely.multipoints(bends[street]))
        for street in kept.tolist()
    }
