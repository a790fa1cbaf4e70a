"""Fused, pruned search kernels in Triton; CUDA, or any device's tensors in Triton's interpreter."""

from __future__ import annotations

import importlib.util
import os

import torch
from torch import Tensor

from kmip_data.models.search.backends import dense
from kmip_data.models.search.gpu.tiling import MOST_DIM, MOST_K
from kmip_data.models.search.problem import SearchProblem

NAME = "triton"
SUMMARY = "pruned kernels: tensor cores filter, float64 ranks (Triton)"
AUTO = f"auto takes it up to d = {MOST_DIM}, k = {MOST_K}"
RANK = {"cuda": 30}

_OLDEST = (8, 0)  # compute capability: the first with TF32
_MOST_ROWS = 2**31 - 2**13  # of all heads: the kernels count rows in 32 bits, and tiles end in padding


def unusable(device_type: str) -> str | None:
    """Why it cannot run on this kind of device."""
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed: pip install 'kmip-data[gpu]'"
    if os.environ.get("TRITON_INTERPRET") == "1":
        return None
    if device_type != "cuda":
        return f"runs on CUDA only, not on {device_type} (TRITON_INTERPRET=1 tries it out, slowly)"
    if not torch.cuda.is_available():
        return "torch sees no CUDA device"
    if torch.version.hip is not None:
        return "written for NVIDIA's GPUs, untested on AMD's"
    found = torch.cuda.get_device_capability()
    return None if found >= _OLDEST else f"needs compute capability 8.0, not {found[0]}.{found[1]}"


def refuses(problem: SearchProblem) -> str | None:
    """Why it cannot take this problem."""
    if problem.dtype != torch.float32:
        return f"takes float32, not {problem.dtype}"
    if problem.dim > MOST_DIM:
        return f"takes rows up to d = {MOST_DIM}, not {problem.dim}"
    if problem.k > MOST_K:
        return f"takes k up to {MOST_K}, not {problem.k}"
    rows = problem.heads * max(problem.queries.shape[1], problem.keys.shape[1])
    return None if rows <= _MOST_ROWS else f"counts to {_MOST_ROWS} rows of all heads, not to {rows}"


def search(problem: SearchProblem) -> tuple[Tensor, Tensor]:
    """Scores (H, N, k) and indices (H, N, k) by the rule."""
    from kmip_data.models.search.gpu.launch import fits_range, run

    if not fits_range(problem):
        return dense.search(problem)
    scores, indices = run(problem)
    return scores, indices
