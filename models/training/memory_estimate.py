"""Estimated memory of a training step, which decides whether layers are recomputed.

On a CPU the system would kill a process that takes too much memory, so a step that does not fit is
refused beforehand. A GPU raises an error when out of memory, so steps are tried there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data

from kmip_data.errors import OutOfResources
from kmip_data.models.attention.transformer import TILED
from kmip_data.models.components import LayerInfo
from kmip_data.models.config import ModelConfig
from kmip_data.models.layers.batch import BatchSize, read_batch
from kmip_data.models.network import build_model, count_parameters
from kmip_data.models.training.config.keys import KSchedule, RunConfig
from kmip_data.models.training.data.run_data import RunData
from kmip_data.models.training.machine import Device
from kmip_data.runtime.memory import free_host_memory
from kmip_data.text import human_bytes

#: Copies of the weights: themselves, their gradients, two moments of Adam, the best so far.
COPIES = 5
#: Ratio of the channels that a step holds per node to those that autograd saves of message passing
#: alone. Fitted to the built-in kinds: 1 to 1.5.
HELD = 1.3
#: Fraction of a layer's memory held during its backward pass.
BACK = 1.3
#: Ratio of resident memory to memory in use without recomputation: freed blocks leave holes. Where
#: they are recomputed, large blocks are mapped by themselves. Measured: 1.1 to 2.0.
HOLES = 1.35


@dataclass(frozen=True)
class StepMemory:
    """Memory of a step, and the choice to recompute its layers."""

    recompute: bool
    #: Bytes beyond the process's own; None on a GPU.
    need: int | None
    free: int

    def __str__(self) -> str:
        free = f"{human_bytes(self.free)} free"
        if self.need is None:
            return free
        return f"about {human_bytes(self.need)} for a step, {free}"


def plan_memory(config: RunConfig, data: RunData, device: Device) -> StepMemory:
    """Decide whether layers are recomputed: on request or, on a CPU, if a step needs it.

    Raises ``OutOfResources``, with options that reduce memory, if a step does not fit into free
    memory.
    """
    requested = config.model.checkpoint_layers
    if device.type == "cuda":
        free, _total = torch.cuda.mem_get_info()
        return StepMemory(bool(requested), None, int(free))
    free = free_host_memory()
    choices = (False, True) if requested is None else (requested,)
    size = data.largest_batch
    need = 0
    for recompute in choices:
        in_use = step_bytes(config, data.network_sizes, size, recompute=recompute)
        need = config.system.devices * int(in_use if recompute else HOLES * in_use)
        if need <= free:
            return StepMemory(recompute, need // config.system.devices, free)
    raise OutOfResources(
        f"A training step on {size} takes about {human_bytes(need)}; {human_bytes(free)} are free.",
        next=memory_saving_options(config, data),
    )


def is_graph_too_large(
    config: RunConfig, data: RunData, device: Device, log: Callable[[str], None]
) -> bool:
    """Return True if training samples a graph that does not fit into free memory for an evaluation.

    ``log`` then receives a line. False on a GPU, or with ``training.eval_neighbors``.
    """
    training = config.training
    sampled = data.unit == "nodes" and training.neighbors
    if not sampled or training.eval_neighbors or device.type == "cuda":
        return False

    counts = data.build.card.counts
    whole = BatchSize(1, counts["nodes"], counts["edges"], counts["nodes"] ** 2)
    free = free_host_memory()
    graph = 4 * whole.nodes * data.network_sizes["in_channels"]
    graph += whole.edges * (16 + 4 * (data.network_sizes["edge_channels"] or 0))
    # Loading holds features as stored, standardised in float64, and joined: 2.6 to 3.5 times the
    # graph. A forward pass holds one layer at a time.
    one_layer = config.with_values("model", layers=1)
    forward = step_bytes(one_layer, data.network_sizes, whole, recompute=True)
    need = max(4 * graph, graph + forward)
    if need <= free:
        return False
    log(
        "evaluation: sampled like training, because the whole graph takes about "
        f"{human_bytes(need)}, {human_bytes(free)} are free (training.eval_neighbors)"
    )
    return True


def step_bytes(
    config: RunConfig, channels: dict[str, Any], size: BatchSize, *, recompute: bool
) -> int:
    """Return the bytes of a training step on a batch, beyond the bytes of the process and of the data.

    Parameters
    ----------
    channels
        Arguments of :func:`kmip_data.models.network.build_model` that the data decide.
    size
        Graphs, nodes, edges and pairs of nodes of the batch.
    recompute
        True if layers keep their inputs alone and are recomputed one at a time.
    """
    model = config.model
    dim = model.hidden_dim
    attention: Any = model.attention

    # 1. Message passing. If the data have no edge features, only updated edges are rows of their own.
    of_node, of_edge = model.local.saved_channels or count_saved_channels(model)
    no_edges = model.edge_encoder in {"dummy", "none"}
    if no_edges and not model.local.updates_edges:
        of_edge = 0
    if any(position.distances for position in model.positions):
        of_edge += 3

    # 2. Norms, the feed-forward block and attention.
    if model.norm != "none":
        of_node += 2
    if model.feed_forward:
        of_node += 6
    if attention.kind == "exphormer" and attention.real_edges:
        of_edge += 3
    schedule = config.training.k_schedule
    training_k = KSchedule.parse(schedule).first if schedule else 0
    of_attention = attention.saved_values(dim, model.layers, training_k)
    kept = size.nodes * (of_node * dim + of_attention) + size.edges * of_edge * dim
    in_tiles = size.squares >= TILED * size.nodes
    if attention.kind == "transformer" and attention.dropout and not in_tiles:
        kept += attention.heads * size.squares * 4  # weights of all pairs

    # 3. All layers, or what passes between recomputed layers.
    carried = size.nodes * dim
    if model.local.updates_edges or attention.kind == "exphormer":
        carried += size.edges * dim
    kept = model.layers * carried + BACK * kept if recompute else model.layers * kept

    # 4. Encoders, head and weights.
    encoded = 4 * size.nodes * (dim + channels["num_classes"])
    if not no_edges:
        encoded += size.edges * dim
    with torch.device("meta"):
        weights = count_parameters(build_model(model, **channels))
    return int(4 * (kept + encoded + COPIES * weights))


def count_saved_channels(model: ModelConfig) -> tuple[float, float]:
    """Count what message passing saves per node and per edge, in multiples of the hidden dimension.

    One layer is applied to small graphs: what more nodes add is of nodes, what more edges add of
    edges.
    """
    nodes, edges = 2000, 4000  # large enough for the kernels that draw no masks
    with torch.random.fork_rng(devices=[]):
        layer: Any = model.local.build(LayerInfo(model.hidden_dim, model.dropout, layers=2))
        saved = _saved_values(layer, model.hidden_dim, nodes, edges)
        of_more_nodes = _saved_values(layer, model.hidden_dim, 2 * nodes, edges) - saved
        of_more_edges = _saved_values(layer, model.hidden_dim, nodes, 2 * edges) - saved
    return (
        HELD * of_more_nodes / (nodes * model.hidden_dim),
        of_more_edges / (edges * model.hidden_dim),
    )


def _saved_values(layer: Any, dim: int, nodes: int, edges: int) -> float:
    """Return the float32 values that autograd saves for the layer's backward pass, without weights."""
    index = torch.randint(nodes, (2, edges))
    batch = read_batch(Data(x=torch.zeros(nodes, 1), edge_index=index[:, index[1].argsort()]))
    x = torch.randn(nodes, dim, requires_grad=True)
    e = torch.randn(edges, dim, requires_grad=True)

    # Saved tensors may be views of the same storage: each storage counts once.
    weights = {parameter.untyped_storage().data_ptr() for parameter in layer.parameters()}
    storages = {}

    def note_saved(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            storages[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note_saved, lambda tensor: tensor):
        result = layer(x, e, batch)  # noqa: F841 -- keeps the saved tensors
    return sum(storage.nbytes() for storage in storages.values()) / 4


def memory_saving_options(config: RunConfig, data: RunData) -> str:
    """Return the options that reduce the memory of a step."""
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


def memory_error(error: BaseException, module: Any, data: RunData) -> OutOfResources:
    """Return the error for a failed allocation in training, with options that reduce memory."""
    text = next(iter(str(error).strip().splitlines()), type(error).__name__)
    text = text.rpartition("DefaultCPUAllocator: ")[2]
    work = module.activity
    if module.size:
        work += f", on {module.size}"
    step = memory_saving_options(module.config, data)
    if module.finished:
        step = "--device cpu, or a machine with more memory"
    return OutOfResources(f"Memory ran out while {work}: {text}", next=step)
