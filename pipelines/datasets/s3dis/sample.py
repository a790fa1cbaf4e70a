"""Generated rooms in the layout of ``indoor3d_sem_seg_hdf5_data``.

Rooms have surfaces (floor, ceiling, walls, beams, furniture) coloured by class, scanned with
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
    # Sort draw_offset x to make the points of a strip contiguous.
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


Vector = tuple[float, float, float]


#: Rectangle: corner, two edges, class.
Face = tuple[Vector, Vector, Vector, str]


def _add_box(faces: list[Face], label: str, low: Vector, size: Vector) -> None:
    """Add the faces of a box; a size of 0 draw_offset one axis gives one face."""
    x, y, z = low
    dx, dy, dz = size
    ex = (dx, 0.0, 0.0)
    ey = (0.0, dy, 0.0)
    ez = (0.0, 0.0, dz)
    for u, v, normal in ((ex, ey, ez), (ex, ez, ey), (ey, ez, ex)):
        if max(u) == 0 or max(v) == 0:
            continue
        nx, ny, nz = normal
        shifts = (0.0, 1.0) if max(normal) > 0 else (0.0,)
        for shift in shifts:
            corner = (x + shift * nx, y + shift * ny, z + shift * nz)
            faces.append((corner, u, v, label))


def draw_room(rng: Generator) -> tuple[F64, U8, F64]:
    """Make a room: points (P, 6) of x, y, z in metres and colour in 0 to 1, labels (P,), extent."""
    width = rng.uniform(3.5, 7.0)
    depth = rng.uniform(3.5, 7.0)
    height = rng.uniform(2.5, 3.2)
    extent = np.array([width, depth, height])
    *ends, names = zip(*_furnish_room(extent, rng), strict=True)
    corner, u, v = np.array(ends)
    label = np.array([CLASSES.index(name) for name in names], np.uint8)

    # Vary the points per square metre, so that blocks have more or fewer than 4,096 points.
    areas = np.linalg.norm(u, axis=1) * np.linalg.norm(v, axis=1)
    density = rng.uniform(700, 1_800)
    counts = np.ceil(areas * density).astype(int)
    face = np.repeat(np.arange(len(counts)), counts)
    along_u = rng.random((len(face), 1)) * u[face]
    along_v = rng.random((len(face), 1)) * v[face]
    xyz = corner[face] + along_u + along_v
    # Add a scanner's error, and round to millimetres.
    error = rng.normal(0.0, 0.004, xyz.shape)
    xyz = np.clip(xyz + error, 0.0, extent)
    xyz = np.round(xyz - xyz.min(axis=0), 3)

    # Add a tint per room, a shade per face, and noise per point.
    tint = rng.normal(0.0, 8.0, 3)
    shade = rng.normal(0.0, 10.0, (len(counts), 3))
    noise = rng.normal(0.0, 6.0, xyz.shape)
    rgb = COLORS[label][face] + tint + shade[face] + noise
    rgb = np.clip(np.round(rgb), 0, 255) / 255.0
    return np.concatenate([xyz, rgb], axis=1), label[face], extent


def _furnish_room(extent: F64, rng: Generator) -> list[Face]:
    """Place the shell and the furniture of a room; any class may be missing."""
    x, y, z = (float(size) for size in extent)
    faces: list[Face] = []
    _add_box(faces, "floor", (0, 0, 0), (x, y, 0))
    _add_box(faces, "ceiling", (0, 0, z), (x, y, 0))
    _add_box(faces, "wall", (0, 0, 0), (x, 0, z))
    _add_box(faces, "wall", (0, y, 0), (x, 0, z))
    _add_box(faces, "wall", (0, 0, 0), (0, y, z))
    _add_box(faces, "wall", (x, 0, 0), (0, y, z))

    def draw_offset(length: float, size: float) -> float:
        last = max(0.25, length - size - 0.2)
        return float(rng.uniform(0.2, last))

    # Place these a few centimetres before the walls to hide the points behind them.
    _add_box(faces, "door", (draw_offset(x, 0.95), 0.03, 0), (0.95, 0, 2.1))
    _add_box(faces, "window", (draw_offset(x, 1.6), y - 0.03, 0.9), (1.6, 0, 1.3))
    _add_box(faces, "board", (0.03, draw_offset(y, 1.8), 0.9), (0, 1.8, 1.1))
    _add_box(faces, "bookcase", (x - 0.35, draw_offset(y, 1.4), 0), (0.33, 1.4, 1.9))
    _add_box(faces, "column", (x - 0.45, y - 0.45, 0), (0.4, 0.4, z))

    for _ in range(int(rng.integers(1, 3))):
        _add_box(faces, "beam", (0, draw_offset(y, 0.3), z - 0.3), (x, 0.3, 0.28))
    if rng.random() < 0.8:
        left = draw_offset(x, 1.7)
        front = draw_offset(y, 0.85)
        _add_box(faces, "sofa", (left, front, 0.0), (1.7, 0.85, 0.42))
        _add_box(faces, "sofa", (left, front, 0.42), (1.7, 0.2, 0.4))
    for _ in range(int(rng.integers(1, 4))):
        _add_table(faces, draw_offset(x, 1.5), draw_offset(y, 0.8), rng)
    for _ in range(int(rng.integers(1, 4))):
        dx, dy, dz = rng.uniform(0.2, 0.6, 3).tolist()
        left = draw_offset(x, 0.6)
        front = draw_offset(y, 0.6)
        _add_box(faces, "clutter", (left, front, 0.0), (dx, dy, dz))
    return faces


def _add_table(
    faces: list[Face],
    left: float,
    front: float,
    rng: Generator,
) -> None:
    """Add a table on four legs with clutter on it, and one or two chairs."""
    _add_box(faces, "table", (left, front, 0.70), (1.5, 0.8, 0.04))
    for dx, dy in ((0.02, 0.02), (1.43, 0.02), (0.02, 0.73), (1.43, 0.73)):
        _add_box(faces, "table", (left + dx, front + dy, 0), (0.05, 0.05, 0.7))
    height = float(rng.uniform(0.1, 0.4))
    _add_box(faces, "clutter", (left + 0.3, front + 0.2, 0.74), (0.35, 0.3, height))

    for side in range(int(rng.integers(1, 3))):
        x = left + 0.2 + 0.7 * side
        y = front - 0.35
        _add_box(faces, "chair", (x, y, 0.42), (0.45, 0.45, 0.06))
        _add_box(faces, "chair", (x, y, 0.48), (0.45, 0.05, 0.42))
        _add_box(faces, "chair", (x + 0.2, y + 0.2, 0), (0.06, 0.06, 0.42))
