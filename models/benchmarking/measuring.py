"""Time and peak memory of attention methods, each measured in its own process.

If that process runs out of memory or time, or crashes, the measurement records the reason. Each run
has new inputs, drawn and moved to the device before the clock starts. The first run is not counted,
and memory is measured in a separate run.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import math
import multiprocessing
import os
import statistics
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, Literal

import psutil
import torch
from torch import Tensor

from kmip_data.drawing.style import current_style, in_current_style, new_figure
from kmip_data.errors import KmipDataError
from kmip_data.models.benchmarking.clock import StageClock
from kmip_data.models.benchmarking.methods import (
    Method,
    Workload,
    WorkloadOptions,
    get_method,
    random_workload,
)
from kmip_data.runtime.current_folder import safe_children
from kmip_data.runtime.memory import is_out_of_memory, limit_memory, peak_host_memory
from kmip_data.runtime.parallel import available_cores, set_num_threads
from kmip_data.saving.image_files import save_figure

Mode = Literal["inference", "training"]
MODES: tuple[Mode, Mode] = ("inference", "training")
#: Quantity of a plot -> column of the paper's curves, factor to our unit, label and unit of the axis.
AXES = {
    "seconds": ("milliseconds", 1e-3, "time", "s"),
    "bytes": ("megabytes", 2.0**20, "peak memory", "B"),
}
PAPER_LINE_STYLES = ("-", "--", ":", "-.")
Status = Literal["ok", "oom", "time", "unavailable", "failed"]


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Times of one method in one mode on n nodes, or the reason why there are none."""

    method: str
    mode: Mode
    n: int  #: number of nodes
    #: ``oom``: out of memory; ``time``: a run exceeded the limit; ``unavailable``: not supported
    #: on this device or for these inputs; ``failed``: an error
    status: Status
    forward: tuple[float, ...] = ()  #: seconds of each run
    backward: tuple[float, ...] = ()  #: seconds of each run; empty in inference
    peak_bytes: int | None = None  #: peak memory beyond the initial memory, including inputs
    note: str = ""  #: reason for a status other than ``ok``

    @property
    def totals(self) -> list[float]:
        """Forward plus backward seconds of each run."""
        backward = self.backward or (0.0,) * len(self.forward)
        passes = zip(self.forward, backward, strict=True)
        return [forward + back for forward, back in passes]

    @property
    def seconds(self) -> float | None:
        """Median of the totals."""
        return _median(self.totals)

    def as_dict(self) -> dict[str, object]:
        """Return a row for JSON and CSV; ``least`` and ``most`` are the extremes over the runs."""
        return {
            "method": self.method,
            "mode": self.mode,
            "n": self.n,
            "status": self.status,
            "seconds": self.seconds,
            "least": min(self.totals, default=None),
            "most": max(self.totals, default=None),
            "forward": _median(self.forward),
            "backward": _median(self.backward),
            "runs": len(self.forward),
            "peak_bytes": self.peak_bytes,
            "note": self.note,
        }


def _median(seconds: Sequence[float]) -> float | None:
    return statistics.median(seconds) if seconds else None


def growth_exponent(points: Iterable[tuple[float, float]]) -> float | None:
    """Fit the slope of log seconds over log n to points (n, seconds), by least squares.

    Only the last decade of n counts, as small n measure overhead. None for fewer than two points.

    >>> growth_exponent([(10, 5), (1000, 1), (10000, 100)])
    2.0
    """
    ordered = sorted(points)
    logs = []
    for n, seconds in ordered:
        # Two steps of the grid ⌊10^(i/2)⌋ may be slightly more than a decade.
        if n >= ordered[-1][0] / 10 * 0.99:
            logs.append((math.log10(n), math.log10(seconds)))
    if len(logs) < 2:
        return None
    return round(statistics.linear_regression(*zip(*logs, strict=True)).slope, 6)


