"""Peptides-func and peptides-struct (LRGB): molecules of up to 444 heavy atoms, from SMILES.

Raw layout: a gzip-compressed CSV with one SMILES per row and ten labels, or eleven properties, next
to it; and a pickle with the row numbers of train, val and test. Facts and deviations:
``docs/datasets/peptides.md``, ``docs/fidelity.md``.
"""

from __future__ import annotations

import math
import pickle
import re
from abc import abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
from numpy.random import PCG64, Generator
from pydantic import Field

from kmip_data.arrays import F64, I64, Array
from kmip_data.errors import DamagedInput
from kmip_data.files.reading import csv_bytes
from kmip_data.format.schema import Column
from kmip_data.format.writer import GraphRecord
from kmip_data.manifest import Manifest, read_shipped
from kmip_data.pipelines.base import About, Prepared, PublishedSplitParams, RawFolder
from kmip_data.pipelines.formats.text import read_columns, write_rows
from kmip_data.pipelines.shared.molecules import MoleculeParams, MoleculePipeline, read_smiles
from kmip_data.pipelines.shared.sample_files import deal, gzipped, part_sizes

TARGETS = (
    "Inertia_mass_a", "Inertia_mass_b", "Inertia_mass_c", "Inertia_valence_a", "Inertia_valence_b",
    "Inertia_valence_c", "length_a", "length_b", "length_c", "Spherocity", "Plane_best_fit",
)  # fmt: skip
#: Size of the decompressed CSV; that of peptides-struct has columns not read here.
MAX_TABLE_BYTES = 20_000_000_000

P = TypeVar("P", bound=MoleculeParams)


class PeptidesPipeline(MoleculePipeline[P, PublishedSplitParams]):
    """Base of both datasets, which differ in the CSV's columns and in ``y``."""

    records_per_unit = 1024  #: about 3.5 MB per shard, so that several workers have work
    table: ClassVar[str]  #: name of the CSV
    columns: ClassVar[tuple[str, ...]]  #: of the CSV, after ``smiles``

    @abstractmethod
    def parse(self, fields: Sequence[str], where: str) -> list[float]:
        """Return the values of ``y`` from the fields of a row."""

    def finish_targets(
        self, targets: F64, lists: dict[str, I64], params: P
    ) -> tuple[Array, dict[str, object]]:
        """Return ``y`` of all rows as it is stored, and what the plan keeps about it."""
        return targets.astype(self.target().stored), {}

    def prepare(self, raw: RawFolder, params: P, workdir: Path) -> Prepared:
        """Read the table once: seekable SMILES, ``y`` as an array.

        Check the split lists.
        """
        smiles = []
        targets = []
        table = read_columns(
            raw.path / self.table, ("smiles", *self.columns), max_bytes=MAX_TABLE_BYTES
        )
        for row, (text, *fields) in enumerate(table):
            where = f"{self.table}, row {row}"
            if not text.isascii() or not text.isprintable():
                raise DamagedInput(f"{where}: not a SMILES: {ascii(text)[:200]}")
            smiles.append(text)
            targets.append(self.parse(fields, where))
        lists = self.read_lists(raw.path, "upstream", len(smiles))
        y, facts = self.finish_targets(np.array(targets, np.float64), lists, params)
        write_rows(workdir, smiles)
        np.save(workdir / "y.npy", y)
        return Prepared(workdir, {"rows": len(smiles), **facts})

    def reader(self, prepared: Prepared) -> Callable[[int, str, str], GraphRecord]:
        """Read the SMILES; ``y`` is already stored."""
        y = np.load(prepared.path / "y.npy", mmap_mode="r", allow_pickle=False)
        return lambda row, key, smiles: read_smiles(smiles).record(
            key, **{"graph/y": np.array(y[row])}
        )


