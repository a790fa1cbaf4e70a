"""Random graphs and shuffled batches of other formats and loaders, against shards.

Each peer stores the same attributes in the way that its documentation shows first, decodes them to
:class:`~torch_geometric.data.Data`, and batches them with PyG's collation. Peers have no worker if
shards have one thread, and two persistent workers if shards have two threads.
"""

from __future__ import annotations

import importlib.metadata
import itertools
import pickle
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader
from torch_geometric.data import Batch, Data

from benchmarks.peers import print_rows
from benchmarks.readers import BATCH, generate_graphs
from benchmarks.table import Row, compare_all, thread_count
from kmip_data.builds.home import Home
from kmip_data.pipelines.build import build_dataset
from kmip_data.reading.dataset import ShardedDataset
from kmip_data.reading.loader import GraphLoader
from kmip_data.saving.export import write_parquet
from kmip_data.saving.save import save

Arrays = dict[str, NDArray[Any]]
collate = Batch.from_data_list


def to_arrays(graph: Data) -> Arrays:
    """Convert the attributes of a graph to arrays."""
    return {name: value.numpy() for name, value in graph.items()}


def graph_from_arrays(arrays: Arrays) -> Data:
    """Convert arrays to a graph."""
    tensors = {name: torch.from_numpy(np.ascontiguousarray(arrays[name])) for name in arrays}
    return Data.from_dict(tensors)


@dataclass(frozen=True)
class StoredDataset:
    """Dataset in another format."""

    item: Callable[[int], Data] | None  #: None if it has no random access
    #: ``batches(size, workers)`` returns a function that starts an epoch; None if not supported.
    batches: Callable[[int, int], Callable[[], Iterable[Any]]] | None


def litdata(data: ShardedDataset, folder: Path) -> StoredDataset:
    """Store litData's chunks."""
    import litdata
    from litdata.streaming.writer import BinaryWriter

    chunks = str(folder / "chunks")
    writer = BinaryWriter(chunks, chunk_bytes=2**26)
    for position, graph in enumerate(data):
        writer.add_item(position, graph)
    writer.done()
    writer.merge()
    stream = litdata.StreamingDataset(chunks, shuffle=True)

    def batches(size: int, workers: int) -> Callable[[], Iterable[Any]]:
        options = {"num_workers": workers, "persistent_workers": workers > 0}
        loader = litdata.StreamingDataLoader(stream, batch_size=size, **options)
        return lambda: loader

    return StoredDataset(stream.__getitem__, batches)


def lance(data: ShardedDataset, folder: Path) -> StoredDataset:
    """Store a Lance table with a row per graph."""
    import lance
    from pyarrow import parquet

    part = data.split or "graphs"
    table = parquet.read_table(write_parquet(data.build, folder, quiet=True)[part])
    stored = lance.write_dataset(table, str(folder / "lance"))
    example = data[0]

    def item(index: int) -> Data:
        return graph_from_row(stored.take([index]), example)

    return StoredDataset(item, None)


def graph_from_row(row: Any, example: Data) -> Data:
    """Convert an Arrow row to a graph with the attributes of ``example``."""
    values = {}
    for name, value in example.items():
        array = row[name].combine_chunks()
        while hasattr(array, "flatten") and hasattr(array.type, "value_type"):
            array = array.flatten()
        shape = (2, -1) if name == "edge_index" else (-1, *value.shape[1:])
        values[name] = torch.from_numpy(array.to_numpy(zero_copy_only=False)).view(shape)
    return Data.from_dict(values)


def webdataset(data: ShardedDataset, folder: Path) -> StoredDataset:
    """Store one tar of ``.npy`` files, shuffled in a buffer of all graphs."""
    import webdataset

    path = str(folder / "graphs.tar")
    with webdataset.TarWriter(path) as writer:
        for index, graph in enumerate(data):
            members = {f"{name}.npy": array for name, array in to_arrays(graph).items()}
            writer.write({"__key__": f"{index:06d}", **members})

    def decode(sample: dict[str, Any]) -> Data:
        names = [name for name in sample if name.endswith(".npy")]
        return graph_from_arrays({name.removesuffix(".npy"): sample[name] for name in names})

    def batches(size: int, workers: int) -> Callable[[], Iterable[Any]]:
        source = webdataset.WebDataset(path, shardshuffle=False, empty_check=False)
        stream = source.shuffle(len(data)).decode().map(decode)
        return torch_batches(stream, size, workers)

    return StoredDataset(None, batches)


def grain(data: ShardedDataset, folder: Path) -> StoredDataset:
    """Store an ArrayRecord of pickled arrays."""
    import grain
    from array_record.python.array_record_module import ArrayRecordWriter

    path = str(folder / "graphs.array_record")
    writer = ArrayRecordWriter(path, "group_size:1")
    for graph in data:
        writer.write(pickle.dumps(to_arrays(graph), protocol=5))
    writer.close()
    source = grain.sources.ArrayRecordDataSource(path)

    def decode(record: bytes) -> Data:
        return graph_from_arrays(pickle.loads(record))

    def item(index: int) -> Data:
        return decode(source[index])

    def batches(size: int, workers: int) -> Callable[[], Iterable[Any]]:
        items = grain.MapDataset.source(source).shuffle(seed=0).map(decode)
        batched = items.batch(size, batch_fn=collate)
        # Grain needs at least one reading thread.
        loader = batched.to_iter_dataset(grain.ReadOptions(num_threads=workers or 1))
        return lambda: loader

    return StoredDataset(item, batches)


