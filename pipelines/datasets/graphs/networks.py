"""GraphML, GEXF, GML and JSON, read by networkx; attributes become columns of nodes, edges and graphs.

XML document types are refused, as they serve entities that expand to gigabytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError

import pandas as pd

from kmip_data.errors import DamagedInput
from kmip_data.format.writer import GraphRecord
from kmip_data.pipelines.datasets.graphs.edges import assemble
from kmip_data.pipelines.datasets.graphs.tables import ColumnFacts, GraphParams, Table, head_of

WANTS = "GraphML, GEXF, GML or JSON of networkx"
_NEXT = (
    "write it with networkx: write_graphml, write_gexf, write_gml, or node_link_data as JSON; "
    "GML with repeated edges needs the line 'multigraph 1' below 'graph ['"
)
_MEMORY = 60  #: memory relative to the size of a file: networkx takes 55 times a file of edges
_HEAD = 1 << 16  #: bytes searched for a document type
#: Lines such as ``Creator "…"``, comments, and then the graph.
_GML = re.compile(rb"((#|[a-z_]+[ \t])[^\n]*\n\s*)*graph\s*\[", re.IGNORECASE)
#: Key of a JSON object -> networkx function that reads it.
_JSON = {
    "adjacency": "adjacency_graph",
    "elements": "cytoscape_graph",
    "nodes": "node_link_graph",
}


def recognises(heads: Mapping[str, bytes], _: GraphParams) -> bool:
    """True if a file is XML, GML or JSON."""
    return any(_format_of(head) for head in heads.values())


def _format_of(head: bytes) -> str:
    """Return the name of a file's format by its beginning; empty for other files."""
    text = head.lstrip(b"\xef\xbb\xbf \r\n\t")
    if text.startswith(b"<"):
        return "GEXF" if b"<gexf" in text else "GraphML"
    if text.startswith((b"{", b"[")):
        return "JSON"
    return "GML" if _GML.match(text) else ""


def read(folder: Path, files: Sequence[str], facts: ColumnFacts) -> Iterator[GraphRecord]:
    """Yield the graphs of all files, in memory; undirected edges appear in both directions."""
    import networkx as nx

    params = facts.params
    size = sum((folder / file).stat().st_size for file in files)
    shown = ", ".join(files)[:200]
    facts.claim(_MEMORY * size, shown)
    rows: dict[str, list[dict[str, object]]] = {"graph": [], "node": [], "edge": []}
    for file in files:
        path = folder / file
        form = _format_of(head_of(path, _HEAD)) or "GraphML"
        try:
            graphs = _graphs(path, form)
        except (
            ParseError,
            nx.NetworkXError,
            ValueError,
            LookupError,
            TypeError,
            AttributeError,
            RecursionError,
        ) as error:
            fault = f"{file} cannot be read as {form}: {error or type(error).__name__}"
            raise DamagedInput(fault, next=_NEXT) from error
        for number, graph in enumerate(graphs):
            name = str(Path(file).with_suffix(""))
            if number:
                name += f"/{number}"
            if form in {"GEXF", "GML"}:
                _drop_names(graph, facts)
            # Key defaults are also stored on the graph.
            data = {
                key: value for key, value in graph.graph.items() if not key.endswith("_default")
            }
            rows["graph"].append({**data, params.graph: name})
            for node, data in graph.nodes(data=True):
                rows["node"].append({**data, params.graph: name, params.node: str(node)})
            both = graph if graph.is_directed() else graph.to_directed()
            for source, target, data in both.edges(data=True):
                ends = {params.source: str(source), params.target: str(target)}
                rows["edge"].append({**data, **ends, params.graph: name})

    tables = {}
    for level, items in rows.items():
        columns = None if items else [params.source, params.target, params.graph]
        frame = pd.DataFrame(items, columns=columns).drop(columns="id", errors="ignore")
        tables[level] = Table(f"{shown}, {level}s", _of_scalars(frame, facts), 0, "number")
    yield from assemble(tables, facts)


def _graphs(path: Path, form: str) -> list[Any]:
    """Return the graphs of a file."""
    import networkx as nx

    if form == "JSON":
        return _json(path)
    if form == "GML":
        return [nx.parse_gml(path.read_text("utf-8-sig", "replace"), label="id")]
    if b"<!DOCTYPE" in head_of(path, _HEAD):
        raise DamagedInput(f"{path.name} declares a document type.", next=_NEXT)
    return [nx.read_gexf(path)] if form == "GEXF" else list(nx.readwrite.GraphMLReader()(path=path))


def _json(path: Path) -> list[Any]:
    """Return the graphs of a file: one object of networkx, or a list of them."""
    import networkx as nx

    graphs = []
    values = json.loads(path.read_bytes().decode("utf-8-sig"))
    for value in values if isinstance(values, list) else [values]:
        keys = list(value) if isinstance(value, dict) else []
        known = next((key for key in _JSON if key in keys), None)
        if known is None:
            raise ValueError(f"no {', '.join(_JSON)} among {keys[:10]}")
        options = {}
        if known == "nodes":  # networkx before 3.4 wrote links
            options["edges"] = "links" if "links" in value else "edges"
        graph = getattr(nx, _JSON[known])(value, **options)
        if known == "elements":  # Cytoscape's copies of a node's id
            for _, data in graph.nodes(data=True):
                data.pop("value", None)
                data.pop("name", None)
        graphs.append(graph)
    return graphs


def _drop_names(graph: Any, facts: ColumnFacts) -> None:
    """Drop labels of nodes if all differ, because they are names then and not classes.

    Labels of edges are texts for drawings and always dropped.
    """
    labels = [data.get("label") for _, data in graph.nodes(data=True)]
    named = [graph.edges[edge] for edge in graph.edges if "label" in graph.edges[edge]]
    if None not in labels and len(set(map(str, labels))) == len(labels):
        named += [data for _, data in graph.nodes(data=True)]
    for data in named:
        del data["label"]
        facts.ignored["label"] = "the name of a node or edge"


def _of_scalars(frame: pd.DataFrame, facts: ColumnFacts) -> pd.DataFrame:
    """Expand lists of numbers to columns, and drop other lists and objects."""
    for name in list(frame):
        values = frame[name]
        if values.dtype != object:
            continue
        nested = values.map(lambda value: isinstance(value, list | tuple | dict | set))
        if not nested.any():
            continue
        frame = frame.drop(columns=name)
        widths = {len(value) if isinstance(value, list | tuple) else -1 for value in values}
        if len(widths) == 1 and -1 not in widths:
            columns = pd.DataFrame(values.tolist(), index=frame.index)
            if all(columns[column].dtype.kind in "biuf" for column in columns):
                frame = frame.join(columns.add_prefix(f"{name}_"))
                continue
        facts.ignored[str(name)] = "lists or objects"
    return frame
