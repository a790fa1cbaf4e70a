"""What a training step keeps, counted on a forward pass over a small cut of the data (ADR 0160).

That holds for any encoder, layer or attention: what is kept grows with the nodes, but tensors with a place
for each pair of nodes of a graph, which their shape tells, with these pairs. What a small cut does not show,
the parts of a layer say themselves.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from kmip_data.models.context import ForwardContext
from kmip_data.models.kinds import Size
from kmip_data.models.network import build_model
from kmip_data.models.training.config.keys import RunConfig
from kmip_data.models.training.data.run_data import RunData
from kmip_data.models.training.memory.machine import autocast

CUT = 512  #: nodes that are counted
NODE_WORK = 4  #: (nodes, d) tensors of a layer while it goes back; its parts add their own
#: Share of what all layers would keep that recomputing leaves as holes in glibc's heap, unless one tensor is
#: as large as what glibc always maps (ADR 0243).
HOLES, MAPPED = 0.5, 32 * 2**20


@dataclass(frozen=True)
class Kept:
    """Bytes that a forward pass over a batch of ``size`` keeps for its backward pass."""

    layer: int  #: of one layer in the middle
    layers: int  #: of all layers
    outside: int  #: of encoders and head
    search: int  #: share of ``layers`` that is indices of chosen pairs
    pairs: int  #: share of ``layers`` that has a place for each pair of nodes of a graph
    inputs: int  #: what a layer is given, and its searches' results: all that a recomputed layer keeps
    work: int  #: alive at once in the backward pass of a layer, or freed and not yet used again
    holes: int  #: left in the heap of the process by layers that are recomputed
    weights: int  #: of the parameters and buffers
    number: int  #: of layers


def count_kept(config: RunConfig, data: RunData, size: Size, device: str = "cpu") -> Kept:
    """Run the network forward over a cut of the data and scale what it keeps to ``size``.

    Global random generators are left as they are. Raises ``UsageError`` where a part of the network is not
    there.
    """
    named = [encoding for encoding in config.model.encodings if encoding.names_nodes]
    names = {column.attribute for encoding in named for column in encoding.columns()}
    cut = cut_of(data.example, size, numbers=names).to(device)
    with torch.random.fork_rng(devices=[]):
        lean = config.model.model_copy(update={"checkpoint_layers": False})
        model = build_model(lean, **data.channels).to(device).train()
        counter = _Counter(model, cut)
        hooks = torch.autograd.graph.saved_tensors_hooks(counter.pack, lambda tensor: tensor)
        with hooks, autocast(config.training.precision, device):
            model(cut, ForwardContext(config.training.precision))
    scale, pair_scale = size.nodes / cut.num_nodes, size.pairs / cut.num_nodes**2
    pairs = [int(count * pair_scale) for count in counter.pairs[1:-1]] or [0]
    nodes = [int(count * scale) for count in counter.bytes[1:-1]] or [0]
    layers = [of_nodes + of_pairs for of_nodes, of_pairs in zip(nodes, pairs, strict=True)]
    middle = len(layers) // 2
    node = size.nodes * config.model.hidden_dim * 4
    alike = replace(size, edges_alike=config.model.edge_encoder == "dummy")
    parts = [
        part.footprint(alike, config.model.hidden_dim)
        for part in (config.model.local, config.model.attention)
    ]
    beyond = sum(part.kept for part in parts)
    layer, whole = layers[middle] + beyond, sum(layers) + beyond * len(layers)
    of_graph = pairs[middle] // size.graphs  # pairs are worked on graph by graph, where they are many
    mapped = pairs[middle] if of_graph > MAPPED else 0
    return Kept(
        layer=layer,
        layers=whole,
        outside=int((counter.bytes[0] + counter.bytes[-1]) * scale) + 3 * size.nodes * data.num_classes * 4,
        search=int(counter.integers * scale),
        pairs=sum(pairs),
        inputs=node + sum(part.inputs for part in parts),
        work=NODE_WORK * node + of_graph + sum(part.work for part in parts),
        holes=int(HOLES * (whole - mapped * len(layers))) if device == "cpu" and node < MAPPED else 0,
        weights=sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values()),
        number=len(layers),
    )


class _Counter:
    """Counts the storages that autograd saves, by the layer that is at work."""

    def __init__(self, model: nn.Module, cut: Data) -> None:
        layers = list(getattr(model, "layers", []))
        self.bytes, self.pairs = [0] * (len(layers) + 2), [0] * (len(layers) + 2)
        self._nodes = cut.num_nodes
        self.integers = 0
        self._place = 0
        given = [
            *model.parameters(),
            *model.buffers(),
            *(v for v in cut.to_dict().values() if isinstance(v, Tensor)),
        ]
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
            of_pairs = tensor.ndim > 2 and tensor.shape[-2:] == (self._nodes, self._nodes)
            (self.pairs if of_pairs else self.bytes)[self._place] += storage.nbytes()
            if 0 < self._place < len(self.bytes) - 1 and not tensor.is_floating_point() and tensor.ndim > 1:
                self.integers += storage.nbytes() if tensor.dtype != torch.bool else 0
        return tensor


def cut_of(batch: Any, size: Size, numbers: Collection[str] = ()) -> Data:
    """Return a graph of :data:`CUT` nodes with the columns of ``batch`` and edges in the ratio of ``size``.

    Rows are repeated where the batch has fewer; who is connected to whom means nothing. Columns in
    ``numbers`` are of nodes: each names itself.
    """
    n = min(CUT, max(1, size.nodes))
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
        done = name in {"edge_index", "edge_attr", "neighbor", "ptr", "batch", "y"}
        if not done and isinstance(value, Tensor) and value.ndim:
            # One row per node, or (eigenvalues) per graph: the cut is one graph.
            values[name] = value[rows] if len(value) == batch.num_nodes else value[:1]
            if name in numbers:
                values[name] = torch.arange(n)[:, None].expand(-1, value.shape[1])
    return Data(**values)
