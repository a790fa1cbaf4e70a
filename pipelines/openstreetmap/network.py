"""The network of intersections and streets: OSMnx's construction and simplification, on arrays.

Built step by step as ``osmnx.graph_from_xml`` and ``graph_from_polygon`` do, and equal to them
(``tests/pipelines/openstreetmap``), but for what depends there on the hash of strings or the order
of the file: several values of a tag on one street are kept sorted, and all is ordered by
OpenStreetMap's numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components

from kmip_data.arrays import F64, I32, I64
from kmip_data.pipelines.openstreetmap.extract import UNITS_A_DEGREE, VALUES, Ways
from kmip_data.runtime.threads import njit_nogil

if TYPE_CHECKING:
    from shapely import Geometry

EARTH_RADIUS: Final = 6_371_009.0  #: metres, as OSMnx has it
BOTH: Final = 2  #: of ``oneway`` and ``reversed``: some parts of the street are, some are not
_OF_EDGES: Final = ("source", "target", "length", "oneway", "reversed")

Values = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class StreetGraph:
    """A directed multigraph of streets, nodes by OpenStreetMap's number; edges may be parallel."""

    node_id: I64  #: (N,) ascending
    lon: F64  #: (N,) degrees
    lat: F64
    source: I64  #: (E,) positions of nodes
    target: I64
    length: F64  #: (E,) metres
    oneway: NDArray[np.int8]  #: (E,) 0 no, 1 yes, :data:`BOTH`
    reversed: NDArray[np.int8]
    tags: Mapping[str, I32]  #: (E,) for each of ``VALUES``: position in ``values``, -1 without
    values: Mapping[str, list[Values]]  #: distinct values of a tag; several on one street are a sorted tuple
    street_count: I64 | None = None  #: (N,) once it is known

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return len(self.node_id)

    @property
    def num_edges(self) -> int:
        """Number of directed edges, parallel ones and self loops counted."""
        return len(self.source)

    def edges(self, chosen: I64) -> StreetGraph:
        """Return the graph with the edges at these positions, in this order."""
        tags = {key: codes[chosen] for key, codes in self.tags.items()}
        return replace(self, tags=tags, **{name: getattr(self, name)[chosen] for name in _OF_EDGES})

    def nodes(self, kept: NDArray[np.bool_]) -> StreetGraph:
        """Return the graph induced by the marked nodes."""
        number = np.cumsum(kept) - 1
        graph = self.edges(np.flatnonzero(kept[self.source] & kept[self.target]))
        return replace(
            graph,
            node_id=self.node_id[kept],
            lon=self.lon[kept],
            lat=self.lat[kept],
            source=number[graph.source],
            target=number[graph.target],
            street_count=None if self.street_count is None else self.street_count[kept],
        )


def from_ways(ways: Ways) -> StreetGraph:
    """Return each part of a way between two nodes as an edge, and where it may be, one back.

    A part with a node that is not in the file is left out: there the way is cut.
    """
    owner = ways.owner
    node_id, place = np.unique(ways.ref[ways.known], return_index=True)
    lon, lat = (axis[ways.known][place] / UNITS_A_DEGREE for axis in (ways.x, ways.y))
    node = np.searchsorted(node_id, ways.ref)
    part = np.flatnonzero((owner[1:] == owner[:-1]) & ways.known[1:] & ways.known[:-1])
    ends = np.stack([node[part], node[part + 1]])
    against, both = (ways.direction[owner[part]] == sign for sign in (-1, 0))
    ends[:, against] = ends[::-1, against]
    # As OSMnx adds them: way by way, first all parts in one direction, then all in the other.
    ends = np.concatenate([ends, ends[::-1, both]], axis=1)
    way = np.concatenate([owner[part], owner[part[both]]])
    back = np.arange(len(way)) >= len(part)
    order = np.lexsort((back, way))
    way, (source, target) = way[order], ends[:, order]
    return StreetGraph(
        node_id=node_id,
        lon=lon,
        lat=lat,
        source=source,
        target=target,
        length=great_circle(lat[source], lon[source], lat[target], lon[target]),
        oneway=(ways.direction[way] != 0).astype(np.int8),
        reversed=back[order].astype(np.int8),
        tags={key: ways.tags[key][way] for key in VALUES},
        values={key: [(value,) for value in ways.values[key]] for key in VALUES},
    )


def great_circle(lat1: F64, lon1: F64, lat2: F64, lon2: F64) -> F64:
    """Return distances in metres on a sphere by the haversine formula; degrees in."""
    y1, x1, y2, x2 = map(np.deg2rad, (lat1, lon1, lat2, lon2))
    half = np.sin((y2 - y1) / 2) ** 2 + np.cos(y1) * np.cos(y2) * np.sin((x2 - x1) / 2) ** 2
    distance: F64 = 2 * np.arcsin(np.sqrt(np.minimum(1, half))) * EARTH_RADIUS
    return distance


def largest_component(graph: StreetGraph) -> StreetGraph:
    """Return the largest weakly connected component; of equally large ones that of the least node number."""
    if not graph.num_nodes:
        return graph
    component = components(graph)
    kept = component == np.bincount(component).argmax()
    return graph if kept.all() else graph.nodes(kept)


