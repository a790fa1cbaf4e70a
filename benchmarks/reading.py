"""Reading S3DIS-size graphs and peptides, at random and in batches, against PyTorch Geometric."""

from __future__ import annotations

import ctypes
import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.readers import (
    BATCH,
    ReadTimes,
    batches,
    compare_random_access,
    generate_graphs,
    load_into_memory,
)
from benchmarks.table import Row, thread_count
from kmip_data.reading.loader import GraphLoader

SMALL_BATCH = 128  #: peptides
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  #: constants of malloc.h
LOADER = "PyG InMemoryDataset + DataLoader"


def rows(*, quick: bool = False) -> Iterator[Row]:
    """Measure generated graphs of 4,096 nodes with k = 32, then sample peptides of about 160 atoms."""
    from kmip_data.builds.home import Home
    from kmip_data.pipelines.build import build_dataset
    from kmip_data.reading.dataset import ShardedDataset
    from kmip_data.saving.save import save

    keep_freed_memory()
    repeats = 3 if quick else 9
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        items = itertools.islice(generate_graphs(), 32 if quick else 256)
        dataset = ShardedDataset(save(items, folder / "build", name="generated"))
        yield reading_row(
            compare_random_access(dataset, folder, repeats), "PyG OnDiskDataset (sqlite, schema)", 5
        )
        memory = load_into_memory(list(dataset))
        with thread_count(1):
            for compact, target in ((False, 3), (True, 12)):
                loader = GraphLoader(dataset, BATCH, shuffle=True, compact=compact, prefetch=0)
                what = f"batches of {BATCH}, shuffled{', compact' * compact}"
                yield reading_row(batches(loader, memory, what, repeats), LOADER, target, BATCH)
    with tempfile.TemporaryDirectory() as place, thread_count(1):
        folder, parameters = Path(place), {"limit": 256 if quick else 4_000}
        options = {"sample": True, "parameters": parameters, "quiet": True}
        dataset = ShardedDataset(build_dataset("peptides-func", home=Home(folder), **options))
        comparison = compare_random_access(dataset, folder, repeats)._replace(
            what="one peptide at random"
        )
        yield reading_row(comparison, "PyG OnDiskDataset (sqlite, schema)", 3)
        loader = GraphLoader(dataset, SMALL_BATCH, shuffle=True, prefetch=0)
        what = f"batches of {SMALL_BATCH} peptides, shuffled"
        yield reading_row(
            batches(loader, load_into_memory(list(dataset)), what, repeats), LOADER, 3, SMALL_BATCH
        )


def keep_freed_memory() -> None:
    """Make the C library keep freed memory, in favour of PyG's batches.

    Otherwise it may return the memory of each batch to the kernel, depending on earlier
    allocations: with these page faults a batch of PyG takes 18 ms, without them 2.4 ms.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
        library.mallopt(M_MMAP_THRESHOLD, 2**25)


def reading_row(comparison: ReadTimes, against: str, target: float | None, graphs: int = 1) -> Row:
    """Return the row of a comparison of reading ``graphs`` graphs."""
    spread = (comparison.min_ratio, comparison.max_ratio)
    times = (comparison.ours, comparison.theirs, comparison.ratio, spread)
    return Row.from_times(
        comparison.what,
        against,
        times,
        target=target,
        graphs=graphs,
        note="reading: generated or sample data",
    )
