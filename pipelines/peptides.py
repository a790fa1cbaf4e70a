"""Peptides-func and peptides-struct (LRGB): molecules of up to 444 heavy atoms, from SMILES.

Raw layout: a gzip-compressed CSV with a SMILES a row and ten labels, or eleven properties, beside it;
and a pickle with the row numbers of train, val and test. Facts and deviations:
``docs/datasets/peptides.md``, ``docs/fidelity.md``.
"""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from kmip_data.errors import DamagedInput
from kmip_data.format.record import GraphRecord, Skipped
from kmip_data.format.schema import Column, Schema
from kmip_data.manifest import Manifest
from kmip_data.pipelines.base import (
    About,
    Pipeline,
    Prepared,
    RawFolder,
    Records,
    Split,
    SplitParams,
    Unit,
    raw_lists,
)
from kmip_data.pipelines.clouds.graphs import advised
from kmip_data.pipelines.formats.numpy_pickle import NUMPY
from kmip_data.pipelines.formats.restricted_pickle import read_pickle
from kmip_data.pipelines.formats.text_rows import Rows, write_rows
from kmip_data.pipelines.formats.text_tables import read_columns
from kmip_data.pipelines.molecules.features import read_smiles
from kmip_data.pipelines.molecules.graphs import (
    KEY_LENGTH,
    MoleculeParams,
    as_record,
    deal_rows,
    molecule_columns,
    record_or_skip,
    row_key,
)
from kmip_data.pipelines.splits.index import apply_lists, check_partition, count_rows

LABELS = (
    "antifungal", "cell_cell_communication", "anticancer", "drug_delivery_vehicle", "antimicrobial",
    "antiviral", "antihypertensive", "antibacterial", "antiparasitic", "toxic",
)  # fmt: skip
TARGETS = (
    "Inertia_mass_a", "Inertia_mass_b", "Inertia_mass_c", "Inertia_valence_a", "Inertia_valence_b",
    "Inertia_valence_c", "length_a", "length_b", "length_c", "Spherocity", "Plane_best_fit",
)  # fmt: skip
RECORDS_PER_UNIT = 1024  #: about 3.5 MB a shard, so that several workers have work
MAX_TABLE_BYTES = (
    20_000_000_000  #: of the decompressed CSV: that of peptides-struct has columns not read here
)

P = TypeVar("P", bound=MoleculeParams)


class PeptidesSplitParams(SplitParams):
    """Parameters of the split."""

    split: Literal["upstream", "stratified"] = Field(
        default="upstream",
        description="upstream: the published row numbers; stratified: drawn anew, equal "
        "shares of the classes",
    )


