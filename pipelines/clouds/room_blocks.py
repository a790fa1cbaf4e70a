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

from kmip_data.arrays import F32, F64, I64
from kmip_data.errors import UsageError

FEWEST: Final = 100  #: points of a window that becomes a block
BLOCK_POINTS: Final = 4_096
_MOST_WINDOWS: Final = 10_000_000


def block_rows(xy: F64, *, size: float, points: int, room: str, seed: int) -> list[I64]:
    """Return the rows of each block, (points,), windows in order of x and then of y.

    ``xy`` (P, 2) are positions on the floor, the smallest at 0; windows are ``size`` wide and half of it
    apart. ``room`` seeds the draws with ``seed``, so that they depend on no other room.
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
            next="a larger block, in the unit of the positions",
        )
    counts = [max(math.ceil((length - size) / stride), 0) + 1 for length in extent]
    return [(i * stride, j * stride) for i in range(counts[0]) for j in range(counts[1])]


def draw(rows: I64, points: int, rng: Generator) -> I64:
    """Draw ``points`` rows with replacement, or fill up with duplicates where there are fewer."""
    if len(rows) > points:
        return rows[rng.integers(len(rows), size=points)]
    return np.concatenate([rows, rows[rng.integers(len(rows), size=points - len(rows))]])


def normalised(xyz: F64, rows: I64, size: float, top: F64) -> tuple[F32, F32]:
    """Return positions of a block, centred on its floor, and in the room from 0 to 1: (points, 3) each.

    ``top`` is the largest position of the room, whose smallest is 0.
    """
    room = xyz[rows]
    centred = room.copy()
    centred[:, :2] -= room[:, :2].min(axis=0) + size / 2
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(top > 0, room / top, 0.0)
    return centred.astype(np.float32), share.astype(np.float32)