def spdl(data: ShardedDataset, folder: Path) -> StoredDataset:
    """Store a file of pickled arrays per graph, because SPDL has no format."""
    from spdl.pipeline import PipelineBuilder

    for index, graph in enumerate(data):
        (folder / str(index)).write_bytes(pickle.dumps(to_arrays(graph), protocol=5))

    def item(index: int) -> Data:
        return graph_from_arrays(pickle.loads((folder / str(index)).read_bytes()))

    def batches(size: int, workers: int) -> Callable[[], Iterable[Any]]:
        threads = workers or 1
        order = np.random.default_rng(0).permutation(len(data)).tolist()

        def read() -> Iterator[Any]:
            builder = PipelineBuilder().add_source(order).pipe(item, concurrency=threads)
            builder = builder.aggregate(size).pipe(collate).add_sink(2)
            pipeline = builder.build(num_threads=threads)
            with pipeline.auto_stop():
                yield from pipeline.get_iterator()

        return read

    return StoredDataset(item, batches)


def torch_batches(items: Any, size: int, workers: int) -> Callable[[], Iterable[Any]]:
    """Return a function that starts an epoch of torch's loader over already shuffled items."""
    options = {"num_workers": workers, "persistent_workers": workers > 0}
    loader = DataLoader(items, size, collate_fn=collate, **options)
    return lambda: loader


#: Row name -> package, and the function that stores a dataset. Missing packages have no row.
FORMATS: dict[str, tuple[str, Callable[[ShardedDataset, Path], StoredDataset]]] = {
    "litData": ("litdata", litdata),
    "Lance": ("pylance", lance),
    "WebDataset": ("webdataset", webdataset),
    "Grain, ArrayRecord": ("grain", grain),
    "SPDL, pickled arrays": ("spdl", spdl),
}


def rows(*, quick: bool) -> Iterator[Row]:
    """Measure generated graphs of S3DIS size, then sample peptides."""
    repeats = 1 if quick else 7
    with tempfile.TemporaryDirectory() as name, thread_count(1):
        folder = Path(name)
        items = itertools.islice(generate_graphs(), 32 if quick else 256)
        dataset = ShardedDataset(save(items, folder / "build", name="generated"))
        yield from compare_formats(dataset, "S3DIS-size graph", BATCH, folder, repeats)

    with tempfile.TemporaryDirectory() as name, thread_count(1):
        folder = Path(name)
        options = {"sample": True, "quiet": True, "parameters": {"limit": 256 if quick else 4_000}}
        build = build_dataset("peptides-func", home=Home(folder / "home"), **options)
        yield from compare_formats(ShardedDataset(build, "train"), "peptide", 128, folder, repeats)


def compare_formats(
    data: ShardedDataset, what: str, batch: int, folder: Path, repeats: int
) -> Iterator[Row]:
    """Check that each format returns the same graphs; time single graphs, then batches."""
    stored = {}
    for name, (package, write) in FORMATS.items():
        try:
            version = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
        format_folder = folder / package
        format_folder.mkdir()
        stored[f"{name} {version}"] = write(data, format_folder)

    order = np.random.default_rng(1).permutation(len(data)).tolist()
    singles = {}
    for name, peer in stored.items():
        if peer.item is None:
            continue
        assert same_graph(peer.item(order[0]), data[order[0]]), name
        singles[name] = partial(read_items, peer.item, order)
    ours = partial(read_items, data.__getitem__, order)
    for name, times in compare_all(ours, singles, repeats=repeats, warmup=2).items():
        yield Row.from_times(f"one {what} at random", name, times, per=len(order))

    for prefetch in (0, 2):
        loader = GraphLoader(data, batch, shuffle=True, prefetch=prefetch)
        sides = {}
        for name, peer in stored.items():
            if peer.batches is None:
                continue
            epoch = peer.batches(batch, prefetch)
            count = sum(graphs.num_graphs for graphs in epoch())
            assert count == len(data), f"{name}: {count} graphs of {len(data)}"
            sides[name] = partial(read_epoch, epoch)

        ours = partial(read_epoch, lambda loader=loader: loader)
        workers = "two workers, ours a thread ahead" if prefetch else "no workers"
        label = f"shuffled batches of {batch}, {what}, {workers}"
        for name, times in compare_all(ours, sides, repeats=repeats, warmup=2).items():
            yield Row.from_times(label, name, times, per=len(loader))


def read_items(read: Callable[[int], Data], order: list[int]) -> None:
    """Read graphs one by one."""
    deque(map(read, order), 0)


def read_epoch(begin: Callable[[], Iterable[Any]]) -> None:
    """Read all batches once."""
    deque(begin(), 0)


def same_graph(graph: Data, expected: Data) -> bool:
    """Return True if two graphs have equal attributes."""
    return all(torch.equal(graph[name].to(value.dtype), value) for name, value in expected.items())


if __name__ == "__main__":
    print_rows(rows(quick="--quick" in sys.argv))
