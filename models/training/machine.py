"""Device of a run, and the precisions that it supports."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch

from kmip_data.errors import UsageError
from kmip_data.models.context import triton_runs
from kmip_data.models.training.config.keys import RunConfig
from kmip_data.wording import counted


@dataclass(frozen=True)
class Device:
    """The chosen device and why it was chosen."""

    kind: Literal["cpu", "cuda"]
    name: str  #: for people and ``result.json``: ``cpu`` or the GPU's name
    reason: str


def choose_device(wanted: str = "auto", devices: int = 1) -> Device:
    """Choose the device: ``auto`` takes a GPU if PyTorch sees one.

    Raises ``UsageError`` if a requested GPU does not exist.
    """
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if wanted == "cpu" or (wanted == "auto" and not count):
        return Device("cpu", "cpu", "asked for" if wanted == "cpu" else "PyTorch sees no GPU")
    if devices > count:
        raise UsageError(
            f"{counted(devices, 'GPU')} cannot be had: PyTorch {torch.__version__} sees {count}.",
            next="kmip-data doctor, or --device cpu",
        )
    reason = "asked for" if wanted == "cuda" else "PyTorch sees it"
    return Device("cuda", torch.cuda.get_device_name(0), reason)


def is_main_process() -> bool:
    """True if this process writes and prints: the only one, or rank 0 of torchrun."""
    for name in ("RANK", "LOCAL_RANK"):
        if name in os.environ:
            return os.environ[name] == "0"
    return True


def check_precision(precision: str, device: Device) -> None:
    """Raise UsageError where the device has no such arithmetic."""
    if precision in ("tf32", "bf16x3", "16-mixed") and device.kind == "cpu":
        raise UsageError(
            f"A CPU cannot train in {precision}.", next="--precision 32 or bf16-mixed, or --device cuda"
        )


def check_compile(config: RunConfig, device: Device) -> None:
    """Raise UsageError where ``torch.compile`` takes minutes and is not known to gain anything.

    That is with GatedGCN or attention, whose time is spent in kernels that are compiled already: on a CPU,
    and where Triton runs on a GPU. There compiled layers can neither be recorded nor use its fused norms.
    """
    model, gpu = config.model, device.kind == "cuda"
    kernels = model.attention.kind != "none" or model.local.kind == "gated-gcn"
    if config.system.compile and kernels and (not gpu or triton_runs(torch.device("cuda"))):
        raise UsageError(
            f"torch.compile does not make {model.name} faster: its kernels are compiled already.",
            next="leave out system.compile, which helps message passing such as gcn, gat or gine alone",
        )


@contextmanager
def float32_products(precision: str) -> Iterator[None]:
    """Let PyTorch's float32 matrix products use TF32 inside the block if ``precision`` is ``tf32``."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if precision == "tf32" else before)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def autocast(precision: str, device: str, *, cached: bool = True) -> Iterator[None]:
    """Context in which a forward pass runs in ``precision``.

    Training is not ``cached``: without kept casts each use of a weight adds its gradient in float32.
    """
    dtype = torch.float16 if precision == "16-mixed" else torch.bfloat16
    half = torch.autocast(device, dtype, enabled=precision.endswith("mixed"), cache_enabled=cached)
    with float32_products(precision), half:
        yield
