"""Reading of S3DIS-size graphs and peptides, at random and in batches, against PyTorch Geometric."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.table import Row, compare, thread_count

from kmip_data.models.profiling.reading import BATCH, Compared, batches, generated, in_memory, random_access

SMALL_BATCH = 128  #: peptides


def rows(*, quick: bool = False) -> Iterator[Row]:
    """Measure generated graphs of 4,096 nodes and k = 32, then sample peptides of about 160 atoms."""
    from kmip_data.builds.home import Home
    from kmip_data.pipelines.build import build_dataset
    from kmip_data.reading.dataset import ShardedDataset
    from kmip_data.reading.loader import GraphLoader
    from kmip_data.saving.save import save

    repeats = 3 if quick else 9
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        items = itertools.islice(generated(), 32 if quick else 256)
        dataset = ShardedDataset(save(items, folder / "build", name="generated"))
        yield row_of(random_access(dataset, folder, repeats), "PyG OnDiskDataset (sqlite, schema)", 5)
        memory = in_memory(list(dataset))
        for threads, compact in itertools.product((1, 2), (False, True)):
            with thread_count(threads):
                loader = GraphLoader(
                    dataset, BATCH, shuffle=True, compact=compact, num_threads=threads, prefetch=0
                )
                what = f"batches of {BATCH}, shuffled{', compact' * compact}, threads: {threads}"
                target = 15 if compact else 3 if threads == 1 else 5
                yield row_of(
                    batches(loader, memory, what, repeats), "PyG InMemoryDataset + DataLoader", target
                )
                yield against_memory(loader, what, repeats)
    with tempfile.TemporaryDirectory() as place, thread_count(1):
        folder, parameters = Path(place), {"limit": 256 if quick else 4_000}
        build = build_dataset(
            "peptides-func", home=Home(folder), sample=True, parameters=parameters, quiet=True
        )
        dataset = ShardedDataset(build)
        found = random_access(dataset, folder, repeats)._replace(what="one peptide at random")
        yield row_of(found, "PyG OnDiskDataset (sqlite, schema)", 3)
        loader = GraphLoader(dataset, SMALL_BATCH, shuffle=True, num_threads=1, prefetch=0)
        found = batches(
            loader, in_memory(list(dataset)), f"batches of {SMALL_BATCH} peptides, shuffled", repeats
        )
        yield row_of(found, "PyG InMemoryDataset + DataLoader", 3)


def row_of(found: Compared, against: str, target: float) -> Row:
    """Return the row of a comparison."""
    times = found.ours, found.theirs, found.ratio, (found.least, found.most)
    return Row.compared(found.what, against, times, target=target, note="reading: generated or sample data")


def against_memory(loader: Any, what: str, repeats: int) -> Row:
    """Compare with filling as many bytes with one value, which no batch can be much faster than."""
    from kmip_data.runtime import memory

    batch = next(iter(loader))
    sizes = [value.nbytes for value in batch.to_dict().values() if hasattr(value, "nbytes")]

    def fill() -> None:
        held: Any = None
        for _ in range(len(loader)):
            arrays = [memory.empty((size,), np.dtype(np.uint8)) for size in sizes]
            for array in arrays:
                array.fill(1)
            held = arrays  # one batch is alive while the next is made, as in a loop over a loader
        del held

    times = compare(partial(_use, loader), fill, repeats=repeats, warmup=2)
    return Row.compared(what, f"filling its {sum(sizes) / 1e6:.1f} MB with one value", times, per=len(loader))


def _use(items: Any) -> None:
    for _ in items:
        pass
