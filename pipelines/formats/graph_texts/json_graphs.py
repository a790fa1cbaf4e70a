"""Read graphs in JSON: the three layouts of networkx, and elements of Cytoscape."""

from __future__ import annotations

import json
import re
from typing import Any

import networkx as nx

#: Key of a JSON object -> its layout.
_LAYOUTS = ("adjacency", "elements", "nodes")
#: Beginning of a graph: a key of networkx, or of Cytoscape's elements.
_GRAPH_KEY = re.compile(
    rb'"(?:(?:adjacency|elements|nodes|links|data)"\s*:\s*[\[{]|(?:directed|multigraph)"\s*:\s*[tf])'
)
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"?')
#: Columns that Cytoscape adds to those of the user.
_CYTOSCAPE_COLUMNS = {"SUID", "shared_name", "shared name", "shared_interaction", "selected"}


def is_json_table(head: bytes) -> bool:
    """True for the first bytes of a list of objects, or of an object with a value of each name.

    Both are rows of a table if they are no graph.
    """
    text = head.lstrip(b"\xef\xbb\xbf \r\n\t")
    if may_be_graph(text):
        return False
    if text.startswith(b"{"):
        brackets = re.sub(rb"[^\[{]", b"", _STRING.sub(b"", text))
        return brackets == b"{"
    return bool(re.match(rb"\[\s*\{", text))


def may_be_graph(head: bytes) -> bool:
    """True if the first bytes of JSON have a key of a graph, which rows and indices have not."""
    return bool(_GRAPH_KEY.search(head))


def parse_json_graphs(data: bytes) -> list[Any]:
    """Return the networkx graphs of a file: one object, a list of them, or a list of elements.

    Raises ``ValueError`` for other JSON, and what networkx raises.
    """
    value = json.loads(data.decode("utf-8-sig"))
    values = value if isinstance(value, list) else [value]
    if values and all(map(_is_cytoscape_element, values)):
        values = [{"elements": values}]
    return [_build_graph(value) for value in values]


def _is_cytoscape_element(value: Any) -> bool:
    """True for a node or an edge of Cytoscape."""
    return isinstance(value, dict) and "data" in value and "elements" not in value


def _build_graph(value: Any) -> Any:
    """Return the graph of a JSON object."""
    keys = list(value) if isinstance(value, dict) else []
    layout = next((key for key in _LAYOUTS if key in keys), None)
    if layout is None:
        raise ValueError(f"no {', '.join(_LAYOUTS)} among {keys[:10]}")
    if layout == "elements":
        return _graph_of_elements(value)
    if layout == "adjacency":
        return nx.adjacency_graph(value)
    # networkx before 3.4 wrote links.
    edges = "links" if "links" in value else "edges"
    _unify_end_types(value, edges)
    return nx.node_link_graph(value, edges=edges)


def _graph_of_elements(value: dict[str, Any]) -> Any:
    """Return the graph of Cytoscape's elements, in one list or in lists of nodes and edges.

    Edges are directed unless the file says otherwise, as networkx does and Cytoscape does not.
    Positions and styles are left out.
    """
    elements = value["elements"]
    if isinstance(elements, dict):
        elements = [*elements.get("nodes", []), *elements.get("edges", [])]
    rows = [
        {key: cell for key, cell in element["data"].items() if key not in _CYTOSCAPE_COLUMNS}
        for element in elements
    ]
    nodes = [row for row in rows if "source" not in row]
    graph = nx.MultiDiGraph() if value.get("directed", True) else nx.MultiGraph()
    attributes = dict(value.get("data") or {})
    graph.graph.update({key: attributes[key] for key in attributes.keys() - _CYTOSCAPE_COLUMNS})

    # networkx and Cytoscape repeat ids as names or values.
    for key in ("name", "value"):
        if all(str(row.get(key, row["id"])) == str(row["id"]) for row in nodes):
            for row in nodes:
                row.pop(key, None)
    for row in nodes:
        node = str(row.pop("id"))
        if node in graph:
            raise ValueError(f"two nodes have the id {node!r}")
        graph.add_nodes_from([(node, row)])
    for row in rows:
        if "source" in row:
            ends = [str(row.pop(end)) for end in ("source", "target")]
            unknown = [end for end in ends if end not in graph]
            if unknown:
                raise ValueError(f"an edge has the end {unknown[0]!r}, which is no node")
            row.pop("id", None)
            if isinstance(row.get("key"), int):  # a number that networkx gives
                del row["key"]
            graph.add_edges_from([(*ends, row)])
    return graph


def _unify_end_types(value: dict[str, Any], edges: str) -> None:
    """Replace ends of edges by the node ids with the same string: 7 and "7" are one node, as in tables.

    networkx would add a second node. Nothing changes if two nodes have the same string.
    """
    ids = [node["id"] for node in value["nodes"] if "id" in node]
    by_string = {str(node): node for node in ids}
    if len(by_string) < len(ids):
        return
    for edge in value[edges]:
        for end in ("source", "target"):
            if end in edge:
                edge[end] = by_string.get(str(edge[end]), edge[end])
