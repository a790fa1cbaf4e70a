"""Search on NVIDIA GPUs: tensor cores filter, float64 ranks; CUDA C++ is compiled on first use."""

from __future__ import annotations

import functools
import importlib.util

import torch
from torch import Tensor

from kmip_data.models.search.gpu.plan import MAX_DIM, MAX_K
from kmip_data.models.search.problem import SearchProblem
from kmip_data.runtime.extras import GPU_EXTRAS, install_command

NAME = "cuda"
AUTO_NOTE = f"chosen by auto up to d = {MAX_DIM}, k = {MAX_K}"
AUTO_PRIORITY = {"cuda": 30}
CHECKS_FINITE = True

_MIN_CAPABILITY = (8, 0)  # compute capability with asynchronous copies
_MAX_ROWS = 2**31 - 2**13  # rows of all heads and padded graphs, which have 32-bit indices


def why_unusable(device_type: str) -> str | None:
    """Return the reason why it cannot run on this device type, or None."""
    if device_type != "cuda":
        return f"runs on CUDA only, not on {device_type}"

    from kmip_data.models.kernel_availability import (
        DISABLED_GPU_FEATURES,  # takes ``doctor`` 1.3 s, as it loads torch.compile
    )

    if "search" in DISABLED_GPU_FEATURES:
        return f"the self-check of this GPU failed: {DISABLED_GPU_FEATURES['search']}"
    return _why_device_unusable()


@functools.cache  # called for every search
def _why_device_unusable() -> str | None:
    if any(
        importlib.util.find_spec(name) is None for name in ("cuda", "cuda.core", "cuda.bindings")
    ):
        return f"cuda.core is not installed, so {GPU_EXTRAS['cuda']}; {install_command('cuda')}"
    if not torch.cuda.is_available():
        return "torch sees no CUDA device"
    if torch.version.hip is not None:
        return "written for NVIDIA's GPUs, untested on AMD's"
    capability = torch.cuda.get_device_capability()
    if capability >= _MIN_CAPABILITY:
        return None
    return f"needs compute capability 8.0, not {capability[0]}.{capability[1]}"


def why_refused(problem: SearchProblem) -> str | None:
    """Return the reason why it does not support this problem, or None."""
    if problem.dtype != torch.float32:
        return f"takes float32, not {problem.dtype}"
    if problem.dim > MAX_DIM:
        return f"takes rows up to d = {MAX_DIM}, not {problem.dim}"
    if problem.k > MAX_K:
        return f"takes k up to {MAX_K}, not {problem.k}"
    graphs = 64 * (len(problem.key_ptr) - 1)
    rows = problem.heads * max(problem.queries.shape[1], problem.keys.shape[1] + graphs)
    return None if rows <= _MAX_ROWS else f"counts to {_MAX_ROWS} rows of all heads, not to {rows}"


def search(problem: SearchProblem) -> tuple[Tensor, Tensor]:
    """Return scores and indices (H, N, k) by the rule."""
    from kmip_data.models.search.gpu.launch import get_device, search_on_gpu

    with torch.cuda.device(problem.device):
        return search_on_gpu(problem, get_device(torch.cuda.current_device()))
