"""Reading: one graph at random, and shuffled batches, against PyTorch Geometric's own datasets."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kmip_data.cli.benchmarks import Row, compare, thread_count

if TYPE_CHECKING:
    from torch_geometric.data import Data, InMemoryDataset

    from kmip_data.reading.dataset import ShardedDataset
    from kmip_data.reading.loader import GraphLoader

BATCH = 8
NODES, K = 4096, 32


def rows(*, quick: bool = False) -> list[Row]:
    """Measure on generated graphs of S3DIS size (4,096 nodes, k = 32)."""
    from kmip_data.reading.dataset import ShardedDataset
    from kmip_data.saving.save import save

    graphs, repeats = (32, 3) if quick else (256, 9)
    note = f"generated graphs of S3DIS size: {graphs} of {NODES} nodes, k = {K}, 9 features"
    with tempfile.TemporaryDirectory() as folder:
        build = save(itertools.islice(_generated(), graphs), Path(folder) / "build", name="generated")
        dataset = ShardedDataset(build)
        found = [random_access(dataset, Path(folder), repeats, "one S3DIS-size graph at random", 5, note)]
        memory = in_memory(list(dataset))
        for count in (1, 2):
            with thread_count(count):
                found += _batches(dataset, memory, count, repeats, note)
    return found


def _generated() -> Iterator[Data]:
    """Random graphs of S3DIS size, whose edges are a neighbour table, one after another."""
    import torch
    from torch_geometric.data import Data

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
    from torch_geometric.data import InMemoryDataset

    dataset = InMemoryDataset()
    dataset.data, dataset.slices = dataset.collate(items)
    return dataset


def random_access(
    dataset: ShardedDataset, folder: Path, repeats: int, what: str, target: int, note: str
) -> Row:
    """Every graph in a random order, one by one, against PyTorch Geometric's dataset on disk."""
    from torch_geometric.data import Data, OnDiskDataset

    class Disk(OnDiskDataset):  # type: ignore[misc] # PyTorch Geometric is untyped
        """Tensors as raw bytes, PyTorch Geometric's fastest layout on disk."""

        def serialize(self, data: Data) -> dict[str, Any]:
            return data.to_dict()  # type: ignore[no-any-return]

        def deserialize(self, row: dict[str, Any]) -> Data:
            return Data.from_dict(row)

    schema = {
        name: {"dtype": value.dtype, "size": (2, -1) if name == "edge_index" else (-1, *value.shape[1:])}
        for name, value in dataset[0].items()
    }
    stored = Disk(str(folder / "sqlite"), backend="sqlite", schema=schema)
    stored.extend(list(dataset), batch_size=32)
    order = np.random.Generator(np.random.PCG64(1)).permutation(len(dataset)).tolist()

    def read(source: Any) -> Callable[[], None]:
        def each() -> None:
            for index in order:
                source[index]

        return each

    times = compare(read(dataset), read(stored), repeats=repeats)
    stored.close()
    against = "PyG OnDiskDataset (sqlite, schema)"
    return Row.compared(what, against, times, per=len(order), target=target, note=note)


def _batches(
    dataset: ShardedDataset, memory: InMemoryDataset, threads: int, repeats: int, note: str
) -> list[Row]:
    from kmip_data.reading.loader import GraphLoader

    found = []
    for compact, target in ((False, 3 if threads == 1 else 5), (True, 15)):
        # Nothing is made ahead: with these threads alone, none beside the one that asks.
        loader = GraphLoader(dataset, BATCH, shuffle=True, compact=compact, num_threads=threads, prefetch=0)
        what = f"batches of {BATCH}, shuffled{', compact' * compact}, threads: {threads}"
        found.append(whole_batches(loader, memory, repeats, what, target, note))
        found.append(_against_memory(loader, repeats, what))
    return found


def whole_batches(
    loader: GraphLoader, memory: InMemoryDataset, repeats: int, what: str, target: int, note: str
) -> Row:
    """Shuffled batches against PyTorch Geometric's loader of a dataset in memory."""
    from torch_geometric.loader import DataLoader

    sides = []
    for workers in (0, 2):
        other = DataLoader(
            memory, loader.batch_size, shuffle=True, num_workers=workers, persistent_workers=workers > 0
        )
        times = compare(partial(_use, loader), partial(_use, other), repeats=repeats, warmup=2)
        sides.append((times[1], workers, times))
    _, workers, times = min(sides)
    against = f"PyG InMemoryDataset + DataLoader, the better of 0 and 2 workers ({workers})"
    return Row.compared(what, against, times, per=len(loader), target=target, note=note)


def _against_memory(loader: Any, repeats: int, what: str) -> Row:
    """The same batches against filling as many bytes with one value: what the memory itself allows."""
    from kmip_data.runtime import buffers

    batch = next(iter(loader))
    sizes = [value.nbytes for value in batch.to_dict().values() if hasattr(value, "nbytes")]

    def fill() -> None:
        held: Any = None
        for _ in range(len(loader)):
            arrays = [buffers.empty((size,), np.dtype(np.uint8)) for size in sizes]
            for array in arrays:
                array.fill(1)
            held = arrays  # one batch is alive while the next is made, as in a loop over a loader
        del held

    return Row.compared(
        what,
        f"filling the {sum(sizes) / 1e6:.1f} MB of such a batch with one value, one thread",
        compare(partial(_use, loader), fill, repeats=repeats, warmup=2),
        per=len(loader),
        note="nothing that writes whole batches can be much faster than filling their memory",
    )


def _use(batches: Iterable[Any]) -> None:
    for _ in batches:
        pass
