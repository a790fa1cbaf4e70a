"""Splits of the intersections of a city: random by the authors' rule, or by blocks of the map."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np
from numpy.random import PCG64, Generator
from pydantic import Field

from kmip_data.arrays import F32, I64, U8, Bools, Integers
from kmip_data.errors import Setting, UsageError
from kmip_data.format.schema import EDGE_INDEX
from kmip_data.format.split_files import NO_PART, PART_CODES, PARTS
from kmip_data.graphs.elementary_functions import sine_cosine
from kmip_data.pipelines.base import RecordTable, Split
from kmip_data.pipelines.parameters import BaseSplitParams
from kmip_data.text import count_with_noun

TRAIN, VAL, TEST = PART_CODES.values()
DEFAULT_BLOCK_METRES = (1_000, 500, 250, 150, 100, 50, 25, 10)  #: sizes tried by default, in order
METRES_PER_DEGREE = 111_195.0  #: per degree of latitude, on a sphere of radius 6,371 km


class CitySplitParams(BaseSplitParams):
    """Split parameters of a city: 10 % train, 10 % validation, 80 % test."""

    random_rules: ClassVar[tuple[str, ...]] = ("random", "spatial", "stratified")
    rule_of_parameter: ClassVar[Mapping[str, str]] = {"block_size": "spatial", "buffer": "spatial"}

    split_rule: Literal["random", "spatial", "stratified"] = Field(
        default="random",
        description="random: intersections at random, as in the paper; spatial: whole blocks of the "
        "map with a buffer between them, so that train and test streets are not neighbours; stratified: at "
        "random, with equal class fractions",
    )
    block_size: float | None = Field(
        default=None,
        ge=1,
        description="side of a block in metres (spatial); by default, the largest of 1,000, 500, 250 … at "
        "which no block has more than a fifteenth of the intersections",
    )
    buffer: int = Field(
        default=1,
        ge=0,
        le=1_000,
        description="hops between two parts (spatial): intersections within that distance of another part "
        "are in no part; 0: blocks touch",
    )


def random_part_codes(num_nodes: int, seed: int = 0) -> U8:
    """Return the authors' split: 0 train, 1 val, 2 test for every node, (N,) uint8.

    In ``numpy.random.RandomState(seed).permutation(N)``, the first ``int(0.1 N)`` nodes are train,
    the next ``int(0.1 N)`` val, and the rest test. Three nodes or more give at least one each.
    """
    order = np.random.RandomState(seed).permutation(num_nodes)
    tenth = int(0.1 * num_nodes) or min(1, num_nodes // 3)
    codes = np.full(num_nodes, TEST, np.uint8)
    codes[order[:tenth]] = TRAIN
    codes[order[tenth : 2 * tenth]] = VAL
    return codes


def spatial_part_codes(lon_lat: F32, seed: int, block_size: float) -> U8:
    """Assign whole blocks of a square grid to the parts, in random order; return codes, (N,).

    Blocks go to train until it has a tenth of the nodes, then to val, then to test. ``lon_lat``
    (N, 2) is in degrees, ``block_size`` in metres; the length of a degree of longitude is that of
    the mean latitude. Raises ``UsageError`` if a block has more than a tenth of the intersections.
    """
    block, sizes = _blocks_of_nodes(lon_lat, block_size)
    part_size = len(lon_lat) / 10
    if sizes.max() > part_size:
        raise UsageError(
            f"The blocks of the map are too large for three parts: one of the {len(sizes)} blocks of "
            f"{block_size:g} m has {sizes.max():,} of {len(block):,} intersections, more than a tenth.",
            steps=["use smaller blocks (block_size)", Setting(split_rule="random")],
        )
    order = Generator(PCG64(seed)).permutation(len(sizes))
    nodes_before = np.cumsum(sizes[order]) - sizes[order]  # in the blocks drawn earlier
    train = int(np.searchsorted(nodes_before, part_size))
    val = int(np.searchsorted(nodes_before, nodes_before[train] + part_size)) - train
    part = np.full(len(sizes), TEST, np.uint8)
    part[order[:train]] = TRAIN
    part[order[train : train + val]] = VAL
    codes: U8 = part[block]
    return codes


def drop_buffer(codes: U8, edge_index: Integers, hops: int) -> U8:
    """Drop nodes at the borders, so that no two parts are within ``hops`` of each other.

    Train keeps all of its nodes. Val loses its nodes within ``hops`` edges of train, and test those
    within ``hops`` of train or of the remaining val. Paths may lead through dropped nodes.
    ``edge_index`` (2, E) has every street in both directions.
    """
    remaining = codes.copy()
    near_train = _nodes_within_hops(codes == TRAIN, edge_index, hops)
    remaining[near_train & (codes == VAL)] = NO_PART
    near_val = _nodes_within_hops(remaining == VAL, edge_index, hops)
    remaining[(near_train | near_val) & (codes == TEST)] = NO_PART
    return remaining


def _nodes_within_hops(nodes: Bools, edge_index: Integers, hops: int) -> Bools:
    """Return a mask of the nodes within ``hops`` edges of ``nodes``, including ``nodes``."""
    source, target = edge_index
    reached = nodes.copy()
    for _ in range(hops):
        count_before = np.count_nonzero(reached)
        reached[target[reached[source]]] = True
        if np.count_nonzero(reached) == count_before:
            break
    return reached


def _blocks_of_nodes(lon_lat: F32, block_size: float) -> tuple[I64, I64]:
    """Return the block of each node, (N,), and the number of nodes in each block."""
    degrees = lon_lat.astype(np.float64)
    _, cosine = sine_cosine(np.radians(degrees[:, 1].mean()))
    scale = np.array([METRES_PER_DEGREE * float(cosine), METRES_PER_DEGREE])
    cell = np.floor((degrees - degrees.min(axis=0)) * scale / block_size).astype(np.int64)
    # Encode cells as numbers, which sort in a tenth of the time of pairs.
    number = cell[:, 0] * (cell[:, 1].max() + 1) + cell[:, 1]
    _, block, sizes = np.unique(number, return_inverse=True, return_counts=True)
    return block.reshape(-1), sizes


def _default_block_size(lon_lat: F32) -> int:
    """Return the largest default block size at which no block has over a fifteenth of the nodes.

    The limit is below the tenth that ``spatial_part_codes`` accepts, so that train and val are
    not much larger than a tenth.
    """
    max_nodes = max(1.0, len(lon_lat) / 15)
    for size in DEFAULT_BLOCK_METRES:
        if _blocks_of_nodes(lon_lat, size)[1].max() <= max_nodes:
            return size
    return DEFAULT_BLOCK_METRES[-1]


def city_split(records: RecordTable, params: CitySplitParams) -> Split:
    """Apply the rule of ``params`` to a build of one city."""
    n = int(records.node_counts[0])
    seed = params.split_seed
    if params.split_rule == "random":
        note = "10/10/80 of the intersections, numpy.random.RandomState, the authors' recipe"
        return Split(
            f"random-seed{seed}",
            "random",
            {},
            note=note,
            part_codes=random_part_codes(n, seed),
        )
    lon_lat = records.read_column("node/x")[:, :2]
    size = params.block_size or _default_block_size(lon_lat)
    hops = params.buffer
    codes = drop_buffer(
        spatial_part_codes(lon_lat, seed, size), records.read_column(EDGE_INDEX), hops
    )
    dropped = f"{np.count_nonzero(codes == NO_PART):,} of {n:,}"
    if empty := [part for code, part in enumerate(PARTS) if not (codes == code).any()]:
        raise UsageError(
            f"A buffer of {count_with_noun(hops, 'hop')} leaves no intersection for {' and '.join(empty)}: "
            f"in blocks of {size:g} m, {dropped} are too near to another part.",
            steps="use a larger block_size, or a smaller buffer",
        )
    note = f"whole blocks of {size:g} m, 10/10/80 of the intersections as nearly as blocks allow"
    buffer = ""
    if hops:
        note += f"; {dropped} intersections are in no part: within {count_with_noun(hops, 'hop')} of another part"
        buffer = f"-buffer{hops}"
    return Split(
        f"spatial-{size:g}m{buffer}-seed{seed}",
        "spatial",
        {},
        note=note,
        part_codes=codes,
    )
