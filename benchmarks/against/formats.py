"""Graphs at random and shuffled batches of other formats and loaders, against shards.

Each peer stores the same attributes in the form that its documentation shows first, decodes them
into :class:`~torch_geometric.data.Data`, and batches by PyG's collation. Where shards have one
thread it has no worker, where they have two it has two workers, which stay alive between epochs.
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
from benchmarks.readers import BATCH, generated
from benchmarks.table import Row, in_turns, thread_count
from kmip_data.builds.home import Home
from kmip_data.pipelines.build import build_dataset
from kmip_data.reading.dataset import ShardedDataset
from kmip_data.reading.loader import GraphLoader
from kmip_data.saving.export import export
from kmip_data.saving.save import save

Arrays = dict[str, NDArray[Any]]
collate = Batch.from_data_list


def arrays_of(graph: Data) -> Arrays:
    """Return the attributes of a graph as arrays."""
    return {name: value.numpy() for name, value in graph.items()}


def graph_of(arrays: Arrays) -> Data:
    """Return the graph of these arrays."""
    tensors = {name: torch.from_numpy(np.ascontiguousarray(arrays[name])) for name in arrays}
    return Data.from_dict(tensors)


@dataclass(frozen=True)
class Stored:
    """A dataset in another format: both ways of reading it."""

    item: Callable[[int], Data] | None  #: None: it reads in order only
    #: ``batches(size, workers)`` returns a function that begins an epoch; None: it has no batches
    batches: Callable[[int, int], Callable[[], Iterable[Any]]] | None


def litdata(data: ShardedDataset, folder: Path) -> Stored:
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

    return Stored(stream.__getitem__, batches)


def lance(data: ShardedDataset, folder: Path) -> Stored:
    """Store a table of Lance, a row a graph."""
    import lance
    from pyarrow import parquet

    part = data.split or "graphs"
    table = parquet.read_table(export(data.build, "parquet", folder / "parquet", quiet=True)[part])
    stored = lance.write_dataset(table, str(folder / "lance"))
    example = data[0]

    def item(index: int) -> Data:
        return graph_of_row(stored.take([index]), example)

    return Stored(item, None)


def graph_of_row(row: Any, example: Data) -> Data:
    """Return a row of Arrow as a graph with the attributes of another."""
    values = {}
    for name, value in example.items():
        array = row[name].combine_chunks()
        while hasattr(array, "flatten") and hasattr(array.type, "value_type"):
            array = array.flatten()
        shape = (2, -1) if name == "edge_index" else (-1, *value.shape[1:])
        values[name] = torch.from_numpy(array.to_numpy(zero_copy_only=False)).view(shape)
    return Data.from_dict(values)


def webdataset(data: ShardedDataset, folder: Path) -> Stored:
    """Store one tar of ``.npy`` files; shuffled in a buffer of all graphs."""
    import webdataset

    path = str(folder / "graphs.tar")
    with webdataset.TarWriter(path) as writer:
        for index, graph in enumerate(data):
            members = {f"{name}.npy": array for name, array in arrays_of(graph).items()}
            writer.write({"__key__": f"{index:06d}", **members})

    def decoded(sample: dict[str, Any]) -> Data:
        names = [name for name in sample if name.endswith(".npy")]
        return graph_of({name.removesuffix(".npy"): sample[name] for name in names})

    def batches(size: int, workers: int) -> Callable[[], Iterable[Any]]:
        source = webdataset.WebDataset(path, shardshuffle=False, empty_check=False)
        stream = source.shuffle(len(data)).decode().map(decoded)
        return torch_batches(stream, size, workers)

    return Stored(None, batches)


def grain(data: ShardedDataset, folder: Path) -> Stored:
    """Store an ArrayRecord of pickled arrays."""
    import grain
    from array_record.python.array_record_module import ArrayRecordWriter

    path = str(folder / "graphs.array_record")
    writer = ArrayRecordWriter(path, "group_size:1")
    for graph in data:
        writer.write(pickle.dumps(arrays_of(graph), protocol=5))
    writer.close()
    source = grain.sources.ArrayRecordDataSource(path)

    def decoded(record: bytes) -> Data:
        return graph_of(pickle.loads(record))

    def item(index: int) -> Data:
        return decoded(source[index])

    def batches(size: int, workers: int) -> Callable[[], Iterable[Any]]:
        items = grain.MapDataset.source(source).shuffle(seed=0).map(decoded)
        batched = items.batch(size, batch_fn=collate)
        # It reads in threads of its own, of which it wants at least one.
        loader = batched.to_iter_dataset(grain.ReadOptions(num_threads=workers or 1))
        return lambda: loader

    return Stored(item, batches)


def spdl(data: ShardedDataset, folder: Path) -> Stored:
    """Store a file of pickled arrays for each graph: SPDL moves data, and has no format."""
    from spdl.pipeline import PipelineBuilder

    for index, graph in enumerate(data):
        (folder / str(index)).write_bytes(pickle.dumps(arrays_of(graph), protocol=5))

    def item(index: int) -> Data:
        return graph_of(pickle.loads((folder / str(index)).read_bytes()))

    def batches(size: int, workers: int) -> Callable[[], Iterable[Any]]:
        threads = workers or 1
        order = np.random.default_rng(0).permutation(len(data)).tolist()

        def read() -> Iterator[Any]:
            builder = PipelineBuilder().add_source(order).pipe(item, concurrency=threads)
            builder = builder.aggregate(size).pipe(collate).add_sink(2)
            pipeline = builder.build(num_threads=threads)
            with pipeline.auto_stop():  # it yields no pipeline
                yield from pipeline.get_iterator()

        return read

    return Stored(item, batches)


def torch_batches(items: Any, size: int, workers: int) -> Callable[[], Iterable[Any]]:
    """Return epochs of torch's loader over items that shuffle themselves."""
    options = {"num_workers": workers, "persistent_workers": workers > 0}
    loader = DataLoader(items, size, collate_fn=collate, **options)
    return lambda: loader


