"""Node classification graphs: ``ogbn-arxiv`` and ``ogbn-products``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from kmip_data.errors import DamagedInput
from kmip_data.format.schema import Schema
from kmip_data.format.writer import GraphRecord
from kmip_data.pipelines.base import (
    Prepared,
    PublishedSplitParams,
    RawFolder,
    Records,
    Split,
    Unit,
    raw_lists,
)
from kmip_data.pipelines.datasets.ogb.tables import read_split, rule_of, store_graphs
from kmip_data.pipelines.shared.edges import undirected
from kmip_data.pipelines.shared.pieces import Pieces
from kmip_data.pipelines.shared.records import OneGraphParams, OneGraphPipeline
from kmip_data.pipelines.short import record_of, schema_of


class OGBNodesParams(OneGraphParams):
    """Parameters that change the record."""

    edges: Literal["published", "undirected"] = Field(
        default="published",
        description="published: as OGB's class has them, citations one way, links of products there and, "
        "next to it, back; undirected: both ways, sorted, each once, as PyG's ToUndirected",
    )


class OGBNodesPipeline(OneGraphPipeline[OGBNodesParams, PublishedSplitParams]):
    """A graph with real features."""

    version = 1
    named: ClassVar[Mapping[str, str]] = {"edges": "{}"}
    Params = OGBNodesParams

    def schema(self, params: OGBNodesParams) -> Schema:
        """Return the columns of the layout."""
        schema = schema_of(self.manifest)
        return replace(schema, directed=schema.directed and params.edges == "published")

    def prepare(self, raw: RawFolder, params: OGBNodesParams, workdir: Path) -> Prepared:
        """Write the tables as memory-mapped arrays; check the split."""
        nodes = store_graphs(raw.path, workdir / "graph", schema_of(self.manifest))
        if len(nodes) != 1:
            raise DamagedInput(f"raw/num-node-list.csv.gz is of {len(nodes):,} graphs, not of one.")
        read_split(raw.path, rule_of(self.manifest), int(nodes[0]))
        return Prepared(workdir)

    def records(
        self, prepared: Prepared, unit: Unit, params: OGBNodesParams
    ) -> Iterator[GraphRecord]:
        """Yield the graph."""
        graph = Pieces(prepared.path / "graph")[0]
        schema = self.schema(params)
        if params.edges == "undirected":
            has_reverses = not schema_of(self.manifest).directed
            edges = graph["edge_index"][:: 1 + has_reverses]
            both = undirected(edges, len(graph["x"]))
            graph["edge_index"] = both.T.astype(schema.index_dtype)
        yield record_of(unit.name, graph, schema)

    def split(self, records: Records, params: PublishedSplitParams, raw: Path | None) -> Split:
        """Apply the published lists."""
        nodes = int(records.nodes[0])
        codes = np.empty(nodes, np.uint8)
        lists = read_split(raw_lists(self.manifest, raw), rule_of(self.manifest), nodes)
        for code, rows in enumerate(lists.values()):
            codes[rows] = code
        note = self.manifest.layout.split_note
        return Split("upstream", "upstream", {}, note=note, node_code=codes)
