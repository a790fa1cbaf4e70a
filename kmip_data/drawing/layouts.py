"""Where nodes without a position are drawn: molecules by RDKit, other graphs by a layout of their edges."""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kmip_data.errors import UsageError

ATOM: Final = "atomic number - 1"  #: first field of the features of atoms (Open Graph Benchmark)
GAP: Final = 0.8  #: between the parts of a graph
MOST_NODES: Final = 20_000
WORK: Final = 500_000_000  #: pairs of nodes looked at, of a part that is no larger than thousands of nodes
SIZE: Final = (760, 700)  #: pixels of the picture of a molecule
_SINGLE, _DOUBLE, _TRIPLE, _AROMATIC = range(4)  # index of a bond's type


def is_molecule(fields: Sequence[str]) -> bool:
    """Whether ``x`` with these fields has the features of atoms."""
    return bool(fields) and fields[0] == ATOM


def draw_molecule(
    x: NDArray[Any], edge_index: NDArray[np.int64], edge_attr: NDArray[Any]
) -> tuple[NDArray[np.uint8], NDArray[np.float64]] | None:
    """Draw a molecule from its features.

    Parameters
    ----------
    x
        (N, 9) features of atoms.
    edge_attr
        (E, 3) features of bonds, each of which is there in both directions.

    Returns
    -------
    picture, pos
        (H, W, 3), and (N, 2) column and row of each atom on it; ``None`` where RDKit is not installed.
    """
    try:
        from rdkit import Chem
        from rdkit.Chem.Draw import rdMolDraw2D
    except ImportError:
        return None
    kinds = {
        _SINGLE: Chem.BondType.SINGLE,
        _DOUBLE: Chem.BondType.DOUBLE,
        _TRIPLE: Chem.BondType.TRIPLE,
        _AROMATIC: Chem.BondType.AROMATIC,
    }
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
            molecule.AddBond(a, b, kinds.get(features[0], Chem.BondType.UNSPECIFIED))
    drawer = rdMolDraw2D.MolDraw2DCairo(*SIZE)
    options: Any = drawer.drawOptions()
    options.prepareMolsBeforeDrawing = False
    molecule.UpdatePropertyCache(strict=False)
    Chem.FastFindRings(molecule)
    drawing = rdMolDraw2D.PrepareMolForDrawing(molecule, kekulize=False, addChiralHs=False)
    drawer.DrawMolecule(drawing)
    drawer.FinishDrawing()
    points = [drawer.GetDrawCoords(i) for i in range(len(x))]
    return _pixels(drawer.GetDrawingText()), np.array([(p.x, p.y) for p in points])


def _pixels(png: bytes) -> NDArray[np.uint8]:
    from matplotlib.image import imread

    picture = np.asarray(imread(io.BytesIO(png), format="png"))
    return (picture[:, :, :3] * 255).round().astype(np.uint8)


def layout(edge_index: NDArray[np.int64], nodes: int) -> NDArray[np.float64]:
    """Return a position for each node, (N, 2): the largest connected part, the others in rows above it.

    Springs (Fruchterman and Reingold, 1991) from a fixed start: a graph is always drawn in the same way.

    Raises
    ------
    UsageError
        There are more than :data:`MOST_NODES` nodes.
    """
    if nodes > MOST_NODES:
        raise UsageError(
            "The graph cannot be drawn: its nodes have no position, and are too many to find places for.",
            expected=f"a position of each node in two or three coordinates, or at most {MOST_NODES:,} nodes",
            found=f"{nodes:,} nodes",
            left="nothing was changed",
            next="choose smaller graphs with --records",
        )
    import networkx as nx

    graph = nx.Graph()
    graph.add_nodes_from(range(nodes))
    graph.add_edges_from(edge for edge in edge_index.T.tolist() if edge[0] != edge[1])
    pos = np.zeros((nodes, 2))
    left = bottom = width = tallest = 0.0
    for part in sorted(nx.connected_components(graph), key=lambda part: (-len(part), min(part))):
        members = np.array(sorted(part))
        place = _springs(graph, members)
        size = np.ptp(place, axis=0)
        if left + size[0] > max(width, 3.0):  # the row is full
            left, bottom, tallest = 0.0, bottom + tallest + GAP, 0.0
        pos[members] = place - place.min(axis=0) + (left, bottom)
        left, tallest = left + size[0] + GAP, max(tallest, size[1])
        width = max(width, left - GAP)
    return pos


def _springs(graph: Any, members: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return positions of the nodes of one connected part, (M, 2), about one apart."""
    from kmip_data.drawing._layout_kernel import forces
    from kmip_data.runtime.threads import for_ranges

    count = len(members)
    if count < 3:
        return np.column_stack([np.arange(count), np.zeros(count)])
    neighbours = [np.searchsorted(members, sorted(graph[member])) for member in members.tolist()]
    start = np.concatenate([[0], np.cumsum([len(row) for row in neighbours])])
    others = np.concatenate(neighbours)
    spread = np.float32(np.sqrt(count))
    pos = (np.random.Generator(np.random.PCG64(0)).random((count, 2), np.float32) - np.float32(0.5)) * spread
    force = np.empty_like(pos)
    steps = int(np.clip(WORK // count**2, 40, 400))
    fill = partial(forces, pos, start, others, force)
    for step in range(steps):
        for_ranges(fill, count, grain=64)
        length = np.linalg.norm(force, axis=1, keepdims=True)
        longest = spread * np.float32(0.15) * np.float32(1 - step / steps)  # of a step; it cools down
        pos += force / np.maximum(length, np.float32(1e-6)) * np.minimum(length, longest)
    width = float(np.ptp(pos, axis=0).max()) / float(spread)
    return np.asarray(pos / max(width, 1e-6), np.float64)
