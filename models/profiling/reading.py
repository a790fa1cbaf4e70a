"""Time to read graphs and batches from shards and from PyTorch Geometric's datasets."""

from __future__ import annotations

import itertools
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch_geometric.data import Data, InMemoryDataset, OnDiskDataset
from torch_geometric.loader import DataLoader

from kmip_data.reading.loader import GraphLoader
from kmip_data.saving.save import save

if TYPE_CHECKING:
    from kmip_data.reading.dataset import ShardedDataset

NODES, K, BATCH = 4096, 32, 8  #: of S3DIS
REPEATS = 7


class Compared(NamedTuple):
    """Median seconds of one item, ours and theirs, and the ratio theirs / ours over the repeats."""

    what: str
    ours: float
    theirs: float
    ratio: float
    least: float
    most: float


def compare_reading(graphs: int, repeats: int = REPEATS) -> list[Compared]:
    """Compare single graphs at random, shuffled batches, and batches in compact form."""
    from kmip_data.reading.dataset import ShardedDataset

    with tempfile.TemporaryDirectory() as folder:
        items = itertools.islice(generated(), graphs)
        dataset = ShardedDataset(save(items, Path(folder) / "build", name="generated"))
        found = [random_access(dataset, Path(folder), repeats)]
        memory = in_memory(list(dataset))
        for compact in (False, True):
            # Nothing is made ahead: this thread alone reads on both sides.
            loader = GraphLoader(
                dataset, BATCH, shuffle=True, compact=compact, num_threads=1, prefetch=0
            )
            what = f"shuffled batch of {BATCH}{', compact' * compact}"
            found.append(batches(loader, memory, what, repeats))
    return found


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
    schema = {
        name: {
            "dtype": value.dtype,
            "size": (2, -1) if name == "edge_index" else (-1, *value.shape[1:]),
        }
        for name, value in dataset[0].items()
    }
    stored = _OnDisk(str(folder / "sqlite"), backend="sqlite", schema=schema)
    stored.extend(list(dataset), batch_size=32)
    order = np.random.Generator(np.random.PCG64(1)).permutation(len(dataset)).tolist()

    def read(source: Any) -> None:
        for index in order:
            source[index]

    sides = partial(read, dataset), partial(read, stored)
    found = compared("one graph at random", *sides, len(order), repeats)
    stored.close()
    return found


def batches(loader: GraphLoader, memory: InMemoryDataset, what: str, repeats: int) -> Compared:
    """Read all batches; theirs is a loader of a dataset in memory, the faster of 0 and 2 workers."""
    found = []
    for workers in (0, 2):
        options = {"num_workers": workers, "persistent_workers": workers > 0}
        other = DataLoader(memory, loader.batch_size, shuffle=True, **options)
        ours, theirs = (lambda side=side: deque(side, 0) for side in (loader, other))
        found.append(compared(what, ours, theirs, len(loader), repeats))
    return min(found, key=lambda side: side.theirs)


def compared(
    what: str, ours: Callable[[], object], theirs: Callable[[], object], items: int, repeats: int
) -> Compared:
    """Time both in turn (A B A B …), after two runs each that do not count."""
    found: list[list[float]] = [[], []]
    for _ in range(repeats + 2):
        for side, run in zip(found, (ours, theirs), strict=True):
            begun = time.perf_counter()
            run()
            side.append((time.perf_counter() - begun) / items)
    own, other = (side[2:] for side in found)
    ratios = [y / x for x, y in zip(own, other, strict=True)]
    middle = statistics.median
    return Compared(what, middle(own), middle(other), middle(ratios), min(ratios), max(ratios))
