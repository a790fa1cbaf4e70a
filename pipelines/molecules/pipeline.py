"""What the pipelines of molecules do alike: from rows of SMILES to records, split by row numbers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from kmip_data.format.record import GraphRecord, Skipped
from kmip_data.format.schema import Column, Schema
from kmip_data.pipelines.base import Pipeline, Prepared, Records, Split, SplitParams, Unit
from kmip_data.pipelines.formats.text import Rows
from kmip_data.pipelines.molecules.features import RefusedSmilesError, refused
from kmip_data.pipelines.molecules.graphs import MoleculeParams, molecule_columns
from kmip_data.pipelines.shared.published import advised, split_by_lists
from kmip_data.pipelines.shared.units import units_of_rows
from kmip_data.pipelines.splits.index import check_partition, count_rows

P = TypeVar("P", bound=MoleculeParams)
S = TypeVar("S", bound=SplitParams)

KEY_LENGTH = 8  #: digits of a row number


class MoleculePipeline(Pipeline[P, S]):
    """A dataset of SMILES in a table, whose split is lists of its row numbers.

    ``prepare`` writes the SMILES with :func:`~kmip_data.pipelines.formats.text.write_rows`; its plan has
    their number as ``rows``.
    """

    version = 1
    extra = "chem"
    Params: ClassVar[type[MoleculeParams]] = MoleculeParams
    records_per_unit: ClassVar[int]
    lists: ClassVar[dict[str, str]]  #: split rule -> member with its row numbers

    @abstractmethod
    def target(self) -> Column:
        """Return the column that is to be predicted."""

    @abstractmethod
    def load_lists(self, path: Path) -> Any:
        """Return what a file of row numbers holds, unchecked."""

    @abstractmethod
    def reader(self, prepared: Prepared) -> Callable[[int, str, str], GraphRecord]:
        """Return what makes the record of a row from its number, its key and its SMILES.

        It raises :class:`~kmip_data.pipelines.molecules.features.RefusedSmilesError`.
        """

    def schema(self, params: P) -> Schema:
        """Atoms, bonds and what is to be predicted."""
        return Schema(
            columns=(*molecule_columns(), self.target()),
            edges="index",
            max_nodes=self.manifest.max_nodes,
            directed=False,
            key_length=KEY_LENGTH,
        )

    def units(self, prepared: Prepared, params: P) -> list[Unit]:
        """Deal the rows."""
        return units_of_rows(params.choose(prepared.plan["rows"]), self.records_per_unit)

    def records(self, prepared: Prepared, unit: Unit, params: P) -> Iterator[GraphRecord | Skipped]:
        """Yield the molecules of one unit in the order of the rows."""
        texts, read = Rows(prepared.path), self.reader(prepared)
        for row in unit.items["rows"]:
            key, smiles = f"{row:06d}", texts[row]
            try:
                yield read(row, key, smiles)
            except RefusedSmilesError as error:
                if params.on_error == "stop":
                    raise refused(key, smiles, error, self.manifest.name) from error
                yield Skipped(key, f"{smiles[:80]}: {error}")

    def split(self, records: Records, params: S, raw: Path | None) -> Split:
        """Apply the published row numbers."""
        published = len(self.lists) > 1
        raw = self.raw_lists(raw, params.split if published else "")
        with advised(self.manifest.name):
            lists = self.read_lists(raw, params.split)
        rows = [int(key) for key in records.keys]
        return split_by_lists(
            {part: listed.tolist() for part, listed in lists.items()}, rows, "row numbers", params.split
        )

    def read_lists(self, folder: Path, rule: str, rows: int | None = None) -> dict[str, NDArray[np.int64]]:
        """Read a split; ``rows`` is the number of rows used, ``None`` where that was checked."""
        name = self.lists[rule]
        lists = self.load_lists(folder / name)
        return check_partition(lists, count_rows(lists) if rows is None else rows, name=name)

    def name_parts(self, params: P) -> list[str]:
        """What deviates from the defaults."""
        return ["skip"] if params.on_error == "skip" else []
