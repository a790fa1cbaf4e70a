"""Draw the contents of samples: one function for each layout that several datasets share.

A sample proves layouts and speed, not accuracy. So each drawing is the simplest one of which a model
can learn something: features, colours and most edges depend on the class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from kmip_data.arrays import F32, F64, I64

WORDS_PER_NODE = 12  #: half of which depend on the class
EDGES_PER_NODE = 6
SAME_CLASS_FRACTION = 0.7  #: fraction of the edges that are drawn within a class
WEST = 10.0  #: corner of a city, degrees
SOUTH = 50.0
STEP_DEGREES = 0.001  #: distance between crossings
MINE_FRACTION = 0.2
HIDDEN_FRACTION = 0.5  #: fraction of the cells of a minefield that tell nothing
MOST_MINES = 5  #: number of mines next to a cell that stands for larger ones, too
CROSS_STREET_FRACTION = 0.35  #: fraction of neighbouring crossings in a column with a street


def draw_classes(nodes: int, classes: int, rng: Generator) -> I64:
    """Draw classes (nodes,), of which each occurs if there are enough nodes."""
    label: I64 = rng.permutation(np.arange(nodes) % classes)
    return label


def draw_edges(label: I64, rng: Generator) -> I64:
    """Draw directed edges (E, 2) without self-loops between nodes of classes ``label`` (N,)."""
    source = np.repeat(np.arange(len(label)), EDGES_PER_NODE)
    target = rng.integers(0, len(label), len(source))

    # Nodes of a class are contiguous in ``by_class``, so that a position in it draws one of them.
    by_class = np.argsort(label, kind="stable")
    size = np.bincount(label)
    start = np.cumsum(size) - size
    same_class = rng.random(len(source)) < SAME_CLASS_FRACTION
    source_class = label[source[same_class]]
    target[same_class] = by_class[start[source_class] + rng.integers(0, size[source_class])]
    edges = np.stack([source, target], axis=1)
    without_loops: I64 = edges[source != target]
    return without_loops


def draw_features(label: I64, width: int, rng: Generator) -> F32:
    """Draw features (N, width) from 0 to 2, of which each class raises one."""
    x: F32 = rng.random((len(label), width), dtype=np.float32)
    x[np.arange(len(label)), label % width] += 1
    return x


def draw_minefield(rows: int, columns: int, rng: Generator) -> tuple[I64, F32, I64]:
    """Draw a minefield of ``rows × columns`` cells, by row.

    Returns
    -------
    tuple
        Classes (N,), 1 for a mine; features (N, 7), 1 for a hidden cell and then the one-hot number of
        mines next to any other cell; and edges (E, 2) between neighbouring cells, each once.
    """
    cells = rows * columns
    mine = rng.permutation(cells) < MINE_FRACTION * cells
    cell = np.arange(cells).reshape(rows, columns)
    neighbors = [
        (cell[:, :-1], cell[:, 1:]),
        (cell[:-1], cell[1:]),
        (cell[:-1, :-1], cell[1:, 1:]),
        (cell[:-1, 1:], cell[1:, :-1]),
    ]
    edges = np.concatenate([np.stack([a.ravel(), b.ravel()], axis=1) for a, b in neighbors])

    mines = np.bincount(edges.ravel(), mine[edges[:, ::-1]].ravel(), cells).astype(np.int64)
    hidden = rng.random(cells) < HIDDEN_FRACTION
    column = np.where(hidden, 0, 1 + np.minimum(mines, MOST_MINES))
    return mine.astype(np.int64), np.eye(2 + MOST_MINES, dtype=np.float32)[column], edges


def draw_words(label: I64, width: int, rng: Generator) -> I64:
    """Draw the numbers of words (N, 12) from 0 to ``width``; a word's remainder tells its class."""
    half = WORDS_PER_NODE // 2
    classes = label.max() + 1
    of_class = rng.integers(0, width // classes, (len(label), half)) * classes + label[:, None]
    return np.hstack([of_class, rng.integers(0, width, (len(label), half))])


def draw_part_codes(nodes: int, fractions: Sequence[float], rng: Generator) -> I64:
    """Draw parts (nodes,), by number; ``fractions`` has the size of each part but the last."""
    cuts = [round(end * nodes) for end in np.cumsum(fractions)]
    code = np.searchsorted(cuts, np.arange(nodes), side="right")
    codes: I64 = rng.permutation(code)
    return codes


@dataclass(frozen=True)
class Superpixels:
    """Cells of a picture of one object on a background; ``rows × columns`` of them, by row."""

    rows: int
    columns: int
    pos: F64  #: centres, row and column from 0 to 1 (N, 2)
    is_object: I64  #: 1 inside the object (N,)
    colour: F64  #: red, green and blue from 0 to 1 (N, 3)


def draw_superpixels(rows: int, columns: int, hue: float, rng: Generator) -> Superpixels:
    """Draw a disc in a colour on a dull complement; ``hue`` from 0 to 1 is its class."""
    cell = np.column_stack(np.divmod(np.arange(rows * columns), columns))
    shift = rng.uniform(-0.2, 0.2, cell.shape)
    pos = (cell + 0.5 + shift) / (rows, columns)

    centre = rng.uniform(0.3, 0.7, 2)
    inside = np.linalg.norm(pos - centre, axis=1) < rng.uniform(0.2, 0.4)
    phases = np.array([0.0, 2.1, 4.2])  # phases of red, green, blue
    hues = np.cos(2 * np.pi * hue + phases)
    front = 0.52 + 0.3 * hues
    back = 0.42 - 0.12 * hues
    noise = rng.normal(0, 0.03, (len(pos), 3))
    colour = np.clip(np.where(inside[:, None], front, back) + noise, 0, 1)
    return Superpixels(rows, columns, pos, inside.astype(np.int64), colour)


def draw_box_points(size: F64, counts: I64, rng: Generator) -> tuple[F64, F64, I64]:
    """Draw points on the surfaces of boxes around the origin.

    Parameters
    ----------
    size : array of shape (B, 3)
        Sides of each box, of which one may be 0: a rectangle.
    counts : array of shape (B,)
        Number of points of each box.

    Returns
    -------
    tuple
        Positions (P, 3), outward unit normals (P, 3), and the box of each point (P,).
    """
    box = np.repeat(np.arange(len(counts)), counts)
    # A face is drawn by its area, its side by the sign of a coordinate from -1 to 1.
    areas = box_areas(size)
    ends = np.cumsum(areas, axis=1) / areas.sum(axis=1, keepdims=True)
    axis = (rng.random((len(box), 1)) >= ends[box]).sum(axis=1)
    unit = rng.uniform(-1, 1, (len(box), 3))
    rows = np.arange(len(box))
    normal = np.zeros_like(unit)
    normal[rows, axis] = np.where(unit[rows, axis] < 0, -1.0, 1.0)
    unit[rows, axis] = normal[rows, axis]
    return unit * size[box] / 2, normal, box


def box_areas(size: F64) -> F64:
    """Return the area of a face at a right angle to each axis (B, 3), given the sides (B, 3)."""
    x, y, z = size.T
    return np.stack([y * z, x * z, x * y], axis=1)


def draw_streets(crossings: int, rng: Generator) -> tuple[F64, I64]:
    """Draw the streets of a city, whose crossings are all connected.

    Returns
    -------
    tuple
        Longitude and latitude of each crossing in degrees (crossings, 2), in no order, and the two
        crossings of each street (2, S). Streets get longer towards the east.
    """
    side = int(np.ceil(np.sqrt(crossings)))
    number = np.arange(crossings)
    row, column = np.divmod(number, side)
    # Streets along a row are all there; streets between rows only in part, but for the first column.
    is_eastern = column > 0
    is_linked = (row > 0) & (~is_eastern | (rng.random(crossings) < CROSS_STREET_FRACTION))
    along = np.stack([number - 1, number])[:, is_eastern]
    across = np.stack([number - side, number])[:, is_linked]
    streets = np.concatenate([along, across], axis=1)

    east_north = np.column_stack([column + 0.02 * column**2, row])
    shift = rng.uniform(-0.2, 0.2, east_north.shape)
    lon_lat = np.array([WEST, SOUTH]) + STEP_DEGREES * (east_north + shift)
    order = rng.permutation(crossings)
    return lon_lat[order], np.argsort(order)[streets]
