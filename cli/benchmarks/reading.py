"""Reading: one graph at random, and shuffled batches, against PyTorch Geometric's own datasets."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kmip_data.cli.benchmarks import Row, compare, thread_count

if TYPE_CHECKING:
    from torch_geometric.data import Data, InMemoryDataset

    from kmip_data.builds.home import Build
    from kmip_data.reading.dataset import ShardedDataset
    from kmip_data.reading.loader import GraphLoader

BATCH = 8
NODES, K = 4096, 32


def rows(*, quick: bool = False) -> list[Row]:
    """Measure on generated graphs of S3DIS size (4,096 nodes, k = 32)."""
    from kmip_data.reading.dataset import ShardedDataset

    graphs, repeats = (32, 3) if quick else (256, 9)
    note = f"generated graphs of S3DIS size: {graphs} of {NODES} nodes, k = {K}, 9 features"
    with tempfile.TemporaryDirectory() as folder:
        dataset = ShardedDataset(write_generated(Path(folder) / "build", graphs))
        found = [random_access(dataset, Path(folder), repeats, "one S3DIS-size graph at random", 5, note)]
        memory = in_memory(list(dataset))
        for count in (1, 2):
            with thread_count(count):
                found += _batches(dataset, memory, count, repeats, note)
    return found


def write_generated(folder: Path, graphs: int, *, name: str = "s3dis", nodes: int = NODES) -> Build:
    """Write a build of random graphs with the schema that the pipeline of a dataset has."""
    from kmip_data.builds.home import Build
    from kmip_data.format.build_files import finish
    from kmip_data.format.record import GraphRecord
    from kmip_data.manifest import load_manifest
    from kmip_data.pipelines.base import load_pipeline
    from kmip_data.saving.writing import write_shards

    pipeline = load_pipeline(load_manifest(name))
    schema = pipeline.schema(pipeline.Params())
    generator = np.random.Generator(np.random.PCG64(0))

    def record(number: int) -> GraphRecord:
        columns: dict[str, Any] = {}
        for column in schema.columns:
            shape = (nodes, *column.shape) if column.level == "node" else column.shape
            if column.stored == "float32":
                columns[column.key] = generator.random(shape, dtype=np.float32)
            else:
                columns[column.key] = generator.integers(0, int(column.high or 0) + 1, shape, column.stored)
        table = generator.integers(0, nodes, (nodes, schema.k or 0), schema.index_dtype)
        return GraphRecord(key=f"generated/{number:06d}", num_nodes=nodes, columns=columns, neighbor=table)

    key = "0" * 12
    shards, statistics = write_shards(folder, map(record, range(graphs)), schema, dataset=name, build_key=key)
    card = finish(
        folder,
        schema,
        shards,
        {},
        statistics,
        {},
        dataset=name,
        title="generated for a benchmark",
        key=key,
        sample=True,
        complete=False,
        parameters={"k": schema.k, "limit": None},
        pipeline_version=pipeline.version,
        license={},
        citation="",
        receipts=[],
        content_digest="",
        class_names=[],
        versions={},
        notes=[],
    )
    return Build(folder, card)


def in_memory(items: list[Data]) -> InMemoryDataset:
    """Return PyTorch Geometric's dataset that holds the same items in memory."""
    from torch_geometric.data import InMemoryDataset

    class Memory(InMemoryDataset):  # type: ignore[misc] # PyTorch Geometric is untyped
        def __init__(self) -> None:
            super().__init__(None)
            self.data, self.slices = self.collate(items)

    return Memory()


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
    from kmip_data.reading import buffers

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
