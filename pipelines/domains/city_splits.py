"""Splits of the intersections of a city: at random by the authors' rule, or by blocks of the map."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np
from numpy.random import PCG64, Generator
from pydantic import Field

from kmip_data.arrays import F32, I64, U8, Bools, Integers
from kmip_data.errors import UsageError
from kmip_data.format.schema import EDGE_INDEX
from kmip_data.format.split_files import PARTS
from kmip_data.graphs.elementary_functions import sine_cosine
from kmip_data.pipelines.base import BaseSplitParams, Records, Split
from kmip_data.text import count_with_noun

TRAIN, VAL, TEST, DROPPED = 0, 1, 2, 255  #: codes of the nodes
#: metres: what is chosen from
BLOCK_SIZES = (
    1_000,
    500,
    250,
    150,
    100,
    50,
    25,
    10,
)
METRES_PER_DEGREE = 111_195.0  #: metres of a degree of latitude on a sphere of radius 6,371 km


class CitySplitParams(BaseSplitParams):
    """Parameters of the split: 10 % train, 10 % validation, 80 % test."""

    random_rules: ClassVar[tuple[str, ...]] = ("random", "spatial", "stratified")
    rule_of_parameter: ClassVar[Mapping[str, str]] = {"block_size": "spatial", "buffer": "spatial"}

    split_rule: Literal["random", "spatial", "stratified"] = Field(
        default="random",
        description="random: intersections at random, as the paper has them; spatial: whole blocks of the "
        "map with a buffer between them, so that train and test streets are not neighbours; stratified: at "
        "random, with equal shares of the classes",
    )
    block_size: float | None = Field(
        default=None,
        ge=1,
        description="side of a block in metres (spatial); unless given, the largest of 1,000, 500, 250 … at "
        "which no block has more than a fifteenth of the intersections",
    )
    buffer: int = Field(
        default=1,
        ge=0,
        le=1_000,
        description="hops between two parts (spatial): intersections nearer than that to another part are "
        "in none; 0: blocks touch",
    )


def split_codes(num_nodes: int, seed: int = 0) -> U8:
    """Return the authors' split: 0 train, 1 val, 2 test for every node, (N,) uint8.

    ``p = numpy.random.RandomState(seed).permutation(N)``; the first ``int(0.1 N)`` are train, as
    many val, the rest test; at least one each if there are three nodes.
    """
    order = np.random.RandomState(seed).permutation(num_nodes)
    tenth = int(0.1 * num_nodes) or min(1, num_nodes // 3)
    codes = np.full(num_nodes, TEST, np.uint8)
    codes[order[:tenth]] = TRAIN
    codes[order[tenth : 2 * tenth]] = VAL
    return codes


def spatial_codes(lon_lat: F32, seed: int, block_size: float) -> U8:
    """Assign whole blocks of a square grid at random, to train until it has a tenth of the nodes, then to val.

    ``lon_lat`` is (N, 2) degrees; the side of a block is in metres, and a degree of longitude as
    long as at the mean latitude. Raises ``UsageError`` if a block has more than a tenth of the
    intersections.
    """
    block, sizes = _blocks_of_nodes(lon_lat, block_size)
    share = len(lon_lat) / 10
    if sizes.max() > share:
        raise UsageError(
            f"The blocks of the map are too large for three parts: one of the {len(sizes)} blocks of "
            f"{block_size:g} m has {sizes.max():,} of {len(block):,} intersections, more than a tenth.",
            next="a smaller --set block_size, or --split-rule random",
        )
    order = Generator(PCG64(seed)).permutation(len(sizes))
    before = np.cumsum(sizes[order]) - sizes[order]  # intersections in the blocks drawn before
    train = int(np.searchsorted(before, share))
    val = int(np.searchsorted(before, before[train] + share)) - train
    part = np.full(len(sizes), TEST, np.uint8)
    part[order[:train]] = TRAIN
    part[order[train : train + val]] = VAL
    codes: U8 = part[block]
    return codes


def drop_buffer(codes: U8, edge_index: Integers, hops: int) -> U8:
    """Return the codes with :data:`DROPPED` at the borders: no two parts are within ``hops`` of each other.

    Train keeps all of its nodes. Val loses those within ``hops`` edges of train; test those within
    ``hops`` of train or of the remaining val. Paths may lead through dropped nodes. ``edge_index``
    (2, E) has every street in both directions.
    """
    remaining = codes.copy()
    near_train = _nodes_within_hops(codes == TRAIN, edge_index, hops)
    remaining[near_train & (codes == VAL)] = DROPPED
    near_val = _nodes_within_hops(remaining == VAL, edge_index, hops)
    remaining[(near_train | near_val) & (codes == TEST)] = DROPPED
    return remaining


def _nodes_within_hops(nodes: Bools, edge_index: Integers, hops: int) -> Bools:
    """Return a mask of the nodes within ``hops`` edges of ``nodes``, including these."""
    source, target = edge_index
    reached = nodes.copy()
    for _ in range(hops):
        before = np.count_nonzero(reached)
        reached[target[reached[source]]] = True
        if np.count_nonzero(reached) == before:
            break
    return reached


def _blocks_of_nodes(lon_lat: F32, block_size: float) -> tuple[I64, I64]:
    """Return the block of each node, (N,), and how many nodes each block has."""
    degrees = lon_lat.astype(np.float64)
    _, shrunk = sine_cosine(np.radians(degrees[:, 1].mean()))
    scale = np.array([METRES_PER_DEGREE * float(shrunk), METRES_PER_DEGREE])
    cell = np.floor((degrees - degrees.min(axis=0)) * scale / block_size).astype(np.int64)
    # A number sorts as the pair of coordinates does, in a tenth of the time.
    number = cell[:, 0] * (cell[:, 1].max() + 1) + cell[:, 1]
    _, block, sizes = np.unique(number, return_inverse=True, return_counts=True)
    return block.reshape(-1), sizes


def city_split(records: Records, params: CitySplitParams) -> Split:
    """Apply the rule of ``params`` to a build of one city."""
    n = int(records.nodes[0])
    seed = params.split_seed
    if params.split_rule == "random":
        note = "10/10/80 of the intersections, numpy.random.RandomState, the authors' recipe"
        return Split(
            f"random-seed{seed}",
            "random",
            {},
            note=note,
            node_code=split_codes(n, seed),
        )
    lon_lat = records.read_column("node/x")[:, :2]
    # A fifteenth at most, fewer than spatial_codes takes: train and val are not far larger than a
    # tenth.
    fitting = (
        size for size in BLOCK_SIZES if _blocks_of_nodes(lon_lat, size)[1].max() <= max(1.0, n / 15)
    )
    size = params.block_size or next(fitting, BLOCK_SIZES[-1])
    hops = params.buffer
    codes = drop_buffer(spatial_codes(lon_lat, seed, size), records.read_column(EDGE_INDEX), hops)
    dropped = f"{np.count_nonzero(codes == DROPPED):,} of {n:,}"
    if empty := [part for code, part in enumerate(PARTS) if not (codes == code).any()]:
        raise UsageError(
            f"A buffer of {count_with_noun(hops, 'hop')} leaves no intersection for {' and '.join(empty)}: "
            f"in blocks of {size:g} m, {dropped} are too near to another part.",
            next="use a larger block_size, or a smaller buffer",
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
        node_code=codes,
    )
