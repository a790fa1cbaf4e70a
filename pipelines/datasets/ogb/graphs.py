"""Many molecules: the reader of ``ogbg-molhiv``, ``ogbg-molpcba`` and others of that layout."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from kmip_data.arrays import F64, I64
from kmip_data.errors import DamagedInput
from kmip_data.format.schema import Column, Schema
from kmip_data.format.writer import GraphRecord
from kmip_data.manifest import Manifest
from kmip_data.pipelines.base import (
    Params,
    Pipeline,
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
from kmip_data.pipelines.shared.edges import there_and_back
from kmip_data.pipelines.shared.molecules import (
    ATOM_FIELDS,
    ATOM_SIZES,
    BOND_FIELDS,
    BOND_SIZES,
    molecule_columns,
)
from kmip_data.pipelines.shared.records import split_by_lists, units_of_rows

RULE = "scaffold"  #: of the split
RECORDS_PER_UNIT = 8_192  #: about 6 MB per shard
HIGHEST_ATOM = tuple(size - 1 for size in ATOM_SIZES)
HIGHEST_BOND = tuple(size - 1 for size in BOND_SIZES)


class OGBGraphsPipeline(Pipeline[Params, PublishedSplitParams]):
    """Molecules with one label, which is always known, or several, which may be unknown."""

    version = 1

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest)
        self.labels = manifest.expected.classes or 1

    @property
    def label_type(self) -> str:
        """Dtype of the labels: one that has NaN where some are unknown."""
        return "uint8" if self.labels == 1 else "float16"

    def schema(self, params: Params) -> Schema:
        """Atoms, bonds and labels."""
        is_known = self.labels == 1
        target = Column(
            key="graph/y", attribute="y", shape=(self.labels,), num_classes=self.labels,
            stored=self.label_type, presented="int64" if is_known else "float32",
            low=0, high=1, finite=is_known, fields=self.manifest.class_names,
            doc="label: 0 or 1" if is_known else "labels: 0, 1, or NaN where it is not known",
        )  # fmt: skip
        return Schema(
            columns=(*molecule_columns(), target),
            edges="index",
            max_nodes=self.manifest.max_nodes,
            directed=False,
            key_length=8,
        )

    def prepare(self, raw: RawFolder, params: Params, workdir: Path) -> Prepared:
        """Write the tables as arrays that workers map, checked line by line; check the split."""
        nodes = raw_table(
            raw.path, "num-node-list", 1, low=1, high=self.manifest.max_nodes
        ).column()
        edges = raw_table(raw.path, "num-edge-list", 1, low=0, high=MOST_ROWS).column()
        graphs = len(nodes)
        if len(edges) != graphs:
            raise DamagedInput(
                f"raw/num-edge-list.csv.gz has {len(edges):,} lines, num-node-list.csv.gz {graphs:,}."
            )
        edge_ptr = _pointer(edges)
        # Tables have the rows of all graphs one after the other: sums say where each begins.
        node_ptr = _pointer(nodes)
        np.save(workdir / "node_ptr.npy", node_ptr)
        np.save(workdir / "edge_ptr.npy", edge_ptr)

        def check_ends(ends: F64, first: int) -> None:
            """Refuse an edge that leads out of its graph."""
            rows = np.arange(first, first + len(ends))
            # Nodes are numbered in their graph: an edge must stay below its number of nodes.
            graph = np.searchsorted(edge_ptr, rows, side="right") - 1
            leads_out = (ends >= nodes[graph, None]).any(axis=1)
            if leads_out.any():
                row = int(leads_out.argmax())
                raise DamagedInput(
                    f"raw/edge.csv.gz, line {first + row + 1}: an edge leads out of its graph.",
                    expected=f"numbers below {nodes[graph[row]]}, the nodes of graph {graph[row]}",
                    found=f"{ends[row, 0]:.0f},{ends[row, 1]:.0f}",
                )

        most = self.manifest.max_nodes - 1
        edge = raw_table(raw.path, "edge", 2, low=0, high=most)
        atoms = raw_table(raw.path, "node-feat", len(ATOM_FIELDS), low=0, high=HIGHEST_ATOM)
        bonds = raw_table(raw.path, "edge-feat", len(BOND_FIELDS), low=0, high=HIGHEST_BOND)
        unknown = self.labels > 1
        labels = raw_table(raw.path, "graph-label", self.labels, low=0, high=1, missing=unknown)
        edge.store(workdir / "edge", "uint32", int(edge_ptr[-1]), check_ends)
        atoms.store(workdir / "atoms", "uint8", int(node_ptr[-1]))
        bonds.store(workdir / "bonds", "uint8", int(edge_ptr[-1]))
        labels.store(workdir / "labels", self.label_type, graphs)
        read_split(raw.path, RULE, graphs)
        return Prepared(workdir, {"graphs": graphs})

    def units(self, prepared: Prepared, params: Params) -> list[Unit]:
        """Deal the graphs."""
        return units_of_rows(params.choose(prepared.plan["graphs"]), RECORDS_PER_UNIT, "graphs")

    def records(self, prepared: Prepared, unit: Unit, params: Params) -> Iterator[GraphRecord]:
        """Yield the graphs of one unit, each edge from its first to its second atom, then back."""
        folder = prepared.path
        node_ptr = np.load(folder / "node_ptr.npy", allow_pickle=False).tolist()
        edge_ptr = np.load(folder / "edge_ptr.npy", allow_pickle=False).tolist()
        edge = stored(folder / "edge", "uint32", 2)
        atoms = stored(folder / "atoms", "uint8", len(ATOM_FIELDS))
        bonds = stored(folder / "bonds", "uint8", len(BOND_FIELDS))
        labels = stored(folder / "labels", self.label_type, self.labels)
        index_type = self.schema(params).index_dtype
        rows = unit.items["rows"]

        # Edges of all graphs of the unit at once: a graph is a slice of them.
        first = edge_ptr[rows[0]]
        of_unit = slice(first, edge_ptr[rows[-1] + 1])
        ends = there_and_back(edge[of_unit].astype(index_type))
        kinds = bonds[of_unit].repeat(2, axis=0)
        for row in rows:
            of_nodes = slice(node_ptr[row], node_ptr[row + 1])
            of_edges = slice(2 * (edge_ptr[row] - first), 2 * (edge_ptr[row + 1] - first))
            columns = {
                "node/x": atoms[of_nodes],
                "edge/attr": kinds[of_edges],
                "graph/y": labels[row],
            }
            yield GraphRecord(
                key=f"{row:06d}",
                num_nodes=node_ptr[row + 1] - node_ptr[row],
                columns=columns,
                edge_index=ends[:, of_edges],
            )

    def split(self, records: Records, params: PublishedSplitParams, raw: Path | None) -> Split:
        """Apply the published lists: molecules of a scaffold are in one part."""
        lists = read_split(raw_lists(self.manifest, raw), RULE, None)
        rows = [int(key) for key in records.keys]
        return split_by_lists(
            {part: listed.tolist() for part, listed in lists.items()},
            rows,
            "row numbers",
        )


def _pointer(sizes: I64) -> I64:
    """Return the first row of each graph, and behind the last the number of all, int64 (G + 1,)."""
    return np.concatenate([[0], np.cumsum(sizes)])
