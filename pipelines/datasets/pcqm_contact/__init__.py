"""PCQM-Contact (LRGB): molecules with all hydrogens, and spatial contacts between distant atoms.

Raw layout: a gzipped table with a column ``cxsmiles``, whose atoms have a property ``contact`` with
contact numbers separated by semicolons. Of every sixth row, those with contacts are used; a table
may have only these. Two ``torch.save`` files have the positions of train, val and test among the
used rows. Facts and deviations: ``docs/datasets/pcqm-contact.md``, ``docs/fidelity.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from kmip_data.arrays import I64
from kmip_data.files.atomic_writes import remove_tree
from kmip_data.format.graph_record import GraphRecord
from kmip_data.format.schema import Column
from kmip_data.pipelines.base import Prepared, RawCopy
from kmip_data.pipelines.domains.molecules import (
    MoleculeParams,
    MoleculePipeline,
    RefusedSmilesError,
    check_smiles_characters,
    molecule_from_mol,
)
from kmip_data.pipelines.formats.text import read_columns
from kmip_data.pipelines.graph_arrays.mapped_graphs import write_strings
from kmip_data.pipelines.parameters import BaseSplitParams

TABLE_FILE = "pcqm4m-contact.tsv.gz"
SPLIT_FILES = {
    "shuffle": "530k_shuffle_split_dict.pt",
    "num-atoms": "530k_num-atoms_split_dict.pt",
}
ROW_STEP = 6  #: every sixth row is in the published set of 530,000 molecules
MAX_TABLE_BYTES = 40_000_000_000


class PCQMContactSplitParams(BaseSplitParams):
    """Parameters of the split."""

    split_rule: Literal["shuffle", "num-atoms", "stratified"] = Field(
        default="shuffle",
        description="shuffle: at random; num-atoms: the largest molecules for validation and test; "
        "stratified: a new draw (at random: the graphs have no classes)",
    )


class PCQMContactPipeline(MoleculePipeline[MoleculeParams, PCQMContactSplitParams]):
    """Pipeline of ``pcqm-contact``."""

    SplitParams = PCQMContactSplitParams
    records_per_unit = 8_192  #: about 14 MB per shard
    split_files = SPLIT_FILES

    def target_column(self) -> Column:
        """Return the column of contacts, a bit matrix with a row per atom (``ADR 0171``)."""
        return Column(
            key="node/contact", attribute="contact", stored="uint8", presented="uint8",
            shape=(self.manifest.max_nodes // 8,),
            doc="bit j, counted from the lowest of the first byte: whether the atom touches atom j",
        )  # fmt: skip

    def prepare(self, raw: RawCopy, params: MoleculeParams, workdir: Path) -> Prepared:
        """Extract the used rows from the table, and check the split lists."""
        table = raw.path / TABLE_FILE
        lists = self.read_part_lists(raw.path, next(iter(SPLIT_FILES)))
        listed = sum(map(len, lists.values()))
        rows = write_strings(workdir / "smiles", rows_with_contacts(table))
        if rows < listed:
            # With fewer rows than are listed, the table may have only the used rows.
            remove_tree(workdir / "smiles")
            rows = write_strings(workdir / "smiles", rows_with_contacts(table, row_step=1))
        for rule in SPLIT_FILES:
            self.read_part_lists(raw.path, rule, rows)
        return Prepared(workdir, {"rows": rows})

    def record_builder(self, prepared: Prepared) -> Callable[[int, str, str], GraphRecord]:
        """Return a function that builds a record from a SMILES with contacts."""
        return lambda _, key, smiles: record_from_smiles(key, smiles, self.manifest.max_nodes)


PIPELINE = PCQMContactPipeline


def rows_with_contacts(path: Path, row_step: int = ROW_STEP) -> Iterator[str]:
    """Yield the extended SMILES with contacts in every ``row_step``-th row."""
    rows = read_columns(path, ("cxsmiles",), delimiter="\t", max_bytes=MAX_TABLE_BYTES)
    for row, (smiles,) in enumerate(rows):
        if row % row_step == 0 and ".contact." in smiles:
            check_smiles_characters(smiles, f"{path.name}, row {row}")
            yield smiles


def record_from_smiles(key: str, smiles: str, max_nodes: int) -> GraphRecord:
    """Return the record of an extended SMILES, without sanitisation like upstream.

    Raises :class:`RefusedSmilesError` if RDKit rejects it, it has more than ``max_nodes`` atoms, or
    a contact is not between two atoms.
    """
    from rdkit import Chem, rdBase

    with rdBase.BlockLogs():
        # Keep hydrogens and aromaticity as written.
        mol: Any = Chem.MolFromSmiles(smiles, sanitize=False)
        if mol is None:
            raise RefusedSmilesError("it is not a SMILES")
        mol.UpdatePropertyCache(strict=False)
        Chem.FastFindRings(mol)
        molecule = molecule_from_mol(mol)
        pairs = _contact_atoms(mol)
    atoms = len(molecule.x)
    if atoms > max_nodes:
        raise RefusedSmilesError(f"it has {atoms} atoms; at most {max_nodes} are allowed")
    has_contact = np.zeros((atoms, max_nodes), np.bool_)
    has_contact[pairs[:, 0], pairs[:, 1]] = True
    has_contact[pairs[:, 1], pairs[:, 0]] = True
    return molecule.record(
        key, **{"node/contact": np.packbits(has_contact, axis=1, bitorder="little")}
    )


def _contact_atoms(mol: Any) -> I64:
    """Return the two atoms of each contact, int64 (C, 2)."""
    ends: dict[int, list[int]] = {}
    for i, atom in enumerate(mol.GetAtoms()):
        if atom.HasProp("contact"):
            for word in atom.GetProp("contact").split(";"):
                if not word.isdecimal():
                    raise RefusedSmilesError(
                        f"the contacts of atom {i} are {atom.GetProp('contact')[:40]!r}"
                    )
                ends.setdefault(int(word), []).append(i)
    # Each contact number must be on exactly two atoms.
    for number, atoms in ends.items():
        if len(atoms) != 2:
            raise RefusedSmilesError(f"contact {number} is between {len(atoms)} atoms")
    return np.array([ends[number] for number in sorted(ends)], np.int64).reshape(-1, 2)
