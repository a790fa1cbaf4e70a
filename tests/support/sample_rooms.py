"""Generated rooms as point clouds of one's own: NPY files with named columns."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
from numpy.random import PCG64, Generator

from kmip_data.pipelines.samples.s3dis import make_room

DEFAULT_ROOMS: Final = 4
POINTS: Final = 6_000
ROW: Final = np.dtype(
    [("x", "f8"), ("y", "f8"), ("z", "f8"), ("red", "u1"), ("green", "u1"), ("blue", "u1"), ("class", "u1")]
)


def write_sample(folder: Path, *, rooms: int | None = None, seed: int = 0) -> None:
    """Write ``room_000.npy`` … into ``folder``: about 6,000 points each, in the coordinates of a map."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(DEFAULT_ROOMS if rooms is None else rooms):
        rng = Generator(PCG64([seed, number]))
        cloud, label, _ = make_room(rng)
        chosen = np.sort(rng.choice(len(cloud), POINTS, replace=False))
        rows = np.empty(POINTS, ROW)
        for axis, offset in zip("xyz", (385_000.0, 6_672_000.0, 12.0), strict=True):
            rows[axis] = cloud[chosen, "xyz".index(axis)] + offset
        for channel, name in enumerate(("red", "green", "blue"), 3):
            rows[name] = np.rint(cloud[chosen, channel] * 255)
        rows["class"] = label[chosen]
        np.save(folder / f"room_{number:03d}.npy", rows, allow_pickle=False)
