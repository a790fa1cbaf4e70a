"""Read OGB's tables of graphs: numbers of nodes and edges, one table per column, and split lists."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from kmip_data.arrays import F64, I64
from kmip_data.errors import DamagedInput
from kmip_data.format.graph_record import GraphRecord
from kmip_data.format.schema import Column, Schema
from kmip_data.format.split_files import PARTS
from kmip_data.graphs.molecule_fields import ATOM_SIZES, BOND_SIZES
from kmip_data.manifest import Manifest
from kmip_data.pipelines.base import Prepared, RawCopy, RecordTable, Split, Unit, require_raw
from kmip_data.pipelines.domains.molecules import (
    check_part_lists,
    molecule_columns,
)
from kmip_data.pipelines.formats.numbers import NumberTable
from kmip_data.pipelines.graph_arrays.layout_reader import record_of, schema_of
from kmip_data.pipelines.graph_arrays.mapped_graphs import MappedGraphs, write_array_index
from kmip_data.pipelines.graph_arrays.reverse_edges import edges_in_both_directions
from kmip_data.pipelines.layout_pipelines import MappedGraphsPipeline
from kmip_data.pipelines.parameters import BuildParams, PublishedSplitParams
from kmip_data.pipelines.units_and_splits import OneGraphParams, OneGraphPipeline, split_from_lists

MAX_BYTES = 20_000_000_000  #: maximum size of a decompressed table
MAX_ROWS = 2**31
#: Split part -> name of its list.
LIST_NAMES = dict(zip(PARTS, ("train", "valid", "test"), strict=True))
#: Column key -> name of its table.
_TABLE_NAMES = {
    "node/x": "node-feat",
    "node/y": "node-label",
    "node/year": "node_year",
    "edge/attr": "edge-feat",
    "graph/y": "graph-label",
}
_EDGE_AND_REVERSE = [0, 1, 1, 0]  #: columns of an edge and its reverse


def raw_table(folder: Path, name: str, columns: int, **bounds: Any) -> NumberTable:
    """Return a table of the raw folder with bounds on its values."""
    return NumberTable(folder / "raw" / f"{name}.csv.gz", columns, MAX_BYTES, **bounds)


def store_graphs(
    raw: Path,
    folder: Path,
    schema: Schema,
    upper_bounds: Mapping[str, Sequence[int]] = {},
) -> I64:
    """Write the tables as ``MappedGraphs``, checking every value; return the node count of each graph.

    With an undirected schema, each edge is followed by its reverse. ``upper_bounds`` has the bounds
    of columns whose components differ.
    """
    nodes = raw_table(raw, "num-node-list", 1, low=1, high=schema.max_nodes).read_column()
    edges = raw_table(raw, "num-edge-list", 1, low=0, high=MAX_ROWS).read_column()
    if len(edges) != len(nodes):
        raise DamagedInput(
            f"raw/num-edge-list.csv.gz has {len(edges):,} lines, num-node-list.csv.gz {len(nodes):,}."
        )
    rows = {"node": nodes, "edge": edges, "graph": np.ones_like(nodes)}
    edge_ends = np.cumsum(edges)

    def check_ends(ends: F64, first: int) -> None:
        """Raise ``DamagedInput`` for an edge that leaves its graph."""
        # Nodes are numbered per graph.
        graph = np.searchsorted(edge_ends, np.arange(first, first + len(ends)), side="right")
        is_outside = (ends >= nodes[graph, None]).any(axis=1)
        if is_outside.any():
            row = int(is_outside.argmax())
            raise DamagedInput(
                f"raw/edge.csv.gz, line {first + row + 1}: an edge leads out of its graph.",
                expected=f"numbers below {nodes[graph[row]]}, the nodes of graph {graph[row]}",
                found=f"{ends[row, 0]:.0f},{ends[row, 1]:.0f}",
            )

    folder.mkdir(parents=True)
    layout: dict[str, tuple[str, Sequence[int]]] = {}
    counts = []
    for column in schema.columns:
        table = _column_table(raw, column, upper_bounds.get(column.key))
        has_reverse = column.level == "edge" and not schema.directed
        selected_columns = list(range(table.columns)) * (1 + has_reverse)
        total = int(rows[column.level].sum())
        table.write_array(
            folder / column.attribute, column.stored, total, selected_columns=selected_columns
        )
        layout[column.attribute] = (column.stored, column.shape)
        counts.append(rows[column.level] * (1 + has_reverse))

    table = raw_table(raw, "edge", 2, low=0, high=schema.max_nodes - 1)
    selected_columns = [0, 1] if schema.directed else _EDGE_AND_REVERSE
    table.write_array(
        folder / "edge_index",
        schema.index_dtype,
        int(edges.sum()),
        check=check_ends,
        selected_columns=selected_columns,
    )
    layout["edge_index"] = (schema.index_dtype, (2,))
    counts.append(edges * (len(selected_columns) // 2))
    write_array_index(folder, layout, np.stack(counts, axis=1))
    return nodes


def _column_table(raw: Path, column: Column, high: Sequence[int] | None) -> NumberTable:
    bounds: dict[str, Any] = {
        "requires_integers": column.low is not None,
        "allows_missing": not column.finite,
    }
    if column.low is not None:
        bounds |= {"low": column.low, "high": high or column.upper_bound}
    return raw_table(raw, _TABLE_NAMES[column.key], *(column.shape or (1,)), **bounds)


def published_rule(manifest: Manifest) -> str:
    """Return the published split rule, which is the folder name of its lists."""
    return Path(manifest.content.anchor).parent.name


def read_part_lists(folder: Path, rule: str) -> dict[str, I64]:
    """Return the listed rows of each part."""
    lists = {}
    for part, name in LIST_NAMES.items():
        path = folder / "split" / rule / f"{name}.csv.gz"
        lists[part] = NumberTable(
            path, 1, MAX_BYTES, low=0, high=MAX_ROWS, allows_empty=True
        ).read_column()
    return lists


def read_complete_part_lists(folder: Path, rule: str, rows: int | None) -> dict[str, I64]:
    """Return the listed rows of each part; raises an error unless each row is in one part."""
    return check_part_lists(read_part_lists(folder, rule), rows, name=f"split/{rule}")


# --- Molecules ------------------------------------------------------------------------------------

#: Upper bound of each component of a column.
_UPPER_BOUNDS = {
    "node/x": [size - 1 for size in ATOM_SIZES],
    "edge/attr": [size - 1 for size in BOND_SIZES],
}


class OGBGraphsPipeline(MappedGraphsPipeline):
    """Pipeline of molecules (``ogbg-molhiv``, ``ogbg-molpcba``) with one or more labels."""

    parts = ("graphs",)
    key = "{number:06d}"
    records_per_unit = 8_192  #: about 6 MB per shard

    def schema(self, params: BuildParams) -> Schema:
        """Return the columns of atoms, bonds and labels."""
        labels = self.manifest.expected.classes or 1
        # Only a single label is always known; others may be NaN.
        is_known = labels == 1
        target = Column(
            key="graph/y", attribute="y", shape=(labels,), num_classes=labels,
            stored="uint8" if is_known else "float16",
            presented="int64" if is_known else "float32",
            low=0, high=1, finite=is_known, fields=self.manifest.class_names,
            doc="label: 0 or 1" if is_known else "labels: 0, 1, or NaN where it is not known",
        )  # fmt: skip
        return Schema(
            columns=(*molecule_columns(), target),
            max_nodes=self.manifest.max_nodes,
            directed=False,
            key_length=8,
        )

    def prepare(self, raw: RawCopy, params: BuildParams, workdir: Path) -> Prepared:
        """Convert the tables to memory-mapped arrays, and check the split."""
        nodes = store_graphs(raw.path, workdir / "graphs", self.schema(params), _UPPER_BOUNDS)
        read_complete_part_lists(raw.path, published_rule(self.manifest), len(nodes))
        return Prepared(workdir, {"sizes": {"graphs": len(nodes)}, "listed_numbers": {}})

    def split(
        self, records: RecordTable, params: PublishedSplitParams, raw_folder: Path | None
    ) -> Split:
        """Apply the published lists, which keep the molecules of a scaffold together."""
        lists = read_complete_part_lists(
            require_raw(self.manifest, raw_folder), published_rule(self.manifest), None
        )
        rows = [int(key) for key in records.keys]
        return split_from_lists(
            {part: listed.tolist() for part, listed in lists.items()},
            rows,
            "row numbers",
        )


# --- Node classification graphs -------------------------------------------------------------------


class OGBNodesParams(OneGraphParams):
    """Parameters that change the record."""

    edges: Literal["published", "undirected"] = Field(
        default="published",
        description="published: as in OGB, with citations one way, and product links followed by their reverse; "
        "undirected: both directions, sorted, without duplicates, like PyG's ToUndirected",
    )


class OGBNodesPipeline(OneGraphPipeline[OGBNodesParams, PublishedSplitParams]):
    """Pipeline of single graphs (``ogbn-arxiv``, ``ogbn-products``) with real-valued features."""

    version = 1
    folder_name_templates = (("edges", "{}"),)
    Params = OGBNodesParams

    def schema(self, params: OGBNodesParams) -> Schema:
        """Return the schema of the manifest; undirected edges on request."""
        schema = schema_of(self.manifest)
        return replace(schema, directed=schema.directed and params.edges == "published")

    def prepare(self, raw: RawCopy, params: OGBNodesParams, workdir: Path) -> Prepared:
        """Convert the tables to memory-mapped arrays, and check the split."""
        nodes = store_graphs(raw.path, workdir / "graph", schema_of(self.manifest))
        if len(nodes) != 1:
            raise DamagedInput(f"raw/num-node-list.csv.gz has {len(nodes):,} graphs, not one.")
        read_complete_part_lists(raw.path, published_rule(self.manifest), int(nodes[0]))
        return Prepared(workdir)

    def records(
        self, prepared: Prepared, unit: Unit, params: OGBNodesParams
    ) -> Iterator[GraphRecord]:
        """Yield the only record, the graph."""
        graph = MappedGraphs(prepared.path / "graph")[0]
        schema = self.schema(params)
        if params.edges == "undirected":
            has_reverses = not schema_of(self.manifest).directed
            edges = graph["edge_index"][:: 1 + has_reverses]
            both_directions = edges_in_both_directions(edges, len(graph["x"]))
            graph["edge_index"] = both_directions.T.astype(schema.index_dtype)
        yield record_of(unit.name, graph, schema)

    def split(
        self, records: RecordTable, params: PublishedSplitParams, raw_folder: Path | None
    ) -> Split:
        """Split the nodes by the published lists."""
        nodes = int(records.node_counts[0])
        codes = np.empty(nodes, np.uint8)
        lists = read_complete_part_lists(
            require_raw(self.manifest, raw_folder), published_rule(self.manifest), nodes
        )
        for code, rows in enumerate(lists.values()):
            codes[rows] = code
        note = self.manifest.layout.split_note
        return Split("upstream", "upstream", {}, note=note, part_codes=codes)
