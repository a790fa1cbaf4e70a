"""GraphML by networkx, whose attributes are columns of nodes, edges and graphs.

Document types are refused: all they are good for is entities that expand to gigabytes (expat stops
these, too).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError

import pandas as pd

from kmip_data.errors import DamagedInput
from kmip_data.format.writer import GraphRecord
from kmip_data.pipelines.datasets.graphs.edges import assemble
from kmip_data.pipelines.datasets.graphs.tables import Facts, GraphParams, Table, head_of

WANTS = "GraphML"
_MEMORY = 60  #: times the size of a file: networkx takes 55 times that of a file of edges
_HEAD = 1 << 16  #: bytes in which a document type is looked for


def recognises(heads: Mapping[str, bytes], _: GraphParams) -> bool:
    """True where a file is XML."""
    return any(head.lstrip(b"\xef\xbb\xbf \r\n\t").startswith(b"<") for head in heads.values())


def read(folder: Path, files: Sequence[str], facts: Facts) -> Iterator[GraphRecord]:
    """Yield the graphs of all files, which are in memory; undirected edges go both ways."""
    import networkx as nx

    params = facts.params
    size = sum((folder / file).stat().st_size for file in files)
    facts.claim(_MEMORY * size, ", ".join(files)[:200])
    rows: dict[str, list[dict[str, Any]]] = {"graph": [], "node": [], "edge": []}
    for file in files:
        path = folder / file
        if b"<!DOCTYPE" in head_of(path, _HEAD):
            raise DamagedInput(f"{file} declares a document type.", next="write it with networkx")
        try:
            graphs = list(nx.readwrite.GraphMLReader()(path=path))
        except (ParseError, nx.NetworkXError, ValueError, LookupError, TypeError) as error:
            fault = f"{file} cannot be read as GraphML: {error or type(error).__name__}"
            raise DamagedInput(fault, next="write it with networkx.write_graphml") from error
        for number, graph in enumerate(graphs):
            name = str(Path(file).with_suffix(""))
            if number:
                name += f"/{number}"
            # Defaults of keys are stored at the graph, too.
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

    shown = ", ".join(files)[:200]
    tables = {}
    for level, items in rows.items():
        columns = None if items else [params.source, params.target, params.graph]
        frame = pd.DataFrame(items, columns=columns).drop(columns="id", errors="ignore")
        tables[level] = Table(f"{shown}, {level}s", frame, 0, "number")
    yield from assemble(tables, facts)
