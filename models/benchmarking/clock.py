"""Timing of the stages of a computation."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import torch


class StageClock:
    """Clock that times stages, by CUDA events on a GPU, so that no stage waits for the host."""

    def __init__(self, device: torch.device) -> None:
        self._on_gpu = device.type == "cuda"
        self._marks: list[tuple[str, Any]] = []

    def __call__(self, stage: str) -> None:
        """Mark the end of a stage; times of a repeated stage are summed."""
        event = None
        if self._on_gpu:
            event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            event.record()
        self._marks.append((stage, event or time.perf_counter()))

    def seconds_by_stage(self) -> dict[str, float]:
        """Wait for the device, and return the seconds of each stage after the first mark."""
        if self._on_gpu:
            self._marks[-1][1].synchronize()
        total = dict[str, float]()
        for (_, start), (stage, end) in pairwise(self._marks):
            elapsed = start.elapsed_time(end) / 1000 if self._on_gpu else end - start
            total[stage] = total.get(stage, 0.0) + elapsed
        return total
