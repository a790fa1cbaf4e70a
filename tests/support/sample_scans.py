"""Generated rooms in the layout of ``Stanford3dDataset_v1.2_Aligned_Version``; never the real scans."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
from numpy.random import PCG64, Generator

from kmip_data.pipelines.samples.s3dis import make_room

ROOT: Final = "Stanford3dDataset_v1.2_Aligned_Version"
CLASSES: Final = (
    "ceiling", "floor", "wall", "beam", "column", "window", "door", "table", "chair", "sofa", "bookcase",
    "board", "clutter",
)  # fmt: skip
ROOMS: Final = ("Area_1/office_1", "Area_5/hallway_6", "Area_6/lounge_1")


def write_sample(folder: Path, *, points: int = 12_000, seed: int = 0) -> None:
    """Write three rooms of ``points`` points below ``folder``, in whole millimetres as the scans are."""
    for number, room in enumerate(ROOMS):
        rng = Generator(PCG64([seed, number]))
        cloud, label, _ = make_room(rng)
        chosen = np.sort(rng.choice(len(cloud), min(points, len(cloud)), replace=False))
        xyz = cloud[chosen, :3] + (-10.5, 20.25, 0.125)
        rgb = np.rint(cloud[chosen, 3:] * 255).astype(int)
        place = folder / ROOT / room / "Annotations"
        place.mkdir(parents=True)
        for kind in np.unique(label[chosen]).tolist():
            of_kind = label[chosen] == kind
            lines = [
                f"{x:.3f} {y:.3f} {z:.3f} {r} {g} {b}\n"
                for (x, y, z), (r, g, b) in zip(xyz[of_kind].tolist(), rgb[of_kind].tolist(), strict=True)
            ]
            (place / f"{CLASSES[kind]}_1.txt").write_text("".join(lines))
