"""Versions of the machine, and the peak rates of copies and matrix products."""

from __future__ import annotations

import contextlib
import importlib.metadata
import subprocess
import sys

import torch

from kmip_data.errors import UsageError
from kmip_data.models.search.gpu.launch import nvrtc_version
from tools.gpu.results import Recorder, milliseconds

PACKAGES = ("torch", "triton", "cuda-core", "cuda-bindings", "numpy", "numba", "torch-geometric")


def versions(record: Recorder) -> None:
    """Record the versions of packages, driver and GPU."""
    record("Python", sys.version.split()[0], kind="version")
    for package in PACKAGES:
        try:
            record(package, importlib.metadata.version(package), kind="version")
        except importlib.metadata.PackageNotFoundError:
            record(package, status="skipped", note="not installed")
    with contextlib.suppress(UsageError):
        record("NVRTC", nvrtc_version(), kind="version")
    if not record.dry:
        record("GPU", torch.cuda.get_device_name(), kind="version")
        record("CUDA", torch.version.cuda, kind="version")
        record("driver", _driver(), kind="version")


def _driver() -> str:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def ceilings(record: Recorder) -> None:
    """Time a large copy and large matrix products."""
    side = 256 if record.dry else 8192
    source = torch.randn((2**20 if record.dry else 2**30,), device=record.device)
    copy = torch.empty_like(source)
    most = 0.02 if record.dry else 0.5  # seconds
    took = milliseconds(lambda: copy.copy_(source), record.device, most=most)
    record("copy, bytes read and written", 2 * source.nbytes / took / 1e6, "GB/s", kind="figure")
    for name, dtype, precision in (
        ("bfloat16", torch.bfloat16, "highest"),
        ("tf32", torch.float32, "high"),
        ("float32", torch.float32, "highest"),
    ):
        torch.set_float32_matmul_precision(precision)
        a, b = (torch.randn(side, side, device=record.device, dtype=dtype) for _ in range(2))
        took = milliseconds(lambda a=a, b=b: a @ b, record.device, most=most)
        rate = 2 * side**3 / took / 1e9
        record(f"matrix product of {side:,}², {name}", rate, "TFLOP/s", kind="figure")
    torch.set_float32_matmul_precision("highest")
