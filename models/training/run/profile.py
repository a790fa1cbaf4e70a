"""A trace of a few steps of a run: for the browser, and as a table of what took longest."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Callback
from torch.profiler import ProfilerActivity, profile

from kmip_data.files.changes import move
from kmip_data.format.writer import write_file

TRACE_NAME = "trace.json"  #: for chrome://tracing or https://ui.perfetto.dev
TABLE_NAME = "profile.txt"
WARM_UP = 2  #: batches before, which compile and fill caches
TRACED = 5  #: batches
ROWS = 20  #: of the table


class Profile(Callback):
    """Trace up to :data:`TRACED` train batches of one epoch with PyTorch's profiler, and no evaluation.

    The trace begins after :data:`WARM_UP` batches (earlier in a run that has no more) and is written when
    it is complete or its epoch is over, with the largest operations by the time of the device.
    """

    def __init__(self, folder: Path, tell: Callable[[str], None]) -> None:
        self._folder, self._tell = folder, tell
        self._seen = 0
        self._profiler: profile | None = None
        self._done = False

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Begin, after the warm-up."""
        left = (trainer.max_epochs or 1) - trainer.current_epoch
        batches = self._seen + left * int(trainer.num_training_batches) - batch_idx  # of this process
        if not self._done and self._profiler is None and self._seen >= min(WARM_UP, batches - 1):
            activities = [ProfilerActivity.CPU]
            activities += [ProfilerActivity.CUDA] if pl_module.device.type == "cuda" else []
            self._first, self._profiler = self._seen, profile(activities=activities)
            self._profiler.start()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """End after enough batches, or with the epoch."""
        self._seen += 1
        if self._profiler is not None and (self._seen - self._first == TRACED or trainer.is_last_batch):
            profiler, self._profiler, self._done = self._profiler, None, True
            self._write(profiler, pl_module.device)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Let go of the profiler."""
        if self._profiler is not None:
            self._profiler.stop()

    def _write(self, profiler: profile, device: torch.device) -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        profiler.stop()
        partial = self._folder / f"{TRACE_NAME}.{os.getpid()}.partial"
        profiler.export_chrome_trace(str(partial))
        move(partial, self._folder / TRACE_NAME)
        order = f"self_{device.type}_time_total"
        table = profiler.key_averages().table(sort_by=order, row_limit=ROWS, max_name_column_width=48)
        write_file(self._folder / TABLE_NAME, table.encode())
        self._tell(
            f"profile: train batches {self._first + 1} to {self._seen}, {self._folder / TRACE_NAME}\n{table}"
        )
