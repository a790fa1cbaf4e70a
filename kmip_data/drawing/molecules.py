"""Read atoms and bonds from the features of molecule datasets, and draw them with RDKit."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kmip_data.arrays import F64, I64, U8, Array
from kmip_data.drawing.style import CPK_COLORS, current_style, element_colors
from kmip_data.graphs.molecule_fields import ATOM_FIELDS

ZINC_ATOM = "atom type"  #: the only atom field of ZINC
BOND_LENGTH = 100  #: pixels of a bond by default
LETTER_HEIGHT = 37  #: pixels of a letter, unless bonds are short
PIXELS_PER_INCH = 300
BONDS = ("single", "double", "triple", "aromatic")  #: in the order of Open Graph Benchmark
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
        count = "" if abs(self.charge) < 2 else "⁰¹²³⁴⁵⁶⁷⁸⁹"[min(abs(self.charge), 9)]
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
    """Return the type of each bond as a position in :data:`BONDS`: int64 (E,)."""
    codes = (edge_attr[:, 0] if edge_attr.ndim > 1 else edge_attr).astype(np.int64)
    return codes - 1 if fields[0] == ZINC_ATOM else codes


def _parse_zinc_atom(name: str) -> Atom:
    """Parse an atom type such as ``NH2+``."""
    base = name.rstrip("+-")
    symbol, hydrogen, count = base.partition("H")
    hydrogens = int(count or 1) if hydrogen else None
    return Atom(SYMBOLS.index(symbol), name.count("+") - name.count("-"), hydrogens)


def draw_molecule(
    atoms: Sequence[Atom],
    edge_index: I64,
    bond_type_codes: I64,
    bond_length: int = BOND_LENGTH,
) -> tuple[U8, F64] | None:
    """Draw a molecule from its atoms and the types (E,) of its bonds, listed in both directions.

    Returns an image (H, W, 3), as large as the molecule, and the column and row of each atom (N, 2);
    ``None`` without RDKit. The longest axis of the molecule is horizontal.
    """
    from matplotlib.colors import to_rgb
    from matplotlib.image import imread

    try:
        from rdkit import Chem
        from rdkit.Chem import rdDepictor
        from rdkit.Chem.Draw import rdMolDraw2D
    except ImportError:
        return None

    # 1. Build the molecule.
    bond = Chem.BondType
    bond_types = dict(enumerate([bond.SINGLE, bond.DOUBLE, bond.TRIPLE, bond.AROMATIC]))
    molecule = Chem.RWMol()
    for atom in atoms:
        rdkit_atom = Chem.Atom(atom.number)
        rdkit_atom.SetFormalCharge(atom.charge)
        rdkit_atom.SetIsAromatic(atom.aromatic)
        if atom.hydrogens is not None:
            rdkit_atom.SetNumExplicitHs(atom.hydrogens)
            rdkit_atom.SetNoImplicit(True)
        molecule.AddAtom(rdkit_atom)
    for (a, b), bond_type in zip(edge_index.T.tolist(), bond_type_codes.tolist(), strict=True):
        if a < b:
            molecule.AddBond(a, b, bond_types.get(bond_type, bond.UNSPECIFIED))

    # 2. Set colours and sizes from the style.
    drawer = rdMolDraw2D.MolDraw2DCairo(-1, -1)  # as large as the molecule
    options: Any = drawer.drawOptions()
    options.prepareMolsBeforeDrawing = False
    options.fixedFontSize = min(LETTER_HEIGHT, bond_length * 3 // 7)
    options.bondLineWidth = 4
    options.scalingFactor = bond_length / 1.5  # pixels of an ångström in RDKit's drawings
    options.padding = 0.01
    options.flagCloseContactsDist = -1  # no red marks on overlapping atoms
    if current_style().text_color > current_style().background_color:
        rdMolDraw2D.SetDarkMode(options)
    options.setBackgroundColour(to_rgb(current_style().background_color))
    colors = map(to_rgb, element_colors([*CPK_COLORS]))
    options.updateAtomPalette(dict(zip(CPK_COLORS, colors, strict=True)))

    # 3. Compute positions and draw the picture.
    molecule.UpdatePropertyCache(strict=False)
    Chem.FastFindRings(molecule)
    rdDepictor.Compute2DCoords(molecule)
    rdDepictor.NormalizeDepiction(molecule)  # align the principal axis with x
    prepared = rdMolDraw2D.PrepareMolForDrawing(molecule, kekulize=False, addChiralHs=False)
    drawer.DrawMolecule(prepared)
    drawer.FinishDrawing()
    points = [drawer.GetDrawCoords(i) for i in range(len(atoms))]
    positions = np.array([(point.x, point.y) for point in points])
    picture = imread(io.BytesIO(drawer.GetDrawingText()), format="png")[:, :, :3]
    return (picture * 255).round().astype(np.uint8), positions
