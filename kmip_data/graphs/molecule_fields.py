"""Atom and bond features of the Open Graph Benchmark (``ogb.utils.features``, ogb 1.3.6).

Each feature is an index into a list of categories. Pipelines store them, encoders embed them, and
drawings show the atoms that they describe.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kmip_data.arrays import I64, Array

ATOM_FIELDS = (
    "atomic number - 1", "chirality", "degree with hydrogens", "formal charge + 5", "hydrogens",
    "radical electrons", "hybridisation", "aromatic", "in a ring",
)  # fmt: skip
#: Names and values that a chemist expects: the name, and the difference from the stored value.
SHIFTED_FIELDS = {
    "atomic number - 1": ("atomic number", 1),
    "formal charge + 5": ("formal charge", -5),
}
#: Number of categories of each field. In seven fields the last one stands for unlisted values.
ATOM_SIZES = (119, 5, 12, 12, 10, 6, 6, 2, 2)
BOND_FIELDS = ("type", "stereo", "conjugated")
BOND_SIZES = (5, 6, 2)
ZINC_ATOM = "atom type"  #: the only atom field of ZINC
#: Symbols of the elements by atomic number; the first stands for any other atom, as in RDKit.
_SYMBOLS = (
    "* H He Li Be B C N O F Ne Na Mg Al Si P S Cl Ar K Ca Sc Ti V Cr Mn Fe Co Ni Cu Zn Ga Ge As Se Br "
    "Kr Rb Sr Y Zr Nb Mo Tc Ru Rh Pd Ag Cd In Sn Sb Te I Xe Cs Ba La Ce Pr Nd Pm Sm Eu Gd Tb Dy Ho Er Tm Yb "
    "Lu Hf Ta W Re Os Ir Pt Au Hg Tl Pb Bi Po At Rn Fr Ra Ac Th Pa U Np Pu Am Cm Bk Cf Es Fm Md No Lr "
    "Rf Db Sg Bh Hs Mt Ds Rg Cn Nh Fl Mc Lv Ts Og"
)
SYMBOLS = _SYMBOLS.split()
#: Symbol, hydrogens and charge of each atom type of ZINC (benchmarking-gnns).
ZINC_TYPES = (
    "C", "O", "N", "F", "CH", "S", "Cl", "O-", "NH+", "Br", "NH3+", "NH2+", "N+", "N-", "S-", "I", "P", "OH+",
    "NH-", "O+", "S+", "PH", "PH2", "CH2-", "P+", "SH+", "CH-", "PH+",
)  # fmt: skip


@dataclass(frozen=True)
class Atom:
    """An atom for RDKit."""

    number: int  #: atomic number
    charge: int = 0
    hydrogens: int | None = None  #: None: inferred from the valence
    aromatic: bool = False

    @property
    def symbol(self) -> str:
        """Symbol and charge.

        >>> Atom(11, charge=1).symbol, Atom(8, charge=-2).symbol
        ('Na⁺', 'O²⁻')
        """
        count = ("", "", *"²³⁴⁵⁶⁷⁸⁹")[min(abs(self.charge), 9)]
        sign = "⁺" if self.charge > 0 else "⁻"
        return SYMBOLS[self.number] + (count + sign if self.charge else "")


def atoms_from_features(fields: Sequence[str], x: Array) -> list[Atom] | None:
    """Return the atoms with the features ``x`` (N, F); None if ``fields`` do not describe atoms.

    Supports Open Graph Benchmark's nine features and the atom types of ZINC.
    """
    if not fields or x.size == 0:
        return None
    if fields[0] == ATOM_FIELDS[0]:
        atoms = []
        for number, *rest in x.astype(np.int64).tolist():
            details = {}
            if len(rest) == len(ATOM_FIELDS) - 1:
                details = {"charge": rest[2] - 5, "hydrogens": rest[3], "aromatic": bool(rest[6])}
            atoms.append(Atom(number + 1 if number < 118 else 0, **details))
        return atoms
    types = x.reshape(-1).astype(np.int64)
    if fields[0] == ZINC_ATOM and types.min() >= 0 and types.max() < len(ZINC_TYPES):
        return [_parse_zinc_atom(ZINC_TYPES[number]) for number in types.tolist()]
    return None


def bond_types_from_features(fields: Sequence[str], edge_attr: Array) -> I64:
    """Return the type of each bond, int64 (E,): 0 single, 1 double, 2 triple and 3 aromatic."""
    codes = (edge_attr[:, 0] if edge_attr.ndim > 1 else edge_attr).astype(np.int64)
    return codes - 1 if fields[0] == ZINC_ATOM else codes


def _parse_zinc_atom(name: str) -> Atom:
    """Parse an atom type such as ``NH2+``."""
    base = name.rstrip("+-")
    symbol, hydrogen, count = base.partition("H")
    hydrogens = int(count or 1) if hydrogen else None
    return Atom(SYMBOLS.index(symbol), name.count("+") - name.count("-"), hydrogens)
