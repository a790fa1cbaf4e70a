"""Memory of a training step: measured on a cut of the data on a CPU, where the system would kill the process.

Networks of two and of three layers learn from the cut: their difference is one layer. A GPU raises an error
when its memory ends, so its steps are tried.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary
from torch_geometric.data import Data

from kmip_data.errors import OutOfResources, human_bytes
from kmip_data.models.context import autocast
from kmip_data.models.layers.batch import EDGE_COLUMNS, BatchSize
from kmip_data.models.network import build_model, count_parameters
from kmip_data.models.training.config.keys import KSchedule, RunConfig
from kmip_data.models.training.data.run_data import RunData
from kmip_data.models.training.machine import Device
from kmip_data.runtime.memory import free_host_memory

COPIES = 5  #: of the weights: themselves, their gradients, two moments of Adam, the best so far
ROOM = 1.3  #: what compiled kernels allocate by themselves
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
    need = 0
    free = free_host_memory()
    for recompute in (False, True) if asked is None else (asked,):
        need = step_bytes(config, data, recompute=recompute)
        if config.system.devices * need <= free:
            return StepMemory(recompute, need, free)
    need *= config.system.devices
    what = f"A training step on {data.largest_batch} takes about {human_bytes(need)};"
    raise OutOfResources(f"{what} {human_bytes(free)} are free.", next=ways_out(config, data))


def plan_evaluation(
    config: RunConfig, data: RunData, device: Device, log: Callable[[str], None]
) -> RunConfig:
    """Return ``config``; of a sampled graph that does not fit into free memory, with sampled evaluations.

    ``data`` then makes them, and ``log`` says so. Nothing changes on a GPU, or with
    ``training.eval_neighbors``.
    """
    training = config.training
    if (
        data.unit != "nodes"
        or not training.neighbors
        or training.eval_neighbors
        or device.kind == "cuda"
    ):
        return config
    counts = data.build.card.counts
    free = free_host_memory()
    whole = BatchSize(1, counts["nodes"], counts["edges"], counts["nodes"] ** 2)
    cut = cut_of(config, data, whole)
    columns = (value.nbytes for value in cut.to_dict().values() if isinstance(value, Tensor))
    graph = sum(columns) * whole.nodes // cut.num_nodes
    # Loading holds features as stored, standardised in float64, and joined: 2.6 to 3.5 times the graph.
    need = max(4 * graph, graph + step_bytes(config, data, recompute=False, whole=whole))
    if need <= free:
        return config
    room = f"the whole graph takes about {human_bytes(need)}, {human_bytes(free)} are free"
    log(f"evaluation: sampled like training, because {room} (training.eval_neighbors)")
    training = training.model_copy(update={"eval_neighbors": training.neighbors})
    data.config = data.config.model_copy(update={"training": training})
    return config.model_copy(update={"training": training})


def step_bytes(
    config: RunConfig, data: RunData, *, recompute: bool, whole: BatchSize | None = None
) -> int:
    """Measure the bytes of a step on the largest batch, beyond those of the process.

    With the size of the ``whole`` graph, those of a forward pass over it.
    """
    # Nothing reads the edges of a last layer, which is lighter: both networks have another one.
    two, three = (
        _on_a_cut(config, data, layers, recompute=recompute, whole=whole) for layers in (2, 3)
    )
    layers = config.model.layers - 2
    both = sum(less + layers * max(0.0, more - less) for less, more in zip(two, three, strict=True))
    copies = COPIES + (2 if config.training.ema is not None else 0)
    with torch.device("meta"):
        weights = 4 * count_parameters(build_model(config.model, **data.channels))
    return int(ROOM * both + copies * weights)


def _on_a_cut(
    config: RunConfig,
    data: RunData,
    layers: int,
    *,
    recompute: bool,
    whole: BatchSize | None = None,
) -> tuple[float, float]:
    """Peaks of a network of few layers on a cut, scaled to a batch: bytes by nodes, and by pairs of nodes."""
    size = whole or data.largest_batch
    cut = cut_of(config, data, size)
    with torch.random.fork_rng(devices=[]):
        changes: dict[str, Any] = {"layers": layers, "checkpoint_layers": recompute}
        if ks := getattr(config.model.attention, "k", None):  # the most of all layers and epochs
            begun = KSchedule.parse(text).first if (text := config.training.k_schedule) else 0
            most = max(begun, *(ks if isinstance(ks, tuple) else (ks,)))
            changes["attention"] = config.model.attention.model_copy(update={"k": most})
        model = build_model(config.model.model_copy(update=changes), **data.channels)
        for parameter in model.parameters():  # their gradients are counted with the weights
            parameter.grad = torch.zeros_like(parameter)
        columns = (value for value in cut.to_dict().values() if isinstance(value, Tensor))
        live = _Live(cut.num_nodes, [*model.parameters(), *model.buffers(), *columns])
        keeping = torch.autograd.graph.saved_tensors_hooks(live.note, lambda tensor: tensor)
        grad = torch.set_grad_enabled(whole is None)
        with live, keeping, grad, autocast(config.training.precision, "cpu"):
            loss = model.train(whole is None)(cut).float().log_softmax(-1).sum()
            if whole is None:
                loss.backward()
    by_nodes, by_pairs = live.most
    return by_nodes * size.nodes / cut.num_nodes, by_pairs * size.squares / cut.num_nodes**2


def cut_of(config: RunConfig, data: RunData, size: BatchSize) -> Data:
    """Return a graph of :data:`CUT` nodes with the columns of the data and edges in their ratio.

    Rows are repeated where the example has fewer, and edges connect arbitrary nodes.
    """
    batch = data.example
    named = (encoding.columns() for encoding in config.model.encodings if encoding.names_nodes)
    numbers = {column.attribute for columns in named for column in columns}
    n = min(CUT, max(1, size.nodes))
    rows = torch.arange(n) % batch.num_nodes
    values = dict[str, Any]()
    neighbor = getattr(batch, "neighbor", None)
    if neighbor is not None:  # edge e of node i is row i K + e of the edge features
        columns = (rows[:, None] * neighbor.shape[1] + torch.arange(neighbor.shape[1])).flatten()
    else:
        count = batch.edge_index.shape[1]
        columns = torch.arange(round(n * size.edges / max(1, size.nodes)) if count else 0) % max(
            1, count
        )
    for name, value in batch.to_dict().items():
        if not isinstance(value, Tensor) or not value.ndim or name in {"ptr", "batch", "y"}:
            continue
        if name in numbers:  # numbers of nodes: there each node has its own
            values[name] = torch.arange(n)[:, None].expand(-1, value.shape[1])
        elif name in {"edge_index", "neighbor"}:
            values[name] = (value[:, columns] if name == "edge_index" else value[rows].long()) % n
        else:  # one row per edge, per node, or (eigenvalues) per graph: the cut is one graph
            of_nodes = value[rows] if len(value) == batch.num_nodes else value[:1]
            values[name] = value[columns] if name in EDGE_COLUMNS else of_nodes
    return Data(**values)


class _Live(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Most bytes of tensors that are alive at a time: all others, and those of shape (…, nodes, nodes)."""

    def __init__(self, nodes: int, given: list[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.nodes = nodes
        self.now = [0, 0]
        self.most = [0, 0]
        self._known = WeakIdKeyDictionary()
        for tensor in given:  # there already: not counted
            self._known[tensor.untyped_storage()] = True

    def __torch_dispatch__(
        self, operator: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        out = operator(*args, **(kwargs or {}))
        for leaf in tree_leaves(
            (args, kwargs, out)
        ):  # arguments too: kernels make tensors of NumPy's arrays
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


def ways_out(config: RunConfig, data: RunData) -> str:
    """Return the options that lower the memory of a step."""
    training = config.training
    tips = ["one or more of"]
    if data.unit != "nodes" and training.batch_size > 1:
        size = -(-training.batch_size // 2)
        tips.append(
            f"--set training.batch_size={size} --set training.accumulate={2 * training.accumulate}"
        )
    elif data.unit == "nodes" and not training.neighbors:
        tips.append(
            "--neighbor-sampling 10,10 --set training.batch_size=1024 (parts of the graph at a time)"
        )
    elif data.unit == "nodes" and not training.eval_neighbors:
        tips.append("--set training.eval_neighbors=10,10 (parts of the graph in evaluations, too)")
    if not config.model.checkpoint_layers:
        tips.append("--set model.checkpoint_layers=true (less memory for about a third more time)")
    return "\n    ".join(
        [*tips, "--set training.precision=bf16-mixed", "a machine with more memory"]
    )


def out_of_memory(error: BaseException, module: Any, data: RunData) -> OutOfResources:
    """Return the error for an allocation that failed in a training module, with options that lower it."""
    text = next(iter(str(error).strip().splitlines()), type(error).__name__)
    where = f"{module.doing}{f', on {module.size}' if module.size else ''}"
    what = f"Memory ran out while {where}: {text.rpartition('DefaultCPUAllocator: ')[2]}"
    return OutOfResources(what, next=ways_out(module.config, data))