class PeptidesFuncPipeline(PeptidesPipeline[MoleculeParams]):
    """Pipeline of ``peptides-func``."""

    table = "peptide_multi_class_dataset.csv.gz"
    lists: ClassVar[dict[str, str]] = {"upstream": "splits_random_stratified_peptide.pickle"}
    columns = ("labels",)

    def target(self) -> Column:
        """Return ten labels, of which several may be 1."""
        names = self.manifest.class_names
        return Column(
            key="graph/y", attribute="y", stored="uint8", presented="float32",
            shape=(len(names),), fields=names, low=0, high=1, num_classes=len(names),
            doc="whether the peptide has each of ten functions",
        )  # fmt: skip

    def parse(self, fields: Sequence[str], where: str) -> list[float]:
        """Read a list of ten 0 and 1."""
        text = fields[0]
        if _LABELS.fullmatch(text) is None:
            raise DamagedInput(f"{where}: not a list of ten labels 0 or 1: {ascii(text)[:200]}")
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
    """Pipeline of ``peptides-struct``."""

    Params = PeptidesStructParams
    table = "peptide_structure_normalized_dataset.csv.gz"
    lists: ClassVar[dict[str, str]] = {
        "upstream": "splits_random_stratified_peptide_structure.pickle"
    }
    columns = TARGETS

    def target(self) -> Column:
        """Eleven properties of the 3D structure."""
        return Column(
            key="graph/y", attribute="y", stored="float32", presented="float32",
            shape=(len(TARGETS),), fields=TARGETS, unit="standard deviations",
            doc="properties of the 3D structure, standardised",
        )  # fmt: skip

    def parse(self, fields: Sequence[str], where: str) -> list[float]:
        """Read eleven numbers."""
        values = []
        for name, text in zip(TARGETS, fields, strict=True):
            try:
                value = float(text)
            except ValueError:
                value = math.nan
            if not math.isfinite(value):
                raise DamagedInput(f"{where}: {name} is not a finite number: {ascii(text)[:80]}")
            values.append(value)
        return values

    def finish_targets(
        self, targets: F64, lists: dict[str, I64], params: PeptidesStructParams
    ) -> tuple[Array, dict[str, object]]:
        """Standardise with the train rows if asked.

        The complete file must be the standardised one.
        """
        if params.target_scaling == "none":
            if (
                len(targets) == self.manifest.expected.graphs
            ):  # other targets would pass as the published ones
                mean = targets.mean(axis=0)
                deviation = targets.std(axis=0, ddof=1)
                if np.abs([mean, deviation - 1]).max() > 1e-6:
                    raise DamagedInput(
                        f"The targets are not standardised, as the published ones are: means up to "
                        f"{np.abs(mean).max():.3g}, deviations up to {deviation.max():.3g}.",
                        next="--set target_scaling=train, or the published file",
                    )
            return targets.astype(np.float32), {}
        train = targets[lists["train"]]
        if len(train) < 2 or not np.ptp(train, axis=0).all():
            raise DamagedInput(
                f"{self.table}: the targets of {len(train)} train rows cannot be standardised: one row, or "
                "one value in all."
            )
        mean = train.mean(axis=0)
        deviation = train.std(axis=0, ddof=1)
        scaled = ((targets - mean) / deviation).astype(np.float32)
        return scaled, {"target_scaling": {"mean": mean.tolist(), "deviation": deviation.tolist()}}

    def about(self, prepared: Prepared, params: PeptidesStructParams) -> About:
        """Return mean and deviation, which convert predictions to the table's units."""
        facts = prepared.plan.get("target_scaling")
        if facts is None:
            return About()
        note = "Targets are standardised with mean and deviation of the train rows"
        statistics = {"target_scaling": {"targets": list(TARGETS), **facts}}
        return About(statistics, (f"{note} (statistics.target_scaling).",))

    def name_parts(self, params: PeptidesStructParams) -> list[str]:
        """Parts of the folder's name for values other than the defaults."""
        scaled = ["train-scaled"] if params.target_scaling == "train" else []
        return [*scaled, *super().name_parts(params)]


def PIPELINE(manifest: Manifest) -> PeptidesPipeline[Any]:  # noqa: N802 -- a class to those who call it
    """Return the pipeline of the manifest's dataset."""
    pipeline = (
        PeptidesStructPipeline if manifest.file == "peptides-struct" else PeptidesFuncPipeline
    )
    return pipeline(manifest)


# --- Sample ---------------------------------------------------------------------------------------

# Sample peptides in the layout of peptides-func and peptides-struct: generated, never the real data.
#
# Chains of random amino acids are written as SMILES the way upstream writes them, with a D-residue, a
# charged side chain or an amide end here and there. Labels and targets follow from the residues, with
# some noise, so that they can be learned.

DEFAULT_PEPTIDES = 64
NUM_LABELS = 10  #: of peptides-func
LENGTHS = (4, 40)  #: residues; about as many atoms as the published peptides have

