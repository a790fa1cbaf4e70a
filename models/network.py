"""GPS layers, networks of them, and ``build_model``, which builds a network from a configuration."""

from __future__ import annotations

import bisect
import functools
import itertools
import logging
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from kmip_data.errors import UsageError
from kmip_data.models.component_names import (
    NORMS_OF_ROWS,
    all_heads,
    all_norms,
    edge_encoders,
    encoding_attributes,
    node_encoders,
)
from kmip_data.models.components import Activation, LayerInfo, NoComponent
from kmip_data.models.config import USUAL_DIM, ModelConfig, plugin_network
from kmip_data.models.encoders import WithPositional
from kmip_data.models.layers.batch import GraphBatch, read_batch
from kmip_data.models.layers.kinds import MessagePassing
from kmip_data.models.layers.linear import Linear
from kmip_data.models.layers.neighborhood_trimming import trim_to_hops
from kmip_data.models.layers.norms import BatchNorm, apply_norm_block
from kmip_data.models.layers.norms import dropout as dropout_rows
from kmip_data.models.search.topk import search_op

log = logging.getLogger(__name__)

NARROWEST, WIDEST = 32, 512  #: range of hidden dimensions in the published search


def count_parameters(model: nn.Module) -> int:
    """Count all parameters, including encoders, norms and heads, trained or not; no buffers."""
    return sum(parameter.numel() for parameter in model.parameters())


class GPSLayer(nn.Module):
    """One layer of GraphGPS, in the order of upstream graphgps/layer/gps_layer.py.

    local: ``norm(conv(x, e, batch))``, global: ``norm(x + dropout(attention(x, batch)))``, their
    sum h, then ``norm(h + dropout(W₂ dropout(act(W₁ h))))``. A branch without a module is left out;
    at least one is required.

    Parameters
    ----------
    conv
        Module called as ``conv(x, e, batch) -> (x, e)`` with nodes (N, d), edge features in the
        form of ``batch.edges`` and a :class:`~kmip_data.models.layers.batch.GraphBatch`; does its
        own dropout.
    attention
        Module called as ``attention(x, batch) -> x``; or, with state carried between layers, as
        ``attention(x, batch, *carried) -> (x, *carried)``.
    dim, dropout
        Channels d; probability of dropout after attention and twice in the feed-forward block.
    norm
        Name in :data:`~kmip_data.models.component_names.NORMS`, or of a loaded plugin.
    activation, feed_forward
        Activation of the feed-forward block; False: the layer ends with h.
    add_local_input
        Add x to the output of ``conv`` before its norm.
    """

    def __init__(
        self,
        conv: nn.Module | None,
        attention: nn.Module | None,
        *,
        dim: int,
        dropout: float = 0.0,
        norm: str = "batch",
        activation: Activation = "relu",
        feed_forward: bool = True,
        add_local_input: bool = False,
    ) -> None:
        super().__init__()
        if conv is None and attention is None:
            raise UsageError("A GPS layer has neither conv nor attention.")
        self.local = conv
        self.attention = attention
        new_norm = all_norms()[norm]
        self.norm_local = None if conv is None else new_norm(dim)
        self.norm_global = None if attention is None else new_norm(dim)
        self.feed_forward = feed_forward
        self.add_local_input = add_local_input
        if feed_forward:
            self.norm_out = new_norm(dim)
            self.linear_in = Linear(dim, 2 * dim)
            self.linear_out = Linear(2 * dim, dim)
        self.dropout = nn.Dropout(dropout)
        self.activation = getattr(nn.functional, activation)

    def forward(
        self,
        x: Tensor,
        e: Tensor | None,
        batch: object,
        *carried: object,
    ) -> tuple[object, ...]:
        """Update nodes (N, d), edge features and the state that attention carries.

        ``batch`` may be one of PyTorch Geometric's, too.
        """
        graphs = batch if isinstance(batch, GraphBatch) else read_batch(batch)
        dropout = self.dropout.p if self.dropout.training else 0.0
        # 1. Message passing.
        h: Tensor | None = None
        if self.local is not None and self.norm_local is not None:
            local, e = self.local(x, e, graphs)
            added = x[: len(local)] if self.add_local_input else None
            h = apply_norm_block(self.norm_local, local, added, graphs)

        # 2. Attention on the same input, normalised and added to the first branch.
        if self.attention is not None and self.norm_global is not None:
            attended = self.attention(x, graphs, *carried)
            if carried:
                attended, *carried = attended
            h = apply_norm_block(self.norm_global, x, attended, graphs, before=dropout, residual=h)
        assert h is not None
        if not self.feed_forward:
            return h, e, *carried

        # 3. Feed-forward block.
        hidden = self.activation(self.linear_in(h))
        hidden = dropout_rows(hidden, dropout)
        feed = self.linear_out(hidden)
        return apply_norm_block(self.norm_out, h, feed, graphs, before=dropout), e, *carried


