"""Try each usable backend on a small problem, in a process that may crash."""

from __future__ import annotations

import importlib
import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import torch

from kmip_data.models.search.problem import check_problem
from kmip_data.models.search.topk import BackendStatus, get_backend

#: Seconds of a trial: importing torch and compiling kernels take one to two minutes of CPU, and on
#: a busy machine many times that. Passing it means slow.
PREPARING = 600.0
#: Seconds of a search that is compiled, of 100 keys: it takes milliseconds. Passing it means
#: broken.
SEARCHING = 60
LATE = "no result within"  #: how :func:`ended` begins of a process that was too slow


class Failure(NamedTuple):
    """The reason for which a backend gave no result."""

    why: str
    broken: bool  #: False if this machine was too slow to say


def ended(command: Sequence[str], limit: float) -> str | None:
    """Run Python with arguments for at most ``limit`` seconds; return why it failed, if it did."""
    try:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        done = subprocess.run(
            [sys.executable, *command],
            **pipes,
            timeout=limit,
            check=False,
        )  # type: ignore[call-overload]
    except subprocess.TimeoutExpired:
        return f"{LATE} {limit:.0f} s"
    if done.returncode < 0:
        return f"its process died: {signal.Signals(-done.returncode).name}"
    last = done.stdout.decode("utf-8", "replace").strip().rpartition("\n")[2]
    return last[:300] if done.returncode else None


def failures(backends: Sequence[BackendStatus]) -> dict[tuple[str, str], Failure]:
    """Return why usable backends fail on a small problem after all, by name and device."""

    def failure(row: BackendStatus) -> str | None:
        return ended(("-m", __name__, _argument(row)), PREPARING)

    usable = [row for row in backends if row.usable]
    # All in one process first: importing PyTorch is most of the work of a trial. Only where that
    # ends badly, each has a process of its own, which says which one it was.
    if len(usable) > 1 and ended(("-m", __name__, *map(_argument, usable)), PREPARING) is None:
        return {}
    with ThreadPoolExecutor(max(1, len(usable))) as pool:
        reasons = list(pool.map(failure, usable))
    more = f"(a search of 100 keys, at most {SEARCHING} s once it is compiled)"
    failed = {}
    for row, why in zip(usable, reasons, strict=True):
        if why:
            failed[row.name, row.device] = Failure(f"{why} {more}", not why.startswith(LATE))
    return failed


def _argument(row: BackendStatus) -> str:
    """Return the module and the device of a trial, as :func:`_try` takes them."""
    return f"{get_backend(row.name).__name__}:{row.device}"


def _try(argument: str) -> None:
    """Search twice with a backend, which may compile in the first search, and once with the simplest one."""
    # The first search may take minutes to compile: only the second one has a time limit.
    module, _, device = argument.partition(":")
    rows = torch.randn(1, 100, 10, generator=torch.Generator().manual_seed(0)).to(device)
    problem = check_problem(rows, rows, 10)
    expected = get_backend("dense").search(problem)
    backend = importlib.import_module(module)
    backend.search(problem)
    signal.alarm(SEARCHING)
    if not all(map(torch.equal, backend.search(problem), expected)):
        raise SystemExit("another result than that of dense")
    signal.alarm(0)


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        _try(argument)
