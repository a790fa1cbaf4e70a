"""Street network of intersections and streets: OSMnx's construction and simplification on arrays.

Follows ``osmnx.graph_from_xml`` and ``graph_from_polygon`` step by step, with equal results
(``tests/pipelines/openstreetmap``) unless OSMnx's depend on string hashes or file order. Here the
values of a tag on one street are sorted, and everything is ordered by OpenStreetMap id.

A country has 10^8 directed way segments, too many for memory. :func:`segment_batches` regenerates
them for each pass, a million references at a time, and a pass keeps a few bytes per node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from kmip_data.arrays import F64, I8, I32, I64, U8, Array, Bools
from kmip_data.graphs.elementary_functions import arcsine, sine_cosine
from kmip_data.pipelines.datasets.openstreetmap.bends import visible_bends
from kmip_data.pipelines.datasets.openstreetmap.extract import (
    UNITS_PER_DEGREE,
    VALUE_TAGS,
    TagValues,
    Ways,
)
from kmip_data.runtime.memory import mapped_copy
from kmip_data.runtime.parallel import njit_nogil, run_in_ranges

if TYPE_CHECKING:
    from shapely import Geometry

EARTH_RADIUS_METRES = 6_371_009.0  #: as in OSMnx
MIXED = 2  #: ``oneway`` and ``reversed`` of a street whose segments differ
_EDGE_ARRAYS = ("source", "target", "length", "oneway", "reversed")
_REFERENCES_PER_BATCH = 1 << 20
_STREETS_PER_BATCH = 1 << 17
_SEGMENTS_PER_TASK = 1 << 14  #: segments measured together; their arrays fit the L2 cache


@dataclass(frozen=True, kw_only=True)
class StreetGraph:
    """Directed multigraph of streets, with nodes ordered by OpenStreetMap id."""

    node_id: I64  #: (N,) ascending
    lon: F64  #: (N,) degrees
    lat: F64
    source: I32  #: (E,) node positions
    target: I32
    length: F64  #: (E,) metres
    oneway: I8  #: (E,) 0 no, 1 yes, or :data:`MIXED`
    reversed: I8
    #: (E,) per tag of ``VALUE_TAGS``: position in ``tag_values``, -1 if missing
    tag_codes: Mapping[str, I32]
    tag_values: Mapping[str, list[TagValues]]  #: distinct values of each tag on one street
    street_count: I64 | None = None  #: (N,) streets at each node, once computed
    #: ids of both ends of each visibly bent street -> longitude and latitude of its bends, (n, 2)
    bends: Mapping[tuple[int, int], F64] = field(default_factory=dict)

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return len(self.node_id)

    @property
    def num_edges(self) -> int:
        """Number of directed edges, including parallel edges and self-loops."""
        return len(self.source)

    def keep_edges(self, positions: I64) -> StreetGraph:
        """Return the graph with the edges at these positions (E,), in this order."""
        arrays = {name: getattr(self, name)[positions] for name in _EDGE_ARRAYS}
        tag_codes = {key: codes[positions] for key, codes in self.tag_codes.items()}
        return replace(self, tag_codes=tag_codes, **arrays)

    def keep_nodes(self, mask: Bools) -> StreetGraph:
        """Return the subgraph induced by the masked nodes (N,)."""
        new_position = np.cumsum(mask, dtype=np.int32) - 1
        graph = self.keep_edges(np.flatnonzero(mask[self.source] & mask[self.target]))
        street_count = self.street_count
        if street_count is not None:
            street_count = street_count[mask]
        return replace(
            graph,
            node_id=self.node_id[mask],
            lon=self.lon[mask],
            lat=self.lat[mask],
            source=new_position[graph.source],
            target=new_position[graph.target],
            street_count=street_count,
        )


#: Source, target, and ``2 * row`` of a forward or ``2 * row + 1`` of a backward segment.
StreetSegments = tuple[I32, I32, I32]
Network = TypeVar("Network", Ways, StreetGraph)


def segment_batches(graph: Ways | StreetGraph) -> Iterator[StreetSegments]:
    """Yield all directed edges in batches, one edge per way segment and direction.

    The order is OSMnx's: way by way, all forward segments before the backward ones. A segment with
    a missing node is left out, which cuts the way.
    """
    if isinstance(graph, StreetGraph):
        yield graph.source, graph.target, 2 * np.arange(graph.num_edges, dtype=np.int32)
        return
    first = 0
    while first < len(graph):
        # A batch has only complete ways, and at least one.
        stop = int(np.searchsorted(graph.start, graph.start[first] + _REFERENCES_PER_BATCH))
        stop = min(max(stop, first + 1), len(graph))
        edges = np.empty((3, 2 * (graph.start[stop] - graph.start[first])), np.int32)
        size = _expand_ways(graph.start, graph.node, graph.direction, first, stop, edges)
        yield edges[0, :size], edges[1, :size], edges[2, :size]
        first = stop


@njit_nogil()
def _expand_ways(
    start: I64,
    node: I32,
    direction: I8,
    first: int,
    stop: int,
    edges: I32,
) -> int:
    size = 0
    for way in range(first, stop):
        # A one-way street has no backward segments; -1 runs against the order of its nodes.
        for back in range(1 if direction[way] else 2):
            swapped = 1 if back or direction[way] < 0 else 0
            for i in range(start[way], start[way + 1] - 1):
                if node[i] >= 0 and node[i + 1] >= 0:
                    edges[swapped, size] = node[i]
                    edges[1 - swapped, size] = node[i + 1]
                    edges[2, size] = 2 * way + back
                    size += 1
    return size


def great_circle(
    lat1: F64,
    lon1: F64,
    lat2: F64,
    lon2: F64,
) -> F64:
    """Return haversine distances (n,) in metres between points in degrees, equal on every CPU."""
    y1, x1, y2, x2 = map(np.deg2rad, (lat1, lon1, lat2, lon2))
    north = sine_cosine((y2 - y1) / 2)[0]
    east = sine_cosine((x2 - x1) / 2)[0]
    half = north**2 + sine_cosine(y1)[1] * sine_cosine(y2)[1] * east**2
    return 2 * arcsine(np.sqrt(np.minimum(1, half))) * EARTH_RADIUS_METRES


def largest_component(graph: Network) -> Network:
    """Return the largest weakly connected component; on a tie, the one with the smallest id."""
    if not graph.num_nodes:
        return graph
    component = weak_components(graph)
    largest = np.bincount(component).argmax()
    in_largest = component == largest
    if in_largest.all():
        return graph
    return graph.keep_nodes(in_largest)


def weak_components(graph: Ways | StreetGraph) -> I32:
    """Return the smallest position in the weakly connected component of each node, (N,)."""
    parent = np.arange(graph.num_nodes, dtype=np.int32)
    for source, target, _ in segment_batches(graph):
        _unite_components(parent, source, target)
    while (parent[parent] != parent).any():
        parent = parent[parent]
    return parent


@njit_nogil()
def _unite_components(parent: I32, source: I32, target: I32) -> None:
    """Unite the sets of each edge's ends, stored as trees rooted at their smallest node."""
    for i in range(len(source)):
        a = source[i]
        b = target[i]
        # Halve the path to the root on the way to keep trees flat.
        while parent[a] != a:
            parent[a] = a = parent[parent[a]]
        while parent[b] != b:
            parent[b] = b = parent[parent[b]]
        parent[max(a, b)] = min(a, b)


