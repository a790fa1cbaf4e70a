"""Generated rooms in the layout of ``indoor3d_sem_seg_hdf5_data``.

Rooms have a floor, a ceiling, walls and boxes at random places, coloured by class and scanned with
millimetre noise. Blocks are cut and normalised by upstream's procedure (pointnet
``sem_seg/indoor3d_util.py``, ``gen_indoor3d_h5.py``): 1 m windows at stride 0.5 m with at least 100
points, from which 4,096 points are drawn, with duplicates if there are fewer.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.random import PCG64, Generator

from kmip_data.arrays import F32, F64, U8
from kmip_data.pipelines.domains.point_clouds import (
    BLOCK_METRES,
    BLOCK_POINTS,
    MIN_BLOCK_POINTS,
    normalised_positions,
    sample_points,
    window_corners,
)
from kmip_data.pipelines.sample_drawings import box_areas, draw_box_points
from kmip_data.pipelines.sample_writers import write_lines
from kmip_data.strict_model import read_shipped

ARCHIVE_FOLDER = "indoor3d_sem_seg_hdf5_data"
DEFAULT_BLOCKS = 12
BLOCKS_PER_FILE = 1_000
#: Published number of blocks of each area.
AREA_BLOCKS = (3_687, 4_440, 1_650, 3_662, 6_852, 3_294)
_ROOMS = read_shipped("tables", "rooms")
CLASSES = list(_ROOMS["colours"])
COLORS = np.array(list(_ROOMS["colours"].values()), np.float64)


def write_sample(
    folder: Path,
    _: object,
    limit: int | None,
    seed: int,
) -> None:
    """Write ``limit`` blocks, by default 12, distributed over the six areas like the published ones.

    A ``limit`` of 23,585 gives the published sizes.
    """
    import h5py

    folder.mkdir(parents=True, exist_ok=True)
    blocks = _draw_blocks(DEFAULT_BLOCKS if limit is None else limit, seed)
    rooms: list[str] = []
    files: list[str] = []
    while batch := list(itertools.islice(blocks, BLOCKS_PER_FILE)):
        names, data, label = zip(*batch, strict=True)
        rooms += names
        file_name = f"ply_data_all_{len(files)}.h5"
        files.append(f"{ARCHIVE_FOLDER}/{file_name}")

        # Like pointnet utils/data_prep_util.py::save_h5: gzip 4 and 1, default chunks.
        with h5py.File(folder / file_name, "w", libver="earliest") as file:
            for key, arrays, level in (("data", data, 4), ("label", label, 1)):
                file.create_dataset(
                    key,
                    data=np.array(arrays),
                    compression="gzip",
                    compression_opts=level,
                )

    write_lines(folder / "all_files.txt", files)
    write_lines(folder / "room_filelist.txt", rooms)


def _draw_blocks(total: int, seed: int) -> Iterator[tuple[str, F32, U8]]:
    """Yield ``total`` blocks by area and room: room name, points (4096, 9), labels (4096,)."""
    room_types = _ROOMS["kinds"]
    for area, size in enumerate(area_sizes(total), 1):
        # Use at least four rooms per area if possible, so that complete rooms can be held out.
        max_per_room = max(1, -(-size // 4))
        room_number = 0
        remaining = size
        while remaining > 0:
            room_number += 1
            rng = Generator(PCG64([seed, area, room_number]))
            cloud, label, extent = draw_room(rng)
            # Spread blocks over the floor to cover every type of surface.
            corners = window_corners(extent[:2].tolist(), BLOCK_METRES)
            count = min(remaining, max_per_room, len(corners))
            positions = np.linspace(0, len(corners) - 1, count).round().astype(int)
            blocks = list(_cut_windows(cloud, label, [corners[i] for i in positions], rng))
            room_type = room_types[int(rng.integers(len(room_types)))]
            for x, y in blocks:
                yield f"Area_{area}_{room_type}_{room_number}", x, y
            remaining -= len(blocks)


def area_sizes(total: int) -> list[int]:
    """Distribute ``total`` blocks over the six areas by published size (largest remainder).

    No area is empty from six blocks on; with fewer blocks, areas 1 and 6 come first.
    """
    published = sum(AREA_BLOCKS)
    exact = [total * blocks / published for blocks in AREA_BLOCKS]
    sizes = [int(size) for size in exact]
    # Fill area 1 and the default test area 6 first.
    for area in (0, 5, 4, 1, 3, 2)[:total]:
        sizes[area] = max(sizes[area], 1)

    missing = max(total - sum(sizes), 0)
    by_remainder = sorted(range(6), key=lambda a: (sizes[a] - exact[a], a))
    for area in by_remainder[:missing]:
        sizes[area] += 1
    return sizes


def _cut_windows(
    cloud: F64,
    label: U8,
    corners: list[tuple[float, float]],
    rng: Generator,
) -> Iterator[tuple[F32, U8]]:
    """Cut windows out of a room (P, 6) and normalise them to (4096, 9), with labels (4096,)."""
    top = cloud[:, :3].max(axis=0)
    # Sort by x to make the points of a strip contiguous.
    by_x = np.argsort(cloud[:, 0], kind="stable")
    cloud = cloud[by_x]
    label = label[by_x]
    for left, front in corners:
        first, last = np.searchsorted(cloud[:, 0], [left, left + BLOCK_METRES])
        strip = cloud[first:last, 1]
        in_window = (strip >= front) & (strip <= front + BLOCK_METRES)
        inside = first + np.flatnonzero(in_window)
        if len(inside) < MIN_BLOCK_POINTS:
            continue
        rows = sample_points(inside, BLOCK_POINTS, rng)
        centred, fraction_of_room = normalised_positions(cloud[:, :3], rows, BLOCK_METRES, top)
        colour = cloud[rows, 3:].astype(np.float32)
        yield np.hstack([centred, colour, fraction_of_room]), label[rows]


Box = tuple[str, tuple[float, float, float], F64]  #: class, corner, sides


def draw_room(rng: Generator) -> tuple[F64, U8, F64]:
    """Make a room: points (P, 6) of x, y, z in metres and colour in 0 to 1, labels (P,), extent."""
    extent = rng.uniform([3.5, 3.5, 2.5], [7.0, 7.0, 3.2])
    names, corner, size = zip(*_place_boxes(extent, rng), strict=True)
    label = np.array([CLASSES.index(name) for name in names], np.uint8)

    # Vary the points per square metre, so that blocks have more or fewer than 4,096 points.
    density = rng.uniform(700, 1_800)
    sides = np.array(size)
    counts = np.ceil(box_areas(sides).sum(axis=1) * density).astype(int)
    position, _, box = draw_box_points(sides, counts, rng)
    xyz = (np.array(corner) + sides / 2)[box] + position
    # Add a scanner's error, and round to millimetres.
    error = rng.normal(0.0, 0.004, xyz.shape)
    xyz = np.clip(xyz + error, 0.0, extent)
    xyz = np.round(xyz - xyz.min(axis=0), 3)

    # Add a tint per room, and noise per point.
    tint = rng.normal(0.0, 8.0, 3)
    noise = rng.normal(0.0, 6.0, xyz.shape)
    rgb = np.clip(np.round(COLORS[label][box] + tint + noise), 0, 255) / 255.0
    return np.concatenate([xyz, rgb], axis=1), label[box], extent


def _place_boxes(extent: F64, rng: Generator) -> list[Box]:
    """Return class, corner and sides of the floor, ceiling, walls and boxes of a room."""
    x, y, z = (float(size) for size in extent)
    boxes: list[Box] = [
        ("floor", (0, 0, 0), np.array([x, y, 0])),
        ("ceiling", (0, 0, z), np.array([x, y, 0])),
        ("wall", (0, 0, 0), np.array([x, 0, z])),
        ("wall", (0, y, 0), np.array([x, 0, z])),
        ("wall", (0, 0, 0), np.array([0, y, z])),
        ("wall", (x, 0, 0), np.array([0, y, z])),
    ]
    for name, *sides, above_floor in _ROOMS["boxes"]:
        left, front = rng.uniform(0, extent[:2] - sides[:2])
        boxes.append((name, (left, front, above_floor), np.array(sides)))
    return boxes