@in_current_style()
def draw_measurements(
    measurements: Sequence[Measurement],
    path: Path,
    *,
    title: str,
    paper: Mapping[str, Any] | None,
) -> None:
    """Draw four log-log plots: seconds and peak bytes, in inference and training.

    Curves measured here are coloured; the curves of ``paper`` (``manifests/results/efficiency.toml``)
    are grey. A cross marks the size at which a method ran out of memory or time.
    """
    from matplotlib.ticker import EngFormatter

    figure = new_figure(13, 10, title=title)
    curves: dict[str, object] = {}  # all plots share a legend, which does not hide curves
    plots = product(AXES, MODES)
    for axes, (quantity, mode) in zip(figure.subplots(2, 2).flat, plots, strict=True):
        # 1. The paper's curves.
        key, scale, ylabel, unit = AXES[quantity]
        all_curves = paper["curve"] if paper is not None else ()
        paper_curves = [curve for curve in all_curves if curve["setting"] == mode]
        for index, curve in enumerate(paper_curves):
            if key in curve:
                label = f"paper, {paper and paper['machine']}: {curve['label']}"
                style = {
                    "color": current_style().secondary_color,
                    "linestyle": PAPER_LINE_STYLES[index % 4],
                    "linewidth": 1,
                }
                axes.plot(curve["n"], [value * scale for value in curve[key]], label=label, **style)

        # 2. Our curves.
        methods = dict.fromkeys(measurement.method for measurement in measurements)
        for index, name in enumerate(methods):
            points = []
            failed_n = None
            for measurement in measurements:
                if (measurement.method, measurement.mode) != (name, mode):
                    continue
                value = measurement.seconds if quantity == "seconds" else measurement.peak_bytes
                if value:
                    points.append((measurement.n, value))
                if failed_n is None and measurement.status in {"oom", "time"}:
                    failed_n = measurement.n
            if points:
                style = {"color": f"C{index % 10}", "markersize": 3}
                axes.plot(*zip(*points, strict=True), "o-", label=f"{name}, here", **style)
                if failed_n is not None:  # draw the cross at the height of the last point
                    axes.plot(failed_n, points[-1][1], "x", color=style["color"])
        axes.set(xscale="log", yscale="log", xlabel="nodes", ylabel=ylabel)
        axes.set_title(f"{mode}: {ylabel}")
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.yaxis.set_major_formatter(EngFormatter(unit))
        axes.grid()
        curves |= {curve.get_label(): curve for curve in axes.get_legend_handles_labels()[0]}
    figure.legend([*curves.values()], [*curves], loc="outside lower center", ncols=2)
    save_figure(figure, path)


SCRATCH_BYTES = {"cpu": 64 * 2**20, "cuda": 2**30}  #: size of the scores held at a time
#: Length of a run from which memory is measured in a counted run instead of an additional one.
LONG_RUN_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class MeasurementOptions:
    """Device, number of runs and limits of a measurement."""

    device: str = "cpu"
    threads: int = field(default_factory=available_cores)  #: threads of every library
    repeats: int = 5  #: counted runs; fewer, but at least one, if they exceed ``time_limit``
    time_limit: float = 60.0  #: seconds
    memory_limit: int | None = None  #: bytes


