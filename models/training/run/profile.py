"""Trace of a few training steps, for the browser and as a table of the slowest operations."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from kmip_data.files.changes import move, write_file

TRACE_NAME = "trace.json"  #: for chrome://tracing or https://ui.perfetto.dev
TABLE_NAME = "profile.txt"
WARM_UP = 2  #: batches before, which compile and fill caches
TRACED = 5  #: batches
ROWS = 20  #: of the table


class Trace:
    """Trace up to :data:`TRACED` train batches of one epoch, and no evaluation.

    It begins after :data:`WARM_UP` batches, earlier in a run of ``batches`` that has no more.
    """

    def __init__(self, folder: Path, device: torch.device, tell: Callable[[str], None], batches: int) -> None:
        self._folder, self._device, self._tell = folder, device, tell
        self._seen, self._first = 0, min(WARM_UP, batches - 1)
        kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
        self._profiler: profile | None = profile(activities=kinds)

    @contextmanager
    def __call__(self, batch: Any, last: bool) -> Iterator[None]:
        """Profile one batch, if it is among those that are traced; ``last`` of its epoch ends the trace."""
        profiler = self._profiler
        if profiler is not None and self._seen == self._first:
            profiler.start()
        self._seen += 1
        try:
            yield
        except BaseException:
            if profiler is not None and self._seen > self._first:
                profiler.stop()
            raise
        if profiler is not None and self._seen > self._first and (last or self._seen == self._first + TRACED):
            self._profiler = None
            self._write(profiler)

    def _write(self, profiler: profile) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        profiler.stop()
        partial = self._folder / f"{TRACE_NAME}.{os.getpid()}.partial"
        profiler.export_chrome_trace(str(partial))
        move(partial, self._folder / TRACE_NAME)
        order = f"self_{self._device.type}_time_total"
        table = profiler.key_averages().table(sort_by=order, row_limit=ROWS, max_name_column_width=48)
        write_file(self._folder / TABLE_NAME, table.encode())
        traced = f"train batches {self._first + 1} to {self._seen}"
        self._tell(f"profile: {traced}, {self._folder / TRACE_NAME}\n{table}")
