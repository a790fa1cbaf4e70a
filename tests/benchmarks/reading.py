"""Reading of S3DIS-size graphs and peptides, at random and in batches, against PyTorch Geometric."""

from __future__ import annotations

import itertools
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from benchmarks.table import Row, thread_count
from torch_geometric.data import Data

from kmip_data.models.profiling.reading import (
    BATCH,
    Compared,
    batches,
    compared,
    generated,
    in_memory,
    random_access,
)
from kmip_data.reading.loader import GraphLoader
from kmip_data.saving.export import export

if TYPE_CHECKING:
    from kmip_data.reading.dataset import ShardedDataset

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
        yield row_of(
            random_access(dataset, folder, repeats), "PyG OnDiskDataset (sqlite, schema)", 5
        )
        yield from other_formats(dataset, "S3DIS-size graph", BATCH, folder, repeats)
        memory = in_memory(list(dataset))
        for threads, compact in itertools.product((1, 2), (False, True)):
            with thread_count(threads):
                options = {"compact": compact, "num_threads": threads, "prefetch": 0}
                loader = GraphLoader(dataset, BATCH, shuffle=True, **options)
                what = f"batches of {BATCH}, shuffled{', compact' * compact}, threads: {threads}"
                target = 15 if compact else 3 if threads == 1 else 5
                yield row_of(batches(loader, memory, what, repeats), LOADER, target)
    with tempfile.TemporaryDirectory() as place, thread_count(1):
        folder, parameters = Path(place), {"limit": 256 if quick else 4_000}
        options = {"sample": True, "parameters": parameters, "quiet": True}
        dataset = ShardedDataset(build_dataset("peptides-func", home=Home(folder), **options))
        found = random_access(dataset, folder, repeats)._replace(what="one peptide at random")
        yield row_of(found, "PyG OnDiskDataset (sqlite, schema)", 3)
        train = ShardedDataset(dataset.build, "train")
        yield from other_formats(train, "peptide", SMALL_BATCH, folder, repeats)
        loader = GraphLoader(dataset, SMALL_BATCH, shuffle=True, num_threads=1, prefetch=0)
        what = f"batches of {SMALL_BATCH} peptides, shuffled"
        yield row_of(batches(loader, in_memory(list(dataset)), what, repeats), LOADER, 3)


def other_formats(
    data: ShardedDataset, what: str, batch: int, folder: Path, repeats: int
) -> Iterator[Row]:
    """Compare with other formats whose libraries are installed: graphs at random, and batches of litData."""
    order = np.random.Generator(np.random.PCG64(1)).permutation(len(data)).tolist()
    part, like = data.split or "graphs", data[0]

    def at_random(read: Callable[[int], Data], against: str) -> Row:
        ours, theirs = (
            lambda side=side: deque(map(side, order), 0) for side in (data.__getitem__, read)
        )
        found = compared(f"one {what} at random", ours, theirs, len(order), repeats)
        return row_of(found, against, None)

    with suppress(ImportError):
        import litdata

        chunks = export(data.build, "litdata", folder / "litdata", quiet=True)[part]
        stream = litdata.StreamingDataset(str(chunks), shuffle=True)
        yield at_random(stream.__getitem__, "litData StreamingDataset")
        loader = GraphLoader(data, batch, shuffle=True, num_threads=1, prefetch=0)
        sides = loader, litdata.StreamingDataLoader(stream, batch_size=batch, num_workers=0)
        ours, theirs = (lambda side=side: deque(side, 0) for side in sides)
        found = compared(
            f"batches of {batch}, shuffled: {what}", ours, theirs, len(loader), repeats
        )
        yield row_of(found, "litData StreamingDataLoader", None)
    with suppress(ImportError):
        import lance
        from pyarrow import parquet

        table = parquet.read_table(
            export(data.build, "parquet", folder / "parquet", quiet=True)[part]
        )
        stored = lance.write_dataset(table, str(folder / "lance"))
        yield at_random(lambda record: of_row(stored.take([record]), like), "Lance take")


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


def row_of(found: Compared, against: str, target: float | None) -> Row:
    """Return the row of a comparison."""
    times = found.ours, found.theirs, found.ratio, (found.least, found.most)
    return Row.compared(
        found.what, against, times, target=target, note="reading: generated or sample data"
    )
