"""Triton's kernels: on a GPU, or interpreted in another process, and compiled for absent GPUs in this one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support.kernels.interpreted import count_passed_tests, needs_interpreter, needs_triton

NAMES = (
    "attention/kernels_interpreted.py",
    "layers/gated_edges_kernels.py",
)
FILES = [Path(__file__).parent / name for name in NAMES]


@needs_interpreter
@pytest.mark.slow
def test_kernels_pass_their_tests_in_the_interpreter() -> None:
    assert count_passed_tests(FILES, "not torture", TRITON_INTERPRET="1") >= 18


@needs_interpreter
@pytest.mark.torture
def test_longer_cases_pass_in_the_interpreter() -> None:
    assert count_passed_tests(FILES, "torture", TRITON_INTERPRET="1") >= 12


@pytest.mark.skipif(
    not torch.cuda.is_available(), reason="no CUDA device: kernels were only interpreted"
)
def test_layer_kernels_pass_their_tests_on_a_gpu() -> None:
    assert count_passed_tests(FILES[1:], "torture or not torture") >= 21


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("length", ["brief", pytest.param("long", marks=pytest.mark.torture)])
def test_kernels_compile_without_a_gpu_and_hardly_spill(length: str) -> None:
    """Attention's kernels spill nothing by the compiler of Triton 3.9, 8 bytes by that of 3.6 for sm_90."""
    from support.kernels.compiled_kernels import resources_of_kernels

    kernels = resources_of_kernels(brief=length == "brief")
    assert len(kernels) >= (9 if length == "brief" else 140)
    for name, taken in kernels.items():
        pairs = any(each in name for each in ("_rows,", "_segments,"))  # of attention
        assert taken["spilled"] <= (8 if pairs else 0), name
        # 4 programs of 128 threads at a time. Of attention's kernels 2: 200 registers by the
        # assembler of the CPU build, 206 by that of CUDA 13.0.
        most = 208 if pairs else 128
        assert (0 if pairs else 16) < taken["registers"] <= most, name
        assert taken["shared"] <= 48 * 1024, name
