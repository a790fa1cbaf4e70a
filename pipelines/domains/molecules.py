"""Molecular graphs from SMILES by RDKit, and the base class of their pipelines.

Features are the same as in ``ogb.utils.smiles2graph`` (ogb 1.3.6): indices into lists of values.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, TypeVar

import numpy as np
from pydantic import Field

from kmip_data.arrays import I32, I64, U8, Array
from kmip_data.errors import DamagedInput, Setting
from kmip_data.format.graph_record import GraphRecord
from kmip_data.format.schema import Column, Schema
from kmip_data.format.split_files import PARTS
from kmip_data.format.writer import SkippedRecord
from kmip_data.graphs.molecule_fields import ATOM_FIELDS, ATOM_SIZES, BOND_FIELDS, BOND_SIZES
from kmip_data.pipelines.base import Pipeline, Prepared, RecordTable, Split, Unit, require_raw
from kmip_data.pipelines.common_columns import feature_column
from kmip_data.pipelines.formats.pickles import read_pickle
from kmip_data.pipelines.formats.tensors import NUMPY_GLOBALS, read_torch_file
from kmip_data.pipelines.graph_arrays.mapped_graphs import MappedGraphs
from kmip_data.pipelines.graph_arrays.reverse_edges import interleave_reverse_edges
from kmip_data.pipelines.parameters import BaseSplitParams, BuildParams
from kmip_data.pipelines.units_and_splits import split_from_lists, units_of_rows

if TYPE_CHECKING:
    from rdkit.Chem import Mol

# Indexed by RDKit's enums: unspecified, S, SP, SP2, SP3, SP2D, SP3D, SP3D2, other.
_HYBRIDISATIONS = np.array([5, 5, 0, 1, 2, 5, 3, 4, 5], np.uint8)
# None, any, Z, E, cis, trans; OGB has no index for the atropisomers that follow.
_STEREOS = np.array([0, 5, 1, 2, 3, 4], np.uint8)
# Single, double, triple (1 to 3) and aromatic (12); all others are 4.
_BONDS = np.array([4, 0, 1, 2, *[4] * 8, 3, 4], np.uint8)


T = TypeVar("T")


class RefusedSmilesError(ValueError):
    """Raised if RDKit refuses a SMILES, or OGB's features have no index for it."""


class Molecule(NamedTuple):
    """Graph of a molecule with N atoms and B bonds."""

    x: U8  #: (N, 9), :data:`ATOM_FIELDS` of each atom
    edge_index: I32  #: (2, 2·B), each bond followed by its reverse
    edge_attr: U8  #: (2·B, 3), :data:`BOND_FIELDS` of each edge

    def record(self, key: str, **other_columns: Array) -> GraphRecord:
        """Return the record of the molecule with atoms, bonds and ``other_columns``."""
        columns = {"node/x": self.x, "edge/attr": self.edge_attr, **other_columns}
        return GraphRecord(
            key=key,
            num_nodes=len(self.x),
            columns=columns,
            edge_index=self.edge_index,
        )


def check_smiles_characters(text: str, location: str) -> None:
    """Raise ``DamagedInput`` for characters that no SMILES has, such as line breaks."""
    if not text.isascii() or not text.isprintable():
        raise DamagedInput(f"{location}: {ascii(text)[:200]} is not a SMILES.")


def molecule_from_smiles(smiles: str) -> Molecule:
    """Return the graph of a SMILES, the same as ``ogb.utils.smiles2graph``.

    Hydrogens stay implicit, as in RDKit's ``MolFromSmiles``. Raises :class:`RefusedSmilesError`
    with the reason if RDKit refuses the SMILES.
    """
    return molecule_from_mol(mol_from_smiles(smiles))


def canonical_smiles(mol: Mol) -> tuple[str, str]:
    """Return the canonical SMILES of a molecule and of its Bemis-Murcko scaffold, with stereo marks.

    The scaffold is the rings and the chains between them, "" if there are no rings.
    """
    from rdkit.Chem import MolToSmiles
    from rdkit.Chem.Scaffolds.MurckoScaffold import MurckoScaffoldSmiles

    scaffold: str = MurckoScaffoldSmiles(mol=mol, includeChirality=True)  # type: ignore[no-untyped-call]
    return MolToSmiles(mol), scaffold


