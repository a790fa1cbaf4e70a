"""Precision of a run, and capabilities of the device."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch._C._functorch import peek_interpreter_stack


@contextmanager
def float32_products(precision: str) -> Iterator[None]:
    """Allow TF32 in float32 matrix products inside the block if ``precision`` is ``tf32``."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if precision == "tf32" else before)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def autocast(precision: str, device: str, *, cached: bool = True) -> Iterator[None]:
    """Context in which a forward pass runs in ``precision``.

    Training is not ``cached``: without cached casts, gradients of a weight accumulate in float32.
    """
    dtype = torch.float16 if precision == "16-mixed" else torch.bfloat16
    half = torch.autocast(device, dtype, enabled=precision.endswith("mixed"), cache_enabled=cached)
    with float32_products(precision), half:
        yield


#: Parts of the GPU code that failed this device's self-check, with reasons: ``search``,
#: ``attention``, ``edges`` and ``capture``. Slower code replaces them.
DISABLED: dict[str, str] = {}


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
@functools.cache
def triton_runs(device: torch.device) -> bool:
    """True if Triton compiles for the device; its launchers need a C compiler."""
    return (
        device.type == "cuda"
        and importlib.util.find_spec("triton") is not None
        and torch.version.hip is None
        and torch.cuda.get_device_capability(device) >= (8, 0)
        and any(map(shutil.which, (os.environ.get("CC", "cc"), "gcc", "clang")))
    )


def takes_cpu_kernels(*tensors: Tensor) -> bool:
    """True if the CPU kernels take the tensors: float32 on a CPU.

    torch.compile cannot trace them, and torch.func not differentiate them.
    """
    if torch.compiler.is_compiling() or peek_interpreter_stack() is not None:
        return False
    return all(tensor.device.type == "cpu" and tensor.dtype == torch.float32 for tensor in tensors)


def kernels_run(part: str, device: torch.device) -> bool:
    """True if a part's Triton kernels compile for the device and passed its self-check."""
    return part not in DISABLED and triton_runs(device)