class Measurer:
    """Measure methods on one device."""

    def __init__(self, workload_options: WorkloadOptions, options: MeasurementOptions) -> None:
        self.workload_options = workload_options
        self.options = options
        self.device = torch.device(options.device)

    def measure(self, method: Method, mode: Mode, n: int) -> Measurement:
        """Measure ``method`` on n nodes; errors, including out-of-memory ones, are raised."""
        options = self.options
        training = mode == "training"
        # 1. The first run compiles and fills caches. Its time decides how many runs fit.
        first = sum(self._time_passes(method, n, 0, training=training).values())
        fitting = int(options.time_limit / max(1e-9, first))
        repeats = max(1, min(options.repeats, fitting))

        # 2. Measure memory in the last run, an additional one unless runs are long.
        peak = PeakMemory(self.device)
        last = repeats + (first < LONG_RUN_SECONDS)
        runs = [self._time_passes(method, n, seed, training=training) for seed in range(1, last)]
        runs.append(self._time_passes(method, n, last, peak, training=training))

        counted = runs[:repeats]
        return Measurement(
            method=method.name,
            mode=mode,
            n=n,
            status="ok",
            forward=tuple(run["forward"] for run in counted),
            backward=tuple(run["backward"] for run in counted if training),
            peak_bytes=peak.bytes,
        )

    def random_workload(
        self,
        method: Method,
        n: int,
        seed: int,
        *,
        training: bool,
    ) -> Workload:
        """Draw the inputs of a run on the device, with the same values for every method."""
        work = random_workload(self.workload_options, n, seed=seed, device=self.options.device)
        queries, keys, values = (
            tensor.to(method.dtype).requires_grad_(training) for tensor in work.tensors
        )
        return replace(work, queries=queries, keys=keys, values=values)

    def _time_passes(
        self,
        method: Method,
        n: int,
        seed: int,
        peak: PeakMemory | None = None,
        *,
        training: bool,
    ) -> dict[str, float]:
        """Return the seconds of the forward pass and, in training, the backward pass."""
        work = self.random_workload(method, n, seed, training=training)
        ones = torch.ones_like(work.values)
        if peak is not None:
            peak.start(work.tensors)
        if self.device.type == "cuda":
            torch.cuda.synchronize()  # wait until the inputs are copied
        clock = StageClock(self.device)
        clock("start")
        with torch.set_grad_enabled(training):
            out = method.attend(work, SCRATCH_BYTES[self.device.type])
        clock("forward")
        if training:
            torch.autograd.backward(out, ones)
            clock("backward")
        seconds = clock.seconds_by_stage()
        if peak is not None:
            peak.stop()
        return seconds


