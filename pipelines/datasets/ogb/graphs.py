"""Molecules: ``ogbg-molhiv``, ``ogbg-molpcba`` and others in that layout."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from kmip_data.format.schema import Column, Schema
from kmip_data.pipelines.base import (
    Params,
    Prepared,
    PublishedSplitParams,
    RawFolder,
    Records,
    Split,
    raw_lists,
)
from kmip_data.pipelines.datasets.ogb.tables import read_split, rule_of, store_graphs
from kmip_data.pipelines.shared.molecules import ATOM_SIZES, BOND_SIZES, molecule_columns
from kmip_data.pipelines.shared.records import split_by_lists
from kmip_data.pipelines.short import PiecesPipeline

#: Upper bound of each component of a column.
_HIGHS = {
    "node/x": [size - 1 for size in ATOM_SIZES],
    "edge/attr": [size - 1 for size in BOND_SIZES],
}


class OGBGraphsPipeline(PiecesPipeline):
    """Molecules with one known label, or several possibly unknown ones."""

    parts: ClassVar[Sequence[str]] = ("graphs",)
    key = "{number:06d}"
    records_per_unit = 8_192  #: about 6 MB per shard

    def schema(self, params: Params) -> Schema:
        """Atoms, bonds and labels."""
        labels = self.manifest.expected.classes or 1
        is_known = labels == 1
        target = Column(
            key="graph/y", attribute="y", shape=(labels,), num_classes=labels,
            stored="uint8" if is_known else "float16",  # which has NaN where one is unknown
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

    def prepare(self, raw: RawFolder, params: Params, workdir: Path) -> Prepared:
        """Write the tables as memory-mapped arrays; check the split."""
        nodes = store_graphs(raw.path, workdir / "graphs", self.schema(params), _HIGHS)
        read_split(raw.path, rule_of(self.manifest), len(nodes))
        return Prepared(workdir, {"sizes": {"graphs": len(nodes)}, "numbers": {"graphs": None}})

    def split(self, records: Records, params: PublishedSplitParams, raw: Path | None) -> Split:
        """Apply the published lists, which keep molecules of a scaffold in one part."""
        lists = read_split(raw_lists(self.manifest, raw), rule_of(self.manifest), None)
        rows = [int(key) for key in records.keys]
        return split_by_lists(
            {part: listed.tolist() for part, listed in lists.items()},
            rows,
            "row numbers",
        )
