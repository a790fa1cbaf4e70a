"""PCQM-Contact (LRGB): molecules with all hydrogens, and which far atoms touch in space.

Raw layout: a gzip-compressed table with a column ``cxsmiles``, whose atoms have a property ``contact``,
numbers of contacts separated by semicolons; every sixth row is used, and of these the rows with contacts.
Two files of ``torch.save`` have the row numbers of train, val and test, counted over the rows used. Facts
and deviations: ``docs/datasets/pcqm-contact.md``, ``docs/fidelity.md``.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from kmip_data.errors import DamagedInput
from kmip_data.format.record import GraphRecord, Skipped
from kmip_data.format.schema import Column, Schema
from kmip_data.pipelines.base import (
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
from kmip_data.pipelines.formats.text_rows import Rows, write_rows
from kmip_data.pipelines.formats.text_tables import read_columns
from kmip_data.pipelines.formats.torch_files import read_torch_file
from kmip_data.pipelines.molecules.features import RefusedSmilesError, featurise
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

TABLE: Final = "pcqm4m-contact.tsv.gz"
LISTS: Final = {"shuffle": "530k_shuffle_split_dict.pt", "num-atoms": "530k_num-atoms_split_dict.pt"}
EVERY: Final = 6  #: of the rows of the table, as the set of 530 thousand molecules has them
RECORDS_PER_UNIT: Final = 8_192  #: about 14 MB a shard
MAX_TABLE_BYTES: Final = 40_000_000_000


class PCQMContactSplitParams(SplitParams):
    """Parameters of the split."""

    split: Literal["shuffle", "num-atoms", "stratified"] = Field(
        default="shuffle",
        description="shuffle: at random; num-atoms: the largest molecules validate and test; "
        "stratified: drawn anew (at random: the graphs have no classes)",
    )


class PCQMContactPipeline(Pipeline[MoleculeParams, PCQMContactSplitParams]):
    """The pipeline of ``manifests/datasets/pcqm-contact.toml``."""

    version = 1
    extra = "chem"
    Params: ClassVar[type[MoleculeParams]] = MoleculeParams
    SplitParams: ClassVar[type[PCQMContactSplitParams]] = PCQMContactSplitParams

    def schema(self, params: MoleculeParams) -> Schema:
        """Atoms, bonds, and the contacts as a matrix of bits, a row an atom (``docs/adr/0171``)."""
        contacts = Column(
            key="node/contact",
            attribute="contact",
            stored="uint8",
            presented="uint8",
            shape=(self.manifest.max_nodes // 8,),
            doc="bit j, counted from the lowest of the first byte: whether the atom touches atom j",
        )
        return Schema(
            columns=(*molecule_columns(), contacts),
            edges="index",
            max_nodes=self.manifest.max_nodes,
            directed=False,
            key_length=KEY_LENGTH,
        )

    def sample(self, folder: Path, *, limit: int | None, seed: int = 0) -> None:
        """Write generated molecules in the upstream layout."""
        from kmip_data.pipelines.samples.pcqm_contact import write_sample

        write_sample(folder, molecules=limit, seed=seed)

    def prepare(self, raw: RawFolder, params: MoleculeParams, workdir: Path) -> Prepared:
        """Take the rows used out of the table; check the split lists."""
        with advised(self.manifest.name):
            rows = write_rows(workdir, used_rows(raw.path / TABLE))
            for rule in LISTS:
                self._read_lists(raw.path, rule, rows)
        return Prepared(workdir, {"rows": rows})

    def units(self, prepared: Prepared, params: MoleculeParams) -> list[Unit]:
        """Deal the rows."""
        dealt = deal_rows(params.choose(prepared.plan["rows"]), RECORDS_PER_UNIT)
        return [Unit(i, f"rows {rows[0]} to {rows[-1]}", {"rows": rows}) for i, rows in enumerate(dealt)]

    def records(
        self, prepared: Prepared, unit: Unit, params: MoleculeParams
    ) -> Iterator[GraphRecord | Skipped]:
        """Yield the molecules of one unit in the order of the rows."""
        texts = Rows(prepared.path)
        for row in unit.items["rows"]:
            key, text = row_key(row), texts[row]
            make = partial(read_record, key, text, self.manifest.max_nodes)
            yield record_or_skip(key, text, make, params, self.manifest.name)

    def split(self, records: Records, params: PCQMContactSplitParams, raw: Path | None) -> Split:
        """Apply the published row numbers."""
        raw = raw_lists(raw, f"kmip-data build {self.manifest.name} --split {params.split}")
        with advised(self.manifest.name):
            lists = self._read_lists(raw, params.split, None)
        parts = apply_lists(lists, records)
        return Split(params.split, params.split, {}, parts, "the row numbers of the raw data, in their order")

    def default_splits(self) -> list[PCQMContactSplitParams]:
        """Both published splits."""
        return [PCQMContactSplitParams(split="shuffle"), PCQMContactSplitParams(split="num-atoms")]

    def name_parts(self, params: MoleculeParams) -> list[str]:
        """What deviates from the defaults."""
        return ["skip"] if params.on_error == "skip" else []

    @staticmethod
    def _read_lists(folder: Path, rule: str, rows: int | None) -> dict[str, NDArray[np.int64]]:
        """Read a split; ``rows`` is the number of rows used, ``None`` where that was checked."""
        lists = read_torch_file(folder / LISTS[rule], NUMPY)
        return check_partition(lists, count_rows(lists) if rows is None else rows, name=LISTS[rule])


PIPELINE = PCQMContactPipeline


def used_rows(path: Path) -> Iterator[str]:
    """Yield the extended SMILES that make graphs: of every sixth row, those with contacts."""
    rows = read_columns(path, ("cxsmiles",), delimiter="\t", max_bytes=MAX_TABLE_BYTES)
    for number, (text,) in enumerate(rows):
        if number % EVERY == 0 and ".contact." in text:
            if not text.isascii():
                raise DamagedInput(
                    f"{path.name}, row {number}: not a SMILES.", expected="ASCII", found=ascii(text)[:200]
                )
            yield text


def read_record(key: str, text: str, max_nodes: int) -> GraphRecord:
    """Return the record of an extended SMILES.

    Atoms are those of the text, hydrogens among them, and nothing is perceived anew: as upstream reads
    them, without sanitising.

    Raises
    ------
    RefusedSmilesError
        RDKit refuses it, it has more than ``max_nodes`` atoms, or a contact is not between two atoms.
    """
    from rdkit import Chem, rdBase

    with rdBase.BlockLogs():
        mol: Any = Chem.MolFromSmiles(text, sanitize=False)
        if mol is None:
            msg = "it is not a SMILES"
            raise RefusedSmilesError(msg)
        mol.UpdatePropertyCache(strict=False)
        Chem.FastFindRings(mol)
        molecule = featurise(mol)
        pairs = _contacts(mol)
    atoms = len(molecule.x)
    if atoms > max_nodes:
        msg = f"it has {atoms} atoms, and {max_nodes} are allowed"
        raise RefusedSmilesError(msg)
    touching = np.zeros((atoms, max_nodes), np.bool_)
    touching[pairs[:, 0], pairs[:, 1]] = True
    touching[pairs[:, 1], pairs[:, 0]] = True
    return as_record(key, molecule, {"node/contact": np.packbits(touching, axis=1, bitorder="little")})


def _contacts(mol: Any) -> NDArray[np.int64]:
    """Return the two atoms of each contact, int64 (C, 2)."""
    ends: dict[int, list[int]] = {}
    for i, atom in enumerate(mol.GetAtoms()):
        if atom.HasProp("contact"):
            for word in atom.GetProp("contact").split(";"):
                if not word.isdecimal():
                    msg = f"the contacts of atom {i} are {atom.GetProp('contact')[:40]!r}"
                    raise RefusedSmilesError(msg)
                ends.setdefault(int(word), []).append(i)
    wrong = next((number for number, atoms in ends.items() if len(atoms) != 2), None)
    if wrong is not None:
        msg = f"contact {wrong} is between {len(ends[wrong])} atoms"
        raise RefusedSmilesError(msg)
    return np.array([ends[number] for number in sorted(ends)], np.int64).reshape(-1, 2)
