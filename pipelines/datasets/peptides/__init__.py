"""Peptides-func and peptides-struct (LRGB): molecules of up to 444 heavy atoms, from SMILES.

Raw layout: a gzipped CSV with a SMILES and ten labels or eleven properties per row, and a pickle with
the row numbers of train, val and test. Facts and deviations: ``docs/datasets/peptides.md``,
``docs/fidelity.md``.
"""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
from pydantic import Field

from kmip_data.arrays import F64, I64, Array
from kmip_data.errors import DamagedInput
from kmip_data.format.schema import Column
from kmip_data.manifest import Manifest
from kmip_data.pipelines.base import CardAdditions, Prepared, RawCopy
from kmip_data.pipelines.domains.molecules import (
    MoleculeParams,
    MoleculePipeline,
    check_smiles_characters,
)
from kmip_data.pipelines.formats.text import read_columns
from kmip_data.pipelines.graph_arrays.mapped_graphs import write_strings
from kmip_data.pipelines.parameters import PublishedSplitParams

TARGETS = (
    "Inertia_mass_a", "Inertia_mass_b", "Inertia_mass_c", "Inertia_valence_a", "Inertia_valence_b",
    "Inertia_valence_c", "length_a", "length_b", "length_c", "Spherocity", "Plane_best_fit",
)  # fmt: skip
_LABELS = re.compile(r"\s*\[\s*[01]\s*(?:,\s*[01]\s*){9}\]\s*")
MAX_TABLE_BYTES = 20_000_000_000  #: decompressed, including unused columns

P = TypeVar("P", bound=MoleculeParams)


class PeptidesPipeline(MoleculePipeline[P, PublishedSplitParams]):
    """Base class for both datasets, which have different CSV columns and ``y``."""

    records_per_unit = 1024  #: about 3.5 MB per shard, small enough for several workers
    table_file: ClassVar[str]  #: name of the CSV file
    target_fields: ClassVar[tuple[str, ...]]  #: CSV columns with the targets

    @abstractmethod
    def parse_targets(self, fields: Sequence[str], location: str) -> list[float]:
        """Parse the target fields of a CSV row to a row of ``y``."""

    def finish_targets(
        self, targets: F64, lists: dict[str, I64], params: P
    ) -> tuple[Array, dict[str, object]]:
        """Return ``y`` (n, C) of all rows as stored, and further entries of ``facts``."""
        return targets.astype(self.target_column().stored), {}

    def prepare(self, raw: RawCopy, params: P, workdir: Path) -> Prepared:
        """Convert the table to seekable SMILES and an array ``y``, and check the split lists."""
        # 1. Read SMILES and targets from the CSV.
        smiles = []
        targets = []
        table = read_columns(
            raw.path / self.table_file, ("smiles", *self.target_fields), max_bytes=MAX_TABLE_BYTES
        )
        for row, (text, *fields) in enumerate(table):
            location = f"{self.table_file}, row {row}"
            check_smiles_characters(text, location)
            smiles.append(text)
            targets.append(self.parse_targets(fields, location))

        # 2. Check the published split, which may also scale the targets.
        lists = self.read_part_lists(raw.path, "upstream", len(smiles))
        y, facts = self.finish_targets(np.array(targets, np.float64), lists, params)

        # 3. Write what the workers read.
        write_strings(workdir / "smiles", smiles)
        np.save(workdir / "y.npy", y)
        return Prepared(workdir, {"rows": len(smiles), **facts})


