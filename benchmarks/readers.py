"""Time to read graphs and batches from shards and from PyTorch Geometric's datasets."""

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

NODES = 4096  #: nodes of a graph of S3DIS
K = 32  #: its edges a node
BATCH = 8
#: Batches of a turn, at least. After the other side's turn a dozen are slow, until a batch's memory
#: is back in the cache; S3DIS has 2,900 an epoch.
TURN = 128


class Compared(NamedTuple):
    """Median seconds of one item, ours and theirs, and the ratio theirs / ours over the repeats."""

    what: str
    ours: float
    theirs: float
    ratio: float
    least: float
    most: float


def generated() -> Iterator[Data]:
    """Yield random graphs of S3DIS size, whose edges are a neighbour table."""
    generator = torch.Generator().manual_seed(0)
    targets = torch.arange(NODES).repeat_interleave(K)
    while True:
        sources = torch.randint(NODES, (NODES * K,), generator=generator)
        yield Data(
            x=torch.rand(NODES, 9, generator=generator),
            edge_index=torch.stack([sources, targets]),
            y=torch.randint(13, (NODES,), generator=generator),
        )


def in_memory(items: list[Data]) -> InMemoryDataset:
    """Return PyTorch Geometric's dataset that holds the same items in memory."""
    dataset = InMemoryDataset()
    dataset.data, dataset.slices = dataset.collate(items)
    return dataset


class _OnDisk(OnDiskDataset):  # type: ignore[misc] # PyTorch Geometric is untyped
    """Tensors as raw bytes in SQLite: PyTorch Geometric's fastest layout on disk."""

    def serialize(self, data: Data) -> dict[str, Any]:
        return data.to_dict()  # type: ignore[no-any-return]

    def deserialize(self, row: dict[str, Any]) -> Data:
        return Data.from_dict(row)


def random_access(dataset: ShardedDataset, folder: Path, repeats: int) -> Compared:
    """Read every graph in a random order, one by one; theirs is a dataset on disk."""
    # Columns with any number of rows: graphs have different sizes.
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
    row = compared("one graph at random", ours, theirs, len(order), repeats)
    stored.close()
    return row


def batches(loader: GraphLoader, memory: InMemoryDataset, what: str, repeats: int) -> Compared:
    """Read all batches; PyG's loader has them in memory, and 0 or 2 workers, the faster."""
    epochs = -(-TURN // len(loader))

    def read(source: DataLoader) -> None:
        for _ in range(epochs):
            deque(source, 0)  # takes every batch and keeps none

    rows = []
    for workers in (0, 2):
        options = {"num_workers": workers, "persistent_workers": workers > 0}
        other = DataLoader(memory, loader.batch_size, shuffle=True, **options)
        ours = partial(read, loader)
        theirs = partial(read, other)
        rows.append(compared(what, ours, theirs, epochs * len(loader), repeats))
    return min(rows, key=lambda row: row.theirs)


def compared(
    what: str,
    ours: Callable[[], object],
    theirs: Callable[[], object],
    items: int,
    repeats: int,
) -> Compared:
    """Time both in turn, after two runs each that do not count; seconds are of one of ``items``."""
    our_seconds, their_seconds, ratio, (least, most) = compare(
        ours, theirs, repeats=repeats, warmup=2
    )
    return Compared(what, our_seconds / items, their_seconds / items, ratio, least, most)
