"""Seconds and peak memory of attention methods, measured in this process.

Each run has inputs of its own, drawn before the clock starts and placed on the device; memory is measured in
a run of its own after the peak was reset; the first run is not counted.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import psutil
import torch
from torch import Tensor

from kmip_data.models.profiling.methods import Method
from kmip_data.models.profiling.results import Cell, Setting
from kmip_data.models.profiling.workload import Source, Workload, pad
from kmip_data.runtime.memory import peak_host_memory
from kmip_data.runtime.threads import available_cores

T = TypeVar("T")
CHUNK = {"cpu": 64 * 2**20, "cuda": 2**30}  #: bytes of scores at a time
LONG = 5.0  #: seconds of a run from which memory is measured in a counted run, not in one of its own


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """Device, number of runs and limits of a cell."""

    device: str = "cpu"
    threads: int = field(default_factory=available_cores)  #: of every library
    repeats: int = 5
    time_limit: float = 60.0  #: seconds; long cells are repeated as often as fits, at least once
    memory_limit: int | None = None  #: bytes


class Measurer:
    """Measure cells on one device."""

    def __init__(self, source: Source, protocol: Protocol) -> None:
        self.source, self.protocol, self.device = source, protocol, torch.device(protocol.device)

    def cell(self, method: Method, setting: Setting, n: int) -> Cell:
        """Run ``method`` on n nodes; errors, also of memory, are left to the caller."""
        protocol = self.protocol
        first = sum(self._run(method, setting, n, 0))  # compiles, fills caches; not counted
        repeats = max(1, min(protocol.repeats, int(protocol.time_limit / max(1e-9, first))))
        peak = Peak(self.device)
        last = repeats + (first < LONG)
        runs = [self._run(method, setting, n, number) for number in range(1, last)]
        runs.append(self._run(method, setting, n, last, peak))
        counted = runs[:repeats]
        return Cell(
            method=method.name,
            setting=setting,
            n=n,
            status="ok",
            forward=tuple(forward for forward, _ in counted),
            backward=tuple(backward for _, backward in counted) if setting == "training" else (),
            peak_bytes=peak.bytes,
        )

    def inputs(self, method: Method, n: int, number: int, *, training: bool) -> Workload:
        """Return the inputs of run ``number`` on the device, equal for every method."""
        self.source.reseed(hash((n, number)) & 0x7FFF_FFFF)
        work = self.source.draw(n, self.device)
        work = pad(work) if method.padded else work
        queries, keys, values = (tensor.to(method.dtype).requires_grad_(training) for tensor in work.tensors)
        return replace(work, queries=queries, keys=keys, values=values)

    @property
    def chunk(self) -> int:
        """Bytes of scores at a time."""
        return CHUNK.get(self.device.type, CHUNK["cpu"])

    def _run(
        self, method: Method, setting: Setting, n: int, number: int, watch: Peak | None = None
    ) -> tuple[float, float]:
        """Return the seconds of a forward pass and of a backward pass (0 in inference)."""
        training = setting == "training"
        work, backward = self.inputs(method, n, number, training=training), 0.0
        if watch is not None:
            watch.start(work.tensors)
        with torch.set_grad_enabled(training):
            forward, out = self.timed(lambda: method.attend(work, self.chunk))
        if training:
            ones = torch.ones_like(out)
            backward, _ = self.timed(lambda: torch.autograd.backward(out, ones))
        if watch is not None:
            watch.stop()
        return forward, backward

    def timed(self, function: Callable[[], T]) -> tuple[float, T]:
        """Return the seconds until the device has finished ``function``, and its result."""
        self._wait()
        collects = gc.isenabled()
        gc.disable()  # no run pays for the garbage of others
        try:
            start = time.perf_counter()
            result = function()
            self._wait()
            return time.perf_counter() - start, result
        finally:
            if collects:
                gc.enable()

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


class Peak:
    """Peak memory between ``start`` and ``stop`` with the inputs; None if the system cannot measure it."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._base = device, -1
        self.bytes: int | None = None

    def start(self, inputs: Iterable[Tensor]) -> None:
        """Reset the peak; the inputs exist already and count."""
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
            return
        _give_free_memory_back()
        try:
            Path("/proc/self/clear_refs").write_text("5", "ascii")  # Linux: the peak is now the resident set
        except OSError:
            return
        self._base = psutil.Process().memory_info().rss - sum(tensor.nbytes for tensor in inputs)

    def stop(self) -> None:
        """Read the peak."""
        if self._device.type == "cuda":
            self.bytes = int(torch.cuda.max_memory_allocated(self._device))
        elif self._base >= 0:
            self.bytes = max(0, peak_host_memory() - self._base)


def _give_free_memory_back() -> None:
    """Return free memory to the system, so that allocating it again raises the peak."""
    gc.collect()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
