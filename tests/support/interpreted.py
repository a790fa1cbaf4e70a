"""Tests in a process of their own, in which Triton interprets its kernels: chosen when it is imported."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def child(*command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python with this tree's packages and tests, without the interpreter unless asked for it."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")]), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *command],
        env=environment | variables,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def interpreted(file: Path, which: str = "not torture") -> int:
    """How many of these tests of a file pass in the interpreter; an ``AssertionError`` if not all."""
    options = (
        "-m",
        which,
        "-q",
        "-p",
        "no:xdist",
        "-p",
        "no:cacheprovider",
        "-o",
        "addopts=--import-mode=importlib",
    )
    done = child("-m", "pytest", *options, str(file), TRITON_INTERPRET="1")
    assert done.returncode == 0, done.stdout + done.stderr
    return int(re.findall(r"(\d+) passed", done.stdout)[0])