class PeptidesPipeline(Pipeline[P, PeptidesSplitParams]):
    """What both sets share; they differ in the columns of the CSV and in ``y``."""

    version = 1
    extra = "chem"
    SplitParams: ClassVar[type[PeptidesSplitParams]] = PeptidesSplitParams
    table: ClassVar[str]  #: name of the CSV
    lists: ClassVar[str]  #: name of the pickle
    columns: ClassVar[tuple[str, ...]]  #: of the CSV, after ``smiles``

    @abstractmethod
    def label(self) -> Column:
        """Return the column ``y``."""

    @abstractmethod
    def parse(self, fields: Sequence[str], where: str) -> list[float]:
        """Return the values of ``y`` from the fields of a row."""

    def finish_targets(
        self, targets: NDArray[np.float64], lists: dict[str, NDArray[np.int64]], params: P
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Return ``y`` of all rows as it is stored, and what the plan keeps about it."""
        return targets.astype(self.label().stored), {}

    def schema(self, params: P) -> Schema:
        """Atoms, bonds and ``y``."""
        return Schema(
            columns=(*molecule_columns(), self.label()),
            edges="index",
            max_nodes=self.manifest.max_nodes,
            directed=False,
            key_length=KEY_LENGTH,
        )

    def sample(self, folder: Path, *, limit: int | None, seed: int = 0) -> None:
        """Write generated peptides in the upstream layout."""
        from kmip_data.pipelines.samples.peptides import write_sample

        write_sample(folder, self, peptides=limit, seed=seed)

    def prepare(self, raw: RawFolder, params: P, workdir: Path) -> Prepared:
        """Read the table once: SMILES that can be sought, ``y`` as an array; check the split lists."""
        with advised(self.manifest.name):
            smiles, targets = [], []
            path = raw.path / self.table
            for row, (text, *fields) in enumerate(
                read_columns(path, ("smiles", *self.columns), max_bytes=MAX_TABLE_BYTES)
            ):
                where = f"{self.table}, row {row}"
                if not text.isascii() or not text.isprintable():
                    raise DamagedInput(f"{where}: not a SMILES.", expected="ASCII", found=ascii(text)[:200])
                smiles.append(text)
                targets.append(self.parse(fields, where))
            lists = self._read_lists(raw.path, len(smiles))
            y, facts = self.finish_targets(np.array(targets, np.float64), lists, params)
            write_rows(workdir, smiles)
            np.save(workdir / "y.npy", y)
        return Prepared(workdir, {"rows": len(smiles), **facts})

    def units(self, prepared: Prepared, params: P) -> list[Unit]:
        """Deal the rows."""
        dealt = deal_rows(params.choose(prepared.plan["rows"]), RECORDS_PER_UNIT)
        return [Unit(i, f"rows {rows[0]} to {rows[-1]}", {"rows": rows}) for i, rows in enumerate(dealt)]

    def records(self, prepared: Prepared, unit: Unit, params: P) -> Iterator[GraphRecord | Skipped]:
        """Yield the molecules of one unit in the order of the rows."""
        smiles = Rows(prepared.path)
        y = np.load(prepared.path / "y.npy", mmap_mode="r", allow_pickle=False)
        for row in unit.items["rows"]:
            key, text = row_key(row), smiles[row]
            make = partial(_make, key, text, np.array(y[row]))
            yield record_or_skip(key, text, make, params, self.manifest.name)

    def split(self, records: Records, params: PeptidesSplitParams, raw: Path | None) -> Split:
        """Apply the published row numbers."""
        raw = raw_lists(raw, f"kmip-data build {self.manifest.name}")
        with advised(self.manifest.name):
            lists = self._read_lists(raw, None)
        parts = apply_lists(lists, records)
        return Split("upstream", "upstream", {}, parts, "the row numbers of the raw data, in their order")

    def name_parts(self, params: P) -> list[str]:
        """What deviates from the defaults."""
        return ["skip"] if params.on_error == "skip" else []

    def _read_lists(self, folder: Path, rows: int | None) -> dict[str, NDArray[np.int64]]:
        """Read the split; ``rows`` is the number of rows of the table, ``None`` where that was checked."""
        with (folder / self.lists).open("rb") as file:
            lists = read_pickle(file, NUMPY, name=self.lists)
        return check_partition(lists, count_rows(lists) if rows is None else rows, name=self.lists)


def _make(key: str, smiles: str, y: NDArray[Any]) -> GraphRecord:
    return as_record(key, read_smiles(smiles), {"graph/y": y})


class PeptidesFuncPipeline(PeptidesPipeline[MoleculeParams]):
    """The pipeline of ``manifests/datasets/peptides-func.toml``."""

    Params: ClassVar[type[MoleculeParams]] = MoleculeParams
    table = "peptide_multi_class_dataset.csv.gz"
    lists = "splits_random_stratified_peptide.pickle"
    columns = ("labels",)

    def label(self) -> Column:
        """Ten labels, several of which may hold."""
        return Column(
            key="graph/y",
            attribute="y",
            stored="uint8",
            presented="float32",
            shape=(len(LABELS),),
            fields=LABELS,
            low=0,
            high=1,
            num_classes=len(LABELS),
            doc="whether the peptide has each of ten functions",
        )

    def parse(self, fields: Sequence[str], where: str) -> list[float]:
        """Read a list of ten 0 and 1."""
        text = fields[0]
        if _LABELS.fullmatch(text) is None:
            raise DamagedInput(
                f"{where}: not a list of labels.",
                expected="ten 0 or 1, such as [0, 0, 1, 0, 0, 0, 0, 0, 0, 0]",
                found=ascii(text)[:200],
            )
        return [float(digit) for digit in text if digit in "01"]


_LABELS = re.compile(r"\s*\[\s*[01]\s*(?:,\s*[01]\s*){9}\]\s*")


class PeptidesStructParams(MoleculeParams):
    """Parameters that change the records."""

    target_scaling: Literal["none", "train"] = Field(
        default="none",
        description="none: the targets as published, standardised over all rows, test rows among them; "
        "train: standardised with mean and deviation of the train rows alone",
    )


class PeptidesStructPipeline(PeptidesPipeline[PeptidesStructParams]):
    """The pipeline of ``manifests/datasets/peptides-struct.toml``."""

    Params: ClassVar[type[PeptidesStructParams]] = PeptidesStructParams
    table = "peptide_structure_normalized_dataset.csv.gz"
    lists = "splits_random_stratified_peptide_structure.pickle"
    columns = TARGETS

    def label(self) -> Column:
        """Eleven properties of the 3D structure."""
        return Column(
            key="graph/y",
            attribute="y",
            stored="float32",
            presented="float32",
            shape=(len(TARGETS),),
            fields=TARGETS,
            unit="standard deviations",
            doc="properties of the 3D structure, standardised",
        )

    def parse(self, fields: Sequence[str], where: str) -> list[float]:
        """Read eleven numbers."""
        values = []
        for name, text in zip(TARGETS, fields, strict=True):
            try:
                value = float(text)
            except ValueError:
                value = math.nan
            if not math.isfinite(value):
                raise DamagedInput(
                    f"{where}: {name} is no finite number.", expected="such as -0.25", found=ascii(text)[:80]
                )
            values.append(value)
        return values

    def finish_targets(
        self, targets: NDArray[np.float64], lists: dict[str, NDArray[np.int64]], params: PeptidesStructParams
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Standardise with the train rows if asked; the published file must be the standardised one."""
        train = targets[lists["train"]]
        if params.target_scaling == "none":
            _require_standardised(targets, self.manifest)
            return targets.astype(np.float32), {}
        if len(train) < 2 or not (train.std(axis=0, ddof=1) > 0).all():
            raise DamagedInput(
                f"{self.table}: the targets of the train rows cannot be standardised.",
                expected="at least two train rows, and no target that is the same in all",
                found=f"{len(train)} train rows",
            )
        mean, deviation = train.mean(axis=0), train.std(axis=0, ddof=1)
        scaled = ((targets - mean) / deviation).astype(np.float32)
        return scaled, {"target_scaling": {"mean": mean.tolist(), "deviation": deviation.tolist()}}

    def about(self, prepared: Prepared, params: PeptidesStructParams) -> About:
        """Keep mean and deviation, which turn predictions back into the units of the table."""
        facts = prepared.plan.get("target_scaling")
        if facts is None:
            return About()
        note = (
            "Targets are standardised with mean and deviation of the train rows (statistics.target_scaling)."
        )
        return About({"target_scaling": {"targets": list(TARGETS), **facts}}, (note,))

    def name_parts(self, params: PeptidesStructParams) -> list[str]:
        """What deviates from the defaults."""
        scaled = ["train-scaled"] if params.target_scaling == "train" else []
        return [*scaled, *super().name_parts(params)]


def _require_standardised(targets: NDArray[np.float64], manifest: Manifest) -> None:
    """Refuse the complete set without standardisation: it would pass for the published targets."""
    if len(targets) != manifest.expected.graphs:
        return
    mean, deviation = targets.mean(axis=0), targets.std(axis=0, ddof=1)
    if np.abs(mean).max() > 1e-6 or np.abs(deviation - 1).max() > 1e-6:
        raise DamagedInput(
            "The targets are not standardised, as the published ones are.",
            expected=f"{PeptidesStructPipeline.table}: mean 0 and deviation 1 over all rows",
            found=f"means up to {np.abs(mean).max():.3g}, deviations up to {deviation.max():.3g}",
            next=f"kmip-data build {manifest.name} --target-scaling train, or the published file",
        )


def PIPELINE(manifest: Manifest) -> PeptidesPipeline[Any]:  # noqa: N802 -- a class to those who call it
    """Return the pipeline of the set that the manifest names."""
    pipeline = PeptidesStructPipeline if manifest.file == "peptides-struct" else PeptidesFuncPipeline
    return pipeline(manifest)
