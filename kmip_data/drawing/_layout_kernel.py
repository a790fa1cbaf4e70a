"""Compiled kernel of the layout of a graph by springs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kmip_data.runtime.compiled import njit_nogil


@njit_nogil(fastmath=True)  # places in a picture, where the last bit is not seen
def forces(
    pos: NDArray[np.float32],
    start: NDArray[Any],
    others: NDArray[Any],
    out: NDArray[np.float32],
    first: int,
    last: int,
) -> None:  # pragma: no cover -- compiled
    """Write the force on nodes ``first`` to ``last``: all nodes push (1/d), neighbours pull (d²).

    Fruchterman and Reingold's forces for springs of length 1. ``others[start[i]:start[i + 1]]`` are the
    neighbours of node i.
    """
    for i in range(first, last):
        x, y = pos[i, 0], pos[i, 1]
        fx, fy = np.float32(0.0), np.float32(0.0)
        for j in range(pos.shape[0]):
            dx, dy = x - pos[j, 0], y - pos[j, 1]
            push = np.float32(1.0) / (dx * dx + dy * dy + np.float32(1e-4))
            fx += dx * push
            fy += dy * push
        for at in range(start[i], start[i + 1]):
            j = others[at]
            dx, dy = pos[j, 0] - x, pos[j, 1] - y
            pull = np.sqrt(dx * dx + dy * dy)
            fx += dx * pull
            fy += dy * pull
        out[i, 0], out[i, 1] = fx, fy
