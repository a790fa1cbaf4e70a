"""Raw S3DIS, ``Stanford3dDataset_v1.2_Aligned_Version``, to blocks like those of the HDF5 release.

Layout: ``Area_<1-6>/<room>/Annotations/<class>_<n>.txt``, one point ``x y z r g b`` per line. The recipe is
pointnet's ``sem_seg/collect_indoor3d_data.py`` and ``gen_indoor3d_h5.py``; upstream draws the points of a
block without a seed, so the blocks are others than the published ones, and the card says so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kmip_data.arrays import F32, U8
from kmip_data.errors import DamagedInput
from kmip_data.files.errors import require_room
from kmip_data.manifest import LinePatch, Manifest
from kmip_data.pipelines.base import RawFolder
from kmip_data.pipelines.clouds.room_blocks import BLOCK_POINTS, block_rows, normalised
from kmip_data.pipelines.formats.text import parse_points
from kmip_data.runtime import threads

SEED: Final = 0
WINDOW: Final = 1.0  #: metres
NOTE: Final = (
    "resampled: blocks were cut from the raw scans by the upstream recipe, their points drawn with seed "
    f"{SEED}; they are not those of the published HDF5 release, which was drawn without a seed."
)
_MEMBER: Final = re.compile(r"(Area_[1-6])/([A-Za-z0-9-]+_[0-9]+)/Annotations/([^/]+)\.txt")
_POINT: Final = np.dtype([("xyz", "<f4", (3,)), ("rgb", "u1", (3,)), ("y", "u1")])
_DECIMALS: Final = 4  #: to which differences of float32 numbers are rounded: the scans are in millimetres


def is_raw(members: Mapping[str, Any]) -> bool:
    """True if the members are raw scans, not the HDF5 release."""
    return any("/Annotations/" in name for name in members)


def cut_rooms(raw: RawFolder, workdir: Path, manifest: Manifest) -> list[tuple[str, int]]:
    """Write the points and the rows of the blocks of each room into ``workdir``.

    Gives name and number of blocks of each, in the order of the areas and then of the names. Raises
    ``DamagedInput`` where a file is not an annotation, or a line, which is named, is not a point.
    """
    rooms: dict[str, list[str]] = {}
    for name in sorted(raw.members):
        found = _MEMBER.fullmatch(name)
        if found is None:
            raise DamagedInput(
                f"{name} is not an annotation of S3DIS.",
                expected="Area_<1-6>/<room>/Annotations/<class>_<n>.txt",
                found=name,
            )
        rooms.setdefault(f"{found[1]}_{found[2]}", []).append(name)
    size = sum((raw.path / name).stat().st_size for name in raw.members)
    require_room(workdir, size // 2, "The points of the rooms")

    def cut(number: int, room: str) -> int:
        points = _read_room(raw.path, rooms[room], manifest)
        xyz = points["xyz"].astype(np.float64)
        rows = block_rows(xyz[:, :2], size=WINDOW, points=BLOCK_POINTS, room=room, seed=SEED)
        np.save(workdir / f"{number}-points.npy", points)
        np.save(workdir / f"{number}-rows.npy", np.array(rows, np.int32).reshape(-1, BLOCK_POINTS))
        return len(rows)

    with ThreadPoolExecutor(threads.num_threads()) as pool:
        blocks = pool.map(cut, range(len(rooms)), rooms)
        return list(zip(rooms, blocks, strict=True))


def read_blocks(folder: Path, number: int, chosen: Sequence[int]) -> tuple[F32, U8]:
    """Return blocks of a room as the HDF5 release has them: (B, 4096, 9) and (B, 4096)."""
    points = np.load(folder / f"{number}-points.npy")
    rows = np.load(folder / f"{number}-rows.npy", mmap_mode="r")[list(chosen)]
    xyz = points["xyz"].astype(np.float64)
    top = xyz.max(axis=0)
    data = np.empty((len(rows), BLOCK_POINTS, 9), np.float32)
    for block, taken in zip(data, rows, strict=True):
        block[:, :3], block[:, 6:] = normalised(xyz, taken.astype(np.int64), WINDOW, top)
        block[:, 3:6] = points["rgb"][taken] / 255
    return data, points["y"][rows]


def _read_room(folder: Path, names: Sequence[str], manifest: Manifest) -> NDArray[Any]:
    """Return all points of a room, its lowest corner at 0."""
    class_names = manifest.class_names
    tables, labels = [], []
    for name in names:
        data = patched((folder / name).read_bytes(), name, manifest.patches)
        table = parse_points(data, 6, name=name)
        if (bad := (table[:, 3:] < 0) | (table[:, 3:] > 255)).any():
            raise DamagedInput(
                f"{name}, line {int(np.argmax(bad.any(axis=1))) + 1}: not a colour.",
                expected="0 to 255",
                found=str(table[:, 3:][bad][0]),
            )
        tables.append(table)
        kind = name.rpartition("/")[2].partition("_")[0]
        # As upstream: what is none of the others (stairs) is clutter, the last class.
        known = class_names.index(kind) if kind in class_names else len(class_names) - 1
        labels.append(np.full(len(table), known, np.uint8))
    whole = np.concatenate(tables)
    xyz = whole[:, :3].astype(np.float64)
    points = np.empty(len(whole), _POINT)
    points["xyz"] = np.round(xyz - xyz.min(axis=0), _DECIMALS)
    points["rgb"] = np.rint(whole[:, 3:])
    points["y"] = np.concatenate(labels)
    return points


def patched(data: bytes, name: str, patches: Sequence[LinePatch]) -> bytes:
    """Return the bytes of a file with its known broken lines mended; a line that is sound stays as it is."""
    for patch in patches:
        if re.fullmatch(patch.file, name) is None:
            continue
        lines = data.split(b"\n")
        if patch.line <= len(lines):
            old, new = patch.old.encode("latin-1"), patch.new.encode("latin-1")
            lines[patch.line - 1] = re.sub(old, new, lines[patch.line - 1])
            data = b"\n".join(lines)
    return data
