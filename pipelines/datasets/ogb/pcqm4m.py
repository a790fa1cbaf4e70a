"""PCQM4Mv2 of OGB-LSC: molecules from SMILES, and their HOMO-LUMO gap.

Raw layout: ``raw/data.csv.gz`` with the columns ``smiles`` and ``homolumogap``, empty for the
challenge rows, and ``split_dict.pt``, saved by ``torch.save``, with four lists of row numbers.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from kmip_data.arrays import I64
from kmip_data.errors import DamagedInput
from kmip_data.format.schema import Column
from kmip_data.pipelines.base import Prepared, RawCopy, Unit
from kmip_data.pipelines.domains.molecules import (
    MoleculeParams,
    MoleculePipeline,
    check_part_lists,
    check_smiles_characters,
)
from kmip_data.pipelines.formats.tensors import NUMPY_GLOBALS, read_torch_file
from kmip_data.pipelines.formats.text import read_columns
from kmip_data.pipelines.graph_arrays.mapped_graphs import write_strings
from kmip_data.pipelines.parameters import BaseSplitParams
from kmip_data.pipelines.units_and_splits import units_of_rows

TABLE_FILE = "raw/data.csv.gz"
SPLIT_FILE = "split_dict.pt"
PUBLISHED_PARTS = ("train", "valid", "test-dev", "test-challenge")
MAX_TABLE_BYTES = 10_000_000_000
TRAIN_ROWS = 3_378_606  #: train rows of the complete dataset
VALIDATION_ROWS = 150_000  #: train rows that GraphGPS uses for validation
GRAPHGPS_SEED = 42


class PCQM4MSplitParams(BaseSplitParams):
    """Parameters of the split."""

    split_rule: Literal["graphgps", "upstream", "stratified"] = Field(
        default="graphgps",
        description="graphgps: validate on 150,000 train molecules and test on OGB's validation molecules, as in "
        "GraphGPS; upstream: OGB's train, valid and test-dev, which has no targets; stratified: a new draw "
        "(at random: there are no classes)",
    )


class PCQM4MPipeline(MoleculePipeline[MoleculeParams, PCQM4MSplitParams]):
    """Pipeline of ``pcqm4mv2`` and ``pcqm4mv2-subset``, GraphGPS's tenth of the train molecules."""

    SplitParams = PCQM4MSplitParams
    records_per_unit = 32_768  #: about 12 MB per shard

    def target_column(self) -> Column:
        """Return the target column, the HOMO-LUMO gap."""
        return Column(
            key="graph/y", attribute="y", stored="float32", presented="float32", finite=False, unit="eV",
            doc="gap between the highest occupied and the lowest empty orbital; NaN where not published",
        )  # fmt: skip

    def prepare(self, raw: RawCopy, params: MoleculeParams, workdir: Path) -> Prepared:
        """Convert the table to seekable SMILES and an array of gaps, and check the split."""
        gaps = array("d")
        rows = write_strings(workdir / "smiles", _read_smiles(raw.path / TABLE_FILE, gaps))
        y = np.frombuffer(gaps, np.float64)
        parts = read_published_lists(raw.path / SPLIT_FILE, rows)
        for part in ("train", "valid"):
            unknown = parts[part][np.isnan(y[parts[part]])]
            if len(unknown):
                raise DamagedInput(
                    f"{TABLE_FILE}, line {unknown[0] + 2}: a molecule of {part} without a target."
                )
        np.save(workdir / "y.npy", y.astype(np.float32))
        if self.manifest.registered_name.endswith("-subset"):
            subset = np.sort(np.concatenate(subset_lists(parts)))
            np.save(workdir / "subset.npy", subset)
            rows = len(subset)
        return Prepared(workdir, {"rows": rows})

    def units(self, prepared: Prepared, params: MoleculeParams) -> list[Unit]:
        """Assign the rows of the dataset or of the subset."""
        subset = prepared.path / "subset.npy"
        if not subset.is_file():
            return super().units(prepared, params)
        rows = np.load(subset, allow_pickle=False)
        positions = np.asarray(params.positions_to_build(len(rows)), np.int64)
        return units_of_rows(rows[positions].tolist(), self.records_per_unit)

    def read_part_lists(self, folder: Path, rule: str, rows: int | None = None) -> dict[str, I64]:
        """Combine the published lists by ``rule``; challenge rows are in no part."""
        parts = read_published_lists(folder / SPLIT_FILE, rows)
        if rule == "upstream":
            return {"train": parts["train"], "val": parts["valid"], "test": parts["test-dev"]}
        train, val = graphgps_lists(parts["train"])
        return {"train": train, "val": val, "test": parts["valid"]}


def _read_smiles(path: Path, gaps: array[float]) -> Iterator[str]:
    """Yield the SMILES of a table, appending each gap to ``gaps``, NaN if missing."""
    table = read_columns(path, ("smiles", "homolumogap"), max_bytes=MAX_TABLE_BYTES)
    for row, (smiles, cell) in enumerate(table):
        location = f"{TABLE_FILE}, line {row + 2}"
        check_smiles_characters(smiles, location)
        try:
            gap = float(cell or "nan")
        except ValueError:
            gap = math.inf
        if math.isinf(gap):
            raise DamagedInput(f"{location}: the gap {ascii(cell)[:80]} is not a number.")
        gaps.append(gap)
        yield smiles


def read_published_lists(path: Path, rows: int | None) -> dict[str, I64]:
    """Return the four published lists; raises an error unless each row is in one of them."""
    lists = read_torch_file(path, NUMPY_GLOBALS)
    return check_part_lists(lists, rows, name=path.name, parts=PUBLISHED_PARTS)


def graphgps_lists(train: I64) -> tuple[I64, I64]:
    """Draw GraphGPS's train and validation rows from OGB's train rows (n,); samples scale the sizes.

    Source: ``preformat_OGB_PCQM4Mv2`` of ``graphgps/loader/master_loader.py``.
    """
    order = np.random.default_rng(GRAPHGPS_SEED).permutation(train)
    num_val = max(len(train) * VALIDATION_ROWS // TRAIN_ROWS, min(1, len(train) - 1))
    return order[num_val:], order[:num_val]


def subset_lists(parts: dict[str, I64]) -> list[I64]:
    """Return GraphGPS's subset, (n,) each: a tenth of train, a third of validation, all of test."""
    train, val = graphgps_lists(parts["train"])
    return [train[: int(0.1 * len(train)) or 1], val[: -(-len(val) // 3)], parts["valid"]]
