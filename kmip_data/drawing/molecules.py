"""Draw molecules with RDKit."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from kmip_data.arrays import F64, I64, U8
from kmip_data.drawing.style import CPK_COLORS, current_style, element_colors
from kmip_data.graphs.molecule_fields import Atom

AROMATIC = 3  #: type of a bond
BOND_LENGTH = 100  #: pixels of a bond by default
LETTER_HEIGHTS = (45, 55)  #: pixels of a letter, less if bonds are short
PIXELS_PER_INCH = 300


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
    letter = np.clip(bond_length // 4, *LETTER_HEIGHTS)
    options.fixedFontSize = int(min(letter, bond_length * 4 // 7))
    options.bondLineWidth = max(4, bond_length // 35)
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
