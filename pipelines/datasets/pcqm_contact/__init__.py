"""PCQM-Contact (LRGB): molecules with all hydrogens, and contacts in space between distant atoms.

Raw layout: a gzip-compressed table with a column ``cxsmiles``, whose atoms have a property
``contact``, numbers of contacts separated by semicolons; every sixth row is used, and of these the
rows with contacts. Two files of ``torch.save`` have the row numbers of train, val and test, counted
over the rows used. Facts and deviations: ``docs/datasets/pcqm-contact.md``, ``docs/fidelity.md``.
"""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.random import PCG64, Generator
from pydantic import Field

from kmip_data.arrays import I64
from kmip_data.errors import DamagedInput
from kmip_data.format.schema import Column
from kmip_data.format.writer import GraphRecord
from kmip_data.pipelines.base import Prepared, RawFolder, SplitParams
from kmip_data.pipelines.formats.text import read_columns, write_rows
from kmip_data.pipelines.shared.molecules import (
    MoleculeParams,
    MoleculePipeline,
    RefusedSmilesError,
    featurise,
)
from kmip_data.pipelines.shared.sample_files import deal, gzipped, lines_bytes, write_archive

TABLE = "pcqm4m-contact.tsv.gz"
LISTS = {
    "shuffle": "530k_shuffle_split_dict.pt",
    "num-atoms": "530k_num-atoms_split_dict.pt",
}
EVERY = 6  #: of the rows of the table, as the set of 530 thousand molecules has them
MAX_TABLE_BYTES = 40_000_000_000


class PCQMContactSplitParams(SplitParams):
    """Parameters of the split."""

    split: Literal["shuffle", "num-atoms", "stratified"] = Field(
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
        rows = write_rows(workdir, used_rows(raw.path / TABLE))
        for rule in LISTS:
            self.read_lists(raw.path, rule, rows)
        return Prepared(workdir, {"rows": rows})

    def reader(self, prepared: Prepared) -> Callable[[int, str, str], GraphRecord]:
        """Read the SMILES with its contacts."""
        return lambda _, key, smiles: read_record(key, smiles, self.manifest.max_nodes)


PIPELINE = PCQMContactPipeline


def used_rows(path: Path) -> Iterator[str]:
    """Yield the extended SMILES that make graphs: of every sixth row, those with contacts."""
    rows = read_columns(
        path,
        ("cxsmiles",),
        delimiter="\t",
        max_bytes=MAX_TABLE_BYTES,
    )
    for number, (text,) in enumerate(rows):
        if number % EVERY == 0 and ".contact." in text:
            if not text.isascii():
                raise DamagedInput(f"{path.name}, row {number}: not a SMILES: {ascii(text)[:200]}")
            yield text


def read_record(key: str, text: str, max_nodes: int) -> GraphRecord:
    """Return the record of an extended SMILES.

    Atoms are those of the text, including hydrogens, without sanitisation, as upstream. Raises
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
        molecule = featurise(mol)
        pairs = _contacts(mol)
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


def _contacts(mol: Any) -> I64:
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


# --- Sample ---------------------------------------------------------------------------------------

# Sample molecules in the layout of PCQM-Contact: generated, never the real data.
#
# A molecule is a chain with side groups, all hydrogens written out. Instead of the distances of a
# conformer, chance decides which pairs of atoms at least five bonds apart touch; hydrogens do so more
# often.

DEFAULT_MOLECULES = 96
VALENCE = {"C": 4, "N": 3, "O": 2}


def write_sample(
    folder: Path,
    _: object,
    limit: int | None,
    seed: int,
) -> None:
    """Write the table, of which every sixth row is used, and both split files."""
    count = limit or DEFAULT_MOLECULES
    rng = Generator(PCG64(seed))
    lines = ["\tcxsmiles"]
    sizes: list[int] = []
    while len(sizes) < count:
        text, atoms, contacts = _molecule(rng)
        lines.append(f"{len(lines) - 1}\t{text}")
        # One row in six is used, and of these the ones with contacts.
        for _ in range(EVERY - 1):
            lines.append(f"{len(lines) - 1}\t[H][H]")
        if contacts:
            sizes.append(atoms)
    (folder / TABLE).write_bytes(gzipped(lines_bytes(lines)))

    by_size = np.argsort(sizes, kind="stable")
    held = max(1, count // 20) if count > 2 else 0  # molecules of val, and of test: a twentieth
    parts = {"train": count - 2 * held, "val": held, "test": held}
    by_size[parts["train"] :] = rng.permutation(by_size[parts["train"] :])
    for rule, order in (("shuffle", rng.permutation(count)), ("num-atoms", by_size)):
        lists = {part: rows.astype(np.int64) for part, rows in deal(order, parts).items()}
        write_archive(folder / LISTS[rule], pickle.dumps(lists, protocol=2))


def _molecule(rng: Generator) -> tuple[str, int, int]:
    """Make one molecule: its extended SMILES, number of atoms, number of contacts."""
    elements = [*rng.choice(["C", "C", "C", "N", "O"], size=int(rng.integers(5, 13)))]
    elements[0] = elements[-1] = "C"
    depth = []  # position in the chain of each atom, in the order of the text
    hydrogen = []
    words = []
    for position, element in enumerate(elements):
        neighbours = 1 if position in {0, len(elements) - 1} else 2
        open_ends = VALENCE[str(element)] - neighbours
        words.append(f"[{element}]" + "([H])" * open_ends)
        depth += [position] * (1 + open_ends)
        hydrogen += [False] + [True] * open_ends

    contacts: dict[int, list[str]] = {}
    number = 0
    for i, j in itertools.combinations(range(len(depth)), 2):
        if depth[j] - depth[i] < 5:
            continue
        chance = 0.06 if hydrogen[i] and hydrogen[j] else 0.01
        if rng.random() < chance:
            contacts.setdefault(i, []).append(str(number))
            contacts.setdefault(j, []).append(str(number))
            number += 1

    # A semicolon is written as RDKit writes it.
    properties = []
    for atom, numbers in sorted(contacts.items()):
        properties.append(f"{atom}.contact.{'&#59;'.join(numbers)}")
    extension = ""
    if properties:
        extension = f" |atomProp:{':'.join(properties)}|"
    return "".join(words) + extension, len(depth), number
