"""SMILES to graphs by RDKit, with the features of the Open Graph Benchmark.

The features are those of ``ogb.utils.smiles2graph`` (ogb 1.3.6), each an index into a list of known
values. RDKit hands atoms and bonds to Python one by one, which takes more than twice as long as reading
the SMILES; so the features are read from its binary form of a molecule, by a compiled kernel
(``docs/adr/0170``). That form may change: where the kernel and RDKit's own methods differ on a few
molecules that have everything in them, and for a molecule with something the kernel does not know, the
methods are asked instead.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from kmip_data.errors import DamagedInput

if TYPE_CHECKING:
    from rdkit.Chem import Mol

ATOM_FIELDS: Final = (
    "atomic number - 1",
    "chirality",
    "degree with hydrogens",
    "formal charge + 5",
    "hydrogens",
    "radical electrons",
    "hybridisation",
    "aromatic",
    "in a ring",
)
ATOM_SIZES: Final = (
    119,
    5,
    12,
    12,
    10,
    6,
    6,
    2,
    2,
)  #: values of each; the last is "another" of the first seven
BOND_FIELDS: Final = ("type", "stereo", "conjugated")
BOND_SIZES: Final = (5, 6, 2)

# By RDKit's numbers: unspecified, S, SP, SP2, SP3, SP2D, SP3D, SP3D2, other.
_HYBRIDISATIONS = np.array([5, 5, 0, 1, 2, 5, 3, 4, 5], np.uint8)
# None, any, Z, E, cis, trans; the atropisomers that come after have no index.
_STEREOS = np.array([0, 5, 1, 2, 3, 4], np.uint8)
_BONDS = {1: 0, 2: 1, 3: 2, 12: 3}  # single, double, triple, aromatic
_SIZES = struct.Struct("<20x2I")  # of the binary form: atoms, bonds

#: Between them: charges, isotopes, radicals, every hybridisation there is a short molecule for, both
#: chiralities, stereo bonds and directions, triple and dative bonds, rings, over 255 bonds, over 255 atoms.
_PROBES = (
    "C[C@H](N)C(=O)N[C@@H](CC1=CC=CC=C1)C([O-])=O",
    "C/C=C/C(=O)N/N=C\\c1c[nH]c[n+]1C",
    "[13CH3][CH]C#N.[Na+].F[P-](F)(F)(F)(F)F.FS(F)(F)F.[2H]O[H]",
    "[NH3]->[Cu]C=C=C[B-](O)(O)O.[O]C1=C[Se]C=C1",
    "C" + "C1CC1" * 80 + "[C@H](F)O",
    "C1CCCCC1C" + "[C@@H](N)" * 130 + "/C=C/" + "C" * 130 + "C1CC1",
)  # fmt: skip


class RefusedSmilesError(ValueError):
    """RDKit makes no molecule of a SMILES, or one that the features have no index for."""


@dataclass(frozen=True)
class Molecule:
    """One molecule as a graph.

    Attributes
    ----------
    x
        uint8 (N, 9), :data:`ATOM_FIELDS` of each atom.
    edge_index
        int32 (2, 2·B): each bond from its first to its second atom, then back.
    edge_attr
        uint8 (2·B, 3), :data:`BOND_FIELDS` of each edge.
    """

    x: NDArray[np.uint8]
    edge_index: NDArray[np.int32]
    edge_attr: NDArray[np.uint8]


def read_smiles(smiles: str) -> Molecule:
    """Return the graph of a SMILES, as ``ogb.utils.smiles2graph`` has it.

    Hydrogens are implicit, as RDKit's ``MolFromSmiles`` leaves them.

    Raises
    ------
    RefusedSmilesError
        RDKit refuses it; the message says why.
    """
    from rdkit import Chem, rdBase

    with rdBase.BlockLogs():
        mol: Mol | None = Chem.MolFromSmiles(smiles)
        if mol is None:
            raise RefusedSmilesError(_reason(smiles))
    return featurise(mol)


def featurise(mol: Mol) -> Molecule:
    """Return the graph of an RDKit molecule.

    Raises
    ------
    RefusedSmilesError
        It has no atoms, or a bond with a stereo mark that OGB has no index for.
    """
    if mol.GetNumAtoms() == 0:
        msg = "it has no atoms"
        raise RefusedSmilesError(msg)
    found = read_binary(mol) if _binary_is_known() else None
    return found or ask_rdkit(mol)


def read_binary(mol: Mol) -> Molecule | None:
    """Read the graph from the binary form; ``None`` where something in it is not known."""
    data = mol.ToBinary(0)
    atoms, bonds = _SIZES.unpack_from(data)
    if (atoms, bonds) != (mol.GetNumAtoms(), mol.GetNumBonds()):
        return None
    x, edge_index, edge_attr = _empty(atoms, bonds)
    known = _kernel()(np.frombuffer(data, np.uint8), _HYBRIDISATIONS, _STEREOS, x, edge_index, edge_attr)
    return Molecule(x, edge_index, edge_attr) if known else None


def ask_rdkit(mol: Mol) -> Molecule:
    """Ask RDKit's methods for each feature of each atom and bond: slower, and always right."""
    x, edge_index, edge_attr = _empty(mol.GetNumAtoms(), mol.GetNumBonds())
    for i, atom in enumerate(mol.GetAtoms()):
        element, charge = atom.GetAtomicNum(), atom.GetFormalCharge()
        x[i] = (
            element - 1 if 1 <= element <= 118 else 118,
            min(int(atom.GetChiralTag()), 4),
            min(atom.GetTotalDegree(), 11),
            charge + 5 if -5 <= charge <= 5 else 11,
            min(atom.GetTotalNumHs(), 9),
            min(atom.GetNumRadicalElectrons(), 5),
            _HYBRIDISATIONS[int(atom.GetHybridization())],
            atom.GetIsAromatic(),
            atom.IsInRing(),
        )
    for i, bond in enumerate(mol.GetBonds()):
        begin, end, stereo = bond.GetBeginAtomIdx(), bond.GetEndAtomIdx(), int(bond.GetStereo())
        if stereo >= len(_STEREOS):
            msg = f"bond {i} has the stereo mark {bond.GetStereo()}, which has no index"
            raise RefusedSmilesError(msg)
        edge_index[:, 2 * i : 2 * i + 2] = [[begin, end], [end, begin]]
        kind = _BONDS.get(int(bond.GetBondType()), 4)
        edge_attr[2 * i : 2 * i + 2] = kind, _STEREOS[stereo], bond.GetIsConjugated()
    return Molecule(x, edge_index, edge_attr)


