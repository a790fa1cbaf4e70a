"""Seconds and peak memory of attention methods, each method in its own process.

Whatever ends that process, memory, time or a crash of a library, is a cell of the table. Each run
has new inputs, drawn and moved to the device before the clock starts; memory is measured in a
separate run after a reset of the peak; the first run is not counted.
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

from kmip_data.drawing.style import current_style, in_current_style, new_figure, save_figure
from kmip_data.errors import KmipDataError
from kmip_data.models.profiling.clock import StageClock
from kmip_data.models.profiling.methods import Method, Shape, Workload, draw_inputs, get_method
from kmip_data.runtime.memory import is_out_of_memory, limit_memory, peak_host_memory
from kmip_data.runtime.parallel import available_cores, set_num_threads

Setting = Literal["inference", "training"]
SETTINGS: tuple[Setting, Setting] = ("inference", "training")
#: Quantity of a plot -> column of the paper's curves, its unit in ours, label and unit of the axis.
AXES = {
    "seconds": ("milliseconds", 1e-3, "time", "s"),
    "bytes": ("megabytes", 2.0**20, "peak memory", "B"),
}
DASHES = ("-", "--", ":", "-.")  #: line styles of the paper's curves
Status = Literal["ok", "oom", "time", "unavailable", "failed"]


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One method in one setting on n nodes: seconds of the counted runs, or the reason for their absence."""

    method: str
    setting: Setting
    n: int
    #: ``oom``: out of memory; ``time``: a run exceeded the limit; ``unavailable``: not supported
    #: here or on these inputs; ``failed``: an error
    status: Status
    forward: tuple[float, ...] = ()  #: one number per run
    backward: tuple[float, ...] = ()  #: one number per run; empty in inference
    peak_bytes: int | None = None  #: peak memory including inputs, beyond the initial memory
    note: str = ""

    @property
    def totals(self) -> list[float]:
        """Forward and backward together, run by run."""
        backward = self.backward or (0.0,) * len(self.forward)
        passes = zip(self.forward, backward, strict=True)
        return [forward + back for forward, back in passes]

    @property
    def seconds(self) -> float | None:
        """Median of the totals."""
        return _median(self.totals)

    def as_dict(self) -> dict[str, object]:
        """Return values for JSON and CSV; ``least`` and ``most`` are over the runs."""
        return self._as_row(
            **_median_and_range(self.totals),
            forward=_median(self.forward),
            backward=_median(self.backward),
            runs=len(self.forward),
            peak_bytes=self.peak_bytes,
        )

    def _as_row(self, **columns: object) -> dict[str, object]:
        about = {"method": self.method, "setting": self.setting, "n": self.n}
        return {**about, "status": self.status, **columns, "note": self.note}


def _median(seconds: Sequence[float]) -> float | None:
    return statistics.median(seconds) if seconds else None


def _median_and_range(seconds: Sequence[float]) -> dict[str, float | None]:
    """Return median, minimum and maximum of the counted runs, or three times None."""
    least = min(seconds, default=None)
    return {"seconds": _median(seconds), "least": least, "most": max(seconds, default=None)}


def growth_exponent(points: Iterable[tuple[float, float]]) -> float | None:
    """Return the slope of log seconds over log n, by least squares over the last decade of n.

    Takes points (n, seconds); smaller n measure overhead, not growth. None for fewer than two
    points.

    >>> growth_exponent([(10, 5), (1000, 1), (10000, 100)])
    2.0
    """
    ordered = sorted(points)
    logs = []
    for n, seconds in ordered:
        # ⌊10^(i/2)⌋ is a little less than a decade.
        if n >= ordered[-1][0] / 10 * 0.99:
            logs.append((math.log10(n), math.log10(seconds)))
    if len(logs) < 2:
        return None
    return round(statistics.linear_regression(*zip(*logs, strict=True)).slope, 6)


