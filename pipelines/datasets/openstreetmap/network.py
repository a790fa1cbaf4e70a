"""The network of intersections and streets: OSMnx's construction and simplification, on arrays.

Built step by step like ``osmnx.graph_from_xml`` and ``graph_from_polygon``, with equal results
(``tests/pipelines/openstreetmap``) except where those depend on string hashes or the order of the
file: here several values of a tag on one street are sorted, and everything is ordered by
OpenStreetMap's numbers.

A country has 10^8 directed segments of ways. They are never in memory at once: :func:`segment_blocks` generates
them for each pass, a million references at a time, and a pass keeps arrays of a few bytes per node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from kmip_data.arrays import F64, I8, I32, I64, U8, Array, Bools
from kmip_data.graphs.elementary_functions import arcsine, sine_cosine
from kmip_data.pipelines.datasets.openstreetmap.extract import (
    UNITS_PER_DEGREE,
    VALUES,
    Values,
    Ways,
)
from kmip_data.runtime.memory import mapped_copy
from kmip_data.runtime.parallel import njit_nogil, run_in_ranges

if TYPE_CHECKING:
    from shapely import Geometry

EARTH_RADIUS = 6_371_009.0  #: metres, as OSMnx has it
BOTH = 2  #: value of ``oneway`` and ``reversed`` where only some segments of the street are
_EDGE_ARRAYS = ("source", "target", "length", "oneway", "reversed")
_AT_ONCE = 1 << 20  #: references of ways that are worked on together
_STREETS_AT_ONCE = 1 << 17
_MEASURED = 1 << 14  #: segments whose lengths are computed together: their arrays fit the L2 cache


@dataclass(frozen=True, kw_only=True)
class StreetGraph:
    """A directed multigraph of streets, nodes by OpenStreetMap's number; edges may be parallel."""

    node_id: I64  #: (N,) ascending
    lon: F64  #: (N,) degrees
    lat: F64
    source: I32  #: (E,) positions of nodes
    target: I32
    length: F64  #: (E,) metres
    oneway: I8  #: (E,) 0 no, 1 yes, :data:`BOTH`
    reversed: I8
    tags: Mapping[str, I32]  #: (E,) for each of ``VALUES``: position in ``values``, -1 without
    #: Distinct values of a tag; several on one street are a sorted tuple.
    values: Mapping[str, list[Values]]
    street_count: I64 | None = None  #: (N,) once it is known

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return len(self.node_id)

    @property
    def num_edges(self) -> int:
        """Number of directed edges, parallel ones and self loops counted."""
        return len(self.source)

    def keep_edges(self, chosen: I64) -> StreetGraph:
        """Return the graph with the edges at these positions (E,), in this order."""
        arrays = {name: getattr(self, name)[chosen] for name in _EDGE_ARRAYS}
        tags = {key: codes[chosen] for key, codes in self.tags.items()}
        return replace(self, tags=tags, **arrays)

    def keep_nodes(self, inside: Bools) -> StreetGraph:
        """Return the graph induced by the marked nodes (N,)."""
        number = np.cumsum(inside, dtype=np.int32) - 1
        graph = self.keep_edges(np.flatnonzero(inside[self.source] & inside[self.target]))
        street_count = self.street_count
        if street_count is not None:
            street_count = street_count[inside]
        return replace(
            graph,
            node_id=self.node_id[inside],
            lon=self.lon[inside],
            lat=self.lat[inside],
            source=number[graph.source],
            target=number[graph.target],
            street_count=street_count,
        )


#: Source, target, and ``2 * row + 1`` if it is a way backwards, else ``2 * row``.
StreetSegments = tuple[I32, I32, I32]
Network = TypeVar("Network", Ways, StreetGraph)


def segment_blocks(graph: Ways | StreetGraph) -> Iterator[StreetSegments]:
    """Yield all directed edges in order, one for each segment of a way between two nodes.

    Two-way segments also have a reverse. The order is OSMnx's: way by way, first all segments in one
    direction, then all in the other. Parts with a missing node are left out, which cuts the way.
    """
    if isinstance(graph, StreetGraph):
        yield graph.source, graph.target, 2 * np.arange(graph.num_edges, dtype=np.int32)
        return
    first = 0
    while first < len(graph):
        # Whole ways only, a million references together, but always at least one way.
        stop = int(np.searchsorted(graph.start, graph.start[first] + _AT_ONCE))
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
        # A one-way street has no segments back; -1 is one against the order of its nodes.
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
    """Return distances (n,) in metres on a sphere by the haversine formula, from degrees (n,).

    Degrees in, the same on any CPU.
    """
    y1, x1, y2, x2 = map(np.deg2rad, (lat1, lon1, lat2, lon2))
    north = sine_cosine((y2 - y1) / 2)[0]
    east = sine_cosine((x2 - x1) / 2)[0]
    half = north**2 + sine_cosine(y1)[1] * sine_cosine(y2)[1] * east**2
    return 2 * arcsine(np.sqrt(np.minimum(1, half))) * EARTH_RADIUS


