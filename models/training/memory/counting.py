"""What a training step keeps, counted on a forward pass over a small cut of the data (ADR 0160).

That holds for any encoder, layer or attention; what a small cut does not show, the parts of a layer say
themselves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from kmip_data.models.kinds import Size
from kmip_data.models.network import build_model
from kmip_data.models.training.config.keys import RunConfig
from kmip_data.models.training.data.run_data import RunData
from kmip_data.models.training.memory.machine import autocast

CUT = 512  #: nodes that are counted
NODE_WORK = 8  #: (nodes, d) tensors of a layer while it goes back; its parts add their own
#: Layers whose tensors recomputing leaves as holes in glibc's heap, unless one tensor is as large as what
#: glibc always maps (ADR 0243).
HOLES, MAPPED = 2, 32 * 2**20


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
        Alive at once in the backward pass of a layer, or freed and not yet used again.
    holes
        Left in the heap of the process by layers that are recomputed.
    weights
        Of the parameters and buffers.
    number
        Number of layers.
    """

    layer: int
    layers: int
    outside: int
    search: int
    inputs: int
    work: int
    holes: int
    weights: int
    number: int


def count_kept(config: RunConfig, data: RunData, size: Size, device: str = "cpu") -> Kept:
    """Run the network forward over a cut of the data and scale what it keeps to ``size``.

    Global random generators are left as they are.

    Raises
    ------
    UsageError
        A part of the network is not there.
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
    alike = replace(size, edges_alike=config.model.edge_encoder == "dummy")
    parts = [
        part.footprint(alike, config.model.hidden_dim)
        for part in (config.model.local, config.model.attention)
    ]
    beyond = sum(part.kept for part in parts)
    layer = int(middle * scale) + beyond
    return Kept(
        layer=layer,
        layers=int(sum(layers) * scale) + beyond * len(layers),
        outside=int((counter.bytes[0] + counter.bytes[-1]) * scale) + 3 * size.nodes * data.num_classes * 4,
        search=int(counter.integers * scale),
        inputs=node + sum(part.inputs for part in parts),
        work=NODE_WORK * node + sum(part.work for part in parts),
        holes=HOLES * layer if device == "cpu" and node < MAPPED else 0,
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
            self.bytes[self._place] += storage.nbytes()
            if 0 < self._place < len(self.bytes) - 1 and not tensor.is_floating_point() and tensor.ndim > 1:
                self.integers += storage.nbytes() if tensor.dtype != torch.bool else 0
        return tensor


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
        done = name in {"edge_index", "edge_attr", "neighbor", "ptr", "batch", "y"}
        if not done and isinstance(value, Tensor) and value.ndim:
            # One row per node, or (eigenvalues) per graph: the cut is one graph.
            values[name] = value[rows] if len(value) == batch.num_nodes else value[:1]
    return Data(**values)
