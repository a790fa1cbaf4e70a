"""How much memory a run will take at its peak, found before any work by a step over a small cut.

A GPU raises an error when its memory ends, which :mod:`.machine` explains. On a CPU the system kills
the process instead. So what a forward pass keeps for its backward pass is counted, layer by layer,
on a few hundred nodes, and scaled to the largest batch: that holds for any encoder, layer or
attention (ADR 0160). What a small cut does not show, the parts of a layer say themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from kmip_data.errors import OutOfResources
from kmip_data.models.network import build_model
from kmip_data.models.training.config.keys import RunConfig
from kmip_data.models.training.data.run_data import RunData
from kmip_data.models.training.memory.machine import Device, Size, autocast

CUT = 512  #: nodes that are counted
#: (nodes, d) tensors of a layer alive at once while it goes back, and as many as stay with the allocator, in
#: holes (ADR 0226); its parts add their own.
NODE_WORK, NODE_HOLES = 4, 4
COPIES = 5  #: of the weights: themselves, their gradients, two moments of Adam, the best so far
MARGIN = 0.85  #: of the estimate must fit


@dataclass(frozen=True)
class Kept:
    """Bytes that a forward pass over a batch of ``size`` keeps for its backward pass.

    Attributes
    ----------
    layer
        Of one layer in the middle.
    layers
        Of all layers.
    outside
        Of encoders and head.
    search
        Share of ``layers`` that is indices of chosen pairs.
    inputs
        What a layer is given, and its searches' results: all that a recomputed layer keeps.
    work
        Alive at once in the backward pass of a layer.
    holes
        Freed, and not yet used again nor given back.
    weights
        Of the parameters and buffers.
    """

    layer: int
    layers: int
    outside: int
    search: int
    inputs: int
    work: int
    holes: int
    weights: int
    number: int  #: of layers


@dataclass(frozen=True)
class Estimate:
    """Peak memory of a run, by what takes it, in bytes.

    Attributes
    ----------
    process
        Resident already; 0 on a GPU.
    parameters
        Weights, gradients, optimiser, best weights.
    activations
        Kept for the backward pass, without the search.
    search
        Chosen pairs of all layers.
    work
        Alive at once in the backward pass, and what the allocator holds.
    recompute
        Whether layers are recomputed.
    """

    process: int
    parameters: int
    activations: int
    search: int
    work: int
    recompute: bool

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


def count_kept(config: RunConfig, data: RunData, size: Size, device: str = "cpu") -> Kept:
    """Run the network forward over a cut of the data and scale what it keeps to ``size``.

    Global random generators are left as they are.
    """
    cut = cut_of(data.example, size).to(device)
    options = {"in_channels": data.in_channels, "num_classes": data.num_classes}
    with torch.random.fork_rng(devices=[]):
        lean = config.model.model_copy(update={"checkpoint_layers": False})
        model = build_model(lean, edge_channels=data.edge_channels, **options).to(device).train()
        counter = _Counter(model, cut)
        hooks = torch.autograd.graph.saved_tensors_hooks(counter.pack, lambda tensor: tensor)
        with hooks, autocast(config.training.precision, device):
            model(cut)
    scale = size.nodes / cut.num_nodes
    layers = counter.bytes[1:-1] or [0]
    middle = layers[len(layers) // 2]
    node = size.nodes * config.model.hidden_dim * 4
    parts = [
        part.footprint(size, config.model.hidden_dim) for part in (config.model.local, config.model.attention)
    ]
    beyond = sum(part.kept for part in parts)
    return Kept(
        layer=int(middle * scale) + beyond,
        layers=int(sum(layers) * scale) + beyond * len(layers),
        outside=int((counter.bytes[0] + counter.bytes[-1]) * scale) + 3 * size.nodes * data.num_classes * 4,
        search=int(counter.integers * scale),
        inputs=node + sum(part.inputs for part in parts),
        work=NODE_WORK * node + sum(part.work for part in parts),
        holes=NODE_HOLES * node + sum(part.holes for part in parts),
        weights=sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values()),
        number=len(layers),
    )


class _Counter:
    """Counts the storages that autograd saves, by the layer that is at work."""

    def __init__(self, model: nn.Module, cut: Data) -> None:
        layers = list(getattr(model, "layers", []))
        self.bytes = [0] * (len(layers) + 2)
        self.integers = 0
        self._place = 0
        given = [*model.parameters(), *model.buffers(), *(v for v in cut.to_dict().values() if _is(v))]
        self._seen: dict[int, Tensor] = {tensor.untyped_storage().data_ptr(): tensor for tensor in given}
        for number, layer in enumerate(layers):
            layer.register_forward_pre_hook(lambda *_, number=number: self._go(number + 1))
        if layers:
            layers[-1].register_forward_hook(lambda *_: self._go(len(layers) + 1))

    def _go(self, place: int) -> None:
        self._place = place

    def pack(self, tensor: Tensor) -> Tensor:
        """Count a saved tensor's storage once; it is held, so that its address is not used again."""
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._seen:
            self._seen[storage.data_ptr()] = tensor
            self.bytes[self._place] += storage.nbytes()
            if 0 < self._place < len(self.bytes) - 1 and not tensor.is_floating_point() and tensor.ndim > 1:
                self.integers += storage.nbytes() if tensor.dtype != torch.bool else 0
        return tensor


