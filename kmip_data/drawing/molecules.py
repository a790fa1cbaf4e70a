"""Molecules: their atoms and bonds as the datasets number them, drawn by RDKit."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kmip_data.arrays import F64, I64, U8, Array
from kmip_data.drawing.style import CPK, current_style, element_colors
from kmip_data.graphs.molecule_fields import ATOM_FIELDS

ZINC_ATOM = "atom type"  #: the only field of the atoms of ZINC
SIZE = (1900, 1000)  #: pixels of a molecule's image: twice its panel's
LETTERS = 24  #: minimum height of atom labels, in these pixels
BONDS = ("single", "double", "triple", "aromatic")  #: as Open Graph Benchmark numbers them
#: Symbols of the most frequent elements of molecules, by atomic number.
SYMBOLS = {
    1: "H",
    5: "B",
    6: "C",
    7: "N",
    8: "O",
    9: "F",
    15: "P",
    16: "S",
    17: "Cl",
    35: "Br",
    53: "I",
}
#: Symbol, hydrogens and charge of each atom type of ZINC (benchmarking-gnns).
ZINC_TYPES = (
    "C", "O", "N", "F", "CH", "S", "Cl", "O-", "NH+", "Br", "NH3+", "NH2+", "N+", "N-", "S-", "I", "P", "OH+",
    "NH-", "O+", "S+", "PH", "PH2", "CH2-", "P+", "SH+", "CH-", "PH+",
)  # fmt: skip


@dataclass(frozen=True)
class Atom:
    """An atom as RDKit takes it."""

    number: int  #: atomic number
    charge: int = 0
    hydrogens: int | None = None  #: None: as many as its valence leaves
    aromatic: bool = False


def atoms_from_features(fields: Sequence[str], x: Array) -> list[Atom] | None:
    """Return the atoms whose features (N, F) are ``x``, by the names of its fields; None if it has none.

    Read are Open Graph Benchmark's nine features, or the atom types of ZINC.
    """
    if not fields or x.size == 0:
        return None
    if fields[0] == ATOM_FIELDS[0]:
        atoms = []
        for number, *rest in x.astype(np.int64).tolist():
            known = {}
            if len(rest) == len(ATOM_FIELDS) - 1:
                known = {"charge": rest[2] - 5, "hydrogens": rest[3], "aromatic": bool(rest[6])}
            atoms.append(Atom(min(number + 1, 118), **known))
        return atoms
    types = x.reshape(-1).astype(np.int64)
    if fields[0] == ZINC_ATOM and types.min() >= 0 and types.max() < len(ZINC_TYPES):
        return [_parse_zinc_atom(ZINC_TYPES[number]) for number in types.tolist()]
    return None


def bond_types_from_features(fields: Sequence[str], edge_attr: Array) -> I64:
    """Return the type of each bond, a position in :data:`BONDS`: int64 (E,)."""
    bond_type_codes = (edge_attr[:, 0] if edge_attr.ndim > 1 else edge_attr).astype(np.int64)
    return bond_type_codes - 1 if fields[0] == ZINC_ATOM else bond_type_codes


def _parse_zinc_atom(name: str) -> Atom:
    """Read a type, such as ``NH2+``."""
    numbers = {symbol: number for number, symbol in SYMBOLS.items() if number > 1}
    base = name.rstrip("+-")
    symbol, hydrogen, count = base.partition("H")
    hydrogens = int(count or 1) if hydrogen else None
    return Atom(numbers[symbol], name.count("+") - name.count("-"), hydrogens)


def draw_molecule(
    atoms: Sequence[Atom], edge_index: I64, bond_type_codes: I64
) -> tuple[U8, F64] | None:
    """Draw a molecule from its N atoms and the kinds (E,) of its bonds, in both directions.

    Returns an image (H, W, 3), and the column and row of each atom (N, 2); ``None`` without RDKit.
    The molecule's longest axis is horizontal.
    """
    from matplotlib.colors import to_rgb
    from matplotlib.image import imread

    try:
        from rdkit import Chem
        from rdkit.Chem import rdDepictor
        from rdkit.Chem.Draw import rdMolDraw2D
    except ImportError:
        return None

    # 1. The molecule.
    bond = Chem.BondType
    bond_types = dict(enumerate([bond.SINGLE, bond.DOUBLE, bond.TRIPLE, bond.AROMATIC]))
    molecule = Chem.RWMol()
    for one in atoms:
        atom = Chem.Atom(one.number)
        atom.SetFormalCharge(one.charge)
        atom.SetIsAromatic(one.aromatic)
        if one.hydrogens is not None:
            atom.SetNumExplicitHs(one.hydrogens)
            atom.SetNoImplicit(True)
        molecule.AddAtom(atom)
    for (a, b), bond_type in zip(edge_index.T.tolist(), bond_type_codes.tolist(), strict=True):
        if a < b:
            molecule.AddBond(a, b, bond_types.get(bond_type, bond.UNSPECIFIED))

    # 2. Colours and sizes from the style.
    drawer = rdMolDraw2D.MolDraw2DCairo(*SIZE)
    options: Any = drawer.drawOptions()
    options.prepareMolsBeforeDrawing = False
    options.minFontSize = LETTERS
    options.bondLineWidth = 3
    options.flagCloseContactsDist = -1  # red marks where atoms of a large molecule overlap
    if current_style().ink > current_style().ground:
        rdMolDraw2D.SetDarkMode(options)
    options.setBackgroundColour(to_rgb(current_style().ground))
    colors = map(to_rgb, element_colors([*CPK]))
    options.updateAtomPalette(dict(zip(CPK, colors, strict=True)))

    # 3. Positions, then the picture.
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
