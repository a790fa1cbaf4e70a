"""Try each usable backend on a small problem, in a process that may crash."""

from __future__ import annotations

import importlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from kmip_data.models.search.problem import check_problem
from kmip_data.models.search.topk import BackendStatus, get_backend

#: Seconds until the first result, for all backends together: importing torch and compiling kernels take one
#: to two minutes of CPU, and on a busy machine many times that. Passing it means slow.
PREPARING = 600.0
#: Seconds of a search that is compiled, of 100 keys: it takes milliseconds. Passing it means broken.
SEARCHING = 60.0
_KEYS = 100
_READY = "ready"  #: printed between the first search and the second


class Failure(NamedTuple):
    """The reason for which a backend gave no result."""

    why: str
    broken: bool  #: False if this machine was too slow to say


def failures(backends: Sequence[BackendStatus]) -> dict[tuple[str, str], Failure]:
    """Return why usable backends fail on a small problem after all, by name and device."""
    until = time.monotonic() + PREPARING
    with tempfile.TemporaryDirectory() as folder:
        begun = []
        for number, row in enumerate(row for row in backends if row.usable):
            output = Path(folder, str(number))
            command = [sys.executable, "-m", __name__, get_backend(row.name).__name__, row.device]
            with output.open("wb") as file:
                begun.append((row, output, subprocess.Popen(command, stdout=file, stderr=file)))
        found = {(row.name, row.device): _failure(process, until, output) for row, output, process in begun}
    return {key: failure for key, failure in found.items() if failure is not None}


def _failure(process: subprocess.Popen[bytes], until: float, output: Path) -> Failure | None:
    """Wait for a trial; the limit of the search itself begins when imports and compilation are done."""
    ready = False
    while process.poll() is None:
        if not ready and _READY in output.read_text("utf-8", "replace").splitlines():
            ready, until = True, time.monotonic() + SEARCHING
        if time.monotonic() > until:
            process.kill()
            process.wait()
            if ready:
                return Failure(f"no result on {_KEYS} keys within {SEARCHING:.0f} s", broken=True)
            slow = f"not compiled within {PREPARING:.0f} s: slow, perhaps a busy machine; try again"
            return Failure(slow, broken=False)
        time.sleep(0.05)
    code = process.returncode
    if code < 0:
        return Failure(f"its process died on {_KEYS} keys: {signal.Signals(-code).name}", broken=True)
    lines = [line for line in output.read_text("utf-8", "replace").strip().splitlines() if line != _READY]
    reason = lines[-1] if lines else f"exit status {code}"
    return None if code == 0 else Failure(f"fails on {_KEYS} keys: {reason}", broken=True)


def _try(module: str, device: str) -> None:
    """Search twice with a backend, which may compile in the first search, and once with the simplest one."""
    rows = torch.randn(1, _KEYS, 10, generator=torch.Generator().manual_seed(0)).to(device)
    problem = check_problem(rows, rows, 10)
    expected, backend = get_backend("dense").search(problem), importlib.import_module(module)
    backend.search(problem)
    sys.stdout.write(f"{_READY}\n")
    sys.stdout.flush()
    if not all(map(torch.equal, backend.search(problem), expected)):
        raise SystemExit("another result than that of dense")


if __name__ == "__main__":
    _try(*sys.argv[1:])