_RESIDUES = read_shipped("tables", "residues")
#: Side chains by one-letter code.
SIDE_CHAINS: dict[str, str] = _RESIDUES["side_chains"]
CHARGED: dict[str, str] = _RESIDUES["charged"]


def write_sample(
    folder: Path,
    manifest: Manifest,
    limit: int | None,
    seed: int,
) -> None:
    """Write the CSV and the split pickle of one of the two sets."""
    pipeline = PIPELINE(manifest)
    columns = pipeline.columns
    count = limit or DEFAULT_PEPTIDES
    rng = Generator(PCG64(seed))
    chains = [_chain(rng) for _ in range(count)]
    composition = np.zeros((count, len(SIDE_CHAINS)))
    for row, chain in enumerate(chains):
        composition[row] = [chain.upper().count(code) for code in SIDE_CHAINS]

    header = ["", "smiles", "peptide_seq", *columns]
    more = []
    if len(columns) == 1:
        header.append("identifier")
        for i, labels in enumerate(_labels(composition, NUM_LABELS, rng).tolist()):
            more.append([str(labels), 3 * i + 4])
    else:
        # All digits, as upstream's tables have them.
        targets = _targets(composition, len(columns), rng).tolist()
        more += [list(map(repr, row)) for row in targets]
    rows = []
    for i, chain in enumerate(chains):
        rows.append([i, _written(chain, rng), chain, *more[i]])
    (folder / pipeline.table).write_bytes(gzipped(csv_bytes(header, rows)))

    dealt = deal(rng.permutation(count), part_sizes(count, manifest.expected.splits["upstream"]))
    listed = {part: np.sort(rows) for part, rows in dealt.items()}
    (folder / pipeline.lists["upstream"]).write_bytes(pickle.dumps(listed, protocol=4))


def _written(chain: str, rng: Generator) -> str:
    """Write a chain of one-letter codes (small ones for D-residues) as SMILES, from its amine end."""
    parts = []
    for code in chain:
        residue = code.upper()
        side = SIDE_CHAINS[residue]
        if residue in CHARGED and rng.random() < 0.15:
            side = CHARGED[residue]
        if residue == "G":
            parts.append("NCC(=O)")
        elif residue == "P":
            parts.append("N1CCC[C@H]1C(=O)")
        else:
            centre = "C@H" if code.islower() else "C@@H"
            parts.append(f"N[{centre}]({side})C(=O)")
    parts.append("N" if rng.random() < 0.3 else "O")
    return "".join(parts)


def _chain(rng: Generator) -> str:
    codes = list(SIDE_CHAINS)
    # Few kinds of residues per peptide: compositions differ, as those of functions do.
    weights = rng.dirichlet(np.full(len(codes), 0.35))
    length = int(rng.integers(LENGTHS[0], LENGTHS[1] + 1))
    chain = rng.choice(codes, size=length, p=weights).tolist()
    small = rng.random(length) < 0.08
    for i in np.flatnonzero(small):
        chain[i] = chain[i].lower()
    return "".join(chain)


def _labels(composition: F64, count: int, rng: Generator) -> I64:
    """At least one label per peptide; label i goes with what residues i and 19 − i outweigh."""
    total = composition.sum(axis=1, keepdims=True)
    share = composition / total
    opposite = share[:, ::-1]
    noise = rng.normal(0, 0.02, (len(share), count))
    score = share[:, :count] + opposite[:, :count] + noise
    labels: I64 = (score > 0.16).astype(np.int64)
    labels[np.arange(len(labels)), score.argmax(axis=1)] = 1
    return labels


def _targets(composition: F64, count: int, rng: Generator) -> F64:
    """Sums over the residues, standardised over all rows as upstream's are.

    Residue by residue, in one order: a matrix product adds in the order of the CPU's own kernel.
    """
    weights = rng.normal(1.0, 0.4, (composition.shape[1], count))
    raw = np.zeros((len(composition), count))
    for residues, weight in zip(composition.T, weights, strict=True):
        raw += residues[:, None] * weight
    raw += rng.normal(0, 0.1, raw.shape)
    if len(raw) < 2:
        return raw * 0
    scaled: F64 = (raw - raw.mean(axis=0)) / raw.std(axis=0, ddof=1)
    return scaled