def largest_component(graph: Network) -> Network:
    """Return the largest weakly connected component.

    Of equally large components, the component of the least node number.
    """
    if not graph.num_nodes:
        return graph
    component = component_of_nodes(graph)
    largest = np.bincount(component).argmax()
    inside = component == largest
    if inside.all():
        return graph
    return graph.keep_nodes(inside)


def component_of_nodes(graph: Ways | StreetGraph) -> I32:
    """Return the weakly connected component of each node, (N,), as the position of its least node."""
    least = np.arange(graph.num_nodes, dtype=np.int32)
    for source, target, _ in segment_blocks(graph):
        _unite_components(least, source, target)
    while (least[least] != least).any():
        least = least[least]
    return least


@njit_nogil()
def _unite_components(least: I32, source: I32, target: I32) -> None:
    """Unite sets of nodes, stored as trees rooted at their smallest node."""
    for i in range(len(source)):
        a = source[i]
        b = target[i]
        # Halve the path to the root on the way, so that trees stay flat.
        while least[a] != a:
            least[a] = a = least[least[a]]
        while least[b] != b:
            least[b] = b = least[least[b]]
        least[max(a, b)] = min(a, b)


def truncate_to_polygon(graph: Network, polygon: Geometry) -> Network:
    """Return the graph of the nodes inside ``polygon`` or on its border; streets are cut there."""
    import shapely

    # A prepared polygon has an index of its sides: every node is tested against it.
    shapely.prepare(polygon)
    return graph.keep_nodes(shapely.intersects_xy(polygon, graph.lon, graph.lat))


def map_to_disk(graph: StreetGraph, folder: Path) -> StreetGraph:
    """Return the graph with large arrays memory-mapped: each stage reads a part of a country's gigabyte."""
    large: dict[str, Any] = {}
    for name, values in vars(graph).items():
        if isinstance(values, np.ndarray):
            large[name] = mapped_copy(values, folder)
    tags = {key: mapped_copy(codes, folder) for key, codes in graph.tags.items()}
    return replace(graph, tags=tags, **large)


def count_streets(graph: StreetGraph) -> I64:
    """Return how many streets meet at each node, (N,) int64; a loop counts twice.

    Between two nodes there are as many streets as parallel edges in the direction that has more.
    """
    low = np.minimum(graph.source, graph.target)
    high = np.maximum(graph.source, graph.target)

    # The last bit is the direction, so the two directions of a pair lie next to each other when
    # sorted.
    pair = 2 * (low.astype(np.int64) * graph.num_nodes + high) + (graph.source > graph.target)
    pair, streets = np.unique(pair, return_counts=True)
    first = np.flatnonzero(np.diff(pair >> 1, prepend=-1))
    if len(first):
        streets = np.maximum.reduceat(streets, first)

    low, high = np.divmod(pair[first] >> 1, max(graph.num_nodes, 1))
    # Both directions of a loop are the same edge, and both of its ends are counted below.
    streets = np.where(low == high, 1, streets)
    at_low = np.bincount(low, streets, graph.num_nodes)
    at_high = np.bincount(high, streets, graph.num_nodes)
    return (at_low + at_high).astype(np.int64)


