"""Measure in this process: the times of a cell's runs and its stages, and the most memory a run took.

By default each run has inputs of its own, drawn before the clock starts and put where they are needed;
memory is measured in a run of its own, after the peak was reset. The ``published`` protocol follows the
paper's code instead: one stream of inputs seeded once; on a GPU the gradients travel to the CPU inside
the backward time; the search and what follows are timed apart; chunks fill all free memory; the peak is
a running maximum over the whole process. Both leave out the first run.
"""

from __future__ import annotations

import ctypes
import gc
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import psutil
import torch
from torch import Tensor

from kmip_data.models.profiling.approximate import recall
from kmip_data.models.profiling.methods import Method, attend_gathered, gathered, weighted, weights_of
from kmip_data.models.profiling.results import Cell, Setting
from kmip_data.models.profiling.workload import Source, Workload, pad
from kmip_data.runtime.peak_memory import peak_host_memory
from kmip_data.runtime.threads import available_cores

T = TypeVar("T")
CHUNK = {"cpu": 64 * 2**20, "cuda": 2**30}  #: bytes of scores at a time, corrected protocol
DEAR = 5.0  #: seconds of a run from which none is made for memory alone

#: in the order in which they run; "attend" is gather, softmax and multiply in one piece
STAGES = ("search", "scores", "gather", "softmax", "multiply", "attend", "backward")


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """Where, how often and how a cell is run."""

    device: str = "cpu"
    threads: int = field(default_factory=available_cores)  #: of every library
    repeats: int = 5
    seed: int = 0
    time_limit: float = 60.0  #: seconds; dear cells are repeated as often as fits, once at least
    memory_limit: int | None = None  #: bytes
    published: bool = False


class Measurer:
    """Measures cells on one device; keeps the state that the published protocol shares among them."""

    def __init__(self, source: Source, protocol: Protocol) -> None:
        self.source, self.protocol, self.device = source, protocol, torch.device(protocol.device)
        self._base: int = psutil.Process().memory_info().rss
        self.source.reseed(protocol.seed)

    def cell(self, method: Method, setting: Setting, n: int) -> Cell:
        """Run ``method`` on n nodes; errors, memory errors too, are the caller's."""
        protocol = self.protocol
        first = sum(self._run(method, setting, n, 0))  # compiles, fills caches; not counted
        repeats = max(1, min(protocol.repeats, int(protocol.time_limit / max(1e-9, first))))
        # Memory is watched in a run of its own, or in the last one where runs are dear.
        peak = None if protocol.published else Peak(self.device)
        last = repeats + (peak is not None and first < DEAR)
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
            peak_bytes=self._running_peak() if peak is None else peak.bytes,
            recall=self._recall(method, n) if setting == "inference" else None,
            published=protocol.published,
        )

    def inputs(self, method: Method, n: int, number: int, *, training: bool) -> Workload:
        """Inputs of one run, ready on the device."""
        if not self.protocol.published:
            self.source.reseed(hash((self.protocol.seed, n, number)) & 0x7FFF_FFFF)
        literal = self.protocol.published and self.device.type == "cuda"
        work = self.source.draw(n, torch.device("cpu") if literal else self.device)
        work = pad(work) if method.padded else work
        tensors = [tensor.to(method.dtype).requires_grad_(training) for tensor in work.tensors]
        # Where the leaves are on the CPU, gradients will travel back to them.
        queries, keys, values = (tensor.to(self.device) if literal else tensor for tensor in tensors)
        return replace(work, queries=queries, keys=keys, values=values)

    def chunk(self) -> int:
        """Bytes of scores at a time."""
        if not self.protocol.published:
            return CHUNK.get(self.device.type, CHUNK["cpu"])
        if self.device.type == "cuda":
            return int(torch.cuda.mem_get_info(self.device)[0] / 1.05)
        return int(max(CHUNK["cpu"], (self.protocol.memory_limit or 2**30) / 2.1))

    def _run(
        self, method: Method, setting: Setting, n: int, number: int, watch: Peak | None = None
    ) -> tuple[float, float]:
        """Seconds of a forward pass and of a backward pass (0 in inference)."""
        training, published = setting == "training", self.protocol.published
        work, backward = self.inputs(method, n, number, training=training), 0.0
        if watch is not None:
            watch.start(work.tensors)
        with torch.set_grad_enabled(training):
            forward, out = self._forward(method, work)
        if training and published:
            gc.collect()
            backward, _ = self.timed(lambda: out.sum().backward())  # type: ignore[no-untyped-call]
        elif training:
            ones = torch.ones_like(out)
            backward, _ = self.timed(lambda: torch.autograd.backward(out, ones))
        if watch is not None:
            watch.stop()
        return forward, backward

    def _forward(self, method: Method, work: Workload) -> tuple[float, Tensor]:
        chunk, search = self.chunk(), method.search
        if not self.protocol.published or search is None or method.fused is not None:
            return self.timed(lambda: method.attend(work, chunk))
        first, indices = self.timed(lambda: search(work, chunk))
        gc.collect()
        second, out = self.timed(lambda: attend_gathered(work, indices, chunk))
        return first + second, out

    def timed(self, function: Callable[[], T]) -> tuple[float, T]:
        """Seconds until the device has done what ``function`` asks for, and its result."""
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

    def _recall(self, method: Method, n: int) -> float | None:
        if method.exact or method.search is None:
            return None
        work = self.inputs(method, n, 1, training=False)
        return recall(work.queries[0], work.keys[0], method.search(work, self.chunk())[0])

    def _running_peak(self) -> int | None:
        if self.device.type == "cuda":
            return int(torch.cuda.max_memory_allocated(self.device))
        return max(0, peak_host_memory() - self._base)