class PeakMemory:
    """Peak memory between ``start`` and ``stop``, in ``bytes``; None if the system cannot measure it."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._base = -1
        self.bytes: int | None = None

    def start(self, inputs: Iterable[Tensor]) -> None:
        """Reset the peak; existing ``inputs`` of any shape count."""
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
            return
        gc.collect()
        if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)):
            # Return free memory to the system, so that new allocations raise the peak.
            trim(0)
        try:
            # Reset the peak to the resident set, on Linux.
            Path("/proc/self/clear_refs").write_text("5", "ascii")
        except OSError:
            return
        self._base = psutil.Process().memory_info().rss - sum(tensor.nbytes for tensor in inputs)

    def stop(self) -> None:
        """Read the peak."""
        if self._device.type == "cuda":
            self.bytes = int(torch.cuda.max_memory_allocated(self._device))
        elif self._base >= 0:
            self.bytes = max(0, peak_host_memory() - self._base)


START_SECONDS = 120.0  #: time limit for loading libraries
EXIT_SECONDS = 10.0  #: time limit for an idle process to exit, as KeOps writes its cache
COMPILE_SECONDS = 30.0  #: additional time per measurement for compilation
#: Start method of a process that does not inherit threads and memory.
START_METHOD: Literal["spawn"] = "spawn"
CODE_BYTES = 2**30  #: additional memory for threads and compiled code
#: Exit codes if memory runs out: the allocator aborts, or the system kills the process.
OUT_OF_MEMORY_CODES = {-6, -9}


def measure_methods(
    methods: Sequence[str],
    sizes: Sequence[int],
    *,
    workload_options: WorkloadOptions,
    options: MeasurementOptions,
    modes: Sequence[Mode] = MODES,
    log: Callable[[Measurement], None] | None = None,
) -> list[Measurement]:
    """Measure every method in every mode at every number of nodes, in ascending order.

    If a method runs out of memory or time, its larger sizes in that mode are not tried, but get
    the same status. ``log`` is called with each measurement. Raises ``UsageError`` if a method does
    not exist.
    """
    # Fail on unknown names before measuring anything.
    reasons = {name: get_method(name).why_unusable(options.device) for name in methods}
    measurements = []
    for name, reason in reasons.items():
        first_failures: dict[Mode, Measurement] = {}
        with contextlib.closing(_Worker(workload_options, options)) as worker:
            for mode, n in product(modes, sorted(sizes)):
                unmeasured = partial(Measurement, method=name, mode=mode, n=n)
                if reason is not None:
                    measurement = unmeasured(status="unavailable", note=reason)
                elif failure := first_failures.get(mode):
                    status = failure.status
                    measurement = unmeasured(
                        status=status, note=f"not tried: {status} at {failure.n:,} nodes"
                    )
                else:
                    measurement = worker.measure(name, mode, n)
                    if measurement.status in {"oom", "time"}:
                        first_failures[mode] = measurement
                measurements.append(measurement)
                if log is not None:
                    log(measurement)
    return measurements


class _Worker:
    """Child process that measures methods, restarted if it has ended."""

    def __init__(self, workload_options: WorkloadOptions, options: MeasurementOptions) -> None:
        self._arguments = (workload_options, options)
        self._limit = options.time_limit
        self._process: SpawnProcess | None = None
        self._connection: Connection

    def measure(self, method: str, mode: Mode, n: int) -> Measurement:
        """Return a measurement; ``oom``, ``time`` or ``failed`` if the process does not answer."""
        unmeasured = partial(Measurement, method=method, mode=mode, n=n)
        too_long = unmeasured(status="time", note=f"longer than {self._limit:g} s")
        try:
            if self._process is None:
                self._start()
            # The first run, the repeats and the memory run may each take the limit.
            answer: Measurement = self._send_and_wait(
                (method, mode, n), 3 * self._limit + COMPILE_SECONDS
            )
        except TimeoutError:
            self.close(timeout=0)
            return too_long
        except (EOFError, OSError):
            # Wait for the exit code, which tells the reason.
            code = self.close(timeout=START_SECONDS)
            status: Status = "oom" if code in OUT_OF_MEMORY_CODES else "failed"
            return unmeasured(status=status, note=f"ended with exit code {code}")
        return too_long if min(answer.totals, default=0) > self._limit else answer

    @safe_children()
    def _start(self) -> None:
        context = multiprocessing.get_context(START_METHOD)
        self._connection, child_connection = context.Pipe()
        self._process = context.Process(
            target=_serve_measurements, args=(child_connection, *self._arguments), daemon=True
        )
        self._process.start()
        child_connection.close()
        self._connection.poll(START_SECONDS)
        self._connection.recv()

    def _send_and_wait(self, request: tuple[object, ...], timeout: float) -> Any:
        """Send a request and return the answer.

        Raises ``TimeoutError``, or ``EOFError`` or ``OSError`` if the process has ended.
        """
        self._connection.send(request)
        if not self._connection.poll(timeout):
            raise TimeoutError
        return self._connection.recv()

    def close(self, timeout: float = EXIT_SECONDS) -> int | None:
        """End the process, by force after ``timeout`` seconds, and return its exit code."""
        if self._process is None:
            return None
        process = self._process
        self._process = None
        self._connection.close()
        process.join(timeout)
        process.kill()
        process.join()
        return process.exitcode


def _serve_measurements(
    connection: Connection, workload_options: WorkloadOptions, options: MeasurementOptions
) -> None:
    warnings.filterwarnings("ignore")
    for stream in (1, 2):  # silence compilers
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    set_num_threads(options.threads)
    torch.set_num_threads(options.threads)
    measurer = Measurer(workload_options, options)
    if options.memory_limit is not None:
        _limit_memory(options.memory_limit, options.device)
    gc.freeze()  # exclude imported libraries from garbage collection
    connection.send(True)
    with contextlib.suppress(EOFError):
        while True:
            connection.send(_measure_or_explain(measurer, *connection.recv()))


def _measure_or_explain(measurer: Measurer, name: str, mode: Mode, n: int) -> Measurement:
    """Return the measurement with times, or with the reason why there are none."""
    try:
        return measurer.measure(get_method(name), mode, n)
    except Exception as error:  # noqa: BLE001 -- one measurement; the next may work
        status: Status = "oom" if is_out_of_memory(error) else "failed"
        if isinstance(error, KmipDataError | NotImplementedError):
            status = "unavailable"
        note = (str(error).splitlines() or [type(error).__name__])[0]
        return Measurement(
            method=name,
            mode=mode,
            n=n,
            status=status,
            note=note,
        )


def _limit_memory(limit: int, device_type: str) -> None:
    """Make allocations above ``limit`` bytes fail, and let the system kill this process first.

    On a GPU, only the latter applies: a driver reserves far more address space than it uses.
    """
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", "ascii")
    if device_type == "cpu":
        limit_memory(psutil.Process().memory_info().data + limit + CODE_BYTES)
