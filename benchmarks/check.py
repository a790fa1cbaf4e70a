"""First read of shards, which verifies their CRC-32, against shards already verified."""

from __future__ import annotations

import itertools
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from benchmarks.readers import generate_graphs
from benchmarks.table import Row, thread_count
from benchmarks.turns import compare
from kmip_data.builds.home import Home
from kmip_data.format import crc_checks
from kmip_data.reading.dataset import ShardedDataset
from kmip_data.reading.loader import GraphLoader

AGAINST = "the same files, already verified"


def rows(*, quick: bool = False) -> Iterator[Row]:
    """Measure a first batch and epoch of the loader, then a first epoch of training, in CPU seconds."""
    from kmip_data.pipelines.build import build_dataset
    from kmip_data.saving.save import save

    repeats = 2 if quick else 15
    with tempfile.TemporaryDirectory() as name, thread_count(1):
        folder = Path(name)
        graphs = itertools.islice(generate_graphs(), 16 if quick else 192)
        save(graphs, folder / "s3dis", name="generated")
        limit = {"limit": 120 if quick else 4_000}
        home = Home(folder / "home")
        peptides = build_dataset(
            "peptides-func", home=home, sample=True, parameters=limit, quiet=True
        )

        for path, batch, data in (
            (folder / "s3dis", 8, "graphs of S3DIS size"),
            (peptides.path, 128, "peptides"),
        ):
            for batches, what in ((1, "first batch"), (None, "first epoch")):
                read = partial(_read, path, batch, batches)
                yield _row(f"{what} of {data}", read, repeats)
        train = _training(home, limit)
        yield _row("first epoch of training, gcn on peptides", train, 1 if quick else 5)


def _row(what: str, read: Callable[[], object], repeats: int) -> Row:
    def first() -> None:
        crc_checks.verified_files.clear()
        read()

    times = compare(first, read, repeats=repeats, warmup=1, clock=time.process_time)
    return Row.from_times(what, AGAINST, times, note="check: generated or sample data, CPU seconds")


def _read(path: Path, batch: int, batches: int | None) -> None:
    loader = GraphLoader(ShardedDataset(path), batch, prefetch=0)
    deque(itertools.islice(loader, batches), 0)


def _training(home: Home, parameters: dict[str, int]) -> Callable[[], None]:
    """Return a function that opens the sample and trains a GCN on it for one epoch."""
    import torch

    from kmip_data.models.training.config.overrides import apply_overrides
    from kmip_data.models.training.config.presets import config_for_data
    from kmip_data.models.training.data.open_data import open_data
    from kmip_data.models.training.run.loop import Loop
    from kmip_data.models.training.run.training_module import TrainingModule

    keys = ["data.sample=true", f"data.parameters.limit={parameters['limit']}", "system.device=cpu"]
    config = apply_overrides(config_for_data("peptides-func", "gcn"), keys)

    def train() -> None:
        data = open_data(config, home=home, quiet=True)
        loop = Loop(TrainingModule(config, data), data, torch.device("cpu"))
        loop.train_epoch()

    return train