def truncate_to_polygon(graph: Network, polygon: Geometry) -> Network:
    """Return the subgraph of the nodes inside ``polygon`` or on its border."""
    import shapely

    # Preparing indexes the polygon's sides, against which every node is tested.
    shapely.prepare(polygon)
    return graph.keep_nodes(shapely.intersects_xy(polygon, graph.lon, graph.lat))


def map_to_disk(graph: StreetGraph, folder: Path) -> StreetGraph:
    """Return the graph with memory-mapped arrays: a country takes a gigabyte, read in parts."""
    arrays: dict[str, Any] = {}
    for name, values in vars(graph).items():
        if isinstance(values, np.ndarray):
            arrays[name] = mapped_copy(values, folder)
    tag_codes = {key: mapped_copy(codes, folder) for key, codes in graph.tag_codes.items()}
    return replace(graph, tag_codes=tag_codes, **arrays)


def count_streets(graph: StreetGraph) -> I64:
    """Return the number of streets at each node, (N,) int64; a self-loop counts twice.

    Parallel edges between two nodes are counted in the direction that has more.
    """
    low = np.minimum(graph.source, graph.target)
    high = np.maximum(graph.source, graph.target)

    # The last bit is the direction, so sorting puts both directions of a pair side by side.
    pair = 2 * (low.astype(np.int64) * graph.num_nodes + high) + (graph.source > graph.target)
    pair, streets = np.unique(pair, return_counts=True)
    first = np.flatnonzero(np.diff(pair >> 1, prepend=-1))
    if len(first):
        streets = np.maximum.reduceat(streets, first)

    low, high = np.divmod(pair[first] >> 1, max(graph.num_nodes, 1))
    # Both directions of a self-loop are one edge, and both of its ends are counted below.
    streets = np.where(low == high, 1, streets)
    at_low = np.bincount(low, streets, graph.num_nodes)
    at_high = np.bincount(high, streets, graph.num_nodes)
    return (at_low + at_high).astype(np.int64)


