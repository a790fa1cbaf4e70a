"""Whether backends really run here: a small problem for each, in processes of their own, which may die."""

from __future__ import annotations

import importlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from kmip_data.models.search.problem import check_problem
from kmip_data.models.search.registry import BackendStatus, get_backend

LONGEST = 120.0  #: seconds for all, some of which compile kernels
_KEYS = 100


def failures(backends: Sequence[BackendStatus]) -> dict[tuple[str, str], str]:
    """Why the usable ones among them fail on a small problem after all, by name and device."""
    until = time.monotonic() + LONGEST
    with tempfile.TemporaryDirectory() as folder:
        begun = []
        for place, row in enumerate(row for row in backends if row.usable):
            said = Path(folder, str(place))
            command = [sys.executable, "-m", __name__, get_backend(row.name).__name__, row.device]
            with said.open("wb") as file:
                begun.append((row, said, subprocess.Popen(command, stdout=file, stderr=file)))
        return {
            (row.name, row.device): why
            for row, said, process in begun
            if (why := _ended(process, until, said)) is not None
        }


def _ended(process: subprocess.Popen[bytes], until: float, said: Path) -> str | None:
    try:
        code = process.wait(max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return f"no result on {_KEYS} keys within {LONGEST:.0f} s"
    if code < 0:
        return f"its process died on {_KEYS} keys: {signal.Signals(-code).name}"
    lines = said.read_text("utf-8", "replace").strip().splitlines()
    return None if code == 0 else f"fails on {_KEYS} keys: {lines[-1] if lines else f'exit status {code}'}"


def _try(module: str, device: str) -> None:
    """Search with a backend, and with the plainest one."""
    rows = torch.randn(1, _KEYS, 10, generator=torch.Generator().manual_seed(0)).to(device)
    problem = check_problem(rows, rows, 10)
    found, expected = importlib.import_module(module).search(problem), get_backend("dense").search(problem)
    if not all(map(torch.equal, found, expected)):
        raise SystemExit("another result than that of dense")


if __name__ == "__main__":
    _try(*sys.argv[1:])
