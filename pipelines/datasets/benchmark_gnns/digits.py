"""Draw handwritten digits, and divide them into superpixels."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from kmip_data.arrays import F64

SIDE = 28  #: pixels of a side of a picture
DIGIT_SIZE = 0.8  #: of a picture's side
SUPERPIXEL_ROUNDS = 8  #: of k-means
#: Weight of a difference in grey relative to one in position: cells follow the strokes.
GREY_WEIGHT = 0.15


def _arc(centre: tuple[float, float], radii: tuple[float, float], start: float, end: float) -> F64:
    """Return points (P, 2) of an elliptic arc between two angles in degrees."""
    angles = np.radians(np.linspace(start, end, 17))
    x = centre[0] + radii[0] * np.cos(angles)
    y = centre[1] + radii[1] * np.sin(angles)
    return np.column_stack([x, y])


def _stroke(*pieces: F64 | tuple[float, float]) -> F64:
    """Return the points (P, 2) of a stroke through points and arcs."""
    return np.vstack(pieces)


#: Strokes of each digit: points (P, 2) to the right and down in a square from 0 to 1.
STROKES = (
    [_arc((0.5, 0.5), (0.24, 0.38), -90, 270)],
    [_stroke((0.36, 0.26), (0.54, 0.12), (0.54, 0.88))],
    [_stroke(_arc((0.5, 0.34), (0.23, 0.22), -170, 40), (0.27, 0.87), (0.77, 0.87))],
    [
        _stroke(
            _arc((0.47, 0.3), (0.24, 0.18), -150, 90),
            _arc((0.47, 0.68), (0.27, 0.2), -90, 150),
        )
    ],
    [
        _stroke((0.42, 0.12), (0.24, 0.58), (0.78, 0.58)),
        _stroke((0.62, 0.3), (0.62, 0.9)),
    ],
    [_stroke((0.74, 0.13), (0.34, 0.13), (0.3, 0.45), _arc((0.48, 0.64), (0.26, 0.23), -120, 150))],
    [_stroke((0.64, 0.1), (0.4, 0.35), _arc((0.5, 0.67), (0.22, 0.2), -180, 180))],
    [_stroke((0.24, 0.14), (0.76, 0.14), (0.42, 0.9))],
    [
        _arc((0.5, 0.3), (0.19, 0.17), -90, 270),
        _arc((0.5, 0.68), (0.24, 0.2), -90, 270),
    ],
    [_stroke(_arc((0.5, 0.32), (0.21, 0.2), 0, -360), (0.68, 0.6), (0.6, 0.9))],
)


def draw_digit(digit: int, rng: Generator) -> F64:
    """Draw a digit in white on black, greys (28, 28) from 0 to 1.

    Like handwriting, it is slanted, shifted, and of its own width.
    """
    slant = rng.normal(0.15, 0.12)
    width, height = DIGIT_SIZE * rng.uniform(0.9, 1.05, 2)
    shift = rng.normal(0.5, 0.02, 2)
    radius = rng.uniform(0.05, 0.075)

    rows, columns = (np.indices((SIDE, SIDE)) + 0.5) / SIDE
    distance = np.full((SIDE, SIDE), np.inf)
    for stroke in STROKES[digit]:
        across, down = (stroke - 0.5 + rng.normal(0, 0.012, stroke.shape)).T
        x = width * (across - slant * down) + shift[0]
        y = height * down + shift[1]
        for end in range(1, len(stroke)):
            # The nearest point of the line between two points.
            run = x[end] - x[end - 1]
            fall = y[end] - y[end - 1]
            along = run * (columns - x[end - 1]) + fall * (rows - y[end - 1])
            share = np.clip(along / (run**2 + fall**2), 0, 1)
            to_column = columns - x[end - 1] - share * run
            to_row = rows - y[end - 1] - share * fall
            distance = np.minimum(distance, np.hypot(to_row, to_column))

    # The edge of a stroke covers a part of a pixel.
    return np.clip((radius - distance) * SIDE + 0.5, 0, 1)


def divide_into_superpixels(picture: F64, grid: tuple[int, int], rng: Generator) -> tuple[F64, F64]:
    """Divide a picture (28, 28) by k-means of positions and greys, as SLIC does.

    The means start in the cells of a jittered ``grid`` of rows and columns. Returns the centre of each
    superpixel, row and column from 0 to 1 (N, 2), and its mean grey (N,).
    """
    cell = np.indices(grid).reshape(2, -1).T
    centres = (cell + 0.5 + rng.uniform(-0.2, 0.2, cell.shape)) / grid
    row, column = (centres * SIDE).astype(np.int64).T
    means = np.column_stack([centres, GREY_WEIGHT * picture[row, column]])

    places = (np.indices(picture.shape).reshape(2, -1).T + 0.5) / SIDE
    pixels = np.column_stack([places, GREY_WEIGHT * picture.reshape(-1)])
    for _ in range(SUPERPIXEL_ROUNDS):
        distances = ((pixels[:, None] - means) ** 2).sum(axis=-1)
        _, nearest = np.unique(distances.argmin(axis=1), return_inverse=True)  # without empty ones
        sums = [np.bincount(nearest, values) for values in pixels.T]
        means = np.stack(sums, axis=1) / np.bincount(nearest)[:, None]
    return means[:, :2], means[:, 2] / GREY_WEIGHT
