"""k-NN graphs of point clouds, either complete or cut into blocks.

Blocks follow the rule of S3DIS (pointnet ``sem_seg/indoor3d_util.py``,
``room2blocks_plus_normalized``). Square windows of the floor have a stride of half their width, and
windows of fewer than 100 points are left out. From larger windows, 4,096 points are drawn with
replacement; smaller ones are filled up with duplicates. Upstream draws without a seed.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.random import PCG64, Generator
from pydantic import Field

from kmip_data.arrays import F32, F64, I64, Array
from kmip_data.errors import DamagedInput, Setting, UsageError
from kmip_data.format.graph_record import GraphRecord
from kmip_data.format.schema import Column, EdgeLayout, Schema, View, bytes_per_graph_node_edge
from kmip_data.format.writer import MAX_SHARD_BYTES
from kmip_data.graphs.knn import KnnRule, knn_edges, knn_table
from kmip_data.pipelines.parameters import BuildParams


class KnnParams(BuildParams):
    """Build parameters of k-NN graphs."""

    k: int = Field(
        default=32,
        ge=1,
        le=65_535,
        description="neighbours per point",
    )
    knn_rule: KnnRule = Field(
        default="exact",
        description="exact: k nearest other points; torch-cluster: the upstream rule, which differs "
        "where more than k points coincide",
    )
    short_graphs: Literal["skip", "keep"] | None = Field(
        default=None,
        description="records of fewer than k + 1 points: skip them, or keep them with fewer neighbours "
        "(default: raise an error)",
    )

    @property
    def edge_layout(self) -> EdgeLayout:
        """``neighbor`` if every node has exactly k sources; else ``index``."""
        if self.knn_rule == "exact" and self.short_graphs != "keep":
            return "neighbor"
        return "index"

    @property
    def folder_name_pieces(self) -> list[str]:
        """Pieces of the build folder's name."""
        parts = [f"k{self.k}"]
        if self.knn_rule != "exact":
            parts.append(self.knn_rule)
        if self.short_graphs:
            parts.append(f"{self.short_graphs}-short")
        return parts


def knn_schema(
    columns: tuple[Column, ...],
    params: KnnParams,
    *,
    pos: int,
    max_nodes: int,
    key_length: int = 64,
) -> Schema:
    """Return the schema of k-NN graphs; ``pos`` is the first of three position columns in ``x``."""
    views = (View(attribute="pos", source="node/x", start=pos, stop=pos + 3),)
    k = params.k if params.edge_layout == "neighbor" else None
    return Schema(
        columns=columns,
        views=views,
        edges=params.edge_layout,
        k=k,
        max_nodes=max_nodes,
        key_length=key_length,
    )


def knn_record(
    key: str,
    pos: F32,
    columns: dict[str, Array],
    params: KnnParams,
    index_dtype: str,
) -> GraphRecord | None:
    """Return the record of a cloud (N, 3) with its k-NN edges, or ``None`` to skip it."""
    n = len(pos)
    check_neighbors(f"Record {key}", n, params)
    if n <= params.k and params.short_graphs == "skip":
        return None
    if params.edge_layout == "neighbor":
        edges = {"neighbor": knn_table(pos, params.k).astype(index_dtype)}
    else:
        edges = {"edge_index": knn_edges(pos, params.k, rule=params.knn_rule).astype(index_dtype)}
    return GraphRecord(key=key, num_nodes=n, columns=columns, **edges)


def check_neighbors(name: str, points: int, params: KnnParams) -> None:
    """Refuse a cloud with too few points for k neighbours, unless ``params`` skip or keep it."""
    if points <= params.k and params.short_graphs is None:
        smaller_k = [Setting(k=points - 1)] if points > 1 else []
        raise DamagedInput(
            f"{name} has {points} points, too few for k = {params.k}.",
            steps=[*smaller_k, Setting(short_graphs="keep")],
        )


