"""Kernels of a layer on a GPU; without one they are interpreted and compiled, see tests/models."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support.interpreted import needs_triton, passed

HERE = Path(__file__).parent
FILES = [HERE / "gated_edges_kernels.py", HERE / "normed_kernels.py"]
needs_gpu = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="no CUDA device: kernels were only interpreted and compiled"
)


@needs_triton
@needs_gpu
def test_kernels_on_a_gpu() -> None:
    assert passed(FILES, "torture or not torture") >= 60
