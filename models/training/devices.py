"""Device of a run."""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from kmip_data.errors import Setting, UsageError
from kmip_data.text import count_with_noun


@dataclass(frozen=True)
class Device:
    """Selected device."""

    type: Literal["cpu", "cuda"]
    name: str  #: name for messages and ``result.json``: ``cpu`` or the GPU's name
    reason: str  #: reason for selecting it

    @property
    def hardware(self) -> str:
        """GPU name, or processor and number of PyTorch's threads, which affect floating-point sums."""
        if self.type == "cuda":
            return self.name
        return f"{processor_model()}, {count_with_noun(torch.get_num_threads(), 'thread')}"


def processor_model() -> str:
    """Return the processor's model name."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        name = re.search(r"(?m)^model name\s*:\s*(.*)$", cpuinfo.read_text("utf-8"))
        if name is not None:
            return name[1].strip()
    return platform.processor()


def choose_device(requested: str = "auto", devices: int = 1) -> Device:
    """Choose the device; ``auto`` uses a GPU if PyTorch sees one.

    Raises ``UsageError`` if fewer GPUs exist than the run needs.
    """
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if requested == "cpu" or (requested == "auto" and not count):
        return Device("cpu", "cpu", "requested" if requested == "cpu" else "PyTorch sees no GPU")
    if devices > count:
        raise UsageError(
            f"The run needs {count_with_noun(devices, 'GPU')};"
            f" PyTorch {torch.__version__} sees {count or 'none'}.",
            steps=Setting(device="cpu"),
        )
    reason = "requested" if requested == "cuda" else "PyTorch sees it"
    return Device("cuda", torch.cuda.get_device_name(0), reason)


def check_precision(precision: str, device: Device, *, finished: bool = False) -> None:
    """Raise ``UsageError`` if the device does not support the precision.

    The precision of a ``finished`` run cannot change, so the error suggests only another device.
    """
    if precision in ("tf32", "16-mixed") and device.type == "cpu":
        steps = [Setting(device="cuda")]
        if not finished:
            steps += [Setting({"training.precision": name}) for name in ("32", "bf16-mixed")]
        raise UsageError(f"A CPU cannot compute in {precision}.", steps=steps)