def _is(value: Any) -> bool:
    return isinstance(value, Tensor)


def cut_of(batch: Any, size: Size, nodes: int = CUT) -> Data:
    """Return a graph of ``nodes`` nodes with the columns of ``batch`` and edges in the ratio of ``size``.

    Rows are repeated where the batch has fewer; who is connected to whom means nothing.
    """
    n = min(nodes, max(1, size.nodes))
    rows = torch.arange(n) % batch.num_nodes
    values: dict[str, Any] = {}
    neighbor = getattr(batch, "neighbor", None)
    edge_attr, edges = getattr(batch, "edge_attr", None), 0
    if neighbor is not None:
        values["neighbor"] = neighbor[rows].long() % n
        if edge_attr is not None:
            values["edge_attr"] = edge_attr.view(*neighbor.shape, -1)[rows].flatten(0, 1)
    else:
        edges = round(n * size.edges / max(1, size.nodes))
        there = batch.edge_index.shape[1]
        columns = torch.arange(edges) % max(1, there)
        values["edge_index"] = batch.edge_index[:, columns] % n if there else torch.zeros(2, 0).long()
        if edge_attr is not None:
            values["edge_attr"] = edge_attr[columns] if there else edge_attr
    for name, value in batch.to_dict().items():
        plain = name not in {"edge_index", "edge_attr", "neighbor", "ptr", "batch", "y"}
        if plain and _is(value) and value.ndim:
            # A row a node, or (eigenvalues) a row a graph: the cut is one graph.
            values[name] = value[rows] if len(value) == batch.num_nodes else value[:1]
    return Data(**values)


def estimate(kept: Kept, *, recompute: bool, process: int = 0) -> Estimate:
    """Return the peak of a run whose steps keep ``kept``."""
    activations, search = kept.outside + kept.layers - kept.search, kept.search
    if recompute:
        activations = kept.outside + kept.number * kept.inputs + kept.layer
        search = 0
    return Estimate(
        process=process,
        parameters=COPIES * kept.weights,
        activations=activations,
        search=search,
        work=kept.work + kept.holes,
        recompute=recompute,
    )


def resident_bytes() -> int:
    """Memory of this process that is in use."""
    import psutil

    return int(psutil.Process().memory_info().rss)


def free_bytes(device: str = "cpu") -> int:
    """Memory that can still be had: of the GPU, or of the system, within this process's control group."""
    if device == "cuda":
        return int(torch.cuda.mem_get_info()[0])
    import psutil

    free = int(psutil.virtual_memory().available)
    group = Path("/sys/fs/cgroup")
    try:
        limit, used = ((group / name).read_text().strip() for name in ("memory.max", "memory.current"))
    except OSError:  # no control groups of version 2 here
        return free
    return free if limit == "max" else min(free, max(0, int(limit) - int(used)))


def plan_memory(config: RunConfig, data: RunData, device: Device) -> Estimate:
    """Estimate the peak of a run and choose whether its layers are recomputed.

    They are where ``model.checkpoint_layers`` says so, or leaves it open and a step does not fit else.

    Raises
    ------
    OutOfResources
        Too much for the memory that is free; says which options lower it, and to what.
    """
    size = data.largest_batch
    kept = count_kept(config, data, size, device.kind)
    process = resident_bytes() if device.kind == "cpu" else 0
    processes = config.system.devices if device.kind == "cpu" else 1
    free = free_bytes(device.kind)
    asked = config.model.checkpoint_layers
    for recompute in (False, True) if asked is None else (asked,):
        found = estimate(kept, recompute=recompute, process=process)
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
    if size.graphs > 1:
        smaller = -(-training.batch_size // 2)
        times = -(-training.batch_size // smaller) * training.accumulate
        tips.append(
            f"--set training.batch_size={smaller} --set training.accumulate={times} "
            f"(about {_gib(lean // 2)}, as many graphs a step)"
        )
    elif data.unit == "nodes" and not training.neighbors:
        tips.append("--neighbor-sampling 10,10 --set training.batch_size=1024 (parts of the graph at a time)")
    each = kept.inputs
    fewer = config.model.layers - max(1, -(-(int(lean * MARGIN) - free) // max(1, each)))
    if fewer >= 1:
        tips.append(f"--set model.layers={fewer} (about {_gib(lean - (config.model.layers - fewer) * each)})")
    return tips


def _gib(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"
