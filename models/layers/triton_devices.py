"""Devices that Triton's kernels run on."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil

import torch


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
@functools.cache
def triton_runs(device: torch.device) -> bool:
    """Return True if Triton compiles for the device; its launchers need a C compiler."""
    return (
        device.type == "cuda"
        and importlib.util.find_spec("triton") is not None
        and torch.version.hip is None
        and torch.cuda.get_device_capability(device) >= (8, 0)
        and any(map(shutil.which, (os.environ.get("CC", "cc"), "gcc", "clang")))
    )