@in_current_style()
def draw_sweep(
    cells: Sequence[Measurement],
    path: Path,
    *,
    title: str,
    paper: Mapping[str, Any] | None,
) -> None:
    """Draw four log-log plots: seconds and peak bytes, inference and training.

    Curves measured here are coloured; the curves of ``paper`` (``manifests/results/efficiency.toml``)
    are grey. A cross marks where a method ran out of memory or time.
    """
    from matplotlib.ticker import EngFormatter

    figure = new_figure(13, 10, title=title)
    curves: dict[str, object] = {}  # one legend: four would hide curves
    plots = product(AXES, SETTINGS)
    for axes, (quantity, setting) in zip(figure.subplots(2, 2).flat, plots, strict=True):
        key, scale, ylabel, unit = AXES[quantity]
        published = paper["curve"] if paper is not None else ()
        of_paper = [curve for curve in published if curve["setting"] == setting]
        for number, curve in enumerate(of_paper):
            if key in curve:
                label = f"paper, {paper and paper['machine']}: {curve['label']}"
                style = {
                    "color": current_style().quiet,
                    "linestyle": DASHES[number % 4],
                    "linewidth": 1,
                }
                axes.plot(curve["n"], [value * scale for value in curve[key]], label=label, **style)
        for number, name in enumerate(dict.fromkeys(cell.method for cell in cells)):
            points = []
            ended = None
            for cell in cells:
                if (cell.method, cell.setting) != (name, setting):
                    continue
                value = cell.seconds if quantity == "seconds" else cell.peak_bytes
                if value:
                    points.append((cell.n, value))
                if ended is None and cell.status in {"oom", "time"}:
                    ended = cell.n
            if points:
                style = {"color": f"C{number % 10}", "markersize": 3}
                axes.plot(*zip(*points, strict=True), "o-", label=f"{name}, here", **style)
                if ended is not None:  # a cross at its size, at the height of the last point
                    axes.plot(ended, points[-1][1], "x", color=style["color"])
        axes.set(xscale="log", yscale="log", xlabel="nodes", ylabel=ylabel)
        axes.set_title(f"{setting}: {ylabel}")
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        axes.yaxis.set_major_formatter(EngFormatter(unit))
        axes.grid()
        curves |= {curve.get_label(): curve for curve in axes.get_legend_handles_labels()[0]}
    figure.legend([*curves.values()], [*curves], loc="outside lower center", ncols=2)
    save_figure(figure, path)


CHUNK_BYTES = {"cpu": 64 * 2**20, "cuda": 2**30}  #: bytes of scores at a time
#: Seconds from which memory is measured in a counted run instead of an extra one.
LONG_RUN_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """Device, number of runs and limits per cell."""

    device: str = "cpu"
    threads: int = field(default_factory=available_cores)  #: threads of every library
    repeats: int = 5
    #: seconds; long cells are repeated as often as they fit, at least once
    time_limit: float = 60.0
    memory_limit: int | None = None  #: bytes


