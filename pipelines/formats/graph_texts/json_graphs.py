"""Read graphs in JSON, in the node-link layout of networkx."""

from __future__ import annotations

import json
import re
from pathlib import PurePath
from typing import Any

import networkx as nx

from kmip_data.errors import DamagedInput

#: Beginning of a graph: a key of networkx or of Cytoscape.
_GRAPH_KEY = re.compile(
    rb'"(?:(?:adjacency|elements|nodes|links|data)"\s*:\s*[\[{]|(?:directed|multigraph)"\s*:\s*[tf])'
)


def is_json_table(head: bytes) -> bool:
    """True for the first bytes of a list of objects, which are rows of a table if they are no graphs."""
    text = head.lstrip(b"\xef\xbb\xbf \r\n\t")
    return bool(re.match(rb"\[\s*\{", text)) and not may_be_graph(text)


def may_be_graph(head: bytes) -> bool:
    """True if the first bytes of JSON have a key of a graph, which rows have not."""
    return bool(_GRAPH_KEY.search(head))


def parse_json_graphs(data: bytes, name: str) -> list[Any]:
    """Return the networkx graphs of a file: one object, or a list of them.

    Raises ``DamagedInput`` for other JSON, and what networkx raises.
    """
    value = json.loads(data.decode("utf-8-sig"))
    values = value if isinstance(value, list) else [value]
    return [_build_graph(value, name) for value in values]


def _build_graph(value: Any, name: str) -> Any:
    """Return the graph of a JSON object."""
    layout = value if isinstance(value, dict) else {}
    # networkx before 3.4 wrote links.
    edges = "links" if "links" in layout else "edges"
    if not isinstance(layout.get("nodes"), list) or not _are_edges(layout.get(edges)):
        raise DamagedInput(
            f"{name} is JSON, but neither a graph of node_link_data nor a list of objects.",
            expected="edges such as {'source': 0, 'target': 1}",
            found=repr(layout.get(edges, [*layout]))[:100],
            steps=f"in Python: value = json.load(open({name!r})); {_conversion(layout, edges, name)}",
        )
    _unify_end_types(layout, edges)
    return nx.node_link_graph(layout, edges=edges)


def _conversion(layout: dict[str, Any], edges: str, name: str) -> str:
    """Return Python that writes the object ``value`` of another layout as files that a build reads."""
    if "adjacency" in layout:
        return "json.dump(networkx.node_link_data(networkx.adjacency_graph(value)), open('graph.json', 'w'))"
    if "elements" in layout:
        return (
            "[pandas.DataFrame([row['data'] for row in rows]).to_csv(f'{level}.csv', index=False) "
            "for level, rows in value['elements'].items()]"
        )
    if edges in layout:
        return (
            f"pandas.DataFrame(value[{edges!r}]).to_csv('edges.csv', index=False), and call the "
            "columns of the ends source and target"
        )
    table = f"{PurePath(name).stem}.csv"
    if not layout:  # a list of pairs
        return (
            f"pandas.DataFrame(value, columns=['source', 'target']).to_csv({table!r}, index=False)"
        )
    if all(isinstance(row, dict) for row in layout.values()):
        return (
            f"pandas.DataFrame.from_dict(value, orient='index').to_csv({table!r}, index_label='id')"
        )
    return f"pandas.Series(value, name='label').rename_axis('name').to_csv({table!r})"


def _are_edges(rows: Any) -> bool:
    """True for a list of objects with both ends of an edge."""
    return isinstance(rows, list) and all(
        isinstance(row, dict) and {"source", "target"} <= {*row} for row in rows
    )


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
