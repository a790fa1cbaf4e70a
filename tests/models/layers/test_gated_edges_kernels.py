"""Kernels of a layer for a GPU: interpreted in one process, compiled for absent GPUs in another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from support.interpreted import interpreted, needs_interpreter, needs_triton, passed, said

HERE = Path(__file__).parent
needs_gpu = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="no CUDA device: kernels were only interpreted and compiled"
)
FILES = {"gated_edges_kernels.py": 40, "normed_kernels.py": 20}  #: and how many tests pass at least
SHORT, LONG = "not torture", "torture"


@needs_interpreter
@pytest.mark.slow
@pytest.mark.parametrize("file", FILES)
def test_kernels_in_the_interpreter(file: str) -> None:
    assert interpreted(HERE / file, SHORT) >= FILES[file]


@needs_interpreter
@pytest.mark.torture
@pytest.mark.parametrize("file", FILES)
def test_longer_cases_in_the_interpreter(file: str) -> None:
    assert interpreted(HERE / file, LONG) >= 1


@needs_triton
@needs_gpu
@pytest.mark.parametrize("file", FILES)
def test_kernels_on_a_gpu(file: str) -> None:
    assert passed(HERE / file, f"{SHORT} or {LONG}") >= FILES[file]


COMPILE = """
import json
from support.edge_resources import edge_resources
print(json.dumps(edge_resources(TARGET, COUNT)))
"""


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "sizes"), [(90, 1), *(pytest.param(each, 5, marks=pytest.mark.torture) for each in (80, 90))]
)
def test_kernels_compile_without_a_gpu_and_spill_nothing(target: int, sizes: int) -> None:
    code = COMPILE.replace("TARGET", str(target)).replace("COUNT", str(sizes))
    kernels: dict[str, Any] = json.loads(said("-c", code))
    assert kernels
    for name, taken in kernels.items():
        assert taken["spilled"] == 0, name
        # 4 programs of 128 threads at a time; 2 of those that multiply.
        assert 16 < taken["registers"] <= (224 if "multiply" in name else 128), name
        assert taken["shared"] <= 48 * 1024, name