class Measurer:
    """Measure cells on one device."""

    def __init__(self, shape: Shape, protocol: Protocol) -> None:
        self.shape = shape
        self.protocol = protocol
        self.device = torch.device(protocol.device)

    def measure_cell(self, method: Method, setting: Setting, n: int) -> Measurement:
        """Run ``method`` on n nodes; raises whatever goes wrong, including out of memory."""
        protocol = self.protocol
        training = setting == "training"
        # 1. The first run compiles and fills caches; it is not counted, and its time decides how
        # many runs fit.
        first = sum(self._time_passes(method, n, 0, training=training).values())
        fitting = int(protocol.time_limit / max(1e-9, first))
        repeats = max(1, min(protocol.repeats, fitting))

        # 2. Measure memory in the last run: an extra one, unless runs are long.
        peak = Peak(self.device)
        last = repeats + (first < LONG_RUN_SECONDS)
        runs = [
            self._time_passes(method, n, number, training=training) for number in range(1, last)
        ]
        runs.append(self._time_passes(method, n, last, peak, training=training))

        counted = runs[:repeats]
        return Measurement(
            method=method.name,
            setting=setting,
            n=n,
            status="ok",
            forward=tuple(run["forward"] for run in counted),
            backward=tuple(run["backward"] for run in counted if training),
            peak_bytes=peak.bytes,
        )

    def make_workload(
        self,
        method: Method,
        n: int,
        number: int,
        *,
        training: bool,
    ) -> Workload:
        """Return the inputs of run ``number`` on the device, equal for every method."""
        work = draw_inputs(self.shape, n, seed=number, device=self.protocol.device)
        queries, keys, values = (
            tensor.to(method.dtype).requires_grad_(training) for tensor in work.tensors
        )
        return replace(work, queries=queries, keys=keys, values=values)

    def _time_passes(
        self,
        method: Method,
        n: int,
        number: int,
        watch: Peak | None = None,
        *,
        training: bool,
    ) -> dict[str, float]:
        """Return the seconds of the passes, of which inference has one."""
        work = self.make_workload(method, n, number, training=training)
        ones = torch.ones_like(work.values)
        if watch is not None:
            watch.start(work.tensors)
        if self.device.type == "cuda":
            torch.cuda.synchronize()  # until the inputs are copied
        clock = StageClock(self.device)
        clock("start")
        with torch.set_grad_enabled(training):
            out = method.attend(work, CHUNK_BYTES[self.device.type])
        clock("forward")
        if training:
            torch.autograd.backward(out, ones)
            clock("backward")
        seconds = clock.seconds_by_stage()
        if watch is not None:
            watch.stop()
        return seconds