def stages(measurer: Measurer, method: Method, n: int) -> dict[str, float]:
    """Median seconds of each stage of one training step, the first run left out.

    Methods whose forward pass is one piece have ``attend`` instead of the stages that it holds: all
    of the forward pass but the search, which is timed by itself. The stages of ``full`` are those of
    unchunked attention.
    """
    runs = [
        _stages_of(measurer, method, measurer.inputs(method, n, number, training=True))
        for number in range(measurer.protocol.repeats + 1)
    ][1:]
    return {name: statistics.median(run[name] for run in runs) for name in STAGES if name in runs[0]}


def _stages_of(measurer: Measurer, method: Method, work: Workload) -> dict[str, float]:
    timed, chunk, search = measurer.timed, measurer.chunk(), method.search
    queries, keys, values = work.tensors
    found: dict[str, float] = {}
    if search is not None and method.fused is None:
        found["search"], indices = timed(lambda: search(work, chunk))
        found["gather"], chosen = timed(lambda: gathered(keys, values, indices))
        found["softmax"], weights = timed(lambda: weights_of(queries, chosen[0]))
        found["multiply"], out = timed(lambda: weighted(weights, chosen[1]))
    elif method.name == "full" and work.real is None:
        found["scores"], scores = timed(lambda: queries @ keys.mT / math.sqrt(queries.shape[-1]))
        found["softmax"], weights = timed(lambda: scores.softmax(-1))
        found["multiply"], out = timed(lambda: weights @ values)
    else:
        whole, out = timed(lambda: method.attend(work, chunk))
        if search is not None:
            with torch.no_grad():
                found["search"], _ = timed(lambda: search(work, chunk))
        found["attend"] = max(0.0, whole - found.get("search", 0.0))
    ones = torch.ones_like(out)
    found["backward"], _ = timed(lambda: torch.autograd.backward(out, ones))
    return found


class Peak:
    """Most memory between ``start`` and ``stop``, inputs counted; ``None`` where the system cannot say."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._base = device, -1
        self.bytes: int | None = None

    def start(self, inputs: Iterable[Tensor]) -> None:
        """Reset the peak; the inputs are there already and count."""
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
            return
        _give_free_memory_back()
        try:
            Path("/proc/self/clear_refs").write_text("5", "ascii")  # Linux: the peak is now what is resident
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
    """Let the allocator return what it kept, so that taking it again is seen."""
    gc.collect()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
