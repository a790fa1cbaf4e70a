"""Base class of molecule pipelines: rows of SMILES to records, split by lists of row numbers."""

from __future__ import annotations

import reprlib
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from kmip_data.errors import DamagedInput
from kmip_data.format.schema import Column, Schema
from kmip_data.format.splits import PARTS
from kmip_data.format.writer import GraphRecord, Skipped
from kmip_data.pipelines.base import Params, Pipeline, Prepared, Records, Split, SplitParams, Unit
from kmip_data.pipelines.formats.text import Rows
from kmip_data.pipelines.molecules.features import (
    ATOM_FIELDS,
    ATOM_SIZES,
    BOND_FIELDS,
    BOND_SIZES,
    Molecule,
    RefusedSmilesError,
    refused,
)
from kmip_data.pipelines.shared.columns import index_column
from kmip_data.pipelines.shared.published import split_by_lists
from kmip_data.pipelines.shared.units import units_of_rows


class MoleculeParams(Params):
    """Parameters of graphs made from SMILES."""

    on_error: Literal["stop", "skip"] = Field(
        default="stop",
        description="a SMILES that RDKit refuses: stop, or skip the record and list it on the card",
    )


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
        doc = "features of the Open Graph Benchmark, each an index"
        atoms = index_column("node/x", ATOM_FIELDS, max(ATOM_SIZES) - 1, doc)
        bonds = index_column("edge/attr", BOND_FIELDS, max(BOND_SIZES) - 1, doc)
        return Schema(
            columns=(atoms, bonds, self.target()),
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
        lists = self.read_lists(raw, params.split)
        rows = [int(key) for key in records.keys]
        return split_by_lists(
            {part: listed.tolist() for part, listed in lists.items()}, rows, "row numbers", params.split
        )

    def read_lists(self, folder: Path, rule: str, rows: int | None = None) -> dict[str, NDArray[np.int64]]:
        """Read a split; ``rows`` is the number of rows used, ``None`` where that was checked."""
        name = self.lists[rule]
        return check_partition(self.load_lists(folder / name), rows, name=name)

    def name_parts(self, params: P) -> list[str]:
        """Parts of the folder's name for values other than the defaults."""
        return ["skip"] if params.on_error == "skip" else []


def as_record(key: str, molecule: Molecule, more: Mapping[str, NDArray[Any]]) -> GraphRecord:
    """Return the record of a molecule; ``more`` are its columns besides atoms and bonds."""
    return GraphRecord(
        key=key,
        num_nodes=len(molecule.x),
        columns={"node/x": molecule.x, "edge/attr": molecule.edge_attr, **more},
        edge_index=molecule.edge_index,
    )


def check_partition(lists: Any, rows: int | None, *, name: str) -> dict[str, NDArray[np.int64]]:
    """Return the lists of a split file, checked: each of ``rows`` rows, or of as many as listed, is in one.

    Raises ``DamagedInput`` where ``lists`` is not a mapping of ``train``, ``val`` and ``test`` to whole
    numbers, or these do not partition the rows.
    """
    if not isinstance(lists, dict) or set(lists) != set(PARTS):
        found = (
            sorted(reprlib.repr(key) for key in lists if isinstance(key, str))[:8]
            if isinstance(lists, dict)
            else type(lists).__name__
        )
        raise DamagedInput(
            f"{name} is not a split.", expected=f"lists called {', '.join(PARTS)}", found=str(found)
        )
    parts = {}
    for part in PARTS:
        rows_of_part = lists[part]
        array = np.asarray(rows_of_part) if _is_flat(rows_of_part) else None
        if array is None or array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
            raise DamagedInput(
                f"{name}: {part} is not a list of row numbers.",
                expected="whole numbers",
                found=f"a {type(rows_of_part).__name__} of something else"
                if array is None
                else f"{array.dtype} of shape {array.shape}",
            )
        parts[part] = array.astype(np.int64)
    joined = np.concatenate(list(parts.values()))
    rows = len(joined) if rows is None else rows
    outside = joined[(joined < 0) | (joined >= rows)]
    times = np.bincount(joined[(joined >= 0) & (joined < rows)], minlength=rows)
    if outside.size or (times != 1).any():
        faults = [f"{outside.size} numbers out of range, such as {outside[0]}"] if outside.size else []
        for wrong, what in ((times == 0, "in no part"), (times > 1, "listed more than once")):
            if wrong.any():
                faults.append(f"{int(wrong.sum())} rows {what}, such as {int(wrong.argmax())}")
        raise DamagedInput(
            f"{name} does not partition the rows.",
            expected=f"each row from 0 to {rows - 1} in exactly one of {', '.join(PARTS)}",
            found="; ".join(faults),
        )
    return parts


def _is_flat(value: Any) -> bool:
    """True for an array or list of numbers; NumPy would unfold nested tuples of a hostile file."""
    if isinstance(value, list | tuple):
        return all(isinstance(item, int | float | np.number) for item in value)
    return isinstance(value, np.ndarray)
