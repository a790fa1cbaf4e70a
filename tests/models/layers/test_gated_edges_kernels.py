"""Kernels of a layer for a GPU: interpreted in one process, compiled for absent cards in another."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed (Linux only)"
)
needs_card = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="no CUDA device: kernels were only interpreted and compiled"
)
PYTEST = ["-m", "pytest", "-q", *("-p", "no:xdist"), *("-p", "no:cacheprovider")]


def child(*command: str, **variables: str) -> str:
    """Output of a Python of its own: whether Triton interprets is settled when it is imported."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *command],
        env=environment | variables,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


FILES = {"gated_edges_kernels.py": 80, "normed_kernels.py": 20}  #: and how many tests pass at least
SHORT, LONG = "not torture", "torture"


def passed(file: str, which: str, **variables: str) -> int:
    options = ["-o", "addopts=--import-mode=importlib", "-m", which, str(HERE / file)]
    (found,) = re.findall(r"(\d+) passed", child(*PYTEST, *options, **variables))
    return int(found)


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("file", FILES)
def test_kernels_in_the_interpreter(file: str) -> None:
    assert passed(file, SHORT, TRITON_INTERPRET="1") >= FILES[file]


@needs_triton
@pytest.mark.torture
@pytest.mark.parametrize("file", FILES)
def test_longer_cases_in_the_interpreter(file: str) -> None:
    assert passed(file, LONG, TRITON_INTERPRET="1") >= 1


@needs_triton
@needs_card
@pytest.mark.parametrize("file", FILES)
def test_kernels_on_a_gpu(file: str) -> None:
    assert passed(file, f"{SHORT} or {LONG}") >= FILES[file]


COMPILE = """
import json
from support.edge_resources import edge_resources
print(json.dumps(edge_resources(TARGET, COUNT)))
"""


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "sizes"), [(90, 1), *(pytest.param(each, 4, marks=pytest.mark.torture) for each in (80, 90))]
)
def test_kernels_compile_without_a_gpu_and_spill_nothing(target: int, sizes: int) -> None:
    code = COMPILE.replace("TARGET", str(target)).replace("COUNT", str(sizes))
    kernels: dict[str, Any] = json.loads(child("-c", code))
    assert kernels
    for name, taken in kernels.items():
        assert taken["spilled"] == 0, name
        # 4 programs of 128 threads at a time; 2 of those that multiply.
        assert 16 < taken["registers"] <= (200 if "multiply" in name else 128), name
        assert taken["shared"] <= 48 * 1024, name
