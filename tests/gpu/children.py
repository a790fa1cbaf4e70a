"""Processes of a section, which find the package and its tests in this checkout."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run(command: Sequence[str], **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command with these environment variables too, and return what it printed."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")])
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"PYTHONPATH": path.rstrip(os.pathsep)} | variables
    return subprocess.run(
        list(command), env=environment, cwd=ROOT, capture_output=True, text=True, check=False
    )


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    """Return what a failed command said last."""
    lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return lines[-1][:300] if lines else f"exit status {done.returncode}"