#: Contexts of both passes of a checkpoint; the second reuses the searches of the first.
_KEEPING_SEARCHES = functools.partial(
    create_selective_checkpoint_contexts,
    [search_op._opoverload],  # noqa: SLF001 -- the operator that a dispatcher sees
)


def apply_recomputed(
    layer: nn.Module,
    x: Tensor,
    e: Tensor | None,
    batch: GraphBatch,
    *carried: object,
) -> Any:
    """Apply ``layer(x, e, batch, *carried)`` with activation checkpointing, bitwise equal to without.

    The second pass draws the same dropout masks and reuses the results of the first pass's
    searches, 8 bytes per chosen pair.
    """
    # The first pass updates the running statistics, the second these copies.
    copies = {name: buffer.clone() for name, buffer in layer.named_buffers()}
    passes = itertools.count()

    def run(x: Tensor, e: Tensor | None, *carried_rows: object) -> object:
        buffers = copies if next(passes) else {}
        return functional_call(layer, buffers, (x, e, batch, *carried_rows))

    return checkpoint(run, x, e, *carried, use_reentrant=False, context_fn=_KEEPING_SEARCHES)


class GPSNetwork(nn.Module):
    """Encoders, GPS layers and a head; arguments as :func:`build_model` takes them.

    ``hidden_dim`` is taken as it is.
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        in_channels: int,
        num_classes: int,
        edge_channels: int | None = None,
    ) -> None:
        super().__init__()
        dim = config.hidden_dim
        components = (config.local, config.attention)
        positions = config.positions
        nodes = node_encoders()[config.node_encoder]
        edges = edge_encoders()[config.edge_encoder]
        self.reads = (*nodes.reads, *edges.reads)
        for position in positions:
            self.reads += position.reads
        for component in components:
            self.reads += component.reads

        # Parts draw their weights in the order in which they are made: keep it, so that seeds
        # reproduce runs.
        width = sum(position.width for position in positions)
        self.node_encoder = nodes.build(in_channels, dim - width)
        for position in positions:
            if position.build is not None and position.width:
                self.node_encoder = WithPositional(self.node_encoder, position.build(position, dim))
        self.node_encoder_norm = BatchNorm(dim) if config.node_encoder_norm else None
        self.edge_encoder = edges.build(edge_channels, dim)
        self.reads_edges = any(component.reads_edges for component in components)
        # Unused, but kept for upstream's parameter counts; it takes no gradient.
        self.edge_encoder.requires_grad_(self.reads_edges)
        for component in components:
            component.initialise(self.node_encoder, self.edge_encoder)
        self.position: nn.Module | None = None
        for position in positions:
            if position.build is not None and not position.width:
                self.position = position.build(position, dim)
        self.input = nn.Sequential(*(InputBlock(dim) for _ in range(config.input_layers)))
        self.begin = config.attention.begin(dim)
        self.input_dropout = config.input_dropout
        first = in_channels + width if config.node_encoder == "none" else dim
        widths = [first, *[dim] * (config.layers - 1)]
        self.layers = nn.ModuleList(
            _gps_layer(config, number, wide) for number, wide in enumerate(widths)
        )
        #: True if layers read neighbours alone, so that a sample can be trimmed.
        self.is_local = (
            config.attention.kind == "none"
            and isinstance(config.local, MessagePassing | NoComponent)
            and config.norm in NORMS_OF_ROWS
            and not any(component.reads for component in components)
        )
        self.checkpoint_layers = bool(config.checkpoint_layers)
        self.head = all_heads()[config.head or "node"].build(
            dim,
            num_classes,
            layers=config.head_layers,
            l2norm=config.head_l2norm,
            dropout=config.head_dropout,
            activation=config.head_activation,
            pooling=config.pooling,
        )
        self.output_scale = config.output_scale

    def forward(self, batch: Any) -> Tensor:
        """Predict (N, num_classes), or (G, num_classes) with a head for graphs.

        :func:`~kmip_data.models.layers.batch.read_batch` documents what is read from a PyTorch
        Geometric batch. A sampled neighbourhood yields predictions for its seeds, the first nodes.
        """
        graphs = read_batch(batch, self.reads)
        if self.position is not None:
            graphs = self.position(graphs)
        x = self.node_encoder(graphs)
        if self.node_encoder_norm is not None:
            x = self.node_encoder_norm(x, graphs)
        x = dropout_rows(x, self.input_dropout if self.training else 0.0)
        for block in self.input:
            x = block(x, graphs)
        e = self.edge_encoder(graphs) if self.reads_edges else None
        carried: Sequence[object] = () if self.begin is None else self.begin(e, graphs)
        for number, layer in enumerate(self.layers):
            local_graphs = graphs
            if self.is_local:
                hops = len(self.layers) - number
                narrows = getattr(layer.local, "narrows", False)
                x, e, local_graphs = trim_to_hops(x, e, graphs, hops, targets_only=narrows)
            if self.checkpoint_layers and self.training:
                x, e, *carried = apply_recomputed(layer, x, e, local_graphs, *carried)
            else:
                x, e, *carried = layer(x, e, local_graphs, *carried)
        x, _, graphs = trim_to_hops(x, None, graphs, 0)
        out: Tensor = self.head(x, graphs)
        return out if self.output_scale == 1 else out * self.output_scale


class ForeignNetwork(nn.Module):
    """A plugin's network, called with a :class:`GraphBatch`; arguments as for :class:`GPSNetwork`."""

    def __init__(self, config: ModelConfig, **sizes: Any) -> None:
        super().__init__()
        network = plugin_network(config.name)
        assert network is not None
        self.network = network(config, **sizes)
        self.reads: tuple[str, ...] = ()
        for encoding in config.encodings:
            self.reads += encoding_attributes(encoding)

    def forward(self, batch: Any) -> Tensor:
        """Predict, in the form of the targets."""
        graphs = read_batch(batch, self.reads)
        out: Tensor = self.network(graphs)
        return out if graphs.hops is None else out[: graphs.hops.nodes[0]]


