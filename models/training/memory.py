"""Memory of a training step: measured on a cut of the data on a CPU, where the system would kill the process.

Networks of two and of three layers learn from the cut: their difference is one layer. A GPU raises
an error when its memory ends, so steps run there without a measurement.
"""

from __future__ import annotations

import math
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
from kmip_data.models.attention.transformer import TILED
from kmip_data.models.context import arithmetic_of, autocast
from kmip_data.models.layers.batch import EDGE_COLUMNS, BatchSize
from kmip_data.models.network import build_model, count_parameters
from kmip_data.models.training.config.keys import KSchedule, RunConfig
from kmip_data.models.training.data.run_data import RunData
from kmip_data.models.training.machine import Device
from kmip_data.runtime.memory import free_host_memory

#: Copies of the weights: themselves, their gradients, two moments of Adam, the best so far.
COPIES = 5
#: Factor for memory that compiled kernels allocate by themselves.
ROOM = 1.3
#: Nodes of a cut, of a graph whose attention weights go through dropout as those of larger ones do.
CUT = TILED


@dataclass(frozen=True)
class StepMemory:
    """Memory of a step, and the choice to recompute its layers."""

    recompute: bool
    #: Bytes in addition to those of the process; None: not measured (a GPU).
    need: int | None
    free: int

    def __str__(self) -> str:
        free = f"{human_bytes(self.free)} free"
        if self.need is None:
            return free
        return f"about {human_bytes(self.need)} for a step, {free}"


def plan_memory(config: RunConfig, data: RunData, device: Device) -> StepMemory:
    """Decide if layers are recomputed: on request or, on a CPU, where a step needs it.

    Raises ``OutOfResources``, with the options that lower it, where a step does not fit into free
    memory.
    """
    requested = config.model.checkpoint_layers
    if device.kind == "cuda":
        free, _total = torch.cuda.mem_get_info()
        return StepMemory(bool(requested), None, int(free))
    free = free_host_memory()
    choices = (False, True) if requested is None else (requested,)
    need = 0
    for recompute in choices:
        need = step_bytes(config, data, recompute=recompute)
        if config.system.devices * need <= free:
            return StepMemory(recompute, need, free)
    need *= config.system.devices
    raise OutOfResources(
        f"A training step on {data.largest_batch} takes about {human_bytes(need)}; "
        f"{human_bytes(free)} are free.",
        next=ways_out(config, data),
    )


def plan_evaluation(
    config: RunConfig, data: RunData, device: Device, log: Callable[[str], None]
) -> RunConfig:
    """Return ``config``, with sampled evaluations if a sampled graph does not fit into free memory.

    ``data`` then samples them, and ``log`` gets a line. Nothing changes on a GPU, or with
    ``training.eval_neighbors``.
    """
    training = config.training
    sampled = data.unit == "nodes" and training.neighbors
    if not sampled or training.eval_neighbors or device.kind == "cuda":
        return config

    counts = data.build.card.counts
    free = free_host_memory()
    whole = BatchSize(1, counts["nodes"], counts["edges"], counts["nodes"] ** 2)
    cut = cut_of(config, data, whole)
    graph = sum(column.nbytes for column in _columns(cut)) * whole.nodes // cut.num_nodes
    # Loading holds features as stored, standardised in float64, and joined: 2.6 to 3.5 times the
    # graph.
    need = max(4 * graph, graph + step_bytes(config, data, recompute=False, whole=whole))
    if need <= free:
        return config
    log(
        "evaluation: sampled like training, because the whole graph takes about "
        f"{human_bytes(need)}, {human_bytes(free)} are free (training.eval_neighbors)"
    )
    data.config = data.config.updated("training", eval_neighbors=training.neighbors)
    return config.updated("training", eval_neighbors=training.neighbors)


def step_bytes(
    config: RunConfig, data: RunData, *, recompute: bool, whole: BatchSize | None = None
) -> int:
    """Measure the bytes of a step on the largest batch, beyond those of the process.

    With the size of the ``whole`` graph, those of a forward pass over it.
    """
    # Nothing reads the edges of a last layer, which is lighter: both networks have such a layer.
    two = _on_a_cut(config, data, 2, recompute=recompute, whole=whole)
    three = _on_a_cut(config, data, 3, recompute=recompute, whole=whole)
    layers = config.model.layers - 2
    both = 0.0
    for smaller, larger in zip(two, three, strict=True):
        a_layer = max(0.0, larger - smaller)
        both += smaller + layers * a_layer
    copies = COPIES
    if config.training.ema is not None:
        copies += 2
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
        # 1. The network, with the largest k of all layers and epochs.
        changes: dict[str, Any] = {"layers": layers, "checkpoint_layers": recompute}
        k = getattr(config.model.attention, "k", None)
        if k:
            ks = list(k) if isinstance(k, tuple) else [k]
            if config.training.k_schedule:
                ks.append(KSchedule.parse(config.training.k_schedule).first)
            changes["attention"] = config.model.attention.model_copy(update={"k": max(ks)})
        model = build_model(config.model.model_copy(update=changes), **data.channels)

        # 2. One step; gradients of parameters exist before it, as they are counted with the
        #    weights.
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        existing = [*model.parameters(), *model.buffers(), *_columns(cut)]
        live = _Live(cut.num_nodes, existing)
        saving = torch.autograd.graph.saved_tensors_hooks(live.note, lambda tensor: tensor)
        grad = torch.set_grad_enabled(whole is None)
        rounding = arithmetic_of(config.system.arithmetic)
        with live, saving, grad, rounding, autocast(config.training.precision, "cpu"):
            logits = model.train(whole is None)(cut)
            loss = logits.float().log_softmax(-1).sum()
            if whole is None:
                loss.backward()
    by_nodes, by_pairs = live.most
    return by_nodes * size.nodes / cut.num_nodes, by_pairs * size.squares / cut.num_nodes**2


