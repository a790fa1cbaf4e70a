"""Read a street graph from GraphML, as written by ``osmnx.save_graphml``, with networkx.

Lists that OSMnx wrote as strings (``"['2', '3']"``) are parsed as literals, never evaluated.
Document types are rejected, because their entities can expand to gigabytes.
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
from kmip_data.pipelines.datasets.openstreetmap.extract import VALUE_TAGS, TagValues, factorize
from kmip_data.pipelines.datasets.openstreetmap.network import (
    MIXED,
    StreetGraph,
    great_circle,
    largest_component,
    simplify_graph,
)

_FLAGS = {"False": 0, "True": 1, "0": 0, "1": 1}
_MAX_LIST_CHARACTERS = 10_000  #: longest list that is parsed as a literal
_MIN_DETOUR = 0.9  #: minimum ratio of a street's length to the distance between its ends
_MAX_SHORT_FRACTION = 0.05  #: maximum fraction of streets below that ratio
_REMEDY = "write it with osmnx.save_graphml, unprojected and without settings.all_oneway"
_DOCTYPE_BYTES = 1 << 16  #: bytes searched for a document type


def read_street_graphml(path: Path, *, name: str | None = None) -> StreetGraph:
    """Return the largest component of the graph in ``path``, simplified if needed."""
    import networkx as nx

    name = name or path.name
    with path.open("rb") as file:
        if b"<!DOCTYPE" in file.read(_DOCTYPE_BYTES):
            raise DamagedInput(f"{name} declares a document type.", steps=_REMEDY)
    try:
        # Integer nodes sort like OpenStreetMap ids; parallel edges keep their file order.
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
            steps=_REMEDY,
        ) from error
    # OSMnx marks simplified graphs.
    if str(multigraph.graph.get("simplified")) not in {"True", "1"}:
        graph = largest_component(simplify_graph(graph))
    return graph


def _street_graph(graph: Any) -> StreetGraph:
    """Convert a networkx graph to arrays."""
    if not graph.number_of_edges() or not graph.is_directed():
        raise ValueError("it is not a directed graph with streets")

    nodes = sorted(graph.nodes(data=True))
    ids = np.array([node for node, _ in nodes], np.int64)
    lon = np.array([_read_float(data, "x", f"node {node}") for node, data in nodes], np.float64)
    lat = np.array([_read_float(data, "y", f"node {node}") for node, data in nodes], np.float64)
    outside = (np.abs(lon) > 180) | (np.abs(lat) > 90)
    if outside.any():
        i = int(outside.argmax())
        raise ValueError(f"node {ids[i]} is not on the map: {lon[i]}, {lat[i]} degrees")
    street_count = None
    # OSMnx stores the counts of simplified graphs; recount if any is missing.
    counts = [str(data.get("street_count", "")) for _, data in nodes]
    if all(map(str.isdecimal, counts)):
        street_count = np.array([int(count) for count in counts])

    *ends, rows = zip(*graph.edges(data=True), strict=True)
    lengths = np.array([_read_float(data, "length", f"edge {i}") for i, data in enumerate(rows)])
    if (lengths < 0).any():
        raise ValueError(f"a street has a negative length: {lengths.min()}")
    tag_codes = {}
    values = {}
    for key in VALUE_TAGS:
        tag_codes[key], values[key] = factorize(
            [_sorted_values(data.get(key)) for data in rows], ()
        )
    source, target = np.searchsorted(ids, np.array(ends, np.int64)).astype(np.int32)
    direct = great_circle(lat[source], lon[source], lat[target], lon[target])
    short = (lengths < _MIN_DETOUR * direct).mean()
    if short > _MAX_SHORT_FRACTION:
        raise ValueError(
            f"{short:.0%} of the streets are shorter than the distance between their ends: "
            "x must be the longitude and y the latitude in degrees, and length must be in metres"
        )
    return StreetGraph(
        node_id=ids,
        lon=lon,
        lat=lat,
        source=source,
        target=target,
        length=lengths,
        oneway=np.array([_read_flag(data, "oneway") for data in rows], np.int8),
        reversed=np.array([_read_flag(data, "reversed") for data in rows], np.int8),
        tag_codes=tag_codes,
        tag_values=values,
        street_count=street_count,
    )


def _read_float(data: Mapping[str, str | float], key: str, element: str) -> float:
    try:
        value = float(data.get(key, math.nan))
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{key} of {element} is {str(data.get(key, 'missing'))[:40]!r}")
    return value


def _sorted_values(value: object) -> TagValues:
    """Return the sorted values of a tag, whether it has none, one or a list."""
    text = str(value)
    if text in {"", "nan", "None"}:
        return ()
    if text.startswith("[") and len(text) <= _MAX_LIST_CHARACTERS:
        try:
            literal = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return (text,)
        if isinstance(literal, list):
            return tuple(sorted({str(value) for value in literal}))
    return (text,)


def _read_flag(data: Any, key: str) -> int:
    values = _sorted_values(data.get(key))
    # With all_oneway, OSMnx adds each street in one direction, and keeps OpenStreetMap's yes and no.
    if unknown := {*values} - _FLAGS.keys():
        raise ValueError(f"{key} of a street is {min(unknown)[:40]!r}, not True or False")
    flags = {_FLAGS[value] for value in values}
    return MIXED if len(flags) > 1 else max(flags, default=0)