#: Packages of the formats, by name of the row. A package that is not there has no row.
FORMATS: dict[str, tuple[str, Callable[[ShardedDataset, Path], Stored]]] = {
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
        items = itertools.islice(generated(), 32 if quick else 256)
        dataset = ShardedDataset(save(items, folder / "build", name="generated"))
        yield from compared(dataset, "S3DIS-size graph", BATCH, folder, repeats)

    with tempfile.TemporaryDirectory() as name, thread_count(1):
        folder = Path(name)
        options = {"sample": True, "quiet": True, "parameters": {"limit": 256 if quick else 4_000}}
        build = build_dataset("peptides-func", home=Home(folder / "home"), **options)
        yield from compared(ShardedDataset(build, "train"), "peptide", 128, folder, repeats)


def compared(
    data: ShardedDataset, what: str, batch: int, folder: Path, repeats: int
) -> Iterator[Row]:
    """Check that each format gives the same graphs; time single graphs, then batches."""
    stored = {}
    for name, (package, write) in FORMATS.items():
        try:
            version = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
        place = folder / package
        place.mkdir()
        stored[f"{name} {version}"] = write(data, place)

    order = np.random.default_rng(1).permutation(len(data)).tolist()
    singles = {}
    for name, peer in stored.items():
        if peer.item is None:
            continue
        assert same_graph(peer.item(order[0]), data[order[0]]), name
        singles[name] = partial(read_items, peer.item, order)
    ours = partial(read_items, data.__getitem__, order)
    for name, times in in_turns(ours, singles, repeats=repeats, warmup=2).items():
        yield Row.compared(f"one {what} at random", name, times, per=len(order))

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
        for name, times in in_turns(ours, sides, repeats=repeats, warmup=2).items():
            yield Row.compared(label, name, times, per=len(loader))


def read_items(read: Callable[[int], Data], order: list[int]) -> None:
    """Read graphs one by one."""
    deque(map(read, order), 0)


def read_epoch(begin: Callable[[], Iterable[Any]]) -> None:
    """Read all batches once."""
    deque(begin(), 0)


def same_graph(one: Data, other: Data) -> bool:
    """Return whether two graphs have equal attributes."""
    return all(torch.equal(one[name].to(value.dtype), value) for name, value in other.items())


if __name__ == "__main__":
    print_rows(rows(quick="--quick" in sys.argv))
