"""Memory of a training step: measured on a cut of the data before a CPU runs out of it, tried on a GPU.

A GPU raises an error when its memory ends, so its steps are tried. On a CPU the system kills the process, so
networks of two and of three layers learn from a cut first: their difference is one layer.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary
from torch_geometric.data import Data

from kmip_data.errors import OutOfResources, human_bytes
from kmip_data.models.attention.kmip import set_training_k
from kmip_data.models.context import autocast
from kmip_data.models.layers.batch import BatchSize
from kmip_data.models.network import build_model, count_parameters
from kmip_data.models.training.config.keys import KSchedule, RunConfig
from kmip_data.models.training.data.run_data import RunData
from kmip_data.models.training.machine import Device
from kmip_data.runtime.memory import free_host_memory

COPIES = 5  #: of the weights: themselves, their gradients, two moments of Adam, the best so far
ROOM = 1.3  #: what compiled kernels allocate by themselves
#: Layers that are recomputed leave holes in the heap: this share of a step that keeps them, 0.5 to 1.5 GiB
#: at 20,000 to 60,000 nodes, and none where a tensor of nodes is so large that it is a mapping of its own.
HOLES, MAPPED = 0.3, 32 * 2**20
CUT = 512  #: nodes of a cut


@dataclass(frozen=True)
class StepMemory:
    """Memory of a step, and whether its layers are recomputed for it."""

    recompute: bool
    need: int | None  #: bytes that a process still has to find; None: not measured (a GPU)
    free: int

    def __str__(self) -> str:
        need = "" if self.need is None else f"about {human_bytes(self.need)} for a step, "
        return f"{need}{human_bytes(self.free)} free"


def plan_memory(config: RunConfig, data: RunData, device: Device) -> StepMemory:
    """Decide if layers are recomputed: on request or, on a CPU, where a step needs it.

    Raises ``OutOfResources``, with the options that lower it, where a step does not fit into free memory.
    """
    asked = config.model.checkpoint_layers
    if device.kind == "cuda":
        return StepMemory(bool(asked), None, int(torch.cuda.mem_get_info()[0]))
    need, free = 0, free_host_memory()
    for recompute in (False, True) if asked is None else (asked,):
        need = step_bytes(config, data, recompute=recompute)
        if config.system.devices * need <= free:
            return StepMemory(recompute, need, free)
    raise OutOfResources(
        f"A training step on {data.largest_batch} takes about {human_bytes(config.system.devices * need)};"
        f" {human_bytes(free)} are free.",
        next="\n    ".join(["one or more of", *ways_out(config, data), "or a larger machine"]),
    )


def step_bytes(config: RunConfig, data: RunData, *, recompute: bool) -> int:
    """Measure the bytes of a step on the largest batch, beyond those of the process."""
    # Nothing reads the edges of a last layer, which is lighter: both networks have another one.
    two, three = (_on_a_cut(config, data, layers, recompute=recompute) for layers in (2, 3))
    # What has a place for each pair of nodes of a graph grows with these pairs, all else with the nodes.
    rows, pairs = (
        less + (config.model.layers - 2) * max(0.0, more - less)
        for less, more in zip(two, three, strict=True)
    )
    copies = COPIES + (2 if config.training.ema is not None else 0)
    with torch.device("meta"):
        weights = 4 * count_parameters(build_model(config.model, **data.channels))
    need = int(ROOM * (rows + pairs) + copies * weights)
    if recompute and 4 * data.largest_batch.nodes * config.model.hidden_dim < MAPPED:
        need += int(HOLES * step_bytes(config, data, recompute=False))
    return need


def _on_a_cut(config: RunConfig, data: RunData, layers: int, *, recompute: bool) -> tuple[float, float]:
    """Peaks of a network of few layers on a cut, scaled to a batch: bytes by nodes, and by pairs of nodes."""
    named = [encoding for encoding in config.model.encodings if encoding.names_nodes]
    size = data.largest_batch
    cut = cut_of(data.example, size, numbers={c.attribute for encoding in named for c in encoding.columns()})
    with torch.random.fork_rng(devices=[]):
        found = data.with_hints(config, "cpu").model
        changes: dict[str, Any] = {"layers": layers, "checkpoint_layers": recompute}
        if isinstance(k := getattr(found.attention, "k", None), tuple):  # one for each layer
            changes["attention"] = found.attention.model_copy(update={"k": max(k)})
        model = build_model(found.model_copy(update=changes), **data.channels)
        if text := config.training.k_schedule:
            schedule = KSchedule.parse(text)
            set_training_k(model, max(schedule.first, schedule.last))
        for parameter in model.parameters():  # their gradients are counted with the weights
            parameter.grad = torch.zeros_like(parameter)
        live = _Live(cut.num_nodes, [*model.parameters(), *model.buffers(), *tree_leaves(cut.to_dict())])
        keeping = torch.autograd.graph.saved_tensors_hooks(live.note, lambda tensor: tensor)
        with live, keeping, autocast(config.training.precision, "cpu"):
            model.train()(cut).float().log_softmax(-1).sum().backward()
    by_nodes, by_pairs = live.most
    return by_nodes * size.nodes / cut.num_nodes, by_pairs * size.squares / cut.num_nodes**2


class _Live(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Most bytes of tensors that are alive at a time: all others, and those of shape (…, nodes, nodes)."""

    def __init__(self, nodes: int, given: list[Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.nodes, self._known = nodes, WeakIdKeyDictionary()
        self.now, self.most = [0, 0], [0, 0]
        for tensor in given:  # there already: not counted
            if isinstance(tensor, Tensor):
                self._known[tensor.untyped_storage()] = True

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = operator(*args, **(kwargs or {}))
        for leaf in tree_leaves((args, kwargs, out)):  # arguments too: kernels make tensors of NumPy's arrays
            if isinstance(leaf, Tensor):
                self.note(leaf)
        return out

    def note(self, tensor: Tensor) -> Tensor:
        """Count a storage once, until it is freed."""
        storage = tensor.untyped_storage()
        if storage not in self._known:
            kind = int(tensor.ndim > 2 and tensor.shape[-2:] == (self.nodes, self.nodes))
            self._known[storage] = True
            self._add(kind, storage.nbytes())
            weakref.finalize(storage, self._add, kind, -storage.nbytes())
        return tensor

    def _add(self, kind: int, count: int) -> None:
        self.now[kind] += count
        self.most[kind] = max(self.most[kind], self.now[kind])


def ways_out(config: RunConfig, data: RunData) -> list[str]:
    """Return the options that lower the memory of a step."""
    training, tips = config.training, []
    if data.unit != "nodes" and training.batch_size > 1:
        smaller = -(-training.batch_size // 2)
        times = -(-training.batch_size // smaller) * training.accumulate
        tips.append(f"--set training.batch_size={smaller} --set training.accumulate={times} (as many a step)")
    elif data.unit == "nodes" and not training.neighbors:
        tips.append("--neighbor-sampling 10,10 --set training.batch_size=1024 (parts of the graph at a time)")
    if not config.model.checkpoint_layers:
        tips.append("--set model.checkpoint_layers=true (less memory for about a third more time)")
    if getattr(config.model.attention, "dropout", 0):
        tips.append("--set model.attention.dropout=0 (weights of attention are then not kept)")
    return tips if training.precision.endswith("mixed") else [*tips, "--precision bf16-mixed"]


def cut_of(batch: Any, size: BatchSize, numbers: Collection[str] = ()) -> Data:
    """Return a graph of :data:`CUT` nodes with the columns of ``batch`` and edges in the ratio of ``size``.

    Rows are repeated where the batch has fewer, and edges connect arbitrary nodes. Columns in ``numbers``
    hold numbers of nodes: there each node has its own.
    """
    n = min(CUT, max(1, size.nodes))
    rows, values = torch.arange(n) % batch.num_nodes, dict[str, Any]()
    neighbor = getattr(batch, "neighbor", None)
    if neighbor is not None:  # edge e of node i is row i K + e of the edge features
        columns = (rows[:, None] * neighbor.shape[1] + torch.arange(neighbor.shape[1])).flatten()
    else:
        count = batch.edge_index.shape[1]
        columns = torch.arange(round(n * size.edges / max(1, size.nodes)) if count else 0) % max(1, count)
    for name, value in batch.to_dict().items():
        if not isinstance(value, Tensor) or not value.ndim or name in {"ptr", "batch", "y"}:
            continue
        if name in numbers:
            values[name] = torch.arange(n)[:, None].expand(-1, value.shape[1])
        elif name == "edge_index":
            values[name] = value[:, columns] % n
        elif name == "neighbor":
            values[name] = value[rows].long() % n
        else:  # one row per edge, per node, or (eigenvalues) per graph: the cut is one graph
            of_nodes = value[rows] if len(value) == batch.num_nodes else value[:1]
            values[name] = value[columns] if name == "edge_attr" else of_nodes
    return Data(**values)


def out_of_memory(
    error: Exception,
    module: Any,
    data: RunData,
    *,
    kind: type[OutOfResources] = OutOfResources,
    left: str | None = None,
) -> OutOfResources:
    """Return the error for an allocation that failed in a training module, with options that lower it."""
    text = str(error).strip() or type(error).__name__
    message = text.splitlines()[0].rpartition("DefaultCPUAllocator: ")[2]
    return kind(
        f"Memory ran out while {module.doing}{f', on {module.size}' if module.size else ''}: {message}",
        left=left,
        next="\n    ".join(
            ["one or more of", *ways_out(module.config, data), "or a machine with more memory"]
        ),
    )
