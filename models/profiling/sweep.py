"""The experiment: methods × settings × sizes, each method in a process of its own."""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import IO, Any, Self

from kmip_data.models.profiling.cells import Cell, Status
from kmip_data.models.profiling.measuring import Protocol
from kmip_data.models.profiling.methods import get_method
from kmip_data.models.profiling.published import SETTINGS, Setting
from kmip_data.models.profiling.workload import Shape
from kmip_data.models.training.memory.estimate import free_bytes

COMMAND = [sys.executable, "-m", "kmip_data.models.profiling.worker"]
START = 120.0  #: seconds a process may take to load its libraries
COMPILE = 30.0  #: seconds that the runs of a cell may take besides, for compiling
SHARE = 0.8  #: of the free memory that a process may take unless told


def default_memory_limit() -> int:
    """Bytes a method may take: most of what is free."""
    return int(SHARE * free_bytes())


def sweep(
    methods: Sequence[str],
    sizes: Sequence[int],
    *,
    shape: Shape,
    protocol: Protocol,
    settings: Sequence[Setting] = SETTINGS,
    device: str = "cpu",
    threads: int,
    tell: Callable[[Cell], None] | None = None,
) -> list[Cell]:
    """Measure every method in every setting at every size, small sizes first.

    Where one runs out of memory or time, larger sizes of that method and setting are not tried and
    get the same status.

    Parameters
    ----------
    methods
        Names; see :func:`kmip_data.models.profiling.methods.method_names`.
    sizes
        Numbers of nodes.
    threads
        Of every library.
    tell
        Is told of each cell when it is done.

    Raises
    ------
    UsageError
        A method or the data are not known.
    """
    for name in methods:
        get_method(name)
    cells: list[Cell] = []
    for name in methods:
        with _Asker(shape, protocol, device, threads) as asker:
            for cell in _cells_of(asker, name, sizes, settings, device):
                cells.append(cell)
                if tell is not None:
                    tell(cell)
    return cells


def breakdown(
    methods: Sequence[str],
    n: int,
    *,
    shape: Shape,
    protocol: Protocol,
    device: str = "cpu",
    threads: int,
    tell: Callable[[str], None] | None = None,
) -> dict[str, dict[str, float] | Cell]:
    """Seconds of each stage of a training step on n nodes, or the cell that says why there are none.

    ``tell`` is told of each method when it is done; the other parameters are those of :func:`sweep`.
    """
    found: dict[str, dict[str, float] | Cell] = {}
    for name in methods:
        why_not = get_method(name).unusable(device)
        if why_not is not None:
            found[name] = Cell(method=name, setting="training", n=n, status="unavailable", note=why_not)
            continue
        with _Asker(shape, protocol, device, threads) as asker:
            answer = asker.ask(name, "training", n, stages=True)
            found[name] = answer if isinstance(answer, Cell) else answer["stages"]
        if tell is not None:
            tell(f"{name}, stages, {n:,} nodes: {answer.status if isinstance(answer, Cell) else 'done'}")
    return found


def _cells_of(
    asker: _Asker, name: str, sizes: Sequence[int], settings: Sequence[Setting], device: str
) -> Iterator[Cell]:
    why_not = get_method(name).unusable(device)
    for setting in settings:
        ended: Cell | None = None
        for n in sorted(sizes):
            if why_not is not None:
                yield Cell(method=name, setting=setting, n=n, status="unavailable", note=why_not)
                continue
            if ended is not None:
                note = f"not tried: {ended.status} at {ended.n:,} nodes"
                yield Cell(method=name, setting=setting, n=n, status=ended.status, note=note)
                continue
            answer = asker.ask(name, setting, n)
            cell = answer if isinstance(answer, Cell) else Cell.from_json(answer["cell"])
            if cell.status in {"oom", "time"}:
                ended = cell
            yield cell


class _Asker:
    """A worker process that answers, and is started again when it was ended."""

    def __init__(self, shape: Shape, protocol: Protocol, device: str, threads: int) -> None:
        self._first = {
            "shape": asdict(shape),
            "protocol": asdict(protocol),
            "device": device,
            "threads": threads,
        }
        self._protocol = protocol
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.Queue[str | None] = queue.Queue()
        self._said: IO[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def ask(self, method: str, setting: Setting, n: int, *, stages: bool = False) -> dict[str, Any] | Cell:
        """Ask for a cell or for stages; the cell ``oom``, ``time`` or ``failed`` if no answer comes."""

        def cell(status: Status, note: str) -> Cell:
            return Cell(method=method, setting=setting, n=n, status=status, note=note)

        if self._process is None:
            self._start()
            if not self._send(self._first, START):
                return cell("failed", f"the process did not start: {self._last_words()}")
        # A run may take the limit, the cell as long again for its repeats and the one for memory.
        limit = self._protocol.time_limit
        question = {"method": method, "setting": setting, "n": n, "stages": stages}
        try:
            answer = self._send(question, 3 * limit + COMPILE)
        except TimeoutError:
            self._end()
            return cell("time", f"longer than {limit:g} s")
        if answer is None:
            words = self._last_words()
            code = self._process.wait() if self._process is not None else 0
            self._end()
            if code == -9 or "alloc" in words.lower() or "memory" in words.lower():
                return cell("oom", words or "ended by the system")
            return cell("failed", words or f"ended with {code}")
        if "cell" in answer and answer["cell"]["status"] == "ok":
            done = Cell.from_json(answer["cell"])
            if min(done.totals) > limit:
                return cell("time", f"longer than {limit:g} s")
        if "cell" in answer and stages:
            return Cell.from_json(answer["cell"])
        return answer

    def _start(self) -> None:
        self._said = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        self._process = subprocess.Popen(
            COMMAND,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
        )
        answers: queue.Queue[str | None] = queue.Queue()
        self._answers = answers
        stdout = self._process.stdout
        assert stdout is not None

        def listen() -> None:
            for line in stdout:
                answers.put(line)
            answers.put(None)

        threading.Thread(target=listen, daemon=True).start()

    def _send(self, question: dict[str, Any], seconds: float) -> dict[str, Any] | None:
        """The answer; ``None`` if the process ended. Raises TimeoutError."""
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # a process that has ended is seen below
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
        try:
            line = self._answers.get(timeout=seconds)
        except queue.Empty:
            raise TimeoutError from None
        return None if line is None else json.loads(line)

    def _last_words(self) -> str:
        """The last line that the process wrote to stderr."""
        if self._said is None:
            return ""
        self._said.seek(0)
        lines = [line.strip() for line in self._said.read().splitlines() if line.strip()]
        return lines[-1] if lines else ""

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        if self._said is not None:
            self._said.close()
            self._said = None