def simplify_graph(graph: Ways | StreetGraph) -> StreetGraph:
    """Join the edges between intersections and dead ends into streets: ``osmnx.simplify_graph``.

    Removes the nodes in between, and rings without intersections.
    """
    nodes = street_nodes(graph)

    # 1. Find the first segment of each street.
    starts = _street_starts(graph, nodes.is_endpoint)

    # 2. Follow the streets in batches, marking the nodes that they pass.
    passed = np.zeros(graph.num_nodes, np.bool_)
    value_codes = {}
    for key, values in graph.tag_values.items():
        value_codes[key] = {value: code for code, value in enumerate(values)}
    streets = []
    bends: dict[tuple[int, int], F64] = {}
    for batch in np.array_split(starts, starts.shape[1] // _STREETS_PER_BATCH + 1, axis=1):
        if not batch.size:
            continue
        source, target, edge = batch
        ptr, steps = follow_streets(
            source,
            target,
            edge,
            nodes.neighbours,
            nodes.edge_to_neighbour,
            nodes.is_endpoint,
            passed,
        )
        columns = _segment_columns(graph, *steps)
        streets.append(_join_streets(columns, ptr, graph.tag_values, value_codes))
        if isinstance(graph, Ways):
            bends |= visible_bends(graph, ptr, steps)
    kept = nodes.has_edges & ~passed
    del nodes, starts

    # 3. Segments between nodes that no street passed are already streets; they come first.
    pieces = [_segment_columns(graph, *np.empty((3, 0), np.int32))]
    for source, target, edge in segment_batches(graph):
        is_street = ~(passed[source] | passed[target])
        pieces.append(
            _segment_columns(graph, source[is_street], target[is_street], edge[is_street])
        )
    pieces += streets
    del streets
    joined = {}
    for key in (*_EDGE_ARRAYS, *VALUE_TAGS):
        # Free the pieces while joining, so that only one column is in memory twice.
        joined[key] = np.concatenate([piece.pop(key) for piece in pieces])

    # 4. Renumber the remaining nodes.
    both_ends_kept = kept[joined["source"]] & kept[joined["target"]]
    new_position = np.cumsum(kept, dtype=np.int32) - 1
    joined["source"] = new_position[joined["source"]]
    joined["target"] = new_position[joined["target"]]
    simplified = StreetGraph(
        node_id=graph.node_id[kept],
        lon=graph.lon[kept],
        lat=graph.lat[kept],
        tag_codes={key: joined.pop(key) for key in VALUE_TAGS},
        tag_values={key: [*codes] for key, codes in value_codes.items()},
        bends=bends,
        **joined,
    )
    if not both_ends_kept.all():
        simplified = simplified.keep_edges(np.flatnonzero(both_ends_kept))

    # 5. Drop components without an endpoint, which are rings.
    component = weak_components(simplified)
    has_endpoint = np.zeros(simplified.num_nodes, np.bool_)
    has_endpoint[component[street_nodes(simplified).is_endpoint]] = True
    has_endpoint = has_endpoint[component]
    if has_endpoint.all():
        return simplified
    return simplified.keep_nodes(has_endpoint)


def _street_starts(graph: Ways | StreetGraph, is_endpoint: Bools) -> I32:
    """Return source, target and edge of the segments that begin streets, (3, S).

    A street begins with a segment from an endpoint to a node that is not one. Only these are kept:
    the 10^8 segments of a country are regenerated for each pass.
    """
    batches = [np.empty((3, 0), np.int32)]
    for segments in segment_batches(graph):
        begins_street = is_endpoint[segments[0]] & ~is_endpoint[segments[1]]
        batches.append(np.stack(segments)[:, begins_street])
    starts = np.concatenate(batches, axis=1)

    # Parallel segments to one neighbour begin a single street, the first segment's.
    pair = starts[0].astype(np.int64) * graph.num_nodes + starts[1]
    first = np.unique(pair, return_index=True)[1]
    return np.ascontiguousarray(starts[:, first])


class StreetNodes(NamedTuple):
    """Arrays by node for following streets."""

    neighbours: I32  #: (N, 2) first two neighbours, -1 if missing
    edge_to_neighbour: I32  #: (N, 2) first edge to each neighbour, -1 if missing
    is_endpoint: Bools  #: (N,) intersections and dead ends
    has_edges: Bools  #: (N,)


def street_nodes(graph: Ways | StreetGraph) -> StreetNodes:
    """Return the neighbours of each node, and the nodes where streets end.

    A node lies within a street if it has exactly two neighbours other than itself, two or four
    edges, and at least one edge in each direction. All others are endpoints.
    """
    # Two neighbours and two small counts take 18 bytes per node for any number of edges.
    neighbours = np.full((graph.num_nodes, 2), -1, np.int32)
    edge_to_neighbour = np.full((graph.num_nodes, 2), -1, np.int32)
    out_degree = np.zeros(graph.num_nodes, np.uint8)
    in_degree = np.zeros(graph.num_nodes, np.uint8)
    for segments in segment_batches(graph):
        _fill_neighbours_and_degrees(
            *segments, neighbours, edge_to_neighbour, out_degree, in_degree
        )

    degree = out_degree + in_degree
    two_neighbours = neighbours[:, 1] >= 0
    two_or_four_edges = (degree == 2) | (degree == 4)
    within_street = two_neighbours & two_or_four_edges & (out_degree > 0) & (in_degree > 0)
    return StreetNodes(neighbours, edge_to_neighbour, ~within_street, degree > 0)


@njit_nogil()
def _fill_neighbours_and_degrees(
    source: I32,
    target: I32,
    edge: I32,
    neighbours: I32,
    edge_to_neighbour: I32,
    out_degree: U8,
    in_degree: U8,
) -> None:
    """Count edges up to 5. Self-loops and third neighbours set ``out_degree`` to 5: an endpoint."""
    for i in range(len(source)):
        is_loop = source[i] == target[i]
        out_degree[source[i]] = 5 if is_loop else min(out_degree[source[i]] + 1, 5)
        in_degree[target[i]] = min(in_degree[target[i]] + 1, 5)
        for end in range(0 if is_loop else 2):
            node = target[i] if end else source[i]
            other = source[i] if end else target[i]
            slot = 0 if neighbours[node, 0] < 0 or neighbours[node, 0] == other else 1
            if neighbours[node, slot] < 0 or neighbours[node, slot] == other:
                neighbours[node, slot] = other
                if end == 0 and edge_to_neighbour[node, slot] < 0:
                    edge_to_neighbour[node, slot] = edge[i]
            else:  # a third neighbour
                out_degree[node] = 5


def _segment_columns(
    graph: Ways | StreetGraph,
    source: I32,
    target: I32,
    edge: I32,
) -> dict[str, Array]:
    """Return the ends, lengths, flags and tags of edges."""
    row = edge >> 1
    tag_codes = {key: codes[row] for key, codes in graph.tag_codes.items()}
    if isinstance(graph, StreetGraph):
        arrays = {name: getattr(graph, name)[row] for name in _EDGE_ARRAYS}
        return {**arrays, **tag_codes}

    length = np.empty(len(source))

    def measure(start: int, stop: int) -> None:
        tail = source[start:stop]
        head = target[start:stop]
        length[start:stop] = great_circle(
            graph.y[tail] / UNITS_PER_DEGREE,
            graph.x[tail] / UNITS_PER_DEGREE,
            graph.y[head] / UNITS_PER_DEGREE,
            graph.x[head] / UNITS_PER_DEGREE,
        )

    run_in_ranges(measure, len(source), grain=_SEGMENTS_PER_TASK, max_rows=_SEGMENTS_PER_TASK)
    return {
        "source": source,
        "target": target,
        "length": length,
        "oneway": (graph.direction[row] != 0).astype(np.int8),
        "reversed": (edge & 1).astype(np.int8),
        **tag_codes,
    }


def _join_streets(
    steps: dict[str, Array],
    ptr: I64,
    values: Mapping[str, list[TagValues]],
    value_codes: dict[str, dict[TagValues, int]],
) -> dict[str, Array]:
    """Return one edge per street: sum lengths, combine values; add new values to ``value_codes``."""
    # bincount adds lengths in the order of the steps.
    street = np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))
    starts = ptr[:-1]
    joined = {
        "source": steps["source"][starts],
        "target": steps["target"][ptr[1:] - 1],
        "length": np.bincount(street, weights=steps["length"]),
        "oneway": _join_flags(steps["oneway"], starts),
        "reversed": _join_flags(steps["reversed"], starts),
    }
    for key in VALUE_TAGS:
        joined[key] = _join_values(steps[key], starts, street, values[key], value_codes[key])
    return joined


