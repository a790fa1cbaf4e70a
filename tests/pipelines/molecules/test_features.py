"""Features of molecules: equal to OGB's, from the binary form as from RDKit's methods."""

from __future__ import annotations

import re

import numpy as np
import pytest
from ogb.utils import smiles2graph
from rdkit import Chem, rdBase
from support.small_graphs import real_rows

from kmip_data.pipelines.molecules import features as molecules
from kmip_data.pipelines.molecules._kernel import read_molecule
from kmip_data.pipelines.molecules.features import (
    RefusedSmilesError,
    ask_rdkit,
    read_binary,
    read_smiles,
)

NAMES = ("x", "edge_index", "edge_attr")
SMILES = [
    "C",
    "[H][H]",
    "CC",
    "O=C=O",
    "C#N",
    "[NH4+].[Cl-]",
    "[13CH3][2H]",
    "[CH3]",
    "[CH2]",
    "C[C@H](N)C(=O)O",
    "C[C@@](F)(Cl)Br",
    "F/C=C/F",
    "F/C=C\\F",
    "C/C=N/O",
    "c1ccc2[nH]ccc2c1",
    "c1ccsc1",
    "FS(F)(F)(F)(F)F",
    "FP(F)(F)(F)F",
    "F[P-](F)(F)(F)(F)F",
    "[Fe+2].[O-]S(=O)(=O)[O-]",
    "[NH3]->[Pt](<-[NH3])(Cl)Cl",
    "*C",
    "[CH3:1]O",
    "C1CC1",
    "C1CC2CCC1CC2",
    "C=C=C",
    "[Xe]",
    "O=[Os](=O)(=O)=O",
    "B(O)O",
    "[SiH4]",
    "C" * 254 + "O",
    "C" * 255 + "O",
    "C" * 256 + "O",
    "C" + "C1CC1" * 84,
    "C1CC1" + "C" * 252,
    "N[C@@H](CC1=CC=CC=C1)C(=O)" * 20 + "O",
    "/".join(["C=C"] * 90) + "C(=O)O",
]


def arrays(molecule):
    return {name: getattr(molecule, name) for name in NAMES}


def assert_same(found, wanted):
    for name, array in arrays(found).items():
        assert np.array_equal(array, getattr(wanted, name)), name


def assert_equals_ogb(smiles):
    with rdBase.BlockLogs():
        theirs = smiles2graph(smiles)
    ours = read_smiles(smiles)
    for name, key in zip(NAMES, ("node_feat", "edge_index", "edge_feat"), strict=True):
        assert np.array_equal(getattr(ours, name), theirs[key]), (smiles, name)


@pytest.mark.parametrize("smiles", SMILES)
def test_equals_ogb(smiles):
    assert_equals_ogb(smiles)


@pytest.mark.parametrize("smiles", SMILES)
def test_binary_form_equals_methods(smiles):
    with rdBase.BlockLogs():
        mol = Chem.MolFromSmiles(smiles)
    found = read_binary(mol)
    # Dummy atoms and atom maps have entries of their own: the methods are asked for these.
    assert (found is None) == bool(re.search(r"\*|:\d", smiles))
    if found is not None:
        assert_same(found, ask_rdkit(mol))


def test_the_binary_form_of_this_rdkit_is_known():
    assert molecules._binary_is_known()
    assert all(Chem.MolFromSmiles(smiles) is not None for smiles in molecules._PROBES)


def test_real_peptides_equal_ogb():
    for row in real_rows(every=60):
        assert_equals_ogb(row["smiles"])


@pytest.mark.slow
def test_all_real_peptides_equal_ogb():
    rows = real_rows()
    assert len(rows) == 15_535
    for row in rows:
        assert_equals_ogb(row["smiles"])


def test_another_binary_form_is_not_believed(monkeypatch):
    """An RDKit that writes something else: the methods are asked, and the features stay the same."""
    smiles = "C[C@H](N)C(=O)OC1CC1"
    wanted = read_smiles(smiles)

    def wrong(data, hybridisations, stereos, x, edge_index, edge_attr):
        x[:], edge_index[:], edge_attr[:] = 0, 0, 0
        return True

    monkeypatch.setattr(molecules, "_kernel", lambda: wrong)
    molecules._binary_is_known.cache_clear()
    try:
        assert not molecules._binary_is_known()
        assert_same(read_smiles(smiles), wanted)
    finally:
        molecules._binary_is_known.cache_clear()


@pytest.mark.parametrize("smiles", [SMILES[9], SMILES[12], "C" * 256 + "/C=C/C1CC1"])
def test_cut_or_changed_bytes_are_noticed_or_harmless(smiles):
    """The kernel never reads or writes outside its arrays, whatever the bytes are."""
    mol = Chem.MolFromSmiles(smiles)
    data = mol.ToBinary(0)
    atoms, bonds = mol.GetNumAtoms(), mol.GetNumBonds()
    rng = np.random.default_rng(0)

    def read(some):
        x = np.empty((atoms, 9), np.uint8)
        index, attr = np.empty((2, 2 * bonds), np.int32), np.empty((2 * bonds, 3), np.uint8)
        some = np.frombuffer(some, np.uint8)
        known = read_molecule(some, molecules._HYBRIDISATIONS, molecules._STEREOS, x, index, attr)
        if known:
            assert bonds == 0 or (index.min() >= 0 and index.max() < atoms)
        return known

    assert read(data)
    end = len(data) - 10  # what follows the rings is not read
    assert not any(read(data[:stop]) for stop in range(0, end, max(1, end // 400)))
    for _ in range(300):
        changed = bytearray(data)
        for place in rng.integers(28, len(data), 3):
            changed[place] = rng.integers(0, 256)
        read(bytes(changed))


@pytest.mark.parametrize(
    ("smiles", "reason"),
    [
        ("C(", "not a SMILES"),
        ("nonsense", "not a SMILES"),
        ("CN(C)(C)(C)C", "valence"),
        ("c1ccccc1c", "aromatic"),
        ("", "no atoms"),
    ],
)
def test_refused_smiles_say_why(smiles, reason, capfd):
    with pytest.raises(RefusedSmilesError, match=reason):
        read_smiles(smiles)
    assert capfd.readouterr().err == ""
