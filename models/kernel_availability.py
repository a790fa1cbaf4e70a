"""Availability of compiled kernels on a device."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil

import torch
from torch import Tensor
from torch._C._functorch import peek_interpreter_stack

#: GPU features (``search``, ``attention``, ``edges``, ``capture``) that failed the device's self-check
#: -> reason. Slower code replaces them.
DISABLED_GPU_FEATURES: dict[str, str] = {}


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
@functools.cache
def is_triton_available(device: torch.device) -> bool:
    """True if Triton supports the device and finds the C compiler that its launchers need."""
    return (
        device.type == "cuda"
        and importlib.util.find_spec("triton") is not None
        and torch.version.hip is None
        and torch.cuda.get_device_capability(device) >= (8, 0)
        and any(map(shutil.which, (os.environ.get("CC", "cc"), "gcc", "clang")))
    )


def can_use_cpu_kernels(*tensors: Tensor) -> bool:
    """True if the CPU kernels support the tensors: float32 on a CPU.

    torch.compile cannot trace the kernels, and torch.func cannot differentiate them.
    """
    if torch.compiler.is_compiling() or peek_interpreter_stack() is not None:
        return False
    return all(tensor.device.type == "cpu" and tensor.dtype == torch.float32 for tensor in tensors)


def can_use_triton_kernels(feature: str, device: torch.device) -> bool:
    """True if Triton supports the device and the feature passed its self-check."""
    return feature not in DISABLED_GPU_FEATURES and is_triton_available(device)