def components(graph: StreetGraph) -> NDArray[np.int32]:
    """Return the weakly connected component of each node, (N,), numbered by their least nodes."""
    found: NDArray[np.int32] = connected_components(adjacency(graph), directed=False)[1]
    return found


def adjacency(graph: StreetGraph) -> csr_array:
    """Return how many edges lead from each node to each other, (N, N)."""
    ends, n = (graph.source, graph.target), graph.num_nodes
    # Duplicates are added up; int64, as a product of them may be.
    return coo_array((np.ones(graph.num_edges, np.int64), ends), shape=(n, n)).tocsr()


def inside(graph: StreetGraph, polygon: Geometry) -> StreetGraph:
    """Return the graph of the nodes inside ``polygon`` or on its border; streets are cut there."""
    import shapely

    shapely.prepare(polygon)
    return graph.nodes(shapely.intersects_xy(polygon, graph.lon, graph.lat))


def count_streets(graph: StreetGraph) -> I64:
    """Return how many streets meet at each node, (N,) int64; a loop counts twice.

    Between two nodes there are as many streets as parallel edges in the direction that has more.
    """
    edges = adjacency(graph)
    streets = edges.maximum(edges.T)
    loops = streets.diagonal()
    count: I64 = streets.sum(axis=1) + np.where(loops > 0, 2 - loops, 0)
    return count


def simplify(graph: StreetGraph) -> StreetGraph:
    """Join the edges between intersections and dead ends to one street each: ``osmnx.simplify_graph``.

    Nodes in between and components that are one ring without an intersection are gone afterwards.
    """
    n = graph.num_nodes
    pair = graph.source * n + graph.target
    order = np.argsort(pair, kind="stable")
    first = np.flatnonzero(np.diff(pair[order], prepend=-1))
    ptr = np.searchsorted(graph.source[order[first]], np.arange(n + 1))
    path_ptr, steps, last, passed = follow_streets(ptr, graph.target[order[first]], endpoints(graph))
    streets = _join(graph, path_ptr, order[first][steps], last)
    straight = np.flatnonzero(~(passed[graph.source] | passed[graph.target]))
    graph = graph.edges(straight)
    # The values of the streets begin with those of the graph.
    tags = {key: np.concatenate([codes, streets.tags[key]]) for key, codes in graph.tags.items()}
    both = (graph, streets)
    joined: dict[str, Any] = {key: np.concatenate([getattr(g, key) for g in both]) for key in _OF_EDGES}
    graph = replace(streets, tags=tags, **joined).nodes(~passed)
    component = components(graph)
    return graph.nodes(np.isin(component, component[endpoints(graph)]))


def endpoints(graph: StreetGraph) -> NDArray[np.bool_]:
    """Mark intersections and dead ends, (N,) bool: where simplified streets begin and end.

    A node is one unless it has exactly two neighbours, other than itself, and either two or four edges,
    of which at least one comes in and one goes out.
    """
    edges = adjacency(graph)
    neighbours = np.diff((edges + edges.T).tocsr().indptr)
    out, into, loops = edges.sum(axis=1), edges.sum(axis=0), edges.diagonal()
    between = (neighbours == 2) & np.isin(out + into, (2, 4)) & (out > 0) & (into > 0) & (loops == 0)
    marked: NDArray[np.bool_] = ~between
    return marked


def _either(flags: NDArray[np.int8], starts: I64) -> NDArray[np.int8]:
    low, high = np.minimum.reduceat(flags, starts), np.maximum.reduceat(flags, starts)
    return np.where(low == high, low, np.int8(BOTH))


def _join(graph: StreetGraph, ptr: I64, edges: I64, last: I64) -> StreetGraph:
    """Return one edge a path: lengths added up, values collected."""
    if not len(last):
        return graph.edges(np.empty(0, np.int64))
    path, starts = np.repeat(np.arange(len(last)), np.diff(ptr)), ptr[:-1]
    tags, values = {}, {}
    for key, codes in graph.tags.items():
        tags[key], values[key] = _collected(codes[edges], starts, path, graph.values[key])
    return replace(
        graph,
        source=graph.source[edges[starts]],
        target=last,
        length=np.bincount(path, weights=graph.length[edges]).astype(np.float64),
        oneway=_either(graph.oneway[edges], starts),
        reversed=_either(graph.reversed[edges], starts),
        tags=tags,
        values=values,
    )


def _collected(codes: I32, starts: I64, path: I64, values: list[Values]) -> tuple[I32, list[Values]]:
    """Return one code a path: that of its value, or of the tuple of its sorted distinct values."""
    joined = np.maximum.reduceat(codes, starts)
    low = np.minimum.reduceat(np.where(codes < 0, np.int32(2**31 - 1), codes), starts)
    mixed = (joined >= 0) & (low < joined)
    known: dict[Values, int] = {value: code for code, value in enumerate(values)}
    parts: dict[int, set[str]] = {int(p): set() for p in np.flatnonzero(mixed)}
    for edge in np.flatnonzero(mixed[path] & (codes >= 0)):
        parts[int(path[edge])].update(values[codes[edge]])
    for number, found in parts.items():
        joined[number] = known.setdefault(tuple(sorted(found)), len(known))
    return joined, list(known)


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