def refused(key: str, smiles: str, reason: object, dataset: str) -> DamagedInput:
    """Return the error for a SMILES that makes no graph."""
    return DamagedInput(
        f"Record {key}: RDKit makes no molecule of its SMILES.",
        expected="a SMILES that RDKit reads and sanitises",
        found=f"{smiles[:200]!r}: {reason}",
        left="the raw files, which a build only reads",
        next=f"kmip-data build {dataset} --on-error skip (leaves such records out and lists them)",
    )


def _empty(atoms: int, bonds: int) -> tuple[NDArray[np.uint8], NDArray[np.int32], NDArray[np.uint8]]:
    return (
        np.empty((atoms, len(ATOM_FIELDS)), np.uint8),
        np.empty((2, 2 * bonds), np.int32),
        np.empty((2 * bonds, len(BOND_FIELDS)), np.uint8),
    )


def _reason(smiles: str) -> str:
    """Say in one line why RDKit refuses a SMILES."""
    from rdkit import Chem

    mol: Mol | None = Chem.MolFromSmiles(smiles, sanitize=False)
    if mol is None:
        return "it is not a SMILES"
    try:
        Chem.SanitizeMol(mol)
    except ValueError as error:  # RDKit's own errors derive from it
        return " ".join(str(error).split())
    return "it has no molecule"


@functools.cache
def _binary_is_known() -> bool:
    """Whether the kernel reads this RDKit's binary form: it does for the probes."""
    from rdkit import Chem, rdBase

    with rdBase.BlockLogs():
        for smiles in _PROBES:
            mol: Mol | None = Chem.MolFromSmiles(smiles)
            if mol is None:
                continue
            found, wanted = read_binary(mol), ask_rdkit(mol)
            if found is None or not all(
                np.array_equal(getattr(found, name), getattr(wanted, name))
                for name in ("x", "edge_index", "edge_attr")
            ):
                return False
    return True


@functools.cache
def _kernel() -> Callable[..., Any]:
    """Return the compiled reader (numba is imported on first use)."""
    from kmip_data.pipelines.molecules._kernel import read_molecule

    return read_molecule
