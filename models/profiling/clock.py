"""Clock of the stages of a measurement."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import torch


class StageClock:
    """Clock of stages: CUDA events on a GPU, so that no stage waits for the host."""

    def __init__(self, device: torch.device) -> None:
        self._on_gpu = device.type == "cuda"
        self._marks: list[tuple[str, Any]] = []

    def __call__(self, stage: str) -> None:
        """End a stage; the times of a repeated stage are summed."""
        event = None
        if self._on_gpu:
            event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            event.record()
        self._marks.append((stage, event or time.perf_counter()))

    def seconds_by_stage(self) -> dict[str, float]:
        """Return the seconds of each stage since the first mark, once the device is done."""
        if self._on_gpu:
            self._marks[-1][1].synchronize()
        total = dict[str, float]()
        for (_, begun), (stage, ended) in pairwise(self._marks):
            passed = begun.elapsed_time(ended) / 1000 if self._on_gpu else ended - begun
            total[stage] = total.get(stage, 0.0) + passed
        return total
