"""Compiled kernels that may run on a device."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil

import torch
from torch import Tensor
from torch._C._functorch import peek_interpreter_stack

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


def kernels_run(component: str, device: torch.device) -> bool:
    """True if a component's Triton kernels compile for the device and passed its self-check."""
    return component not in DISABLED and triton_runs(device)
