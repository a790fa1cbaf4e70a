"""One graph whose nodes have classes: the reader of ``ogbn-arxiv`` and ``ogbn-products``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from kmip_data.arrays import Array, Integers
from kmip_data.errors import DamagedInput
from kmip_data.format.schema import Column, Schema
from kmip_data.format.writer import GraphRecord
from kmip_data.manifest import Manifest
from kmip_data.pipelines.base import (
    Prepared,
    PublishedSplitParams,
    RawFolder,
    Records,
    Split,
    Unit,
    raw_lists,
)
from kmip_data.pipelines.datasets.ogb.tables import MOST_ROWS, raw_table, read_split
from kmip_data.pipelines.formats.numbers import stored
from kmip_data.pipelines.shared.edges import there_and_back, undirected
from kmip_data.pipelines.shared.records import OneGraphParams, OneGraphPipeline, class_column

YEARS = 10_000  #: upper bound of a year


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
    Params = OGBNodesParams
    features: ClassVar[int]
    rule: ClassVar[str]  #: of the split
    #: True if each line of the table is an edge there and back.
    both_ways: ClassVar[bool] = False
    #: True if nodes have a year.
    years: ClassVar[bool] = False

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest)
        self.classes = manifest.expected.classes or 2

    def schema(self, params: OGBNodesParams) -> Schema:
        """Features, class and, of papers, year."""
        columns = [
            Column(
                key="node/x", attribute="x", shape=(self.features,), stored="float32",
                presented="float32", doc="features",
            ),
            class_column("node/y", self.classes, "class"),
        ]  # fmt: skip
        if self.years:
            year = Column(
                key="node/year", attribute="node_year", shape=(1,), stored="int16", presented="int64",
                low=0, high=YEARS, doc="year of publication",
            )  # fmt: skip
            columns.append(year)
        return Schema(
            columns=tuple(columns),
            edges="index",
            max_nodes=self.manifest.max_nodes,
            directed=params.edges == "published" and not self.both_ways,
        )

    def prepare(self, raw: RawFolder, params: OGBNodesParams, workdir: Path) -> Prepared:
        """Write the tables as arrays that are mapped, checked line by line; check the split."""
        nodes = self._size(raw.path, "num-node-list", self.manifest.max_nodes)
        edges = self._size(raw.path, "num-edge-list", MOST_ROWS)
        # Bounds are given with each table: a line beyond them is named when it is read.
        x = raw_table(raw.path, "node-feat", self.features, whole=False)
        labels = raw_table(raw.path, "node-label", 1, low=0, high=self.classes - 1)
        ends = raw_table(raw.path, "edge", 2, low=0, high=nodes - 1)
        x.store(workdir / "x", "float32", nodes)
        labels.store(workdir / "y", "uint8", nodes)
        ends.store(workdir / "edge", "uint32", edges)
        if self.years:
            years = raw_table(raw.path, "node_year", 1, low=0, high=YEARS)
            years.store(workdir / "year", "int16", nodes)
        read_split(raw.path, self.rule, nodes)
        return Prepared(workdir, {"nodes": nodes})

    def _size(self, folder: Path, name: str, most: int) -> int:
        """Return the number in the only line of a table."""
        sizes = raw_table(folder, name, 1, low=1, high=most).column()
        if len(sizes) != 1:
            raise DamagedInput(f"raw/{name}.csv.gz is of {len(sizes):,} graphs, not of one.")
        return int(sizes[0])

    def records(
        self, prepared: Prepared, unit: Unit, params: OGBNodesParams
    ) -> Iterator[GraphRecord]:
        """Yield the graph."""
        folder = prepared.path
        index_type = self.schema(params).index_dtype
        edge = stored(folder / "edge", "uint32", 2)
        nodes = prepared.plan["nodes"]
        columns: dict[str, Array] = {
            "node/x": stored(folder / "x", "float32", self.features),
            "node/y": stored(folder / "y", "uint8", 1)[:, 0],
        }
        if self.years:
            columns["node/year"] = stored(folder / "year", "int16", 1)
        edge_index: Integers = edge.T
        # As PyTorch Geometric has them, or in the order in which OGB's own class gives them.
        if params.edges == "undirected":
            edge_index = undirected(edge, nodes)
        elif self.both_ways:
            edge_index = there_and_back(edge)
        yield GraphRecord(
            key=unit.name,
            num_nodes=nodes,
            columns=columns,
            edge_index=edge_index.astype(index_type),
        )

    def split(self, records: Records, params: PublishedSplitParams, raw: Path | None) -> Split:
        """Apply the published lists."""
        nodes = int(records.nodes[0])
        codes = np.empty(nodes, np.uint8)
        lists = read_split(raw_lists(self.manifest, raw), self.rule, nodes)
        for code, rows in enumerate(lists.values()):
            codes[rows] = code
        note = f"the published lists, by {self.rule.replace('_', ' ')}"
        return Split("upstream", "upstream", {}, note=note, node_code=codes)

    def name_parts(self, params: OGBNodesParams) -> list[str]:
        """The edges, where they are not the default."""
        return [] if params.edges == "published" else [params.edges]


class ArxivPipeline(OGBNodesPipeline):
    """Pipeline of ``ogbn-arxiv``."""

    features = 128
    rule = "time"
    years = True


class ProductsPipeline(OGBNodesPipeline):
    """Pipeline of ``ogbn-products``."""

    features = 100
    rule = "sales_ranking"
    both_ways = True
