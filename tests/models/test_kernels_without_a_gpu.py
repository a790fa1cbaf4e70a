"""Triton's kernels without a GPU: interpreted in one process, compiled for absent GPUs in another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.interpreted import needs_interpreter, needs_triton, passed, said

HERE = Path(__file__).parent
FILES = [
    HERE / file
    for file in (
        "attention/kernels_interpreted.py",
        "layers/gated_edges_kernels.py",
        "layers/normed_kernels.py",
    )
]


@needs_interpreter
@pytest.mark.slow
def test_kernels_in_the_interpreter() -> None:
    assert passed(FILES, "not torture", TRITON_INTERPRET="1") >= 28


@needs_interpreter
@pytest.mark.torture
def test_longer_cases_in_the_interpreter() -> None:
    assert passed(FILES, "torture", TRITON_INTERPRET="1") >= 12


COMPILE = """
import json, sys
BRIEF, TARGETS = sys.argv[1] == "brief", (80, 90)
from support.edge_resources import edge_resources
from support.triton_compiled import compile_for
from kmip_data.models.attention.gpu import kernels, launch
numbers = "indices cuts"
floats = "scores values weights out grad keys slopes grad_queries queries grad_keys grad_values sums"
types = {**dict.fromkeys(floats.split(), "*fp32"), **dict.fromkeys(numbers.split(), "*i32")}
types |= {"keep": "*u8", "scale": "fp32", "order": "*i64", "start": "*i64"}
of_sums = {**types, "keys": "i32"}
found = []
for target in TARGETS[-1:] if BRIEF else TARGETS:
    for k, width in ((10, 14), (15, 19), (10, 76), (1, 8))[: 1 if BRIEF else 4]:
        sizes = launch._tile(k, width)
        for drop in ({"keep": None}, {})[BRIEF:]:
            rows = compile_for(kernels.attend_rows, target, {**drop, **sizes}, types)
            found += [rows, compile_for(kernels.slope_rows, target, {**drop, **sizes}, types)]
    for width in (14, 76)[BRIEF:]:
        sizes = launch._segment_sizes(width)
        found.append(compile_for(kernels.sum_segments, target, sizes, of_sums))
        found.append(compile_for(kernels.add_segments, target, sizes, of_sums))
edges = [edge_resources(target, brief=BRIEF) for target in (TARGETS[-1:] if BRIEF else TARGETS)]
print(json.dumps([[vars(each) for each in found], edges]))
"""


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("length", ["brief", pytest.param("long", marks=pytest.mark.torture)])
def test_kernels_compile_without_a_gpu_and_hardly_spill(length: str) -> None:
    """By the compiler of Triton 3.9 nothing at all, by that of 3.6 (CUDA 12.8) 8 bytes for sm_90."""
    attention, edges = json.loads(said("-c", COMPILE, length))
    assert len(attention) == (4 if length == "brief" else 2 * (4 * 2 * 2 + 2 * 2))
    assert max(kernel["spilled"] for kernel in attention) <= 8
    assert max(kernel["registers"] for kernel in attention) <= 200
    kernels: dict[str, Any]
    for kernels in edges:
        assert kernels
        for name, taken in kernels.items():
            assert taken["spilled"] == 0, name
            # 4 programs of 128 threads at a time; 2 of those that multiply.
            assert 16 < taken["registers"] <= (224 if "multiply" in name else 128), name
            assert taken["shared"] <= 48 * 1024, name
