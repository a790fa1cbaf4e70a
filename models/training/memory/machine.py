"""What a run uses of the machine: its device, its memory, and what to do when that runs out."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal

import torch

from kmip_data.errors import OutOfResources, UsageError
from kmip_data.models.training.config.keys import RunConfig
from kmip_data.runtime.memory_errors import is_out_of_memory as is_out_of_memory  # noqa: PLC0414 -- passed on
from kmip_data.runtime.peak_memory import peak_host_memory as peak_host_memory  # noqa: PLC0414 -- passed on

Precision = Literal["32", "16-mixed", "bf16-mixed"]


@dataclass(frozen=True)
class Device:
    """The chosen device and why it was chosen."""

    kind: Literal["cpu", "cuda"]
    name: str  #: for people and ``result.json``: ``cpu`` or the GPU's name
    reason: str


def choose_device(wanted: str = "auto", devices: int = 1) -> Device:
    """Choose the device: ``auto`` takes a GPU if PyTorch sees one.

    Raises
    ------
    UsageError
        A GPU is asked for and not there, or more of them than there are.
    """
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if wanted == "cpu" or (wanted == "auto" and not count):
        return Device("cpu", "cpu", "asked for" if wanted == "cpu" else "PyTorch sees no GPU")
    if devices > count:
        raise UsageError(
            f"{devices} GPU{'s are' if devices > 1 else ' is'} asked for.",
            expected=f"at most {count} (torch {torch.__version__})" if count else "a GPU that PyTorch sees",
            found=f"{count} GPUs",
            left="nothing was started",
            next="kmip-data doctor, or --device cpu",
        )
    reason = "asked for" if wanted == "cuda" else "PyTorch sees it"
    return Device("cuda", torch.cuda.get_device_name(0), reason)


def is_main_process() -> bool:
    """Whether this process writes and speaks: the only one, or rank 0 of Lightning, torchrun or SLURM."""
    for name in ("RANK", "SLURM_PROCID", "LOCAL_RANK"):
        if name in os.environ:
            return os.environ[name] == "0"
    return True


def check_precision(precision: Precision, device: Device) -> None:
    """Raise UsageError where the device has no such arithmetic."""
    if precision == "16-mixed" and device.kind == "cpu":
        raise UsageError(
            "A CPU does not train in 16-mixed.",
            expected="32 or bf16-mixed",
            found="16-mixed",
            left="nothing was started",
            next="--precision bf16-mixed, or --device cuda",
        )


def autocast(precision: Precision, device: str) -> AbstractContextManager[Any]:
    """Context in which a forward pass runs in ``precision``, as Lightning's training steps do."""
    dtype = torch.float16 if precision == "16-mixed" else torch.bfloat16
    return torch.autocast(device, dtype=dtype, enabled=precision != "32")


@dataclass(frozen=True)
class Size:
    """Size of a batch."""

    graphs: int
    nodes: int
    edges: int

    @classmethod
    def of(cls, batch: Any) -> Size:
        """Count what a batch holds, with edges as a table or as pairs."""
        neighbor = getattr(batch, "neighbor", None)
        index = getattr(batch, "edge_index", None)
        edges = neighbor.numel() if neighbor is not None else index.shape[1] if index is not None else 0
        return cls(int(getattr(batch, "num_graphs", 1)), int(batch.num_nodes), int(edges))

    def __str__(self) -> str:
        graphs = "1 graph" if self.graphs == 1 else f"{self.graphs} graphs"
        return f"{graphs}, {self.nodes:,} nodes, {self.edges:,} edges"


def out_of_memory(
    error: BaseException, *, size: Size | None, doing: str, config: RunConfig, left: str
) -> OutOfResources:
    """Explain an allocation that failed while ``doing`` something with a batch of ``size``."""
    training = config.training
    tips = []
    if training.batch_size > 1:
        smaller = -(-training.batch_size // 2)
        times = -(-training.batch_size // smaller) * training.accumulate
        tips.append(
            f"--set training.batch_size={smaller} --set training.accumulate={times} (about the same step)"
        )
    if not config.model.checkpoint_layers:
        tips.append("--set model.checkpoint_layers=true (less memory for about a third more time)")
    if training.precision == "32":
        tips.append("--precision bf16-mixed")
    message = (
        str(error).splitlines()[0].rpartition("DefaultCPUAllocator: ")[2] if str(error) else "MemoryError"
    )
    return OutOfResources(
        f"Memory ran out while {doing}.",
        expected="a batch that fits",
        found=f"{f'a batch of {size}; ' if size else ''}{message}",
        left=left,
        next="\n    ".join(["one or more of", *tips, "or a machine with more memory"]),
    )


def peak_device_memory(device: torch.device) -> int | None:
    """Peak bytes that PyTorch had allocated on a GPU; ``None`` on a CPU."""
    return int(torch.cuda.max_memory_allocated(device)) if device.type == "cuda" else None
