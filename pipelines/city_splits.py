"""Splits of the intersections of a city: at random by the authors' recipe, or by blocks of the map."""

from __future__ import annotations

from typing import ClassVar, Final, Literal

import numpy as np
from numpy.random import PCG64, Generator
from numpy.typing import NDArray
from pydantic import Field

from kmip_data.errors import UsageError
from kmip_data.pipelines.base import Records, Split, SplitParams

TRAIN, VAL, TEST = 0, 1, 2  #: codes of the nodes
BLOCK_SIZES: Final = (2_000, 1_000, 500, 250, 150, 100, 50, 25, 10)  #: metres: what an error proposes
METRES_A_DEGREE: Final = 111_195.0  #: of latitude, on a sphere of radius 6,371 km


class CitySplitParams(SplitParams):
    """Parameters of the split: 10 % train, 10 % validation, 80 % test."""

    seeded: ClassVar[tuple[str, ...]] = ("random", "spatial", "stratified")

    split: Literal["random", "spatial", "stratified"] = Field(
        default="random",
        description="random: intersections at random, as the paper has them; spatial: whole blocks of the "
        "map, so that train and test streets are not neighbours; stratified: at random, with equal "
        "shares of the classes",
    )
    split_seed: int = Field(default=0, ge=0, le=2**32 - 1, description="seed of the draw")
    block_size: float = Field(
        default=1_000.0, gt=0, allow_inf_nan=False, description="side of a block in metres (spatial)"
    )


def split_codes(num_nodes: int, seed: int = 0) -> NDArray[np.uint8]:
    """Return the authors' split: 0 train, 1 val, 2 test for every node, (N,) uint8.

    ``p = numpy.random.RandomState(seed).permutation(N)``; the first ``int(0.1 N)`` train, as many
    validate, the rest tests. At least one of each where there are three nodes.
    """
    order = np.random.RandomState(seed).permutation(num_nodes)
    tenth = int(0.1 * num_nodes) or min(1, num_nodes // 3)
    codes = np.full(num_nodes, TEST, np.uint8)
    codes[order[:tenth]] = TRAIN
    codes[order[tenth : 2 * tenth]] = VAL
    return codes


def spatial_codes(lon_lat: NDArray[np.float32], seed: int, block_size: float) -> NDArray[np.uint8]:
    """Deal whole blocks of a square grid: at random to train until it has a tenth of the nodes, then val.

    Parameters
    ----------
    lon_lat
        (N, 2) degrees.
    block_size
        Side of a block in metres; a degree of longitude is as long as at the mean latitude.

    Raises
    ------
    UsageError
        A block has more than a tenth of the intersections.
    """
    block, sizes = _blocks(lon_lat, block_size)
    share = len(lon_lat) / 10
    if sizes.max() > share:
        smaller = (size for size in BLOCK_SIZES if size < block_size)
        fitting = next((size for size in smaller if _blocks(lon_lat, size)[1].max() <= share), None)
        raise UsageError(
            "The blocks of the map are too large for three parts.",
            expected="no block with more than a tenth of the intersections",
            found=f"{len(sizes)} blocks of {block_size:g} m, one with {sizes.max():,} of {len(block):,}",
            left="the build is as it was",
            next="--split random" if fitting is None else f"--block-size {fitting}",
        )
    order = Generator(PCG64(seed)).permutation(len(sizes))
    before = np.cumsum(sizes[order]) - sizes[order]  # intersections dealt before each block
    train = int(np.searchsorted(before, share))
    val = int(np.searchsorted(before, before[train] + share)) - train
    part = np.full(len(sizes), TEST, np.uint8)
    part[order[:train]] = TRAIN
    part[order[train : train + val]] = VAL
    codes: NDArray[np.uint8] = part[block]
    return codes


def _blocks(lon_lat: NDArray[np.float32], block_size: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the block of each node, (N,), and how many nodes each block has."""
    degrees = lon_lat.astype(np.float64)
    scale = np.array([METRES_A_DEGREE * np.cos(np.radians(degrees[:, 1].mean())), METRES_A_DEGREE])
    cell = np.floor((degrees - degrees.min(axis=0)) * scale / block_size).astype(np.int64)
    _, block, sizes = np.unique(cell, axis=0, return_inverse=True, return_counts=True)
    return block.reshape(-1), sizes


def city_split(records: Records, params: CitySplitParams) -> Split:
    """Apply the rule that ``params`` asks for to a build of one city."""
    n, seed = int(records.nodes[0]), params.split_seed
    if params.split == "random":
        return Split(
            f"random-seed{seed}",
            "random",
            {},
            note="10/10/80 of the intersections, numpy.random.RandomState, the authors' recipe",
            node_code=split_codes(n, seed),
        )
    size = params.block_size
    return Split(
        f"spatial-{size:g}m-seed{seed}",
        "spatial",
        {},
        note=f"whole blocks of {size:g} m, 10/10/80 of the intersections as nearly as blocks allow",
        node_code=spatial_codes(records.column("node/x")[:, :2], seed, size),
    )
