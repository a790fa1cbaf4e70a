"""Features of molecules: equal to OGB's."""

from __future__ import annotations

import numpy as np
import pytest
from ogb.utils import smiles2graph
from rdkit import rdBase
from support.builds.raw_graphs import real_rows
from support.cases import check_each
from support.raises import raises

from kmip_data.pipelines.domains.molecules import RefusedSmilesError, molecule_from_smiles

SMILES = [
    "C", "[H][H]", "CC", "O=C=O", "C#N", "[NH4+].[Cl-]", "[13CH3][2H]", "[CH3]", "[CH2]", "C[C@H](N)C(=O)O",
    "C[C@@](F)(Cl)Br", "F/C=C/F", "F/C=C\\F", "C/C=N/O", "c1ccc2[nH]ccc2c1", "c1ccsc1", "FS(F)(F)(F)(F)F",
    "FP(F)(F)(F)F", "F[P-](F)(F)(F)(F)F", "[Fe+2].[O-]S(=O)(=O)[O-]", "[NH3]->[Pt](<-[NH3])(Cl)Cl", "*C",
    "[CH3:1]O", "C1CC1", "C1CC2CCC1CC2", "C=C=C", "[Xe]", "O=[Os](=O)(=O)=O", "B(O)O", "[SiH4]",
    *("C" * bonds + "O" for bonds in (254, 255, 256)), "C" + "C1CC1" * 84,
    "N[C@@H](CC1=CC=CC=C1)C(=O)" * 20 + "O", "/".join(["C=C"] * 90) + "C(=O)O",
]  # fmt: skip


def assert_equals_ogb(smiles):
    with rdBase.BlockLogs():
        theirs = smiles2graph(smiles)
    for ours, key in zip(
        molecule_from_smiles(smiles), ("node_feat", "edge_index", "edge_feat"), strict=True
    ):
        assert np.array_equal(ours, theirs[key]), (smiles, key)


def test_molecules_of_smiles_equal_ogb():
    check_each(assert_equals_ogb, [*SMILES, *(row["smiles"] for row in real_rows(every=150))])


@pytest.mark.parametrize(
    ("smiles", "named"),
    [("C(", ()), ("nonsense", ()), ("CN(C)(C)(C)C", ["N", 5]), ("c1ccccc1c", 6), ("", ())],
)
def test_refused_smiles_name_the_atom(smiles, named, capfd):
    with raises(RefusedSmilesError, naming=named):
        molecule_from_smiles(smiles)
    assert capfd.readouterr().err == ""
