"""Read graphs in JSON, in the node-link layout of networkx."""

from __future__ import annotations

import json
import re
from typing import Any

import networkx as nx

from kmip_data.errors import DamagedInput

#: Beginning of a graph: a key of networkx or of Cytoscape.
_GRAPH_KEY = re.compile(
    rb'"(?:(?:adjacency|elements|nodes|links|data)"\s*:\s*[\[{]|(?:directed|multigraph)"\s*:\s*[tf])'
)
#: Key of another layout -> Python that writes its ``value`` as files that a build reads.
_CONVERSIONS = {
    "adjacency": "json.dump(networkx.node_link_data(networkx.adjacency_graph(value)), open('graph.json', 'w'))",
    "elements": "[pandas.DataFrame([row['data'] for row in rows]).to_csv(f'{level}.csv', index=False) "
    "for level, rows in value['elements'].items()]",
}
_CONVERSION_OF_NAMES = "pandas.Series(value, name='label').rename_axis('name').to_csv('labels.csv')"


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
    keys = list(value) if isinstance(value, dict) else []
    # networkx before 3.4 wrote links.
    edges = next((key for key in ("links", "edges") if key in keys), "")
    if "nodes" not in keys or not edges:
        conversions = [_CONVERSIONS[key] for key in keys if key in _CONVERSIONS]
        raise DamagedInput(
            f"{name} is JSON, but neither a graph of node_link_data nor a list of objects.",
            found=f"the keys {keys[:10]}",
            steps=f"in Python: value = json.load(open({name!r})); {(*conversions, _CONVERSION_OF_NAMES)[0]}",
        )
    _unify_end_types(value, edges)
    return nx.node_link_graph(value, edges=edges)


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
