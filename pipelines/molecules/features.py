"""SMILES to graphs by RDKit, with the features of the Open Graph Benchmark.

The features are those of ``ogb.utils.smiles2graph`` (ogb 1.3.6), each an index into a list of known
values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
ATOM_SIZES: Final = (119, 5, 12, 12, 10, 6, 6, 2, 2)  #: values of each; the last is "another" of seven
BOND_FIELDS: Final = ("type", "stereo", "conjugated")
BOND_SIZES: Final = (5, 6, 2)

# By RDKit's numbers: unspecified, S, SP, SP2, SP3, SP2D, SP3D, SP3D2, other.
_HYBRIDISATIONS = np.array([5, 5, 0, 1, 2, 5, 3, 4, 5], np.uint8)
# None, any, Z, E, cis, trans; the atropisomers that come after have no index.
_STEREOS = np.array([0, 5, 1, 2, 3, 4], np.uint8)
# Single, double, triple (1 to 3) and aromatic (12); every other is 4.
_BONDS = np.array([4, 0, 1, 2, *[4] * 8, 3, 4], np.uint8)


class RefusedSmilesError(ValueError):
    """RDKit makes no molecule of a SMILES, or one that the features have no index for."""


@dataclass(frozen=True)
class Molecule:
    """One molecule as a graph of N atoms and B bonds."""

    x: NDArray[np.uint8]  #: (N, 9), :data:`ATOM_FIELDS` of each atom
    edge_index: NDArray[np.int32]  #: (2, 2·B): each bond from its first to its second atom, then back
    edge_attr: NDArray[np.uint8]  #: (2·B, 3), :data:`BOND_FIELDS` of each edge


def read_smiles(smiles: str) -> Molecule:
    """Return the graph of a SMILES, as ``ogb.utils.smiles2graph`` has it.

    Hydrogens are implicit, as RDKit's ``MolFromSmiles`` leaves them. :class:`RefusedSmilesError` says why
    RDKit refuses it.
    """
    from rdkit import Chem, rdBase

    with rdBase.BlockLogs():
        mol: Mol | None = Chem.MolFromSmiles(smiles)
        if mol is None:
            raise RefusedSmilesError(_reason(smiles))
    return featurise(mol)


def featurise(mol: Mol) -> Molecule:
    """Return the graph of an RDKit molecule.

    Raises :class:`RefusedSmilesError` where it has no atoms, or a bond with a stereo mark that OGB has no
    index for.
    """
    if mol.GetNumAtoms() == 0:
        raise RefusedSmilesError("it has no atoms")
    from rdkit.Chem import Atom, Bond

    atoms = _table(
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
    element, charge = atoms[:, 0], atoms[:, 3]
    element[:] = np.where((element >= 1) & (element <= 118), element - 1, 118)
    charge[:] = np.where(np.abs(charge) <= 5, charge + 5, 11)
    atoms[:, 6] = _HYBRIDISATIONS[atoms[:, 6]]
    bonds = _table(
        mol.GetBonds(),
        Bond.GetBeginAtomIdx,
        Bond.GetEndAtomIdx,
        Bond.GetBondType,
        Bond.GetStereo,
        Bond.GetIsConjugated,
    )
    stereo = bonds[:, 3]
    if (stereo >= len(_STEREOS)).any():
        i = int(np.argmax(stereo >= len(_STEREOS)))
        msg = f"bond {i} has the stereo mark {mol.GetBondWithIdx(i).GetStereo()}, which has no index"
        raise RefusedSmilesError(msg)
    ends = bonds[:, :2].astype(np.int32)
    kind = _BONDS[np.minimum(bonds[:, 2], len(_BONDS) - 1)]
    features = np.stack([kind, _STEREOS[stereo], bonds[:, 4].astype(np.uint8)], axis=1)
    return Molecule(
        np.minimum(atoms, np.array(ATOM_SIZES) - 1).astype(np.uint8),
        np.ascontiguousarray(np.stack([ends, ends[:, ::-1]], axis=1).reshape(-1, 2).T),
        features.repeat(2, axis=0),
    )


def _table(items: Iterable[Any], *values: Callable[[Any], Any]) -> NDArray[np.int64]:
    """(items, values): a method mapped over all atoms takes three quarters of the time of a loop."""
    found = list(items)
    return np.array([list(map(value, found)) for value in values], np.int64).T


def refused(key: str, smiles: str, reason: object, dataset: str) -> DamagedInput:
    """Return the error for a SMILES that makes no graph."""
    return DamagedInput(
        f"Record {key}: RDKit makes no molecule of its SMILES {smiles[:200]!r}: {reason}",
        next=f"kmip-data build {dataset} --set on_error=skip (leaves such records out and lists them)",
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
