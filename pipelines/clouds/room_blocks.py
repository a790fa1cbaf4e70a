"""Cut a room in blocks of equally many points: the rule that made S3DIS's blocks, with a seed.

pointnet ``sem_seg/indoor3d_util.py`` (``room2blocks_plus_normalized``): windows of the floor at a stride of
half their width, those of fewer than 100 points left out, 4,096 points drawn with replacement from those that
have more, and filled up with duplicates where there are fewer. Upstream draws without a seed.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.random import PCG64, Generator
from numpy.typing import NDArray

from kmip_data.errors import UsageError

FEWEST: Final = 100  #: points of a window that becomes a block
BLOCK_POINTS: Final = 4_096
_MOST_WINDOWS: Final = 10_000_000


def block_rows(
    xy: NDArray[np.float64], *, size: float, points: int, room: str, seed: int
) -> list[NDArray[np.int64]]:
    """Return the rows of each block, (points,), windows in order of x and then of y.

    Parameters
    ----------
    xy
        (P, 2) positions on the floor, the smallest at 0.
    size
        Width of a window; the stride is half of it.
    points
        Points per block.
    room
        Name of the room: with ``seed`` it seeds the draws, so that they depend on no other room.
    """
    order = np.argsort(xy[:, 0], kind="stable")
    along = xy[order]
    rng = Generator(PCG64([seed, int.from_bytes(hashlib.sha256(room.encode()).digest()[:8], "little")]))
    blocks = []
    for left, front in windows(xy.max(axis=0, initial=0).tolist(), size):
        first, last = np.searchsorted(along[:, 0], [left, left + size], side="left")
        last += np.searchsorted(along[last:, 0], left + size, side="right")
        strip = along[first:last, 1]
        rows = np.sort(order[first:last][(strip >= front) & (strip <= front + size)])
        if len(rows) >= FEWEST:
            blocks.append(draw(rows, points, rng))
    return blocks


def windows(extent: Sequence[float], size: float) -> list[tuple[float, float]]:
    """Lower corners of the windows over a floor of ``extent``, by x and then by y.

    Raises ``UsageError`` where there would be more than ten million.
    """
    stride = size / 2
    if math.prod(length / stride + 1 for length in extent) > _MOST_WINDOWS:
        floor = " × ".join(f"{length:g}" for length in extent)
        raise UsageError(
            f"Blocks of {size:g} are too small for a cloud of {floor}.",
            expected=f"at most {_MOST_WINDOWS:,} of them",
            found="more",
            left="nothing of this cloud; your files are only read",
            next="a larger --block, in the unit of the positions",
        )
    counts = [max(math.ceil((length - size) / stride), 0) + 1 for length in extent]
    return [(i * stride, j * stride) for i in range(counts[0]) for j in range(counts[1])]


def draw(rows: NDArray[np.int64], points: int, rng: Generator) -> NDArray[np.int64]:
    """Draw ``points`` rows with replacement, or fill up with duplicates where there are fewer."""
    if len(rows) > points:
        return rows[rng.integers(len(rows), size=points)]
    return np.concatenate([rows, rows[rng.integers(len(rows), size=points - len(rows))]])


def normalised(
    xyz: NDArray[np.float64], rows: NDArray[np.int64], size: float, top: NDArray[np.float64]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return positions of a block, centred on its floor, and in the room from 0 to 1: (points, 3) each.

    ``top`` is the largest position of the room, whose smallest is 0.
    """
    room = xyz[rows]
    centred = room.copy()
    centred[:, :2] -= room[:, :2].min(axis=0) + size / 2
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(top > 0, room / top, 0.0)
    return centred.astype(np.float32), share.astype(np.float32)