class PeptidesFuncPipeline(PeptidesPipeline[MoleculeParams]):
    """Pipeline of ``peptides-func``."""

    table_file = "peptide_multi_class_dataset.csv.gz"
    split_files: ClassVar[dict[str, str]] = {"upstream": "splits_random_stratified_peptide.pickle"}
    target_fields = ("labels",)

    def target_column(self) -> Column:
        """Return the column of ten binary labels."""
        names = self.manifest.class_names
        return Column(
            key="graph/y", attribute="y", stored="uint8", presented="float32",
            shape=(len(names),), fields=names, low=0, high=1, num_classes=len(names),
            doc="whether the peptide has each of ten functions",
        )  # fmt: skip

    def parse_targets(self, fields: Sequence[str], location: str) -> list[float]:
        """Parse a list of ten labels, 0 or 1."""
        labels = fields[0]
        if _LABELS.fullmatch(labels) is None:
            raise DamagedInput(
                f"{location}: not a list of ten labels 0 or 1: {ascii(labels)[:200]}"
            )
        return [float(digit) for digit in labels if digit in "01"]


class PeptidesStructParams(MoleculeParams):
    """Parameters that change the records."""

    target_scaling: Literal["none", "train"] = Field(
        default="none",
        description="none: the targets as published, standardised over all rows including test rows; "
        "train: standardised with mean and deviation of the train rows only",
    )


class PeptidesStructPipeline(PeptidesPipeline[PeptidesStructParams]):
    """Pipeline of ``peptides-struct``."""

    Params = PeptidesStructParams
    table_file = "peptide_structure_normalized_dataset.csv.gz"
    split_files: ClassVar[dict[str, str]] = {
        "upstream": "splits_random_stratified_peptide_structure.pickle"
    }
    target_fields = TARGETS

    def target_column(self) -> Column:
        """Return the column of eleven properties of the 3D structure."""
        return Column(
            key="graph/y", attribute="y", stored="float32", presented="float32",
            shape=(len(TARGETS),), fields=TARGETS, unit="standard deviations",
            doc="properties of the 3D structure, standardised",
        )  # fmt: skip

    def parse_targets(self, fields: Sequence[str], location: str) -> list[float]:
        """Parse the eleven targets of a row."""
        values = []
        for name, cell in zip(TARGETS, fields, strict=True):
            try:
                value = float(cell)
            except ValueError:
                value = math.nan
            if not math.isfinite(value):
                raise DamagedInput(f"{location}: {name} is not a finite number: {ascii(cell)[:80]}")
            values.append(value)
        return values

    def finish_targets(
        self, targets: F64, lists: dict[str, I64], params: PeptidesStructParams
    ) -> tuple[Array, dict[str, object]]:
        """Standardise the targets (n, C) with the train rows, if requested."""
        if params.target_scaling == "none":
            return targets.astype(np.float32), {}
        train = targets[lists["train"]]
        if len(train) < 2 or not np.ptp(train, axis=0).all():
            raise DamagedInput(
                f"{self.table_file}: the targets of {len(train)} train rows cannot be standardised, because "
                "there is one row, or all values of a target are equal."
            )
        mean = train.mean(axis=0)
        deviation = train.std(axis=0, ddof=1)
        scaled = ((targets - mean) / deviation).astype(np.float32)
        return scaled, {"target_scaling": {"mean": mean.tolist(), "deviation": deviation.tolist()}}

    def card_additions(self, prepared: Prepared, params: PeptidesStructParams) -> CardAdditions:
        """Return mean and deviation for converting predictions to the table's units."""
        scaling = prepared.facts.get("target_scaling")
        if scaling is None:
            return CardAdditions()
        note = "Targets are standardised with mean and deviation of the train rows"
        statistics = {"target_scaling": {"targets": list(TARGETS), **scaling}}
        return CardAdditions(statistics, (f"{note} (statistics.target_scaling).",))

    def folder_name_pieces(self, params: PeptidesStructParams) -> list[str]:
        """Return folder name parts for non-default values."""
        scaled = ["train-scaled"] if params.target_scaling == "train" else []
        return [*scaled, *super().folder_name_pieces(params)]


def make_pipeline(manifest: Manifest) -> PeptidesPipeline[Any]:
    """Return the pipeline of the manifest's dataset."""
    is_struct = manifest.registered_name == "peptides-struct"
    pipeline = PeptidesStructPipeline if is_struct else PeptidesFuncPipeline
    return pipeline(manifest)


PIPELINE = make_pipeline
