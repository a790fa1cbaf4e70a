"""Whether a training step fits into the memory of a CPU, told before any work.

A GPU raises an error when its memory ends, which :mod:`.machine` explains. On a CPU the system kills
the process instead, so the step is estimated first.
"""

from __future__ import annotations

from pathlib import Path

from kmip_data.errors import OutOfResources
from kmip_data.models.config import ModelConfig
from kmip_data.models.training.config import RunConfig
from kmip_data.models.training.machine import Size

FLOAT = 4  #: bytes
EDGE_TENSORS = 4  #: (edges, d) tensors that a GatedGCN layer keeps for its backward pass (ADR 0051)
NODE_TENSORS = 30  #: (nodes, d) tensors of a GPS layer: projections, norms, feed-forward block
TRANSIENT = 4  #: (edges, d) tensors alive at once in the backward pass of the layer at work
PAIR_BYTES = 16  #: for each chosen pair: index (8), weight and score (4 each)
MARGIN = 0.85  #: of the estimate must fit; it is good to about 15 %


def step_bytes(model: ModelConfig, size: Size) -> int:
    """Estimate the peak of one forward and backward pass over a batch of ``size``, in bytes.

    Examples
    --------
    >>> from kmip_data.models.config import ModelConfig
    >>> s3dis = ModelConfig(layers=8, hidden_dim=56, heads=4, k=10, key_dim=5)
    >>> round(step_bytes(s3dis, Size(8, 8 * 4096, 8 * 4096 * 32)) / 2**30, 1)
    9.7
    """
    edge, node = size.edges * model.hidden_dim * FLOAT, size.nodes * model.hidden_dim * FLOAT
    kept_edges = 1 if model.checkpoint_layers else EDGE_TENSORS
    pairs = size.nodes * model.heads * model.k * PAIR_BYTES
    layer = kept_edges * edge + NODE_TENSORS * node + pairs
    again = EDGE_TENSORS * edge if model.checkpoint_layers else 0
    return model.layers * layer + TRANSIENT * edge + again


def free_bytes() -> int:
    """Memory this process can still get: what the system has available, within its control group."""
    import psutil

    free = int(psutil.virtual_memory().available)
    group = Path("/sys/fs/cgroup")
    try:
        limit, used = ((group / name).read_text().strip() for name in ("memory.max", "memory.current"))
    except OSError:  # no control groups of version 2 here
        return free
    return free if limit == "max" else min(free, max(0, int(limit) - int(used)))


def check_step_fits(config: RunConfig, size: Size) -> None:
    """Compare the estimate for a batch of ``size`` with the memory that is free.

    Raises
    ------
    OutOfResources
        Too much for the memory that is free; says which options lower it, and to what.
    """
    model, training, processes = config.model, config.training, config.system.devices
    need, free = processes * step_bytes(model, size), free_bytes()
    if need * MARGIN <= free:
        return
    tips = []
    lean = model.model_copy(update={"checkpoint_layers": True})
    if not model.checkpoint_layers:
        gib = _gib(processes * step_bytes(lean, size))
        tips.append(f"--set model.checkpoint_layers=true (about {gib}, for about a third more time)")
    if training.batch_size > 1:
        one = Size(1, -(-size.nodes // size.graphs), -(-size.edges // size.graphs))
        times = training.batch_size * training.accumulate
        gib = _gib(processes * step_bytes(model, one))
        tips.append(
            f"--set training.batch_size=1 --set training.accumulate={times} "
            f"(about {gib}, as many graphs a step)"
        )
    raise OutOfResources(
        "A training step will not fit into memory.",
        expected=f"about {_gib(need)} for a batch of {size}",
        found=f"{_gib(free)} free",
        left="nothing was started",
        next="\n    ".join(["one or more of", *tips, "or a machine with more memory"]),
    )


def _gib(count: int) -> str:
    return f"{count / 2**30:.1f} GiB"
