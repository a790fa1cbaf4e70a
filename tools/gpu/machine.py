"""Section 0: versions, ceilings of copies and products, and all kernels compiled in parallel."""

from __future__ import annotations

import contextlib
import importlib.metadata
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import torch

from kmip_data.errors import UsageError
from kmip_data.models.search.gpu.launch import nvrtc_version
from tools.gpu import searches, steps, tools
from tools.gpu.results import Recorder, milliseconds

PROCESSES = 14
PACKAGES = ("torch", "triton", "cuda-core", "cuda-bindings", "numpy", "numba", "torch-geometric")
#: Modules of this folder, and how many works of theirs have kernels of their own.
WORKS = {"steps": len(steps.WARMED), "searches": len(searches.WARMED)}


def run(record: Recorder) -> None:
    """Record versions and ceilings, and compile."""
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
    with record.attempt("ceilings"):
        _ceilings(record)
    if record.dry:
        record("kernels", status="skipped", note="nothing is compiled for a CPU")
    else:
        _compile(record)


def _driver() -> str:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    return (
        subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
        or "unknown"
    )


def _ceilings(record: Recorder) -> None:
    side = 256 if record.dry else 8192
    source = torch.randn((2**20 if record.dry else 2**30,), device=record.device)
    target = torch.empty_like(source)
    most = 0.02 if record.dry else 1.0  # seconds
    took = milliseconds(lambda: target.copy_(source), record.device, most=most)
    record("copy, bytes read and written", 2 * source.nbytes / took / 1e6, "GB/s", kind="figure")
    for name, dtype, precision in (
        ("bfloat16", torch.bfloat16, "highest"),
        ("tf32", torch.float32, "high"),
        ("float32", torch.float32, "highest"),
    ):
        torch.set_float32_matmul_precision(precision)
        a, b = (torch.randn(side, side, device=record.device, dtype=dtype) for _ in range(2))
        took = milliseconds(lambda a=a, b=b: a @ b, record.device, most=most)
        record(
            f"matrix product of {side:,}², {name}",
            2 * side**3 / took / 1e9,
            "TFLOP/s",
            kind="figure",
        )
    torch.set_float32_matmul_precision("highest")


def _compile(record: Recorder) -> None:
    """Run the smallest work of each kind, in as many processes, which share the caches on disk."""

    def compile_one(work: tuple[str, int]) -> None:
        module, number = work
        done = tools.run(
            [sys.executable, "-c", f"from tools.gpu.{module} import warm; warm({number})"]
        )
        if done.returncode:
            record.show(done.stdout + done.stderr)
            record(f"compiling {module}, {number}", status="failed", note=tools.last_line(done))

    works = [(module, number) for module, count in WORKS.items() for number in range(count)]
    with ThreadPoolExecutor(PROCESSES) as pool:
        list(pool.map(compile_one, works))
    record("kernels compiled", len(works), "processes")
