"""Tests in a process of their own, in which Triton interprets its kernels: chosen when it is imported."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from support.cli import python
from support.shared import ROOT


def parse_version(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)[:2]))


HAS_TRITON = importlib.util.find_spec("triton") is not None
needs_triton = pytest.mark.skipif(not HAS_TRITON, reason="triton is not installed (Linux only)")
needs_interpreter = pytest.mark.skipif(
    not HAS_TRITON
    or (
        parse_version(importlib.metadata.version("triton")) < (3, 7)
        and parse_version(np.__version__) >= (2, 4)
    ),
    reason="no Triton that can interpret beside this NumPy (3.7 can)",
)


#: pytest, without freeing the modules of PyTorch at its end, which takes 2 s.
PYTEST = """
import os, pytest, sys
code = pytest.main(sys.argv[1:])
sys.stdout.flush()
os._exit(code)
"""


def count_passed_tests(files: Iterable[Path], which: str, **variables: str) -> int:
    """Return the number of these tests that pass in a new process.

    Raise ``AssertionError`` if not all.
    """
    options = ["-q", "-m", which, *("-p", "no:xdist"), *("-p", "no:cacheprovider")]
    options += ["-o", "addopts=--import-mode=importlib", *map(str, files)]
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    usual = {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "TRITON_INTERPRET": "0"}
    output = python("-c", PYTEST, *options, **usual | variables).out
    return int(re.findall(r"(\d+) passed", output)[0])
