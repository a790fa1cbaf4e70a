"""Read a street graph from GraphML as ``osmnx.save_graphml`` writes it, by networkx.

Values are the text that OSMnx wrote; lists (``"['2', '3']"``) are read as literals, never
evaluated. Document types are refused, as they serve entities that expand to gigabytes.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError

import numpy as np

from kmip_data.errors import DamagedInput
from kmip_data.pipelines.datasets.openstreetmap.extract import VALUES, Values, factorize
from kmip_data.pipelines.datasets.openstreetmap.network import (
    BOTH,
    StreetGraph,
    great_circle,
    largest_component,
    simplify_graph,
)

_FLAGS = {"False": 0, "True": 1, "0": 0, "1": 1}
_LONGEST_LIST = 10_000  #: characters of a list that is read as a literal
_SHORT = 0.9  #: least length of a street, in distances of its ends
_MAX_SHORT = 0.05  #: most streets that are shorter
_NEXT = "write it with osmnx.save_graphml, unprojected"
_HEAD = 1 << 16  #: bytes searched for a document type


def read_graphml(path: Path, *, name: str | None = None) -> StreetGraph:
    """Return the largest component of the graph in ``path``, simplified if it is not yet."""
    import networkx as nx

    name = name or path.name
    with path.open("rb") as file:
        if b"<!DOCTYPE" in file.read(_HEAD):
            raise DamagedInput(f"{name} declares a document type.", next=_NEXT)
    try:
        # Integers sort as OpenStreetMap's numbers do; parallel edges keep their order in the file.
        multigraph = nx.read_graphml(path, node_type=int, force_multigraph=True)
        graph = largest_component(_street_graph(multigraph))
    except (
        ParseError,
        nx.NetworkXError,
        ValueError,
        LookupError,
        TypeError,
        OverflowError,
    ) as error:
        raise DamagedInput(
            f"{name} cannot be read as a street graph: {error or type(error).__name__}",
            next=_NEXT,
        ) from error
    # OSMnx marks a graph once it is simplified.
    if str(multigraph.graph.get("simplified")) not in {"True", "1"}:
        graph = largest_component(simplify_graph(graph))
    return graph


def _street_graph(graph: Any) -> StreetGraph:
    """Return the arrays of a networkx graph."""
    if not graph.number_of_edges() or not graph.is_directed():
        raise ValueError("it is not a directed graph with streets")

    nodes = sorted(graph.nodes(data=True))
    ids = np.array([number for number, _ in nodes], np.int64)
    lon = np.array([_read_float(data, "x", f"node {number}") for number, data in nodes], np.float64)
    lat = np.array([_read_float(data, "y", f"node {number}") for number, data in nodes], np.float64)
    outside = (np.abs(lon) > 180) | (np.abs(lat) > 90)
    if outside.any():
        i = int(outside.argmax())
        raise ValueError(f"node {ids[i]} is not on the map: {lon[i]}, {lat[i]} degrees")
    street_count = None
    # OSMnx writes the counts of simplified graphs; if any is missing, count again.
    counts = [str(data.get("street_count", "")) for _, data in nodes]
    if all(map(str.isdecimal, counts)):
        street_count = np.array([int(text) for text in counts])

    *ends, rows = zip(*graph.edges(data=True), strict=True)
    lengths = np.array([_read_float(data, "length", f"edge {i}") for i, data in enumerate(rows)])
    if (lengths < 0).any():
        raise ValueError(f"a street has a negative length: {lengths.min()}")
    tags = {}
    values = {}
    for key in VALUES:
        tags[key], values[key] = factorize([_sorted_values(data.get(key)) for data in rows], ())
    source, target = np.searchsorted(ids, np.array(ends, np.int64)).astype(np.int32)
    direct = great_circle(lat[source], lon[source], lat[target], lon[target])
    short = (lengths < _SHORT * direct).mean()
    if short > _MAX_SHORT:
        raise ValueError(
            f"{short:.0%} of the streets are shorter than the distance between their ends: x is the longitude, "
            "y the latitude, in degrees, and length is in metres"
        )
    return StreetGraph(
        node_id=ids,
        lon=lon,
        lat=lat,
        source=source,
        target=target,
        length=lengths,
        oneway=np.array([_read_flag(data.get("oneway")) for data in rows], np.int8),
        reversed=np.array([_read_flag(data.get("reversed")) for data in rows], np.int8),
        tags=tags,
        values=values,
        street_count=street_count,
    )


def _read_float(data: Mapping[str, str | float], key: str, where: str) -> float:
    try:
        value = float(data.get(key, math.nan))
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{key} of {where} is {str(data.get(key, 'missing'))[:40]!r}")
    return value


def _sorted_values(value: object) -> Values:
    """Return the sorted values of a tag: none, one, or a list's."""
    text = str(value)
    if text in {"", "nan", "None"}:
        return ()
    if text.startswith("[") and len(text) <= _LONGEST_LIST:
        try:
            several = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return (text,)
        if isinstance(several, list):
            return tuple(sorted({str(value) for value in several}))
    return (text,)


def _read_flag(value: object) -> int:
    flags = {_FLAGS.get(text, 0) for text in _sorted_values(value)}
    if len(flags) > 1:
        return BOTH
    return next(iter(flags), 0)