def cut_of(config: RunConfig, data: RunData, size: BatchSize) -> Data:
    """Return a graph of :data:`CUT` nodes with the columns of the data and edges in their ratio.

    Rows are repeated where the example has fewer, and edges connect arbitrary nodes.
    """
    # 1. Rows and edges of the example.
    batch = data.example
    n = min(CUT, max(1, size.nodes))
    if size.squares < CUT * size.nodes:  # smaller graphs, whose weights are kept whole
        n = min(n, CUT - 1)
    rows = torch.arange(n) % batch.num_nodes
    neighbor = getattr(batch, "neighbor", None)
    if neighbor is not None:
        # Edge e of node i is row i K + e of the edge features.
        k = neighbor.shape[1]
        edges = (rows[:, None] * k + torch.arange(k)).flatten()
    else:
        existing = batch.edge_index.shape[1]
        count = round(n * size.edges / max(1, size.nodes)) if existing else 0
        edges = torch.arange(count) % max(1, existing)

    # 2. Columns that have numbers of nodes.
    numbers = set()
    for encoding in config.model.encodings:
        if encoding.names_nodes:
            numbers |= {column.attribute for column in encoding.columns()}

    # 3. One row per edge, per node, or (eigenvalues) per graph: the cut is one graph.
    values = {}
    for name, value in batch.to_dict().items():
        if not isinstance(value, Tensor) or not value.ndim or name in {"ptr", "batch", "y"}:
            continue
        if name in numbers:
            values[name] = torch.arange(n)[:, None].expand(-1, value.shape[1])
        elif name == "edge_index":
            values[name] = value[:, edges] % n
        elif name == "neighbor":
            values[name] = value[rows].long() % n
        elif name in EDGE_COLUMNS:
            values[name] = value[edges]
        elif len(value) == batch.num_nodes:
            values[name] = value[rows]
        else:
            values[name] = value[:1]
    if size.graphs > 1:  # the second is empty: layers choose their passes by the number of graphs
        values["ptr"] = torch.tensor([0, n, n])
    return Data(**values)


def _columns(graph: Data) -> list[Tensor]:
    return [value for value in graph.to_dict().values() if isinstance(value, Tensor)]


class _Live(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Peak bytes of new tensors that are alive together: of most shapes, and by pairs of nodes.

    The latter are (…, nodes, nodes), or bits (nodes, ⌈nodes / 8⌉).
    """

    def __init__(self, nodes: int, existing: list[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.nodes = nodes
        self.now = [0, 0]
        self.most = [0, 0]
        self._known = WeakIdKeyDictionary()
        for tensor in existing:
            self._known[tensor.untyped_storage()] = True

    def __torch_dispatch__(
        self,
        operator: Any,
        types: Any,
        args: Any = (),
        kwargs: Any = None,
    ) -> Any:
        out = operator(*args, **(kwargs or {}))
        # Arguments too, as kernels make tensors from NumPy's arrays.
        for leaf in tree_leaves((args, kwargs, out)):
            if isinstance(leaf, Tensor):
                self.note(leaf)
        return out

    def note(self, tensor: Tensor) -> Tensor:
        """Count a storage once, until it is freed."""
        storage = tensor.untyped_storage()
        if storage not in self._known:
            in_bits = (self.nodes, math.ceil(self.nodes / 8))
            by_pairs = (
                tensor.shape == in_bits
                if tensor.dtype == torch.uint8
                else tensor.ndim > 2 and tensor.shape[-2:] == (self.nodes, self.nodes)
            )
            kind = int(by_pairs)
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
    tips += ["--set training.precision=bf16-mixed", "a machine with more memory"]
    return "\n    ".join(tips)


def out_of_memory(error: BaseException, module: Any, data: RunData) -> OutOfResources:
    """Return the error for an allocation that failed in a training module, with options that lower it."""
    text = next(iter(str(error).strip().splitlines()), type(error).__name__)
    text = text.rpartition("DefaultCPUAllocator: ")[2]
    work = module.doing
    if module.size:
        work += f", on {module.size}"
    return OutOfResources(
        f"Memory ran out while {work}: {text}",
        next=ways_out(module.config, data),
    )
