"""Generated pictures with masks: discs and boxes of three classes on a shaded ground."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
from numpy.random import PCG64, Generator

DEFAULT_PICTURES: Final = 6
SHAPE: Final = (90, 120)
CLASSES: Final = 3
COLOURS: Final = np.array([(70, 110, 70), (190, 60, 50), (60, 80, 190)], np.float64)


def write_sample(folder: Path, *, pictures: int | None = None, seed: int = 0) -> None:
    """Write ``images/`` (PNG) and ``masks/`` (PNG, the class as value) into ``folder``."""
    from PIL import Image

    for name in ("images", "masks"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    rows, columns = np.indices(SHAPE)
    for number in range(DEFAULT_PICTURES if pictures is None else pictures):
        rng = Generator(PCG64([seed, number]))
        mask = np.zeros(SHAPE, np.uint8)
        for _ in range(4):
            label, (row, column) = int(rng.integers(1, CLASSES)), rng.uniform(0, SHAPE)
            size = rng.uniform(10, 30)
            inside = np.hypot(rows - row, columns - column) < size
            if label == 2:
                inside = (np.abs(rows - row) < size / 2) & (np.abs(columns - column) < size)
            mask[inside] = label
        shade = (rows / SHAPE[0] * 40)[:, :, None]
        pixels = COLOURS[mask] + shade + rng.normal(0, 6, (*SHAPE, 3))
        picture = np.clip(pixels, 0, 255).astype(np.uint8)
        Image.fromarray(picture).save(folder / "images" / f"picture_{number:03d}.png")
        Image.fromarray(mask).save(folder / "masks" / f"picture_{number:03d}.png")