def simplify_graph(graph: Ways | StreetGraph) -> StreetGraph:
    """Join the edges between intersections and dead ends to one street each: ``osmnx.simplify_graph``.

    Removes nodes in between, and components that are a ring without intersections.
    """
    near, onward, endpoint, linked = street_neighbours(graph)

    # 1. Streets begin with the first segment from an endpoint to each neighbour that is none. Only
    #    these segments are in memory: the 10^8 of a country are made anew for each pass.
    begins = [np.empty((3, 0), np.int32)]
    for segments in segment_blocks(graph):
        starts = endpoint[segments[0]] & ~endpoint[segments[1]]
        begins.append(np.stack(segments)[:, starts])
    source, target, edge = np.concatenate(begins, axis=1)
    del begins
    # Parallel segments to one neighbour begin one street, the first one's.
    pair = source.astype(np.int64) * graph.num_nodes + target
    first = np.unique(pair, return_index=True)[1]

    # 2. Follow them, a batch at a time, and mark the nodes that they pass.
    passed = np.zeros(graph.num_nodes, np.bool_)
    known = {}
    for key, values in graph.values.items():
        known[key] = {value: code for code, value in enumerate(values)}
    streets = []
    for batch in np.array_split(first, len(first) // _STREETS_AT_ONCE + 1):
        if not len(batch):
            continue
        ptr, steps = follow_streets(
            source[batch], target[batch], edge[batch], near, onward, endpoint, passed
        )
        streets.append(_join_to_streets(_segment_columns(graph, *steps), ptr, graph.values, known))
    del near, onward, source, target, edge, first

    # 3. Parts between nodes that no street passed are streets already; they come first.
    pieces = [_segment_columns(graph, *np.empty((3, 0), np.int32))]
    for source, target, edge in segment_blocks(graph):
        straight = np.flatnonzero(~(passed[source] | passed[target]))
        pieces.append(_segment_columns(graph, source[straight], target[straight], edge[straight]))
    pieces += streets
    del streets
    joined = {}
    for key in (*_EDGE_ARRAYS, *VALUES):
        # Free the arrays of pieces as they are joined, so that only one array exists twice.
        joined[key] = np.concatenate([piece.pop(key) for piece in pieces])

    # 4. Renumber the remaining nodes.
    lasting = linked & ~passed
    both_ends = lasting[joined["source"]] & lasting[joined["target"]]
    number = np.cumsum(lasting, dtype=np.int32) - 1
    joined["source"] = number[joined["source"]]
    joined["target"] = number[joined["target"]]
    simple = StreetGraph(
        node_id=graph.node_id[lasting],
        lon=graph.lon[lasting],
        lat=graph.lat[lasting],
        tags={key: joined.pop(key) for key in VALUES},
        values={key: [*values] for key, values in known.items()},
        **joined,
    )
    if not both_ends.all():
        simple = simple.keep_edges(np.flatnonzero(both_ends))

    # 5. Drop components without an endpoint, which are rings.
    component = component_of_nodes(simple)
    crossing = np.zeros(simple.num_nodes, np.bool_)
    crossing[component[street_neighbours(simple)[2]]] = True
    crossing = crossing[component]
    if crossing.all():
        return simple
    return simple.keep_nodes(crossing)


def street_neighbours(graph: Ways | StreetGraph) -> tuple[I32, I32, Bools, Bools]:
    """Return arrays by node for following streets: ``near, onward, endpoint, linked``.

    ``endpoint`` marks intersections and dead ends, (N,) bool. A node is one unless it has exactly
    two neighbours, other than itself, and either two or four edges, of which at least one comes in
    and one goes out. ``near`` are the first two neighbours, (N, 2), and ``onward`` is the first
    segment to each, -1 without one. ``linked`` marks nodes with an edge.
    """
    # Per node only two neighbours and two small counts are stored: 18 bytes, for any number of
    # edges.
    near = np.full((graph.num_nodes, 2), -1, np.int32)
    onward = np.full((graph.num_nodes, 2), -1, np.int32)
    out = np.zeros(graph.num_nodes, np.uint8)
    into = np.zeros(graph.num_nodes, np.uint8)
    for segments in segment_blocks(graph):
        _note_neighbours(*segments, near, onward, out, into)

    edges = out + into
    two_neighbours = near[:, 1] >= 0
    two_or_four_edges = (edges == 2) | (edges == 4)
    between = two_neighbours & two_or_four_edges & (out > 0) & (into > 0)
    return near, onward, ~between, edges > 0


@njit_nogil()
def _note_neighbours(
    source: I32,
    target: I32,
    edge: I32,
    near: I32,
    onward: I32,
    out: U8,
    into: U8,
) -> None:
    """Count edges in and out, up to 5; loops and third neighbours, which make endpoints, set ``out`` to 5."""
    for i in range(len(source)):
        out[source[i]] = 5 if source[i] == target[i] else min(out[source[i]] + 1, 5)
        into[target[i]] = min(into[target[i]] + 1, 5)
        for end in range(2 if source[i] != target[i] else 0):
            node = target[i] if end else source[i]
            other = source[i] if end else target[i]
            slot = 0 if near[node, 0] < 0 or near[node, 0] == other else 1
            if near[node, slot] < 0 or near[node, slot] == other:
                near[node, slot] = other
                if end == 0 and onward[node, slot] < 0:
                    onward[node, slot] = edge[i]
            else:  # a third neighbour
                out[node] = 5


def _segment_columns(
    graph: Ways | StreetGraph,
    source: I32,
    target: I32,
    edge: I32,
) -> dict[str, Array]:
    """Return ends, length, flags and tags of edges."""
    row = edge >> 1
    tags = {key: codes[row] for key, codes in graph.tags.items()}
    if isinstance(graph, StreetGraph):
        arrays = {name: getattr(graph, name)[row] for name in _EDGE_ARRAYS}
        return {**arrays, **tags}

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

    run_in_ranges(measure, len(source), grain=_MEASURED, most=_MEASURED)
    return {
        "source": source,
        "target": target,
        "length": length,
        "oneway": (graph.direction[row] != 0).astype(np.int8),
        "reversed": (edge & 1).astype(np.int8),
        **tags,
    }


def _join_to_streets(
    steps: dict[str, Array],
    ptr: I64,
    values: Mapping[str, list[Values]],
    known: dict[str, dict[Values, int]],
) -> dict[str, Array]:
    """Return one edge a street: lengths added up, values collected.

    New ones are added to ``known``.
    """
    # The street of each step; bincount adds lengths in the order of the steps.
    street = np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))
    starts = ptr[:-1]
    joined = {
        "source": steps["source"][starts],
        "target": steps["target"][ptr[1:] - 1],
        "length": np.bincount(street, weights=steps["length"]),
        "oneway": _street_flags(steps["oneway"], starts),
        "reversed": _street_flags(steps["reversed"], starts),
    }
    for key in VALUES:
        joined[key] = _street_codes(steps[key], starts, street, values[key], known[key])
    return joined


