"""ZINC: molecules as atoms and bonds, and their penalised logP; all, or the 12,000 of the benchmark.

Raw layout: ``train.pickle``, ``val.pickle`` and ``test.pickle``, each a list of dictionaries with
``atom_type`` int8 [N], ``bond_type`` int8 [N, N] (0: none) and ``logP_SA_cycle_normalized`` float32
[1] as torch tensors; ``train.index``, ``val.index`` and ``test.index`` have the numbers of the
benchmark's molecules in these lists, separated by commas. Instead of the pickles ``.jsonl`` or
``.parquet`` of the mirror. Facts and deviations: ``docs/datasets/zinc.md``, ``docs/fidelity.md``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kmip_data.arrays import Array
from kmip_data.errors import DamagedInput
from kmip_data.format.schema import Column, Schema
from kmip_data.format.splits import PARTS
from kmip_data.format.writer import GraphRecord
from kmip_data.manifest import Manifest
from kmip_data.pipelines.base import (
    Params,
    Pipeline,
    Prepared,
    PublishedSplitParams,
    RawFolder,
    Unit,
)
from kmip_data.pipelines.datasets.zinc.mirror import json_rows, molecule_of, parquet_rows
from kmip_data.pipelines.formats.pickles import stream_list
from kmip_data.pipelines.formats.tensors import NUMPY, PICKLED_TENSORS, mapped
from kmip_data.pipelines.formats.text import read_lines
from kmip_data.pipelines.shared.checks import array_of, check_all, in_range
from kmip_data.pipelines.shared.pieces import Pieces, write_pieces
from kmip_data.pipelines.shared.records import index_column, units_of_parts

RECORDS_PER_UNIT = 20_000  #: about 12 MB per shard
ATOM_TYPES = 28
BOND_TYPES = 4  #: 0 is no bond
ATOMS = "atom_type"
BONDS = "bond_type"
TARGET = "logP_SA_cycle_normalized"


class ZincPipeline(Pipeline[Params, PublishedSplitParams]):
    """Pipeline of ``zinc`` and ``zinc-full``."""

    version = 1

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest)
        self.is_subset = manifest.file == "zinc"
        files = "index files" if self.is_subset else "pickles"
        self.split_note = f"the published {files}, in their order"
        self.sample_arguments = {"subset": self.is_subset}

    def schema(self, params: Params) -> Schema:
        """Types of atoms and bonds, and the target."""
        atoms = index_column("node/x", ("atom type",), ATOM_TYPES - 1, "element, charge, hydrogens")
        bonds = Column(
            key="edge/attr",
            attribute="edge_attr",
            stored="uint8",
            presented="int64",
            low=1,
            high=BOND_TYPES - 1,
            doc="type of the bond: 1 single, 2 double, 3 triple",
        )
        target = Column(
            key="graph/y",
            attribute="y",
            stored="float32",
            presented="float32",
            doc="logP - synthetic accessibility - long cycles, each normalised",
        )
        return Schema(
            columns=(atoms, bonds, target),
            edges="index",
            max_nodes=self.manifest.max_nodes,
            directed=False,
            key_length=16,
        )

    def prepare(self, raw: RawFolder, params: Params, workdir: Path) -> Prepared:
        """Check the molecules of each file in one pass, and write them as workers map them."""
        sizes = {}
        for part in PARTS:
            (path,) = (file for file in raw.path.glob(f"{part}.*") if file.suffix != ".index")
            listed = None
            if self.is_subset:
                listed = _read_index(raw.path / f"{part}.index")
            molecules = _molecules(path, listed, self.manifest.max_nodes)
            sizes[part] = write_pieces(workdir / part, molecules)

            numbers = list(range(sizes[part])) if listed is None else listed
            if sizes[part] < len(numbers):
                raise DamagedInput(
                    f"{part}.index lists molecule {max(numbers)}, which {path.name} does not have."
                )
            np.save(workdir / f"{part}.npy", np.array(numbers, np.int64))
        return Prepared(workdir, {"sizes": sizes})

    def units(self, prepared: Prepared, params: Params) -> list[Unit]:
        """Deal the molecules of each part."""
        return units_of_parts(prepared.plan["sizes"], params, RECORDS_PER_UNIT)

    def records(self, prepared: Prepared, unit: Unit, params: Params) -> Iterator[GraphRecord]:
        """Yield the molecules of one unit in the order of the index, or of the pickle."""
        part = unit.items["part"]
        pieces = Pieces(prepared.path / part)
        numbers = np.load(prepared.path / f"{part}.npy", allow_pickle=False)
        positions = np.argsort(np.argsort(numbers))  # pieces lie in the order of the pickle
        for row in unit.items["rows"]:
            molecule = pieces[positions[row]]
            yield GraphRecord(
                key=f"{part}/{numbers[row]:06d}",
                num_nodes=len(molecule["atoms"]),
                columns={
                    "node/x": molecule["atoms"],
                    "edge/attr": molecule["bonds"],
                    "graph/y": molecule["target"][0],
                },
                edge_index=np.ascontiguousarray(molecule["ends"].T),
            )


PIPELINE = ZincPipeline


def _read_index(path: Path) -> list[int]:
    """Return the numbers of a list, separated by commas, none of them twice."""
    text = ",".join(read_lines(path)).removesuffix(",")
    if not text:  # of a sample so small that a part has none
        return []
    numbers: dict[int, int] = {}
    for entry, word in enumerate(text.split(","), start=1):
        if not re.fullmatch("[0-9]{1,9}", word):
            raise DamagedInput(f"{path.name}, entry {entry}: {word[:40]!r} is not a number.")
        if numbers.setdefault(int(word), entry) != entry:
            raise DamagedInput(
                f"{path.name}, entry {entry}: {word} stands in entry {numbers[int(word)]}, too."
            )
    return list(numbers)


def _molecules(
    path: Path, listed: list[int] | None, max_nodes: int
) -> Iterator[Mapping[str, Array]]:
    """Yield the arrays of the ``listed`` molecules (None: of all) in the order of the file."""
    wanted = None if listed is None else set(listed)
    for number, item in enumerate(_items(path)):
        if wanted is not None and number not in wanted:
            continue
        where = f"{path.name}, molecule {number}"
        molecule = item
        if path.suffix != ".pickle":
            molecule = molecule_of(item, where, max_nodes)
        yield check_molecule(molecule, where, max_nodes)


def _items(path: Path) -> Iterator[Any]:
    match path.suffix:
        case ".pickle":
            allowed = {**NUMPY, **PICKLED_TENSORS}
            for items, _ in stream_list(mapped(path), allowed, name=path.name):
                yield from items
        case ".jsonl":
            yield from json_rows(path)
        case ".parquet":
            yield from parquet_rows(path)
        case _:
            raise DamagedInput(f"{path.name} is none of .pickle, .jsonl and .parquet.")


def check_molecule(item: Any, where: str, max_nodes: int) -> Mapping[str, Array]:
    """Return the arrays of a molecule as they are stored.

    ``atoms`` uint8 (N, 1), ``ends`` uint16 (E, 2) and ``bonds`` uint8 (E,) by first, then second
    atom, ``target`` float32 (1,).
    """
    if not isinstance(item, dict):
        raise DamagedInput(f"{where}: not a molecule, but a {type(item).__name__}.")
    atoms = array_of(item, ATOMS, "iu", None, where).reshape(-1)
    count = len(atoms)
    bonds = array_of(item, BONDS, "iu", (count, count), where)
    target = array_of(item, TARGET, "f", None, where).reshape(-1)
    stated = item.get("num_atom")
    if not isinstance(stated, int):
        stated = count
    check_all(
        where,
        [
            (1 <= count <= max_nodes, f"{count} atoms, {max_nodes} at most"),
            (stated == count, f"{count} atoms, but num_atom is {stated!r}"),
            (in_range(atoms, ATOM_TYPES), f"a type of atom that is not 0 to {ATOM_TYPES - 1}"),
            (in_range(bonds, BOND_TYPES), f"a type of bond that is not 0 to {BOND_TYPES - 1}"),
            (np.array_equal(bonds, bonds.T), "a bond there, but not back"),
            (target.shape == (1,), f"{len(target)} targets, 1 expected"),
            (
                (abs(target) <= np.finfo(np.float32).max).all(),
                "the target is NaN or infinite in float32",
            ),
        ],
    )

    first, second = bonds.nonzero()
    return {
        "atoms": atoms[:, None].astype(np.uint8),
        "ends": np.stack([first, second], axis=1).astype(np.uint16),
        "bonds": bonds[first, second].astype(np.uint8),
        "target": target.astype(np.float32),
    }