def mol_from_smiles(smiles: str) -> Mol:
    """Return RDKit's molecule of a SMILES; raise :class:`RefusedSmilesError` if it refuses it."""
    from rdkit import Chem, rdBase

    with rdBase.BlockLogs():
        mol: Mol | None = Chem.MolFromSmiles(smiles)
        if mol is not None:
            return mol
        # Parse without checks, to distinguish invalid syntax from invalid chemistry.
        unchecked: Mol | None = Chem.MolFromSmiles(smiles, sanitize=False)
        reason = "it is not a SMILES"
        if unchecked is not None:
            try:
                Chem.SanitizeMol(unchecked)
            except ValueError as error:  # base class of RDKit's errors
                reason = " ".join(str(error).split())
        raise RefusedSmilesError(reason)


def molecule_from_mol(mol: Mol) -> Molecule:
    """Return the graph of an RDKit molecule.

    Raises :class:`RefusedSmilesError` if OGB has no index for a stereo mark.
    """
    if mol.GetNumAtoms() == 0:
        raise RefusedSmilesError("it has no atoms")
    from rdkit.Chem import Atom, Bond

    atoms = _value_table(
        mol.GetAtoms(),
        Atom.GetAtomicNum,
        Atom.GetChiralTag,
        Atom.GetTotalDegree,
        Atom.GetFormalCharge,
        Atom.GetTotalNumHs,
        Atom.GetNumRadicalElectrons,
        Atom.GetHybridization,
        Atom.GetIsAromatic,
        Atom.IsInRing,
    )
    # Values that OGB does not list get the last index of their column, "misc".
    element = atoms[:, 0]
    charge = atoms[:, 3]
    element[:] = np.where((element >= 1) & (element <= 118), element - 1, 118)
    charge[:] = np.where(np.abs(charge) <= 5, charge + 5, 11)
    atoms[:, 6] = _HYBRIDISATIONS[atoms[:, 6]]
    x = np.minimum(atoms, np.array(ATOM_SIZES) - 1).astype(np.uint8)

    bonds = _value_table(
        mol.GetBonds(),
        Bond.GetBeginAtomIdx,
        Bond.GetEndAtomIdx,
        Bond.GetBondType,
        Bond.GetStereo,
        Bond.GetIsConjugated,
    )
    stereo = bonds[:, 3]
    if (stereo >= len(_STEREOS)).any():
        raise RefusedSmilesError(
            f"a bond has the stereo mark {stereo.max()} of RDKit, which has no index"
        )
    bond_type = _BONDS[np.minimum(bonds[:, 2], len(_BONDS) - 1)]
    conjugated = bonds[:, 4].astype(np.uint8)
    attr = np.stack([bond_type, _STEREOS[stereo], conjugated], axis=1)

    edge_index = interleave_reverse_edges(bonds[:, :2].astype(np.int32))
    return Molecule(x, edge_index, attr.repeat(2, axis=0))


def _value_table(items: Iterable[T], *getters: Callable[[T], object]) -> I64:
    """Return the value of each getter for each item, (items, getters).

    Mapping one getter over all items takes three quarters of the time of a loop over items.
    """
    rows = list(items)
    return np.array([list(map(getter, rows)) for getter in getters], np.int64).T


def molecule_columns() -> tuple[Column, Column]:
    """Return the columns of atoms and bonds."""
    index_column = partial(
        feature_column,
        doc="features of the Open Graph Benchmark, each an index",
        stored="uint8",
        presented="int64",
    )
    return (
        index_column("node/x", ATOM_FIELDS, high=max(ATOM_SIZES) - 1),
        index_column("edge/attr", BOND_FIELDS, high=max(BOND_SIZES) - 1),
    )


class MoleculeParams(BuildParams):
    """Build parameters of datasets made from SMILES."""

    on_error: Literal["stop", "skip"] = Field(
        default="stop",
        description="if RDKit refuses a SMILES: stop, or skip the record and list it on the card",
    )


P = TypeVar("P", bound=MoleculeParams)
S = TypeVar("S", bound=BaseSplitParams)


