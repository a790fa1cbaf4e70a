"""Sample rooms in the layout of ``indoor3d_sem_seg_hdf5_data``: generated, never the real data.

Rooms are boxes of surfaces (floor, ceiling, walls, beams, furniture) with colours by class, scanned
with millimetre noise; blocks are cut and normalised by the upstream procedure (pointnet
``sem_seg/indoor3d_util.py``, ``gen_indoor3d_h5.py``): 1 m windows at stride 0.5 m, at least 100
points, 4,096 points drawn with replacement or filled up with duplicates.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.random import PCG64, Generator

from kmip_data.arrays import F32, F64, U8
from kmip_data.pipelines.domains.point_clouds import (
    BLOCK_POINTS,
    MIN_POINTS,
    WINDOW,
    normalised_positions,
    sample_points,
    window_corners,
)
from kmip_data.pipelines.sample_writers import write_lines
from kmip_data.strict_model import read_shipped

ROOT = "indoor3d_sem_seg_hdf5_data"
DEFAULT_BLOCKS = 12
BLOCKS_PER_FILE = 1_000
#: Blocks of each area in the published set.
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
    """Write ``limit`` blocks in all six areas (their published shares) into ``folder``.

    There are 12 blocks by default; a ``limit`` of 23,585 gives the sizes of the published set.
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
        files.append(f"{ROOT}/{file_name}")

        # As pointnet utils/data_prep_util.py::save_h5: gzip 4 and 1, chunks chosen by h5py.
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
    """Yield ``total`` blocks by area and room: name of the room, points (4096, 9), labels (4096,)."""
    room_types = _ROOMS["kinds"]
    for area, size in enumerate(area_sizes(total), 1):
        # At least four rooms an area (if it has as many blocks), so that whole rooms can be held
        # out.
        most = max(1, -(-size // 4))
        number = 0
        wanted = size
        while wanted > 0:
            number += 1
            rng = Generator(PCG64([seed, area, number]))
            cloud, label, extent = make_room(rng)
            # Blocks from all over the floor, so that every kind of surface is in some of them.
            corners = window_corners(extent[:2].tolist(), WINDOW)
            count = min(wanted, most, len(corners))
            spread = np.linspace(0, len(corners) - 1, count).round().astype(int)
            chosen = [corners[i] for i in spread]
            blocks = list(_cut_windows(cloud, label, chosen, rng))
            room_type = room_types[int(rng.integers(len(room_types)))]
            for x, y in blocks:
                yield f"Area_{area}_{room_type}_{number}", x, y
            wanted -= len(blocks)


def area_sizes(total: int) -> list[int]:
    """Distribute ``total`` blocks over the six areas by the published shares (largest remainder).

    No area is empty where there are six blocks or more; with fewer, areas 1 and 6 come first.
    """
    published = sum(AREA_BLOCKS)
    exact = [total * blocks / published for blocks in AREA_BLOCKS]
    sizes = [int(share) for share in exact]
    # With a few blocks at least the default test area 6 and one train area have some.
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
    """Cut windows out of a room cloud (P, 6) and normalise them: (4096, 9), (4096,)."""
    top = cloud[:, :3].max(axis=0)
    # Sorted along x, the points of a strip of windows follow each other.
    by_x = np.argsort(cloud[:, 0], kind="stable")
    cloud = cloud[by_x]
    label = label[by_x]
    for left, front in corners:
        first, last = np.searchsorted(cloud[:, 0], [left, left + WINDOW])
        strip = cloud[first:last, 1]
        in_window = (strip >= front) & (strip <= front + WINDOW)
        inside = first + np.flatnonzero(in_window)
        if len(inside) < MIN_POINTS:
            continue
        rows = sample_points(inside, BLOCK_POINTS, rng)
        centred, share = normalised_positions(cloud[:, :3], rows, WINDOW, top)
        colour = cloud[rows, 3:].astype(np.float32)
        yield np.hstack([centred, colour, share]), label[rows]


Vector = tuple[float, float, float]


#: A rectangle to be sampled: corner, two edges, class.
Face = tuple[Vector, Vector, Vector, str]


def _add_box(faces: list[Face], label: str, low: Vector, size: Vector) -> None:
    """Add the faces of a box; a size of 0 on one axis gives one face."""
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


def make_room(rng: Generator) -> tuple[F64, U8, F64]:
    """Make one room: points (P, 6) of x, y, z in metres and colour in 0 to 1, labels (P,), its extent."""
    width = rng.uniform(3.5, 7.0)
    depth = rng.uniform(3.5, 7.0)
    height = rng.uniform(2.5, 3.2)
    extent = np.array([width, depth, height])
    *ends, names = zip(*_furnish_room(extent, rng), strict=True)
    corner, u, v = np.array(ends)
    label = np.array([CLASSES.index(name) for name in names], np.uint8)

    # Points a square metre: some blocks have more than 4,096 points, some fewer.
    areas = np.linalg.norm(u, axis=1) * np.linalg.norm(v, axis=1)
    density = rng.uniform(700, 1_800)
    counts = np.ceil(areas * density).astype(int)
    face = np.repeat(np.arange(len(counts)), counts)
    along_u = rng.random((len(face), 1)) * u[face]
    along_v = rng.random((len(face), 1)) * v[face]
    xyz = corner[face] + along_u + along_v
    # A scanner errs by millimetres, and writes whole ones.
    error = rng.normal(0.0, 0.004, xyz.shape)
    xyz = np.clip(xyz + error, 0.0, extent)
    xyz = np.round(xyz - xyz.min(axis=0), 3)

    # One tint a room, one shade a face, noise a point.
    tint = rng.normal(0.0, 8.0, 3)
    shade = rng.normal(0.0, 10.0, (len(counts), 3))
    noise = rng.normal(0.0, 6.0, xyz.shape)
    rgb = COLORS[label][face] + tint + shade[face] + noise
    rgb = np.clip(np.round(rgb), 0, 255) / 255.0
    return np.concatenate([xyz, rgb], axis=1), label[face], extent


def _furnish_room(extent: F64, rng: Generator) -> list[Face]:
    """Place the shell and the furniture of a room; every class is likely, none is sure."""
    x, y, z = (float(size) for size in extent)
    faces: list[Face] = []
    _add_box(faces, "floor", (0, 0, 0), (x, y, 0))
    _add_box(faces, "ceiling", (0, 0, z), (x, y, 0))
    _add_box(faces, "wall", (0, 0, 0), (x, 0, z))
    _add_box(faces, "wall", (0, y, 0), (x, 0, z))
    _add_box(faces, "wall", (0, 0, 0), (0, y, z))
    _add_box(faces, "wall", (x, 0, 0), (0, y, z))

    def along(length: float, size: float) -> float:
        last = max(0.25, length - size - 0.2)
        return float(rng.uniform(0.2, last))

    # On the walls, a few centimetres into the room so that they hide the wall behind them.
    _add_box(faces, "door", (along(x, 0.95), 0.03, 0), (0.95, 0, 2.1))
    _add_box(faces, "window", (along(x, 1.6), y - 0.03, 0.9), (1.6, 0, 1.3))
    _add_box(faces, "board", (0.03, along(y, 1.8), 0.9), (0, 1.8, 1.1))
    _add_box(faces, "bookcase", (x - 0.35, along(y, 1.4), 0), (0.33, 1.4, 1.9))
    _add_box(faces, "column", (x - 0.45, y - 0.45, 0), (0.4, 0.4, z))

    for _ in range(int(rng.integers(1, 3))):
        _add_box(faces, "beam", (0, along(y, 0.3), z - 0.3), (x, 0.3, 0.28))
    if rng.random() < 0.8:
        left = along(x, 1.7)
        front = along(y, 0.85)
        _add_box(faces, "sofa", (left, front, 0.0), (1.7, 0.85, 0.42))
        _add_box(faces, "sofa", (left, front, 0.42), (1.7, 0.2, 0.4))
    for _ in range(int(rng.integers(1, 4))):
        _add_table(faces, along(x, 1.5), along(y, 0.8), rng)
    for _ in range(int(rng.integers(1, 4))):
        dx, dy, dz = rng.uniform(0.2, 0.6, 3).tolist()
        left = along(x, 0.6)
        front = along(y, 0.6)
        _add_box(faces, "clutter", (left, front, 0.0), (dx, dy, dz))
    return faces


def _add_table(
    faces: list[Face],
    left: float,
    front: float,
    rng: Generator,
) -> None:
    """Add a table on four legs with something on it, and one or two chairs."""
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