def nodes_per_shard(schema: Schema, params: KnnParams) -> int:
    """Return the number of nodes of k-NN graphs that fit in one shard."""
    _, per_node, per_edge = bytes_per_graph_node_edge(schema)
    # torch-cluster's rule may give one more edge if points coincide.
    max_edges = params.k + (params.knn_rule != "exact")
    return MAX_SHARD_BYTES // (per_node + per_edge * max_edges)


BLOCK_METRES = 1.0  #: width of S3DIS's blocks in metres
MIN_BLOCK_POINTS = 100  #: windows with fewer points are left out
BLOCK_POINTS = 4_096
_MAX_WINDOWS = 10_000_000


def block_rows(
    xy: F64,
    *,
    size: float,
    points: int,
    key: str,
    seed: int,
) -> list[I64]:
    """Return the rows of each block, (points,), sorted by x and then y of their windows.

    ``xy`` (P, 2) are positions on the floor, starting at 0. Windows are ``size`` wide, with a stride
    of half of that. ``key`` and ``seed`` together seed the draws, so that clouds are independent.
    """
    # With points sorted by x, a strip of windows is one slice.
    order = np.argsort(xy[:, 0], kind="stable")
    along = xy[order]
    key_digest = hashlib.sha256(key.encode()).digest()
    key_seed = int.from_bytes(key_digest[:8], "little")
    rng = Generator(PCG64([seed, key_seed]))
    blocks = []
    for left, front in window_corners(xy.max(axis=0, initial=0).tolist(), size):
        # A window includes the points on its borders. Only the strip between left and right is
        # compared.
        first, last = np.searchsorted(along[:, 0], [left, left + size], side="left")
        last += np.searchsorted(along[last:, 0], left + size, side="right")
        strip = along[first:last, 1]
        inside = (strip >= front) & (strip <= front + size)
        rows = np.sort(order[first:last][inside])
        if len(rows) >= MIN_BLOCK_POINTS:
            blocks.append(sample_points(rows, points, rng))
    return blocks


def window_corners(extent: Sequence[float], size: float) -> list[tuple[float, float]]:
    """Return the lower corners of the windows over a floor of size ``extent``, by x and then y.

    Raises ``UsageError`` if there are more than ten million.
    """
    stride = size / 2
    if math.prod(length / stride + 1 for length in extent) > _MAX_WINDOWS:
        floor = " × ".join(f"{length:g}" for length in extent)
        raise UsageError(
            f"Blocks of {size:g} are too small for a cloud of {floor}: more than {_MAX_WINDOWS:,} of them.",
            steps="use a larger block, in the unit of the positions",
        )
    # The last window reaches the far wall; a narrow floor has a single window.
    counts = [max(math.ceil((length - size) / stride), 0) + 1 for length in extent]
    return [(i * stride, j * stride) for i in range(counts[0]) for j in range(counts[1])]


def sample_points(rows: I64, points: int, rng: Generator) -> I64:
    """Draw ``points`` of the rows (n,) with replacement; fill up fewer rows with duplicates."""
    if len(rows) > points:
        return rows[rng.integers(len(rows), size=points)]
    duplicates = rows[rng.integers(len(rows), size=points - len(rows))]
    return np.concatenate([rows, duplicates])


def normalised_positions(
    xyz: F64,
    rows: I64,
    size: float,
    top: F64,
) -> tuple[F32, F32]:
    """Return the positions of a block centred on its floor, and relative to the room, (points, 3).

    Relative positions are from 0 to 1. ``top`` is the largest position in the room; the smallest
    is 0.
    """
    positions = xyz[rows]
    centred = positions.copy()
    centred[:, :2] -= positions[:, :2].min(axis=0) + size / 2
    with np.errstate(invalid="ignore", divide="ignore"):
        relative = np.where(top > 0, positions / top, 0.0)
    return centred.astype(np.float32), relative.astype(np.float32)
