"""Reading of many small graphs: one at random, and batches of 128, against PyTorch Geometric."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from kmip_data.cli.benchmarks import Row, thread_count
from kmip_data.cli.benchmarks.reading import in_memory, random_access, whole_batches

BATCH = 128
GRAPHS, QUICK_GRAPHS = 4_000, 256


def rows(*, quick: bool = False) -> Iterator[Row]:
    """Measure on sample peptides: about 160 atoms, 320 directed bonds, int64 features of both."""
    from kmip_data.builds.home import Home
    from kmip_data.pipelines.build import build_dataset
    from kmip_data.reading.dataset import ShardedDataset
    from kmip_data.reading.loader import GraphLoader

    graphs, repeats = (QUICK_GRAPHS, 3) if quick else (GRAPHS, 9)
    with tempfile.TemporaryDirectory(prefix="kmip-data-bench-") as place:
        folder = Path(place)
        build = build_dataset(
            "peptides-func", home=Home(folder), sample=True, parameters={"limit": graphs}, quiet=True
        )
        dataset = ShardedDataset(build)
        note = (
            f"reading_small: {graphs:,} sample peptides of {dataset.nodes.mean():.0f} atoms and "
            f"{dataset.edges.mean():.0f} directed bonds"
        )
        with thread_count(1):
            yield random_access(dataset, folder, repeats, "one peptide at random", 3, note)
            loader = GraphLoader(dataset, BATCH, shuffle=True, num_threads=1, prefetch=0)
            what = f"batches of {BATCH} peptides, shuffled, threads: 1"
            yield whole_batches(loader, in_memory(list(dataset)), repeats, what, 3, note)
