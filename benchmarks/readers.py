"""Time reading graphs and batches from shards, and from PyTorch Geometric's datasets."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch_geometric.data import Data, InMemoryDataset, OnDiskDataset
from torch_geometric.loader import DataLoader

from benchmarks.turns import compare
from kmip_data.reading.dataset import ShardedDataset
from kmip_data.reading.loader import GraphLoader

NODES_PER_GRAPH = 4096  #: as in S3DIS
K = 32  #: edges per node
BATCH = 8
#: A dozen batches are slow after the other side's turn, until their memory is cached again; an epoch
#: of S3DIS has 2,900.
MIN_BATCHES_PER_TURN = 128


class ReadTimes(NamedTuple):
    """Median seconds per item, ours and theirs, and their ratio theirs / ours."""

    what: str
    ours: float
    theirs: float
    ratio: float
    min_ratio: float
    max_ratio: float


def generate_graphs() -> Iterator[Data]:
    """Yield random graphs of S3DIS size, whose edges form a neighbour table."""
    generator = torch.Generator().manual_seed(0)
    targets = torch.arange(NODES_PER_GRAPH).repeat_interleave(K)
    while True:
        sources = torch.randint(NODES_PER_GRAPH, (NODES_PER_GRAPH * K,), generator=generator)
        yield Data(
            x=torch.rand(NODES_PER_GRAPH, 9, generator=generator),
            edge_index=torch.stack([sources, targets]),
            y=torch.randint(13, (NODES_PER_GRAPH,), generator=generator),
        )


def load_into_memory(items: list[Data]) -> InMemoryDataset:
    """Return PyTorch Geometric's in-memory dataset of the same items."""
    dataset = InMemoryDataset()
    dataset.data, dataset.slices = dataset.collate(items)
    return dataset


class _OnDisk(OnDiskDataset):  # type: ignore[misc] # PyTorch Geometric is untyped
    """Tensors as raw bytes in SQLite, PyTorch Geometric's fastest on-disk layout."""

    def serialize(self, data: Data) -> dict[str, Any]:
        return data.to_dict()  # type: ignore[no-any-return]

    def deserialize(self, row: dict[str, Any]) -> Data:
        return Data.from_dict(row)


def compare_random_access(dataset: ShardedDataset, folder: Path, repeats: int) -> ReadTimes:
    """Read every graph in random order; theirs is an on-disk dataset."""
    # Graphs differ in size, so columns have any number of rows.
    schema = {}
    for name, value in dataset[0].items():
        size = (2, -1) if name == "edge_index" else (-1, *value.shape[1:])
        schema[name] = {"dtype": value.dtype, "size": size}
    stored = _OnDisk(str(folder / "sqlite"), backend="sqlite", schema=schema)
    stored.extend(list(dataset), batch_size=32)
    order = np.random.Generator(np.random.PCG64(1)).permutation(len(dataset)).tolist()

    def read(source: Any) -> None:
        for index in order:
            source[index]

    ours = partial(read, dataset)
    theirs = partial(read, stored)
    row = compare_reading("one graph at random", ours, theirs, len(order), repeats)
    stored.close()
    return row


def batches(loader: GraphLoader, memory: InMemoryDataset, what: str, repeats: int) -> ReadTimes:
    """Read all batches; PyG's loader has them in memory, and 0 or 2 workers, the faster."""
    epochs = -(-MIN_BATCHES_PER_TURN // len(loader))

    def read(source: DataLoader) -> None:
        for _ in range(epochs):
            deque(source, 0)  # takes every batch and keeps none

    rows = []
    for workers in (0, 2):
        options = {"num_workers": workers, "persistent_workers": workers > 0}
        other = DataLoader(memory, loader.batch_size, shuffle=True, **options)
        ours = partial(read, loader)
        theirs = partial(read, other)
        rows.append(compare_reading(what, ours, theirs, epochs * len(loader), repeats))
    return min(rows, key=lambda row: row.theirs)


def compare_reading(
    what: str,
    ours: Callable[[], object],
    theirs: Callable[[], object],
    items: int,
    repeats: int,
) -> ReadTimes:
    """Time both in turn after two warm-up runs; return seconds per each of ``items``."""
    our_seconds, their_seconds, ratio, (min_ratio, max_ratio) = compare(
        ours, theirs, repeats=repeats, warmup=2
    )
    return ReadTimes(what, our_seconds / items, their_seconds / items, ratio, min_ratio, max_ratio)