class Peak:
    """Peak memory between ``start`` and ``stop`` with the inputs.

    None if the system cannot measure it.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._base = -1
        self.bytes: int | None = None

    def start(self, inputs: Iterable[Tensor]) -> None:
        """Reset the peak; the inputs, of any shape, exist already and count."""
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
            return
        gc.collect()
        if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)):
            # Return free memory to the system, so that allocating it again raises the peak.
            trim(0)
        try:
            # Linux: the peak is now the resident set.
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


START = 120.0  #: seconds allowed for loading libraries
EXIT = 10.0  #: seconds allowed for an idle process to exit: KeOps writes its cache
COMPILE = 30.0  #: extra seconds per cell, for compiling
METHOD: Literal["spawn"] = "spawn"  #: start method: without the threads and memory of this process
CODE_BYTES = 2**30  #: bytes beyond the limit, for threads and compiled code
#: Exit codes for lack of memory: an allocator aborts, or the system kills.
OUT_OF_MEMORY_CODES = {-6, -9}


def measure_methods(
    methods: Sequence[str],
    sizes: Sequence[int],
    *,
    shape: Shape,
    protocol: Protocol,
    settings: Sequence[Setting] = SETTINGS,
    log: Callable[[Measurement], None] | None = None,
) -> list[Measurement]:
    """Measure every method in every setting at every number of nodes, small ones first.

    After a method runs out of memory or time, its larger sizes in that setting get the same status
    untried. ``log`` is called with each finished cell. Raises ``UsageError`` if there is no such
    method.
    """
    # Fail on unknown names before measuring anything.
    unusable = {name: get_method(name).why_unusable(protocol.device) for name in methods}
    cells = []
    for name, why_not in unusable.items():
        ended: dict[Setting, Measurement] = {}
        with contextlib.closing(_Worker(shape, protocol)) as worker:
            for setting, n in product(settings, sorted(sizes)):
                not_run = partial(Measurement, method=name, setting=setting, n=n)
                if why_not is not None:
                    cell = not_run(status="unavailable", note=why_not)
                elif last := ended.get(setting):
                    cell = not_run(
                        status=last.status, note=f"not tried: {last.status} at {last.n:,} nodes"
                    )
                else:
                    cell = worker.measure_cell(name, setting, n)
                    if cell.status in {"oom", "time"}:
                        ended[setting] = cell
                cells.append(cell)
                if log is not None:
                    log(cell)
    return cells


class _Worker:
    """A process that measures cells, restarted after it ended."""

    def __init__(self, shape: Shape, protocol: Protocol) -> None:
        self._arguments = (shape, protocol)
        self._limit = protocol.time_limit
        self._process: SpawnProcess | None = None
        self._connection: Connection

    def measure_cell(self, method: str, setting: Setting, n: int) -> Measurement:
        """Return the cell; its status is ``oom``, ``time`` or ``failed`` if no answer comes."""
        cell = partial(Measurement, method=method, setting=setting, n=n)
        too_long = cell(status="time", note=f"longer than {self._limit:g} s")
        try:
            if self._process is None:
                self._start()
            # One run may take the limit; repeats and the memory run as long again.
            answer: Measurement = self._send_and_wait(
                (method, setting, n), 3 * self._limit + COMPILE
            )
        except TimeoutError:
            self.close(patience=0)
            return too_long
        except (EOFError, OSError):
            # It may be about to exit with a meaningful exit code.
            code = self.close(patience=START)
            status: Status = "oom" if code in OUT_OF_MEMORY_CODES else "failed"
            return cell(status=status, note=f"ended with exit code {code}")
        return too_long if min(answer.totals, default=0) > self._limit else answer

    def _start(self) -> None:
        context = multiprocessing.get_context(METHOD)
        self._connection, its = context.Pipe()
        self._process = context.Process(
            target=_serve_measurements, args=(its, *self._arguments), daemon=True
        )
        self._process.start()
        its.close()
        self._connection.poll(START)
        self._connection.recv()

    def _send_and_wait(self, question: tuple[object, ...], seconds: float) -> Any:
        """Ask and wait; raise TimeoutError, or EOFError or OSError if the process has ended."""
        self._connection.send(question)
        if not self._connection.poll(seconds):
            raise TimeoutError
        return self._connection.recv()

    def close(self, patience: float = EXIT) -> int | None:
        """End the process and return its exit code."""
        if self._process is None:
            return None
        process = self._process
        self._process = None
        self._connection.close()
        process.join(patience)
        process.kill()
        process.join()
        return process.exitcode


def _serve_measurements(connection: Connection, shape: Shape, protocol: Protocol) -> None:
    warnings.filterwarnings("ignore")
    for stream in (1, 2):  # compilers print
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    set_num_threads(protocol.threads)
    torch.set_num_threads(protocol.threads)
    measurer = Measurer(shape, protocol)
    if protocol.memory_limit is not None:
        _limit_memory(protocol.memory_limit, protocol.device)
    gc.freeze()  # exclude objects of imported libraries from garbage collection
    connection.send(True)
    with contextlib.suppress(EOFError):
        while True:
            connection.send(_measure_or_explain(measurer, *connection.recv()))


def _measure_or_explain(measurer: Measurer, name: str, setting: Setting, n: int) -> Measurement:
    """Return the cell with its times, or with the reason for their absence."""
    try:
        return measurer.measure_cell(get_method(name), setting, n)
    except Exception as error:  # noqa: BLE001 -- one cell; the next may work
        status: Status = "oom" if is_out_of_memory(error) else "failed"
        if isinstance(error, KmipDataError | NotImplementedError):
            status = "unavailable"
        note = (str(error).splitlines() or [type(error).__name__])[0]
        return Measurement(
            method=name,
            setting=setting,
            n=n,
            status=status,
            note=note,
        )


def _limit_memory(limit: int, device_type: str) -> None:
    """Let allocations above ``limit`` bytes fail, and have the system kill this process first.

    A GPU driver reserves far more address space than it uses: there only the second applies.
    """
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", "ascii")
    if device_type == "cpu":
        limit_memory(psutil.Process().memory_info().data + limit + CODE_BYTES)