def _street_flags(flags: I8, starts: I64) -> I8:
    low = np.minimum.reduceat(flags, starts)
    high = np.maximum.reduceat(flags, starts)
    return np.where(low == high, low, np.int8(BOTH))


def _street_codes(
    codes: I32,
    starts: I64,
    street: I64,
    values: list[Values],
    known: dict[Values, int],
) -> I32:
    """Return one code a street: the code of its value, or of the tuple of its sorted distinct values."""
    # Most streets have one value: the least and the greatest code are equal, no Python is needed.
    joined = np.maximum.reduceat(codes, starts)
    low = np.minimum.reduceat(np.where(codes < 0, np.int32(2**31 - 1), codes), starts)
    mixed = (joined >= 0) & (low < joined)

    # The distinct values of each other street, one street after the other.
    steps = np.flatnonzero(mixed[street] & (codes >= 0))
    pair = np.unique(street[steps] * len(values) + codes[steps])
    owner, code = np.divmod(pair, max(len(values), 1))
    bounds = [*np.flatnonzero(np.diff(owner, prepend=-1)).tolist(), len(pair)]

    # Few combinations serve many streets: each is sorted once.
    code_of = {}
    codes_in_turn = code.tolist()
    mixed_streets = owner[bounds[:-1]].tolist()
    for number, first, stop in zip(
        mixed_streets,
        bounds,
        bounds[1:],
        strict=False,
    ):
        combination = tuple(codes_in_turn[first:stop])
        if combination not in code_of:
            texts = set()
            for position in combination:
                texts.update(values[position])
            code_of[combination] = known.setdefault(tuple(sorted(texts)), len(known))
        joined[number] = code_of[combination]
    return joined


@njit_nogil()
def follow_streets(
    source: I32,
    target: I32,
    edge: I32,
    near: I32,
    onward: I32,
    endpoint: Bools,
    passed: Bools,
) -> tuple[I64, I32]:
    """Follow each street from its first edge (S,) over other nodes to the next endpoint.

    Return ``ptr, steps``: street s has the segments ``steps[:, ptr[s]:ptr[s + 1]]``, each with source,
    target and edge. The nodes between its ends are marked in ``passed``.
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
            if endpoint[node]:
                break
            # It has two neighbours, so the other one is next, even if the street returns to its
            # start.
            slot = 1 if near[node, 0] == previous else 0
            segment = onward[node, slot]
            if segment < 0:
                break  # one-way streets that meet head-on
            passed[node] = True
            previous = node
            node = near[node, slot]
        ptr[street + 1] = size
    return ptr, steps[:, :size].copy()