class MoleculePipeline(Pipeline[P, S]):
    """Pipeline of a table of SMILES, whose splits are lists of row numbers.

    ``prepare`` writes the SMILES to ``smiles`` with
    :func:`~kmip_data.pipelines.graph_arrays.mapped_graphs.write_strings`. Its
    ``facts`` have the number of ``rows``.
    """

    version = 1
    extra = "chem"
    folder_name_templates = (("on_error", "{}"),)
    Params = MoleculeParams
    records_per_unit: ClassVar[int]
    #: split rule -> raw file with a list of row numbers for each part
    split_files: ClassVar[dict[str, str]]

    @abstractmethod
    def target_column(self) -> Column:
        """Return the target column."""

    def record_builder(self, prepared: Prepared) -> Callable[[int, str, str], GraphRecord]:
        """Return a function that builds a record from row number, key and SMILES.

        It takes the target from ``y.npy``, which ``prepare`` writes, and may raise
        :class:`RefusedSmilesError`.
        """
        y = np.load(prepared.path / "y.npy", mmap_mode="r", allow_pickle=False)
        return lambda row, key, smiles: molecule_from_smiles(smiles).record(
            key, **{"graph/y": np.array(y[row])}
        )

    def schema(self, params: P) -> Schema:
        """Return the schema of atoms, bonds and target."""
        return Schema(
            columns=(*molecule_columns(), self.target_column()),
            max_nodes=self.manifest.max_nodes,
            directed=False,
            key_length=8,
        )

    def units(self, prepared: Prepared, params: P) -> list[Unit]:
        """Divide the rows to build, in order, into units of ``records_per_unit``."""
        return units_of_rows(
            params.positions_to_build(prepared.facts["rows"]), self.records_per_unit
        )

    def records(
        self, prepared: Prepared, unit: Unit, params: P
    ) -> Iterator[GraphRecord | SkippedRecord]:
        """Yield the molecules of one unit in the order of the rows."""
        smiles_of_row = MappedGraphs(prepared.path / "smiles")
        build_record = self.record_builder(prepared)
        for row in unit.selection["rows"]:
            key = f"{row:06d}"
            smiles = smiles_of_row[row]["text"].tobytes().decode("ascii")
            try:
                yield build_record(row, key, smiles)
            except RefusedSmilesError as error:
                if params.on_error == "stop":
                    raise DamagedInput(
                        f"Record {key}: RDKit refuses its SMILES {smiles[:200]!r}: {error}",
                        steps=Setting(on_error="skip"),
                    ) from error
                yield SkippedRecord(key, f"{smiles[:80]}: {error}")

    def split(self, records: RecordTable, params: S, raw_folder: Path | None) -> Split:
        """Return a published split."""
        folder = require_raw(self.manifest, raw_folder)
        arrays = self.read_part_lists(folder, params.split_rule)
        lists = {part: part_rows.tolist() for part, part_rows in arrays.items()}
        rows = [int(key) for key in records.keys]
        return split_from_lists(lists, rows, "row numbers", params.split_rule)

    def read_part_lists(self, folder: Path, rule: str, rows: int | None = None) -> dict[str, I64]:
        """Read the row numbers of each part of a split rule; together they must be ``rows`` rows."""
        path = folder / self.split_files[rule]
        if path.suffix == ".pt":
            lists = read_torch_file(path, NUMPY_GLOBALS)
        else:
            lists = read_pickle(path.read_bytes(), NUMPY_GLOBALS, name=path.name)
        return check_part_lists(lists, rows, name=path.name)


def check_part_lists(
    lists: object,
    rows: int | None,
    *,
    name: str,
    parts: Sequence[str] = PARTS,
) -> dict[str, I64]:
    """Check that the lists of a split file contain each row number once; return them as arrays.

    ``rows`` is the number of rows of the table; ``None``: the total length of the lists.
    """
    if not isinstance(lists, dict) or set(lists) != set(parts):
        raise DamagedInput(f"{name} is not a split into {', '.join(parts)}.")
    checked = {}
    for part in parts:
        array = np.asarray(lists[part]) if _is_flat(lists[part]) else None
        if array is None or array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
            raise DamagedInput(f"{name}: {part} is not a list of row numbers.")
        checked[part] = array.astype(np.int64)

    joined = np.concatenate(list(checked.values()))
    if rows is None:
        rows = len(joined)
    in_range = (joined >= 0) & (joined < rows)
    occurrences = np.bincount(joined[in_range], minlength=rows)
    rows_by_problem = {
        "out of range": joined[~in_range],
        "in no part": np.flatnonzero(occurrences == 0),
        "listed more than once": np.flatnonzero(occurrences > 1),
    }
    for problem, numbers in rows_by_problem.items():
        if len(numbers):
            raise DamagedInput(
                f"{name} does not partition the rows 0 to {rows - 1}: "
                f"{len(numbers)} {problem}, such as {numbers[0]}."
            )
    return checked


def _is_flat(value: object) -> bool:
    """True for an array or a flat list of numbers; a hostile file may have deeply nested tuples."""
    if isinstance(value, list | tuple):
        return all(isinstance(item, int | float | np.number) for item in value)
    return isinstance(value, np.ndarray)
