"""PCQM-Contact (LRGB): molecules with all hydrogens, and contacts in space between distant atoms.

Raw layout: a gzip-compressed table with a column ``cxsmiles``, whose atoms have a property
``contact``, numbers of contacts separated by semicolons; every sixth row is used, and of these the
rows with contacts. A table may have the used rows alone. Two files of ``torch.save`` have the row
numbers of train, val and test, counted over the rows used. Facts and deviations:
``docs/datasets/pcqm-contact.md``, ``docs/fidelity.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from kmip_data.arrays import I64
from kmip_data.files.atomic_writes import remove_tree
from kmip_data.format.schema import Column
from kmip_data.format.writer import GraphRecord
from kmip_data.pipelines.base import BaseSplitParams, Prepared, RawFolder
from kmip_data.pipelines.domains.molecules import (
    MoleculeParams,
    MoleculePipeline,
    RefusedSmilesError,
    check_smiles_characters,
    graph_of_mol,
)
from kmip_data.pipelines.formats.text import read_columns
from kmip_data.pipelines.graph_arrays.mapped_graphs import write_strings

TABLE = "pcqm4m-contact.tsv.gz"
LISTS = {
    "shuffle": "530k_shuffle_split_dict.pt",
    "num-atoms": "530k_num-atoms_split_dict.pt",
}
EVERY_NTH_ROW = 6  #: one row in so many is read, as the set of 530 thousand molecules has them
MAX_TABLE_BYTES = 40_000_000_000


class PCQMContactSplitParams(BaseSplitParams):
    """Parameters of the split."""

    split_rule: Literal["shuffle", "num-atoms", "stratified"] = Field(
        default="shuffle",
        description="shuffle: at random; num-atoms: the largest molecules validate and test; "
        "stratified: drawn anew (at random: the graphs have no classes)",
    )


class PCQMContactPipeline(MoleculePipeline[MoleculeParams, PCQMContactSplitParams]):
    """Pipeline of ``pcqm-contact``."""

    SplitParams = PCQMContactSplitParams
    records_per_unit = 8_192  #: about 14 MB per shard
    lists = LISTS

    def target(self) -> Column:
        """Return contacts as a bit matrix, a row per atom (``ADR 0171``)."""
        return Column(
            key="node/contact", attribute="contact", stored="uint8", presented="uint8",
            shape=(self.manifest.max_nodes // 8,),
            doc="bit j, counted from the lowest of the first byte: whether the atom touches atom j",
        )  # fmt: skip

    def prepare(self, raw: RawFolder, params: MoleculeParams, workdir: Path) -> Prepared:
        """Extract the used rows from the table; check the split lists."""
        table = raw.path / TABLE
        lists = self.read_lists(raw.path, next(iter(LISTS)))
        listed = sum(map(len, lists.values()))
        rows = write_strings(workdir / "smiles", rows_with_contacts(table))
        if rows < listed:
            # Fewer rows than are listed: the table may have the used rows alone.
            remove_tree(workdir / "smiles")
            rows = write_strings(workdir / "smiles", rows_with_contacts(table, every=1))
        for rule in LISTS:
            self.read_lists(raw.path, rule, rows)
        return Prepared(workdir, {"rows": rows})

    def reader(self, prepared: Prepared) -> Callable[[int, str, str], GraphRecord]:
        """Read the SMILES with its contacts."""
        return lambda _, key, smiles: read_record(key, smiles, self.manifest.max_nodes)


PIPELINE = PCQMContactPipeline


def rows_with_contacts(path: Path, every: int = EVERY_NTH_ROW) -> Iterator[str]:
    """Yield the extended SMILES that make graphs: of every sixth row, the texts with contacts."""
    rows = read_columns(
        path,
        ("cxsmiles",),
        delimiter="\t",
        max_bytes=MAX_TABLE_BYTES,
    )
    for number, (text,) in enumerate(rows):
        if number % every == 0 and ".contact." in text:
            check_smiles_characters(text, f"{path.name}, row {number}")
            yield text


def read_record(key: str, text: str, max_nodes: int) -> GraphRecord:
    """Return the record of an extended SMILES.

    Atoms are the text's, including hydrogens, without sanitisation, as upstream. Raises
    :class:`RefusedSmilesError` if RDKit refuses it, it has more than ``max_nodes`` atoms, or a
    contact is not between two atoms.
    """
    from rdkit import Chem, rdBase

    with rdBase.BlockLogs():
        # No sanitising: hydrogens and aromaticity stay as the text has them.
        mol: Any = Chem.MolFromSmiles(text, sanitize=False)
        if mol is None:
            raise RefusedSmilesError("it is not a SMILES")
        mol.UpdatePropertyCache(strict=False)
        Chem.FastFindRings(mol)
        molecule = graph_of_mol(mol)
        pairs = _contact_atoms(mol)
    atoms = len(molecule.x)
    if atoms > max_nodes:
        raise RefusedSmilesError(f"it has {atoms} atoms, and {max_nodes} are allowed")
    # A matrix of bits, symmetric, eight atoms a byte.
    touching = np.zeros((atoms, max_nodes), np.bool_)
    touching[pairs[:, 0], pairs[:, 1]] = True
    touching[pairs[:, 1], pairs[:, 0]] = True
    return molecule.record(
        key, **{"node/contact": np.packbits(touching, axis=1, bitorder="little")}
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
    # The number of a contact appears on exactly two atoms.
    for number, atoms in ends.items():
        if len(atoms) != 2:
            raise RefusedSmilesError(f"contact {number} is between {len(atoms)} atoms")
    return np.array([ends[number] for number in sorted(ends)], np.int64).reshape(-1, 2)
