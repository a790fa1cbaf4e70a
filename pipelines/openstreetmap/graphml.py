"""Read a street graph from GraphML as ``osmnx.save_graphml`` writes it.

Python's expat does the parsing, with document types refused: what they are good for is entities that
expand to gigabytes. Values are the text that OSMnx wrote; lists (``"['2', '3']"``) are read as literals.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from xml.parsers import expat

import numpy as np
from numpy.typing import NDArray

from kmip_data.errors import DamagedInput
from kmip_data.pipelines.openstreetmap.extract import VALUES, coded
from kmip_data.pipelines.openstreetmap.network.construction import (
    BOTH,
    StreetGraph,
    Values,
    largest_component,
    simplify,
)

_FLAGS: Final = {"False": 0, "True": 1, "0": 0, "1": 1}
_CHUNK: Final = 1 << 20
_LONGEST_LIST: Final = 10_000  #: characters of a list that is read as a literal


def read_graphml(path: Path, *, name: str | None = None) -> StreetGraph:
    """Return the largest component of the graph in ``path``, simplified if it is not yet.

    Raises ``DamagedInput`` where it is not well-formed, not GraphML of OSMnx, or its nodes are not in
    degrees.
    """
    parsed = _Parser(name or path.name)
    parsed.read(path)
    graph = largest_component(_street_graph(parsed))
    if parsed.data.get("simplified") not in {"True", "1"}:  # OSMnx marks a graph once it is
        graph = largest_component(simplify(graph))
    return graph


class _Parser:
    """Nodes and edges of a GraphML file with their values as text."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.data: dict[str, str] = {}  #: of the graph
        self.nodes: dict[str, dict[str, str]] = {}
        self.edges: list[tuple[str, str, dict[str, str]]] = []
        self._keys: dict[str, str] = {}
        self._into = self.data
        self._key: str | None = None
        self._text: list[str] = []

    def read(self, path: Path) -> None:
        parser = expat.ParserCreate(namespace_separator=" ")
        parser.buffer_text = True
        parser.StartDoctypeDeclHandler = self._refuse_doctype
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        try:
            with path.open("rb") as file:
                while chunk := file.read(_CHUNK):
                    parser.Parse(chunk, False)
                parser.Parse(b"", True)
        except (expat.ExpatError, ValueError, LookupError) as error:
            if isinstance(error, DamagedInput):
                raise
            raise self.wrong(
                "cannot be read to its end.", "well-formed XML", str(error) or type(error).__name__
            ) from error

    def wrong(self, what: str, expected: str, found: str) -> DamagedInput:
        return DamagedInput(
            f"{self.name} {what}",
            expected=expected,
            found=found,
            next="write it with osmnx.save_graphml, unprojected",
        )

    def _refuse_doctype(self, *_: object) -> None:
        raise self.wrong("declares a document type.", "GraphML without one", "<!DOCTYPE …>")

    def _start(self, tag: str, attributes: Mapping[str, str]) -> None:
        element = tag.rpartition(" ")[2]
        if element == "key":
            self._keys[attributes.get("id", "")] = attributes.get("attr.name", "")
        elif element == "graph":
            if attributes.get("edgedefault") == "undirected":
                raise self.wrong("is an undirected graph.", "a directed one", 'edgedefault="undirected"')
            self._into = self.data
        elif element == "node":
            if attributes.get("id", "") in self.nodes:
                raise self.wrong("has a node twice.", "each once", f"node {attributes.get('id')!r}")
            self._into = self.nodes[attributes.get("id", "")] = {}
        elif element == "edge":
            self._into = {}
            self.edges.append((attributes.get("source", ""), attributes.get("target", ""), self._into))
        elif element == "data":
            self._key = self._keys.get(attributes.get("key", ""), "")
            self._text = []

    def _characters(self, text: str) -> None:
        if self._key is not None:
            self._text.append(text)

    def _end(self, tag: str) -> None:
        element = tag.rpartition(" ")[2]
        if element == "data" and self._key is not None:
            self._into[self._key] = "".join(self._text).strip()
            self._key = None
        elif element in {"node", "edge"}:
            self._into = self.data  # what follows, before the next one, is the graph's


def _street_graph(parsed: _Parser) -> StreetGraph:
    if not parsed.nodes or not parsed.edges:
        found = f"{len(parsed.nodes)} nodes and {len(parsed.edges)} edges"
        raise parsed.wrong("has no streets.", "a graph of OSMnx", found)
    ids = {text: _number(parsed, text) for text in parsed.nodes}
    ordered = sorted(parsed.nodes, key=lambda text: ids[text])
    position = {text: number for number, text in enumerate(ordered)}
    lon = np.array([_real(parsed, parsed.nodes[text], "x", f"node {text}") for text in ordered])
    lat = np.array([_real(parsed, parsed.nodes[text], "y", f"node {text}") for text in ordered])
    outside = (np.abs(lon) > 180) | (np.abs(lat) > 90)
    if outside.any():
        at = int(outside.argmax())
        crs = parsed.data.get("crs", "")
        raise parsed.wrong(
            "has a node that is not on the map.",
            "x within ±180 and y within ±90 degrees",
            f"node {ordered[at]} at {lon[at]}, {lat[at]}" + (f" (crs {crs})" if crs else ""),
        )
    ends, rows = [], []
    for source, target, data in parsed.edges:
        if source not in position or target not in position:
            lost = source if source not in position else target
            raise parsed.wrong("has an edge that leads nowhere.", "nodes of the file", f"node {lost!r}")
        ends.append((position[source], position[target]))
        rows.append(data)
    lengths = np.array([_real(parsed, data, "length", f"edge {i}") for i, data in enumerate(rows)])
    if (lengths < 0).any():
        raise parsed.wrong("has a street of negative length.", "metres", f"{lengths.min()}")
    tags: dict[str, NDArray[np.int32]] = {}
    values: dict[str, list[Values]] = {}
    for key in VALUES:
        tags[key], values[key] = coded([_values(data.get(key, "")) for data in rows], ())
    source, target = np.array(ends, np.int64).T
    counts = [data.get("street_count", "") for data in (parsed.nodes[text] for text in ordered)]
    return StreetGraph(
        node_id=np.array([ids[text] for text in ordered], np.int64),
        lon=lon,
        lat=lat,
        source=source,
        target=target,
        length=lengths,
        oneway=np.array([_flag(data.get("oneway", "False")) for data in rows], np.int8),
        reversed=np.array([_flag(data.get("reversed", "False")) for data in rows], np.int8),
        tags=tags,
        values=values,
        street_count=np.array([int(text) for text in counts]) if all(map(str.isdecimal, counts)) else None,
    )


def _number(parsed: _Parser, text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 2**63
    if abs(number) >= 2**63:
        raise parsed.wrong("has a node without a number.", "OpenStreetMap's numbers", f"node {text[:40]!r}")
    return number


def _real(parsed: _Parser, data: Mapping[str, str], key: str, where: str) -> float:
    try:
        value = float(data[key])
    except (KeyError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        found = f"{where} with {key} = {data[key][:40]!r}" if key in data else f"{where} without {key}"
        raise parsed.wrong(
            "is not a street graph of OSMnx.", "x and y at every node, length at every edge", found
        )
    return value


def _values(text: str) -> Values:
    """Return the values that a tag has, sorted: none, one, or those of a list."""
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


def _flag(text: str) -> int:
    flags = {_FLAGS.get(value, 0) for value in _values(text)}
    return BOTH if len(flags) > 1 else next(iter(flags), 0)
