"""Estimated memory of a training step, which decides whether layers are recomputed.

On a CPU, the system would kill a process that runs out of memory, so a step that does not fit is
refused in advance. A GPU raises an error instead, so the step is simply tried.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from kmip_data.errors import OutOfResources, Setting, Step
from kmip_data.models.attention.kmip import set_training_k
from kmip_data.models.config import ModelConfig, plugin_network
from kmip_data.models.layers.batch import BatchSize, read_batch
from kmip_data.models.network import build_gps_layer, build_model, count_parameters
from kmip_data.models.training.config.run_config import KSchedule, RunConfig
from kmip_data.models.training.data.run_data import RunData
from kmip_data.models.training.devices import Device
from kmip_data.runtime.memory import free_host_memory, require_memory
from kmip_data.text import count_with_noun, human_bytes

#: Copies of the weights: the weights, their gradients, two moments of Adam, and the best so far.
WEIGHT_COPIES = 5
#: Fewest nodes of a batch on which a layer's memory is counted: enough to select the kernels that
#: draw no masks.
MIN_COUNTED_NODES = 2048
MAX_COUNTED_GRAPH = 1024  #: most nodes of each of its graphs
#: Channels per node that a layer of a plugin's own network is assumed to save: it cannot be counted.
PLUGIN_CHANNELS = 8
#: Ratio of the memory held during a layer's backward pass to the memory the layer saved.
BACKWARD_OVERHEAD = 1.3
#: Ratio of resident memory to memory in use without recomputation, because freed blocks leave holes.
#: With recomputation, large blocks have their own mapping. Measured: 1.1 to 2.0.
FRAGMENTATION = 1.35


@dataclass(frozen=True)
class StepMemory:
    """Memory of a step, and whether to recompute its layers."""

    recompute: bool
    #: beyond what the process already uses; ``None`` on a GPU
    needed_bytes: int | None
    free_bytes: int

    def __str__(self) -> str:
        free = f"{human_bytes(self.free_bytes)} free"
        if self.needed_bytes is None:
            return free
        return f"about {human_bytes(self.needed_bytes)} for a step, {free}"


def estimate_step_memory(config: RunConfig, data: RunData, device: Device) -> StepMemory:
    """Decide whether to recompute layers: on request or, on a CPU, if the step would not fit.

    Raises ``OutOfResources``, with options that reduce memory, if a step does not fit into free
    memory.
    """
    requested = config.model.checkpoint_layers
    # The network is built on the CPU, also for a GPU.
    require_network_memory(config.model, data.network_sizes, "use a smaller model.hidden_dim")
    if device.type == "cuda":
        free, _total = torch.cuda.mem_get_info()
        return StepMemory(bool(requested), None, int(free))
    free = free_host_memory()
    choices = (False, True) if requested is None else (requested,)
    size = data.largest_batch
    need = 0
    for recompute in choices:
        in_use = step_bytes(config, data.network_sizes, size, recompute=recompute)
        need = config.system.devices * int(in_use if recompute else FRAGMENTATION * in_use)
        if need <= free:
            return StepMemory(recompute, need // config.system.devices, free)
    raise OutOfResources(
        f"A training step on {size} takes about {human_bytes(need)}; {human_bytes(free)} are free.",
        steps=memory_saving_steps(config, data),
    )


def require_network_memory(
    model: ModelConfig, channels: dict[str, Any], step: Step, *, copies: int = 1
) -> None:
    """Raise ``OutOfResources``, with ``step``, if the weights of a network do not fit into memory.

    Called before the network is built, as the system would kill a process that initialises more.
    """
    needed = 4 * copies * count_weights(model, channels)
    sizes = f"{count_with_noun(model.layers, 'layer')} and hidden_dim = {model.hidden_dim}"
    require_memory(needed, f"A network with {sizes}", step)


def count_weights(model: ModelConfig, channels: dict[str, Any]) -> int:
    """Count the weights of a network without memory for them.

    A tensor of more than 2⁶³ bytes, which no device counts, gives that many.
    """
    try:
        with torch.device("meta"):
            return count_parameters(build_model(model, **channels))
    except RuntimeError as error:
        if "overflow" not in str(error):
            raise
        return 2**63


def is_graph_too_large(
    config: RunConfig, data: RunData, device: Device, log: Callable[[str], None]
) -> bool:
    """True, with a message to ``log``, if a sampled graph is too large to evaluate as a whole.

    Always False on a GPU, and with ``training.eval_neighbors``.
    """
    training = config.training
    is_sampled = data.part_members == "nodes" and training.neighbors
    if not is_sampled or training.eval_neighbors or device.type == "cuda":
        return False

    counts = data.build.card.counts
    size = BatchSize(1, counts["nodes"], counts["edges"], counts["nodes"] ** 2)
    free = free_host_memory()
    graph_bytes = 4 * size.nodes * data.network_sizes["in_channels"]
    graph_bytes += size.edges * (16 + 4 * (data.network_sizes["edge_channels"] or 0))
    # Loading holds the features as stored, standardised in float64, and joined: 2.6 to 3.5 times
    # the graph. A forward pass holds one layer at a time.
    one_layer = config.with_values("model", layers=1)
    forward_bytes = step_bytes(one_layer, data.network_sizes, size, recompute=True)
    need = max(4 * graph_bytes, graph_bytes + forward_bytes)
    if need <= free:
        return False
    log(
        "evaluation: sampled like training, because the whole graph takes about "
        f"{human_bytes(need)}; {human_bytes(free)} are free (training.eval_neighbors)"
    )
    return True


def step_bytes(
    config: RunConfig, channels: dict[str, Any], size: BatchSize, *, recompute: bool
) -> int:
    """Estimate the bytes that a training step on a batch adds to process and data.

    Parameters
    ----------
    channels
        Arguments of :func:`kmip_data.models.network.build_model` determined by the data.
    size
        Graphs, nodes, edges and pairs of nodes of the batch.
    recompute
        True if layers keep only their inputs and are recomputed one at a time.
    """
    model = config.model
    dim = model.hidden_dim

    # 1. All layers, or the inputs of all layers and one recomputed layer.
    per_node, per_edge = count_saved_values(config, size)
    layer_values = size.nodes * per_node + size.edges * per_edge
    network_values = model.layers * layer_values
    if recompute:
        input_values = size.nodes * dim
        if model.local.updates_edges:
            input_values += size.edges * dim
        network_values = model.layers * input_values + BACKWARD_OVERHEAD * layer_values

    # 2. Encoders, head and weights.
    encoder_values = 4 * size.nodes * (dim + channels["out_channels"])
    if _has_edge_features(model):
        encoder_values += size.edges * dim
    weights = count_weights(model, channels)
    return int(4 * (network_values + encoder_values + WEIGHT_COPIES * weights))


def _has_edge_features(model: ModelConfig) -> bool:
    return model.edge_encoder not in {"dummy", "none"}


def count_saved_values(config: RunConfig, size: BatchSize) -> tuple[float, float]:
    """Count the float32 values that a layer saves for its backward pass, per node and per edge.

    The layer that saves most runs on three small batches: a first one, one with twice the nodes, and
    one with twice the edges. Their graphs have as many nodes as the graphs of ``size``, because full
    attention saves more per node in a larger graph, but at most 1,024. In larger graphs, only the
    search ``reference`` saves more.
    """
    if plugin_network(config.model.name) is not None:
        return PLUGIN_CHANNELS * config.model.hidden_dim, 0
    mean_nodes = size.node_pairs // size.nodes if size.node_pairs else size.nodes // size.graphs
    nodes_per_graph = min(max(1, mean_nodes), MAX_COUNTED_GRAPH)
    graphs = -(-MIN_COUNTED_NODES // nodes_per_graph)
    nodes = graphs * nodes_per_graph
    edges = 2 * nodes

    def count(graphs: int, edges: int) -> float:
        batch = BatchSize(graphs, graphs * nodes_per_graph, edges, is_table=size.is_table)
        return _saved_values(config, batch)

    with torch.random.fork_rng(devices=[]):
        saved = count(graphs, edges)
        saved_by_nodes = count(2 * graphs, edges) - saved
        saved_by_edges = count(graphs, 2 * edges) - saved
    return saved_by_nodes / nodes, saved_by_edges / edges


def _saved_values(config: RunConfig, size: BatchSize) -> float:
    """Count the float32 values, except weights, that a layer saves on a random batch of equal graphs."""
    # 1. The layer, and the state that its attention carries.
    attention = config.model.attention.of_largest_layer
    model = config.model.model_copy(update={"attention": attention})
    dim = model.hidden_dim
    layer = build_gps_layer(model, 0, dim)
    schedule = config.training.k_schedule
    set_training_k(layer, KSchedule.parse(schedule).first if schedule else None)
    begin = attention.build_initial_state(dim)

    # 2. A batch with zeros in the columns that a component reads.
    sources, targets = torch.randint(size.nodes, (2, size.edges))
    data = Data(x=torch.zeros(size.nodes, 1))
    data.ptr = torch.arange(size.graphs + 1) * (size.nodes // size.graphs)
    edge_shape: tuple[int, ...] = (size.edges,)
    if size.is_table:
        edge_shape = (size.nodes, size.edges // size.nodes)
        data.neighbor = sources.view(edge_shape)
    else:
        data.edge_index = torch.stack([sources, targets.sort().values])
    added_columns = []
    rows = {"node": size.nodes, "edge": size.edges, "graph": size.graphs}
    for encoding in filter(None, (model.local.encoding, attention.encoding)):
        for column in encoding.columns():
            values = np.zeros((rows[column.level], *column.shape), column.presented)
            data[column.attribute] = torch.from_numpy(values)
            added_columns.append(column.attribute)
    batch = read_batch(data, added_columns)
    if any(positional.adds_distances for positional in model.positional_encodings):
        distance = torch.rand(*edge_shape, 1, requires_grad=True)
        batch = replace(batch, edges=replace(batch.edges, distance=distance))
    x = torch.randn(size.nodes, dim, requires_grad=True)
    # Without edge features, all edges share one row until message passing updates them.
    has_row_per_edge = _has_edge_features(model) or model.local.updates_edges
    row_shape = edge_shape if has_row_per_edge else (1,)
    e = torch.randn(*row_shape, dim, requires_grad=True)

    # 3. Saved tensors may be views of the same storage, so count each storage once.
    modules = [layer] if begin is None else [layer, begin]
    parameters = nn.ModuleList(modules).parameters()
    weights = {parameter.untyped_storage().data_ptr() for parameter in parameters}
    storages = {}

    def record_storage(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            storages[storage.data_ptr()] = storage
        return tensor

    carried = () if begin is None else begin(e, batch)
    with torch.autograd.graph.saved_tensors_hooks(record_storage, lambda tensor: tensor):
        result = layer(x, e, batch, *carried)  # noqa: F841 -- keeps the saved tensors
    return sum(storage.nbytes() for storage in storages.values()) / 4


def memory_saving_steps(config: RunConfig, data: RunData) -> list[Step]:
    """Return the settings that reduce the memory of a training step."""
    training = config.training
    steps: list[Step] = []
    if data.part_members != "nodes" and training.batch_size > 1:
        size = -(-training.batch_size // 2)
        smaller = {"training.batch_size": size, "training.accumulate": 2 * training.accumulate}
        steps.append(Setting(smaller))
    elif data.part_members == "nodes" and not training.neighbors:
        steps.append(Setting({"neighbor_sampling": "10,10", "training.batch_size": 1024}))
    elif data.part_members == "nodes" and not training.eval_neighbors:
        steps.append(Setting({"training.eval_neighbors": "10,10"}))
    if not config.model.checkpoint_layers:
        steps.append(Setting({"model.checkpoint_layers": "true"}))
    steps += [Setting({"training.precision": "bf16-mixed"}), "use a machine with more memory"]
    return steps


def training_memory_error(error: BaseException, module: Any, data: RunData) -> OutOfResources:
    """Return the error for a failed allocation in training, with options that reduce memory."""
    reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
    reason = reason.rpartition("DefaultCPUAllocator: ")[2]
    activity = module.activity
    if module.current_batch_size:
        activity += f", on {module.current_batch_size}"
    steps = memory_saving_steps(module.config, data)
    if module.is_finished_run:
        steps = [Setting(device="cpu"), "use a machine with more memory"]
    return OutOfResources(f"Memory ran out while {activity}: {reason}", steps=steps)
