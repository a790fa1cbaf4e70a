"""How much memory a run will take at its peak, found before any work.

A GPU raises an error when its memory ends, which :mod:`.machine` explains. On a CPU the system kills
the process instead, so the estimate comes first.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import psutil
import torch

from kmip_data.errors import OutOfResources
from kmip_data.models.kinds import Size
from kmip_data.models.training.capture.padding import with_padding
from kmip_data.models.training.capture.reasons import why_plain
from kmip_data.models.training.config.keys import RunConfig
from kmip_data.models.training.data.run_data import RunData
from kmip_data.models.training.memory.counting import Kept, count_kept
from kmip_data.models.training.memory.machine import Device, half_a_batch

COPIES = 5  #: of the weights: themselves, their gradients, two moments of Adam, the best so far
MARGIN = 0.85  #: of the estimate must fit


@dataclass(frozen=True)
class Estimate:
    """Peak memory of a run, by what takes it, in bytes."""

    process: int  #: resident already; 0 on a GPU
    parameters: int  #: weights, gradients, optimiser, best weights
    activations: int  #: kept for the backward pass, without the search
    search: int  #: chosen pairs of all layers
    work: int  #: alive at once in the backward pass, and what the allocator holds
    recompute: bool  #: whether layers are recomputed

    @property
    def new(self) -> int:
        """What must still be free."""
        return self.parameters + self.activations + self.search + self.work

    @property
    def peak(self) -> int:
        """Of the whole process (on a GPU: of what PyTorch allocates there)."""
        return self.process + self.new

    def __str__(self) -> str:
        parts = [("process", self.process)] if self.process else []
        parts += [("weights and optimiser", self.parameters), ("activations", self.activations)]
        parts += [("search", self.search), ("backward pass", self.work)]
        return f"about {_gib(self.peak)} at the peak ({', '.join(f'{name} {_gib(n)}' for name, n in parts)})"


def estimate(kept: Kept, *, recompute: bool, process: int = 0, copies: int = COPIES) -> Estimate:
    """Return the peak of a run whose steps keep ``kept``, with so many ``copies`` of the weights."""
    activations, search, work = kept.outside + kept.layers - kept.search, kept.search, kept.work
    if recompute:
        # One layer at a time is there as a whole, its inputs among what it keeps. By when its parts do most
        # of their work it has let go of all but these and of weights of pairs.
        activations = kept.outside + (kept.number - 1) * kept.inputs + kept.layer
        freed = kept.layer - kept.inputs - kept.pairs // kept.number
        search, work = 0, max(0, kept.work - freed) + kept.holes
    return Estimate(process, copies * kept.weights, activations, search, work, recompute)


def free_bytes(device: str = "cpu") -> int:
    """Memory that can still be had: of the GPU, or of the system, within this process's control group."""
    if device == "cuda":
        return int(torch.cuda.mem_get_info()[0])
    free = int(psutil.virtual_memory().available)
    group = Path("/sys/fs/cgroup")
    try:
        limit, used = ((group / name).read_text().strip() for name in ("memory.max", "memory.current"))
    except OSError:  # no control groups of version 2 here
        return free
    return free if limit == "max" else min(free, max(0, int(limit) - int(used)))


def plan_memory(config: RunConfig, data: RunData, device: Device, size: Size | None = None) -> Estimate:
    """Estimate the peak of a run and choose whether its layers are recomputed.

    ``size`` is that of another batch than the largest of ``data``.

    They are where ``model.checkpoint_layers`` says so, or is unset and a step would not fit otherwise. Raises
    ``OutOfResources``, which says what options lower it and to what, where too little memory is free.
    """
    if size is None:
        size, recompute = data.largest_batch, bool(config.model.checkpoint_layers)
        if data.ragged and not why_plain(config, data, device, recompute=recompute):
            size = with_padding(size)
    kept = count_kept(data.with_hints(config, device.kind), data, size, device.kind)
    process = int(psutil.Process().memory_info().rss) if device.kind == "cpu" else 0
    processes = config.system.devices if device.kind == "cpu" else 1
    free = free_bytes(device.kind)
    asked, training = config.model.checkpoint_layers, config.training
    # An average, and what learns while that is measured.
    copies = COPIES + training.keep_best - 1 + (2 if training.ema is not None else 0)
    for recompute in (False, True) if asked is None else (asked,):
        found = estimate(kept, recompute=recompute, process=process, copies=copies)
        if processes * found.new * MARGIN <= free:
            return found
    raise OutOfResources(
        "A training step will not fit into memory.",
        expected=f"about {_gib(processes * found.new)} for a batch of {size}",
        found=f"{_gib(free)} free",
        left="nothing was started",
        next="\n    ".join(["one or more of", *_ways_out(config, data, kept, free), "or a larger machine"]),
    )


def _ways_out(config: RunConfig, data: RunData, kept: Kept, free: int) -> list[str]:
    """Options that lower the peak, each with what it lowers it to."""
    training, size = config.training, data.largest_batch
    lean = estimate(kept, recompute=True).new
    tips = []
    if config.model.checkpoint_layers is False:
        tips.append(f"--set model.checkpoint_layers=true (about {_gib(lean)}, for about a third more time)")
    if kept.pairs and getattr(config.model.attention, "dropout", 0):
        tips.append("--set model.attention.dropout=0 (the weights of all pairs of nodes are then not kept)")
    if size.graphs > 1:
        tips.append(f"{half_a_batch(training)} (about {_gib(lean // 2)}, as many graphs per step)")
    elif data.unit == "nodes" and not training.neighbors:
        tips.append("--neighbor-sampling 10,10 --set training.batch_size=1024 (parts of the graph at a time)")
    too_many = max(1, -(-(int(lean * MARGIN) - free) // max(1, kept.inputs)))
    if too_many < (layers := config.model.layers):
        tips.append(f"--set model.layers={layers - too_many} (about {_gib(lean - too_many * kept.inputs)})")
    return tips


def _gib(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"
