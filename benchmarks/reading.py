"""Reading of S3DIS-size graphs and peptides, at random and in batches, against PyTorch Geometric."""

from __future__ import annotations

import ctypes
import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.readers import (
    BATCH,
    Compared,
    batches,
    generated,
    in_memory,
    random_access,
)
from benchmarks.table import Row, thread_count
from kmip_data.reading.loader import GraphLoader

SMALL_BATCH = 128  #: peptides
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  #: constants of malloc.h
LOADER = "PyG InMemoryDataset + DataLoader"


def rows(*, quick: bool = False) -> Iterator[Row]:
    """Measure generated graphs of 4,096 nodes and k = 32, then sample peptides of about 160 atoms."""
    from kmip_data.builds.home import Home
    from kmip_data.pipelines.build import build_dataset
    from kmip_data.reading.dataset import ShardedDataset
    from kmip_data.saving.save import save

    keep_freed_memory()
    repeats = 3 if quick else 9
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        items = itertools.islice(generated(), 32 if quick else 256)
        dataset = ShardedDataset(save(items, folder / "build", name="generated"))
        yield row_of(
            random_access(dataset, folder, repeats), "PyG OnDiskDataset (sqlite, schema)", 5
        )
        memory = in_memory(list(dataset))
        with thread_count(1):
            for compact, target in ((False, 3), (True, 12)):
                loader = GraphLoader(dataset, BATCH, shuffle=True, compact=compact, prefetch=0)
                what = f"batches of {BATCH}, shuffled{', compact' * compact}"
                yield row_of(batches(loader, memory, what, repeats), LOADER, target)
    with tempfile.TemporaryDirectory() as place, thread_count(1):
        folder, parameters = Path(place), {"limit": 256 if quick else 4_000}
        options = {"sample": True, "parameters": parameters, "quiet": True}
        dataset = ShardedDataset(build_dataset("peptides-func", home=Home(folder), **options))
        comparison = random_access(dataset, folder, repeats)._replace(what="one peptide at random")
        yield row_of(comparison, "PyG OnDiskDataset (sqlite, schema)", 3)
        loader = GraphLoader(dataset, SMALL_BATCH, shuffle=True, prefetch=0)
        what = f"batches of {SMALL_BATCH} peptides, shuffled"
        yield row_of(batches(loader, in_memory(list(dataset)), what, repeats), LOADER, 3)


def keep_freed_memory() -> None:
    """Let the C library keep what is freed, until the process ends, in favour of PyG's batches.

    Without, earlier allocations decide whether it returns the memory of each batch to the kernel:
    18 ms a batch of PyG with the page faults of that, 2.4 ms without.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
        library.mallopt(M_MMAP_THRESHOLD, 2**25)


def row_of(comparison: Compared, against: str, target: float | None) -> Row:
    """Return the row of a comparison."""
    times = (
        comparison.ours,
        comparison.theirs,
        comparison.ratio,
        (comparison.least, comparison.most),
    )
    return Row.compared(
        comparison.what, against, times, target=target, note="reading: generated or sample data"
    )