def _make_network(config: ModelConfig, **sizes: Any) -> nn.Module:
    network_class = GPSNetwork if plugin_network(config.name) is None else ForeignNetwork
    return network_class(config, **sizes)


class InputBlock(nn.Module):
    """Linear, batch norm, ReLU, rows scaled to length 1 (GraphGym's layer before message passing)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.linear = Linear(dim, dim, bias=False)
        self.norm = BatchNorm(dim)

    def forward(self, x: Tensor, batch: GraphBatch) -> Tensor:
        """(N, dim) to the same."""
        h = self.norm(self.linear(x), batch)
        return nn.functional.normalize(h.relu(), dim=1)


def _gps_layer(config: ModelConfig, number: int, inputs: int) -> GPSLayer:
    distances = any(position.distances for position in config.positions)
    layer = LayerInfo(config.hidden_dim, config.dropout, number, config.layers, distances, inputs)
    return GPSLayer(
        config.local.build(layer),
        config.attention.build(layer),
        dim=config.hidden_dim,
        dropout=config.dropout,
        norm=config.norm,
        activation=config.ffn_activation,
        feed_forward=config.feed_forward,
        add_local_input=config.local.adds_input,
    )


def fit_hidden_dim(
    config: ModelConfig, *, budget: int | None = None, **sizes: int | None
) -> ModelConfig:
    """Return ``config`` with ``hidden_dim`` chosen as upstream ``main.py:find_max_hidden_dim`` does.

    Binary search over 32 … 512 for the largest width within ``budget`` parameters; if even 32
    exceeds it, 32 is used and logged. Each candidate is rounded up to a multiple that the components
    need, and counted without memory or random numbers, so weights do not depend on the search
    (upstream's do). ``budget`` defaults to ``config.parameter_budget``, which an explicit
    ``hidden_dim`` switches off; the result has none. ``sizes`` as in :func:`build_model`.
    """
    if budget is None and config.hidden_dim != USUAL_DIM:
        return config.model_copy(update={"parameter_budget": None})
    budget = config.parameter_budget if budget is None else budget
    if budget is None:
        return config
    multiple = math.lcm(config.attention.multiple, config.local.multiple)

    # On the device meta a network has shapes and no memory, and draws no numbers.
    def candidate(dim: int) -> ModelConfig:
        rounded = -(-dim // multiple) * multiple
        return config.model_copy(update={"hidden_dim": rounded, "parameter_budget": None})

    def count(dim: int) -> int:
        with torch.device("meta"):
            return count_parameters(_make_network(candidate(dim), **sizes))

    widths = range(NARROWEST, WIDEST + 1)
    fitting = bisect.bisect_right(widths, budget, key=count)  # the count grows with the width
    if not fitting:
        least = count(NARROWEST)
        log.warning(
            "a width of %d, the smallest that is tried, has %d parameters: over the budget of %d",
            *(NARROWEST, least, budget),
        )
    return candidate(widths[max(0, fitting - 1)])


def build_model(
    config: ModelConfig, *, in_channels: int, num_classes: int, edge_channels: int | None = None
) -> nn.Module:
    """Build the network of a configuration; its ``forward(batch)`` returns logits (N, C).

    Weights are drawn by PyTorch's and PyTorch Geometric's default initialisers from torch's global
    generator: seed that first.

    Parameters
    ----------
    config
        If ``parameter_budget`` is set and ``hidden_dim`` is not, the widest network that fits is
        built.
    in_channels, edge_channels
        Columns of the node features, and of the edge features if the edge encoder reads them.
    num_classes
        Number of classes C.

    Raises
    ------
    UsageError
        Unknown search backend, or incompatible components.
    """
    sizes = {
        "in_channels": in_channels,
        "num_classes": num_classes,
        "edge_channels": edge_channels,
    }
    if config.parameter_budget:
        config = fit_hidden_dim(config, **sizes)
    return _make_network(config, **sizes)
