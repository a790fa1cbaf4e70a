"""From point clouds to k-NN graphs, whole or in blocks; S3DIS's raw scans.

Blocks hold equally many points, by the rule that made those of S3DIS (pointnet ``sem_seg/indoor3d_util.py``,
``room2blocks_plus_normalized``): windows of the floor at a stride of half their width, those of fewer than
100 points left out, 4,096 points drawn with replacement from those that have more, and filled up with
duplicates where there are fewer. Upstream draws without a seed.

Raw scans (``Stanford3dDataset_v1.2_Aligned_Version``): ``Area_<1-6>/<room>/Annotations/<class>_<n>.txt``, one
point ``x y z r g b`` per line; the recipe is pointnet's ``sem_seg/collect_indoor3d_data.py`` and
``gen_indoor3d_h5.py``. Blocks cut from them are others than the published ones, and the card says so.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.random import PCG64, Generator
from numpy.typing import NDArray
from pydantic import Field

from kmip_data.arrays import F32, F64, I64, U8
from kmip_data.errors import DamagedInput, UsageError, require_room
from kmip_data.format.schema import Column, EdgeLayout, Schema, View, bytes_per
from kmip_data.format.writer import GraphRecord
from kmip_data.graphs.knn import KnnRule, knn_edges, knn_table
from kmip_data.manifest import LinePatch, Manifest
from kmip_data.pipelines.base import Params, RawFolder
from kmip_data.pipelines.formats.text import parse_points
from kmip_data.runtime import threads


class PointParams(Params):
    """Parameters of a k-NN graph."""

    k: int = Field(default=32, ge=1, le=65_535, description="neighbours per point")
    knn_rule: KnnRule = Field(
        default="exact",
        description="exact: k nearest other points; torch-cluster: the upstream rule, which differs "
        "where more than k points coincide",
    )
    short_graphs: Literal["skip", "keep"] | None = Field(
        default=None,
        description="records of fewer than k + 1 points: skip them, or keep them with fewer neighbours "
        "(default: an error)",
    )

    @property
    def edges(self) -> EdgeLayout:
        """``neighbor`` where every node is sure to have exactly k sources, else ``index``."""
        return "neighbor" if self.knn_rule == "exact" and self.short_graphs != "keep" else "index"

    @property
    def edge_name_parts(self) -> list[str]:
        """Parts of the build folder's name."""
        parts = [f"k{self.k}"]
        if self.knn_rule != "exact":
            parts.append(self.knn_rule)
        if self.short_graphs is not None:
            parts.append(f"{self.short_graphs}-short")
        return parts


def knn_schema(
    columns: tuple[Column, ...], params: PointParams, *, pos: int, max_nodes: int, key_length: int = 64
) -> Schema:
    """Return the schema of k-NN graphs; ``pos`` is the first of the three columns of ``x`` that are it."""
    return Schema(
        columns=columns,
        views=(View(attribute="pos", source="node/x", start=pos, stop=pos + 3),),
        edges=params.edges,
        k=params.k if params.edges == "neighbor" else None,
        max_nodes=max_nodes,
        key_length=key_length,
    )


def connect(
    key: str, pos: F32, columns: dict[str, NDArray[Any]], params: PointParams, index_dtype: str
) -> GraphRecord | None:
    """Return the record of one cloud with its k-NN edges, or ``None`` when it is skipped.

    ``pos`` (N, 3) is finite. Raises ``DamagedInput`` where the cloud has fewer than k + 1 points and
    ``short_graphs`` is not set.
    """
    n = len(pos)
    if n <= params.k:
        if params.short_graphs == "skip":
            return None
        if params.short_graphs is None:
            raise DamagedInput(
                f"Record {key} has {n} points, too few for k = {params.k}.",
                next="choose a smaller --k, or --set short_graphs=skip or --set short_graphs=keep",
            )
    if params.edges == "neighbor":
        table = knn_table(pos, params.k).astype(index_dtype)
        return GraphRecord(key=key, num_nodes=n, columns=columns, neighbor=table)
    edges = knn_edges(pos, params.k, rule=params.knn_rule).astype(index_dtype)
    return GraphRecord(key=key, num_nodes=n, columns=columns, edge_index=edges)


def nodes_per_shard(schema: Schema, params: PointParams) -> int:
    """Return how many nodes of k-NN graphs fit in one shard."""
    from kmip_data.format.writer import MAX_SHARD_BYTES

    _, per_node, per_edge = bytes_per(schema)
    most_edges = params.k + (params.knn_rule != "exact")
    return MAX_SHARD_BYTES // (per_node + per_edge * most_edges)


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
            f"Blocks of {size:g} are too small for a cloud of {floor}: more than {_MOST_WINDOWS:,} of them.",
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
                f"{name} is not an annotation of S3DIS: Area_<1-6>/<room>/Annotations/<class>_<n>.txt"
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
            line, found = int(np.argmax(bad.any(axis=1))) + 1, table[:, 3:][bad][0]
            raise DamagedInput(f"{name}, line {line}: not a colour from 0 to 255, but {found}.")
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
