"""The experiment: methods × settings × sizes, each method in a process of its own."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from typing import IO, Any

from kmip_data.models.profiling.measuring import Protocol
from kmip_data.models.profiling.methods import get_method
from kmip_data.models.profiling.results import SETTINGS, Cell, Setting
from kmip_data.models.profiling.workload import Shape

COMMAND = [sys.executable, "-m", "kmip_data.models.profiling.worker"]
START = 120.0  #: seconds a process may take to load its libraries
EXIT = 10.0  #: seconds in which one that has nothing to do ends: KeOps writes its cache meanwhile
COMPILE = 30.0  #: seconds that the runs of a cell may take besides, for compiling


def sweep(
    methods: Sequence[str],
    sizes: Sequence[int],
    *,
    shape: Shape,
    protocol: Protocol,
    settings: Sequence[Setting] = SETTINGS,
    by_stage: bool = False,
    tell: Callable[[Cell], None] | None = None,
) -> list[Cell]:
    """Measure every method in every setting at every size, numbers of nodes, small ones first.

    Where one runs out of memory or time, larger sizes of that method and setting are not tried and
    get the same status. ``by_stage`` gives instead of the times those of the stages of a training step;
    ``tell`` is told of each cell when it is done. Raises ``UsageError`` where a method
    (:func:`~kmip_data.models.profiling.methods.method_names`) or the data are not known.
    """
    unusable = {name: get_method(name).unusable(protocol.device) for name in methods}
    cells: list[Cell] = []
    for name, why_not in unusable.items():
        ended: dict[Setting, Cell] = {}
        with contextlib.closing(_Worker(shape, protocol)) as worker:
            for setting, n in itertools.product(settings, sorted(sizes)):
                not_run = partial(Cell, method=name, setting=setting, n=n)
                if why_not is not None:
                    cell = not_run(status="unavailable", note=why_not)
                elif (last := ended.get(setting)) is not None:
                    cell = not_run(status=last.status, note=f"not tried: {last.status} at {last.n:,} nodes")
                else:
                    cell = worker.ask(name, setting, n, by_stage)
                    if cell.status in {"oom", "time"}:
                        ended[setting] = cell
                cells.append(cell)
                if tell is not None:
                    tell(cell)
    return cells


class _Worker:
    """A process that measures, and is started again where it has ended."""

    def __init__(self, shape: Shape, protocol: Protocol) -> None:
        self._arguments = shape, protocol
        self._limit = protocol.time_limit
        self._process: subprocess.Popen[bytes] | None = None
        self._said: IO[str]  # what it writes, libraries included

    def ask(self, method: str, setting: Setting, n: int, by_stage: bool) -> Cell:
        """The cell; ``oom``, ``time`` or ``failed`` if no answer comes."""
        cell = partial(Cell, method=method, setting=setting, n=n)
        too_long = cell(status="time", note=f"longer than {self._limit:g} s")
        try:
            if self._process is None:
                self._start()
            # A run may take the limit, the cell as long again for its repeats and the one for memory.
            question = method, setting, n, by_stage
            answer: Cell = self._exchange(question, 3 * self._limit + COMPILE)
        except TimeoutError:
            self.close(patience=0)
            return too_long
        except (EOFError, OSError):
            code, words = self.close(patience=START)  # it may still be about to exit, with its own status
            if code == -9 or "alloc" in words.lower() or "memory" in words.lower():
                return cell(status="oom", note=words or "ended by the system")
            return cell(status="failed", note=words or f"ended with {code}")
        return too_long if min(answer.totals, default=0) > self._limit else answer

    def _start(self) -> None:
        self._said = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        self._connection, its = multiprocessing.Pipe()
        with its:
            self._process = subprocess.Popen(
                [*COMMAND, str(its.fileno())],
                pass_fds=[its.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._said,
                stderr=subprocess.STDOUT,
            )
        self._exchange(self._arguments, START)

    def _exchange(self, question: tuple[Any, ...], seconds: float) -> Any:
        """Ask and wait; raises TimeoutError, or EOFError and OSError where the process has ended."""
        self._connection.send(question)
        if not self._connection.poll(seconds):
            raise TimeoutError
        return self._connection.recv()

    def close(self, patience: float = EXIT) -> tuple[int | None, str]:
        """Exit status and last line of the process, which has ended afterwards."""
        if self._process is None:
            return None, ""
        self._connection.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(patience)
        self._process.kill()
        code, self._process = self._process.wait(), None
        with self._said as said:
            said.seek(0)
            lines = [line.strip() for line in said if line.strip()]
        return code, lines[-1] if lines else ""
