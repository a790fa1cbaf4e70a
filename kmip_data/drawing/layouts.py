"""Positions for nodes without any: molecules by RDKit, other graphs by springs."""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from kmip_data.arrays import F32, F64, I64, U8, Array
from kmip_data.drawing.style import CPK, element_colors, look
from kmip_data.errors import UsageError
from kmip_data.runtime.threads import for_ranges, njit_nogil

if TYPE_CHECKING:
    from scipy.sparse import csr_array

ATOM = "atomic number - 1"  #: first field of the features of atoms (Open Graph Benchmark)
GAP = 0.8  #: distance between connected components
MAX_NODES = 20_000
WORK = 500_000_000  #: most pairs of nodes compared over all steps
SIZE = (1900, 1000)  #: pixels of a molecule's image: twice those of its panel
LETTERS = 24  #: minimum height of atom labels, in these pixels


def is_molecule(fields: Sequence[str]) -> bool:
    """True if ``x`` with these fields has the features of atoms."""
    return bool(fields) and fields[0] == ATOM


def draw_molecule(
    x: Array,
    edge_index: I64,
    edge_attr: Array,
) -> tuple[U8, F64] | None:
    """Draw a molecule from the features of its atoms (N, 9) and of its bonds (E, 3), in both directions.

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

    # 1. The molecule, as Open Graph Benchmark numbers the features of atoms and bonds.
    bond = Chem.BondType
    bond_types = dict(enumerate([bond.SINGLE, bond.DOUBLE, bond.TRIPLE, bond.AROMATIC]))
    molecule = Chem.RWMol()
    for features in x.tolist():
        atom = Chem.Atom(min(features[0] + 1, 118))
        atom.SetFormalCharge(features[3] - 5)
        atom.SetNumExplicitHs(features[4])
        atom.SetNoImplicit(True)
        atom.SetIsAromatic(bool(features[7]))
        molecule.AddAtom(atom)
    for (a, b), features in zip(edge_index.T.tolist(), edge_attr.tolist(), strict=True):
        if a < b:
            molecule.AddBond(a, b, bond_types.get(features[0], bond.UNSPECIFIED))

    # 2. Colours and sizes from the style.
    drawer = rdMolDraw2D.MolDraw2DCairo(*SIZE)
    options: Any = drawer.drawOptions()
    options.prepareMolsBeforeDrawing = False
    options.minFontSize = LETTERS
    options.bondLineWidth = 3
    if look().ink > look().ground:
        rdMolDraw2D.SetDarkMode(options)
    options.setBackgroundColour(to_rgb(look().ground))
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
    points = [drawer.GetDrawCoords(i) for i in range(len(x))]
    positions = np.array([(point.x, point.y) for point in points])
    picture = imread(io.BytesIO(drawer.GetDrawingText()), format="png")[:, :, :3]
    return (picture * 255).round().astype(np.uint8), positions


def layout(edge_index: I64, nodes: int) -> F64:
    """Return a position for each node, (N, 2): the largest component, the others in rows above it.

    Springs (Fruchterman and Reingold, 1991) with a fixed start, so that results are reproducible.
    Raises ``UsageError`` for more than :data:`MAX_NODES` nodes.
    """
    from scipy import sparse

    if nodes > MAX_NODES:
        raise UsageError(
            f"The graph cannot be drawn: {nodes:,} nodes without a position, "
            f"of at most {MAX_NODES:,}.",
            next="choose smaller graphs with --records",
        )
    pos = np.zeros((nodes, 2))
    if not nodes:
        return pos

    source, target = edge_index[:, edge_index[0] != edge_index[1]]
    entries = (np.ones(len(source), bool), (source, target))
    joined = sparse.coo_array(entries, shape=(nodes, nodes)).tocsr()
    joined = (joined + joined.T).tocsr()
    _, part = sparse.csgraph.connected_components(joined, directed=False)

    left = bottom = width = tallest = 0.0
    for number in np.argsort(-np.bincount(part), kind="stable"):
        members = np.flatnonzero(part == number)
        part_pos = _springs(joined[members][:, members])
        size = np.ptp(part_pos, axis=0)
        if left + size[0] > max(width, 3.0):  # the row is full
            left = 0.0
            bottom = bottom + tallest + GAP
            tallest = 0.0
        pos[members] = part_pos - part_pos.min(axis=0) + (left, bottom)
        left = left + size[0] + GAP
        tallest = max(tallest, size[1])
        width = max(width, left - GAP)
    return pos


def _springs(joined: csr_array) -> F64:
    """Return positions (M, 2), about one apart, for a connected component with symmetric adjacency."""
    count = joined.shape[0]
    if count < 3:
        return np.column_stack([np.arange(count), np.zeros(count)])
    joined.sort_indices()
    generator = np.random.Generator(np.random.PCG64(0))
    spread = np.float32(np.sqrt(count))
    pos = (generator.random((count, 2), np.float32) - np.float32(0.5)) * spread
    force = np.empty_like(pos)
    steps = int(np.clip(WORK // count**2, 40, 400))
    fill = partial(_forces, pos, joined.indptr, joined.indices, force)
    for step in range(steps):
        for_ranges(fill, count, grain=64)
        length = np.linalg.norm(force, axis=1, keepdims=True)
        # Maximum displacement per step, which cools down.
        longest = spread * np.float32(0.15) * np.float32(1 - step / steps)
        pos += force / np.maximum(length, np.float32(1e-6)) * np.minimum(length, longest)
    width = float(np.ptp(pos, axis=0).max()) / float(spread)
    return np.asarray(pos / max(width, 1e-6), np.float64)


@njit_nogil(fastmath=True)  # last bits of positions are invisible
def _forces(
    pos: F32,
    start: Array,
    others: Array,
    out: F32,
    first: int,
    last: int,
) -> None:  # pragma: no cover -- compiled
    """Write the force on nodes ``first`` to ``last``: all nodes repel (1/d), neighbours attract (d²).

    Fruchterman and Reingold's forces for springs of length 1. ``others[start[i]:start[i + 1]]`` are
    the neighbours of node i.
    """
    for i in range(first, last):
        x = pos[i, 0]
        y = pos[i, 1]
        fx = np.float32(0.0)
        fy = np.float32(0.0)
        for j in range(pos.shape[0]):
            dx = x - pos[j, 0]
            dy = y - pos[j, 1]
            push = np.float32(1.0) / (dx * dx + dy * dy + np.float32(1e-4))
            fx += dx * push
            fy += dy * push
        for position in range(start[i], start[i + 1]):
            j = others[position]
            dx = pos[j, 0] - x
            dy = pos[j, 1] - y
            pull = np.sqrt(dx * dx + dy * dy)
            fx += dx * pull
            fy += dy * pull
        out[i, 0] = fx
        out[i, 1] = fy