def _join_flags(flags: I8, starts: I64) -> I8:
    low = np.minimum.reduceat(flags, starts)
    high = np.maximum.reduceat(flags, starts)
    return np.where(low == high, low, np.int8(MIXED))


def _join_values(
    codes: I32,
    starts: I64,
    street: I64,
    values: list[TagValues],
    value_codes: dict[TagValues, int],
) -> I32:
    """Return one code per street, of the sorted tuple of its distinct values."""
    # Most streets have one value: their smallest and largest codes are equal, no loop is needed.
    joined = np.maximum.reduceat(codes, starts)
    low = np.minimum.reduceat(np.where(codes < 0, np.int32(2**31 - 1), codes), starts)
    is_mixed = (joined >= 0) & (low < joined)

    # List the distinct codes of the other streets, street by street.
    steps = np.flatnonzero(is_mixed[street] & (codes >= 0))
    pair = np.unique(street[steps] * len(values) + codes[steps])
    pair_street, pair_code = np.divmod(pair, max(len(values), 1))
    bounds = [*np.flatnonzero(np.diff(pair_street, prepend=-1)).tolist(), len(pair)]

    # Many streets share a few combinations, so sort each combination once.
    combination_codes = {}
    pair_codes = pair_code.tolist()
    mixed_streets = pair_street[bounds[:-1]].tolist()
    for mixed_street, first, stop in zip(mixed_streets, bounds, bounds[1:], strict=False):
        combination = tuple(pair_codes[first:stop])
        if combination not in combination_codes:
            strings = set()
            for code in combination:
                strings.update(values[code])
            key = tuple(sorted(strings))
            combination_codes[combination] = value_codes.setdefault(key, len(value_codes))
        joined[mixed_street] = combination_codes[combination]
    return joined


