"""Read GML as networkx, Gephi and Cytoscape write it.

Our own reader, because Gephi writes ids without quotes, texts with quotes inside, names of columns
in any letters and mixed directions, which networkx refuses or reads as something else.
"""

from __future__ import annotations

import re
from collections import defaultdict
from html import unescape
from typing import Any

import networkx as nx

from kmip_data.errors import DamagedInput

#: End of a list, or a key with its value: a list, a text, a number, the rest of the line, or a word;
#: or the end of the file. Blanks and comments may stand before it.
_ENTRY = re.compile(
    r"""(?: \s+ | \#[^\n]* )*+ (?: \Z
    | (?P<end> \] )
    | (?P<key> [^\s\[\]"]+ )
      (?: \s* (?P<list> \[ )
      | \s* " (?P<text> .*? ) " (?=[\s\]]|\Z)
      | [ \t]+ (?P<number> [+-]? (?: \d+\.?\d* | \.\d+ ) (?: [eE][+-]?\d+ )? ) (?=[\s\]]|\Z)
      | [ \t]+ (?P<line> [^\n\[\]"]{1,200} ) (?=\n|\Z)
      | [ \t]+ (?P<word> [^\s\[\]"]+ ) ) )""",
    re.VERBOSE | re.DOTALL,
)
_MAX_DEPTH = 64  #: lists inside each other
#: Values that networkx writes for an empty list, and before the value of a list of one.
_EMPTY_LISTS: dict[object, object] = {"()": (), "[]": []}
_LIST_START = "_networkx_list_start"
_NO_NUMBERS = {"nan", "inf", "infinity", "+inf", "-inf", "-infinity"}

Entries = dict[str, list[Any]]


def parse_gml(text: str, name: str) -> list[Any]:
    """Return the networkx graphs of a file, whose nodes have the ids of the file.

    Edges without a direction, next to others with one, become two edges. Raises ``DamagedInput``
    with the line of what cannot be read, or with the node or edge.
    """
    graphs = _parse_entries(text, name)["graph"]
    if not graphs:
        raise ValueError("no list graph [ … ]")
    return [_build_graph(graph) for graph in graphs]


def _parse_entries(text: str, name: str) -> Entries:
    """Return the values of each key; lists of GML are dictionaries of the same kind."""
    stack: list[Entries] = [defaultdict(list)]
    position = 0
    while position < len(text):
        match = _ENTRY.match(text, position)
        if match is None or len(stack) > _MAX_DEPTH or (match["end"] and len(stack) == 1):
            rest = text[position:].lstrip()
            line = text.count("\n", 0, len(text) - len(rest)) + 1
            raise DamagedInput(
                f"{name}, line {line}: this is no key with a value, or a bracket too many.",
                found=repr(rest[:40]),
                steps="correct the line",
            )
        position = match.end()
        if match["end"]:
            stack.pop()
        elif match["list"]:
            entries: Entries = defaultdict(list)
            stack[-1][match["key"]].append(entries)
            stack.append(entries)
        elif match["key"]:
            stack[-1][match["key"]].append(_parse_value(match))
    if len(stack) > 1:
        raise ValueError(f"the file ends before {len(stack) - 1} brackets are closed")
    return stack[0]


def _parse_value(match: re.Match[str]) -> object:
    """Return the number or text of an entry."""
    if match["text"] is not None:
        text = unescape(match["text"])
        return _EMPTY_LISTS.get(text, text)
    if number := match["number"]:
        return int(number) if number.lstrip("+-").isdigit() else float(number)
    text = (match["line"] or match["word"]).strip()
    return float(text) if text.lower() in _NO_NUMBERS else text


def _build_graph(entries: Entries) -> Any:
    """Return the graph of a list of GML."""
    nodes = entries.pop("node", [])
    edges = entries.pop("edge", [])
    attributes = _attributes(entries)
    is_directed = bool(attributes.pop("directed", 0))
    attributes.pop("multigraph", None)

    # 1. Nodes.
    rows_by_id = {}
    for number, node in enumerate(nodes):
        data = _attributes(node)
        node_id = data.pop("id", None)
        if node_id is None or node_id in rows_by_id:
            raise ValueError(f"node {number} (from 0) has the id {node_id!r}, empty or not unique")
        rows_by_id[node_id] = data

    # 2. Edges.
    ends_with_data = []
    directions = []
    for number, edge in enumerate(edges):
        data = _attributes(edge)
        ends = [data.pop(end, None) for end in ("source", "target")]
        for end in ends:
            if end not in rows_by_id:
                raise ValueError(f"edge {number} (from 0) has the end {end!r}, which is no node")
        if isinstance(data.get("key"), int):  # a number that networkx gives
            del data["key"]
        data.pop("id", None)
        directions.append(bool(data.pop("directed", is_directed)))
        ends_with_data.append((*ends, data))

    # 3. The graph; in a directed one, an undirected edge is two.
    graph = nx.MultiDiGraph() if is_directed or any(directions) else nx.MultiGraph()
    graph.graph.update(attributes)
    graph.add_nodes_from(rows_by_id.items())
    graph.add_edges_from(ends_with_data)
    if graph.is_directed():
        for (source, target, data), is_one_way in zip(ends_with_data, directions, strict=True):
            if not is_one_way and source != target:
                graph.add_edges_from([(target, source, data)])
    return graph


def _attributes(entries: Any) -> dict[str, Any]:
    """Return the attributes of a graph, node or edge: a repeated key has a list."""
    if not isinstance(entries, dict):
        raise TypeError(f"{str(entries)[:80]!r} is not a list of a node or an edge")
    attributes = {}
    for key, values in entries.items():
        is_list = len(values) > 1
        attributes[key] = values[values[0] == _LIST_START :] if is_list else values[0]
    return attributes
