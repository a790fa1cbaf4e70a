"""Reading of S3DIS-size graphs and peptides, at random and in batches, against PyTorch Geometric."""

from __future__ import annotations

import itertools
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from benchmarks.table import Row, compare, thread_count
from torch_geometric.data import Data, InMemoryDataset, OnDiskDataset
from torch_geometric.loader import DataLoader

from kmip_data.reading.loader import GraphLoader
from kmip_data.saving.export import export

if TYPE_CHECKING:
    from kmip_data.reading.dataset import ShardedDataset

NODES, K, BATCH = 4096, 32, 8  #: of S3DIS
SMALL_BATCH = 128  #: peptides
LOADER = "PyG InMemoryDataset + DataLoader"


def rows(*, quick: bool = False) -> Iterator[Row]:
    """Measure generated graphs of 4,096 nodes and k = 32, then sample peptides of about 160 atoms."""
    from kmip_data.builds.home import Home
    from kmip_data.pipelines.build import build_dataset
    from kmip_data.reading.dataset import ShardedDataset
    from kmip_data.saving.save import save

    repeats = 3 if quick else 9
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        items = itertools.islice(generated(), 32 if quick else 256)
        dataset = ShardedDataset(save(items, folder / "build", name="generated"))
        yield random_access("graph", dataset, folder, repeats, target=5)
        yield from other_formats(dataset, "S3DIS-size graph", BATCH, folder, repeats)
        memory = in_memory(list(dataset))
        for threads, compact in itertools.product((1, 2), (False, True)):
            with thread_count(threads):
                options = {"compact": compact, "num_threads": threads, "prefetch": 0}
                loader = GraphLoader(dataset, BATCH, shuffle=True, **options)
                what = f"batches of {BATCH}, shuffled{', compact' * compact}, threads: {threads}"
                target = 15 if compact else 3 if threads == 1 else 5
                yield batches(what, loader, memory, repeats, target)
    with tempfile.TemporaryDirectory() as place, thread_count(1):
        folder, parameters = Path(place), {"limit": 256 if quick else 4_000}
        options = {"sample": True, "parameters": parameters, "quiet": True}
        dataset = ShardedDataset(build_dataset("peptides-func", home=Home(folder), **options))
        yield random_access("peptide", dataset, folder, repeats, target=3)
        train = ShardedDataset(dataset.build, "train")
        yield from other_formats(train, "peptide", SMALL_BATCH, folder, repeats)
        loader = GraphLoader(dataset, SMALL_BATCH, shuffle=True, num_threads=1, prefetch=0)
        what = f"batches of {SMALL_BATCH} peptides, shuffled"
        yield batches(what, loader, in_memory(list(dataset)), repeats, 3)


def row_of(
    what: str, against: str, sides: Iterable[Callable[[], object]], items: int, repeats: int,
    target: float | None = None,
) -> Row:  # fmt: skip
    """Return the row of a comparison, of which each side reads so many items."""
    times = compare(*sides, repeats=repeats, warmup=2)
    note = "reading: generated or sample data"
    return Row.compared(what, against, times, per=items, target=target, note=note)


def at_random(
    what: str, against: str, data: ShardedDataset, read: Callable[[int], Data], repeats: int,
    target: float | None = None,
) -> Row:  # fmt: skip
    """Read every graph in a random order, one by one."""
    order = np.random.Generator(np.random.PCG64(1)).permutation(len(data)).tolist()
    sides = (lambda side=side: deque(map(side, order), 0) for side in (data.__getitem__, read))
    return row_of(f"one {what} at random", against, sides, len(order), repeats, target)


def random_access(what: str, data: ShardedDataset, folder: Path, repeats: int, *, target: float) -> Row:
    """Compare graphs at random with PyTorch Geometric's dataset on disk."""
    schema = {
        name: {"dtype": value.dtype, "size": (2, -1) if name == "edge_index" else (-1, *value.shape[1:])}
        for name, value in data[0].items()
    }
    stored = _OnDisk(str(folder / "sqlite"), backend="sqlite", schema=schema)
    stored.extend(list(data), batch_size=32)
    found = at_random(what, "PyG OnDiskDataset (sqlite, schema)", data, stored.__getitem__, repeats, target)
    stored.close()
    return found


def batches(what: str, loader: GraphLoader, memory: InMemoryDataset, repeats: int, target: float) -> Row:
    """Read all batches; theirs is a loader of a dataset in memory, the faster of 0 and 2 workers."""
    found = []
    for workers in (0, 2):
        options = {"num_workers": workers, "persistent_workers": workers > 0}
        other = DataLoader(memory, loader.batch_size, shuffle=True, **options)
        sides = (lambda side=side: deque(side, 0) for side in (loader, other))
        found.append(row_of(what, LOADER, sides, len(loader), repeats, target))
    return min(found, key=lambda row: row.theirs or 0.0)


def other_formats(data: ShardedDataset, what: str, batch: int, folder: Path, repeats: int) -> Iterator[Row]:
    """Compare with other formats whose libraries are installed: graphs at random, and batches of litData."""
    part, like = data.split or "graphs", data[0]
    with suppress(ImportError):
        import litdata
        from litdata.streaming.writer import BinaryWriter

        writer = BinaryWriter(str(folder / "litdata"), chunk_bytes=2**26)
        for at, item in enumerate(data):
            writer.add_item(at, item)
        writer.done()
        writer.merge()
        stream = litdata.StreamingDataset(str(folder / "litdata"), shuffle=True)
        yield at_random(what, "litData StreamingDataset", data, stream.__getitem__, repeats)
        loader = GraphLoader(data, batch, shuffle=True, num_threads=1, prefetch=0)
        both = loader, litdata.StreamingDataLoader(stream, batch_size=batch, num_workers=0)
        sides = (lambda side=side: deque(side, 0) for side in both)
        name, against = f"batches of {batch}, shuffled: {what}", "litData StreamingDataLoader"
        yield row_of(name, against, sides, len(loader), repeats)
    with suppress(ImportError):
        import lance
        from pyarrow import parquet

        table = parquet.read_table(export(data.build, "parquet", folder / "parquet", quiet=True)[part])
        stored = lance.write_dataset(table, str(folder / "lance"))
        yield at_random(what, "Lance take", data, lambda n: of_row(stored.take([n]), like), repeats)


def of_row(row: Any, like: Data) -> Data:
    """Return a row of Arrow as a graph with the attributes of another."""
    values = {}
    for name, value in like.items():
        array = row[name].combine_chunks()
        while hasattr(array, "flatten") and hasattr(array.type, "value_type"):
            array = array.flatten()
        shape = (2, -1) if name == "edge_index" else (-1, *value.shape[1:])
        values[name] = torch.from_numpy(array.to_numpy(zero_copy_only=False)).view(shape)
    return Data.from_dict(values)


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