@njit_nogil()
def follow_streets(
    source: I32,
    target: I32,
    edge: I32,
    neighbours: I32,
    edge_to_neighbour: I32,
    is_endpoint: Bools,
    passed: Bools,
) -> tuple[I64, I32]:
    """Follow each street from its first edge (S,) to the next endpoint.

    Return ``ptr, steps``: street s has the segments ``steps[:, ptr[s]:ptr[s + 1]]``, each with
    source, target and edge. Mark the nodes between its ends in ``passed``.
    """
    ptr = np.zeros(len(source) + 1, np.int64)
    steps = np.empty((3, 4 * len(source) + 1), np.int32)
    size = 0
    for street in range(len(source)):
        previous = source[street]
        node = target[street]
        segment = edge[street]
        while True:
            if size == steps.shape[1]:
                steps = np.concatenate((steps, np.empty_like(steps)), axis=1)
            steps[0, size] = previous
            steps[1, size] = node
            steps[2, size] = segment
            size += 1
            if is_endpoint[node]:
                break
            # The node has two neighbours; go on to the other one, even back to the start.
            slot = 1 if neighbours[node, 0] == previous else 0
            segment = edge_to_neighbour[node, slot]
            if segment < 0:
                break  # one-way streets that meet head-on
            passed[node] = True
            previous = node
            node = neighbours[node, slot]
        ptr[street + 1] = size
    return ptr, steps[:, :size].copy()
