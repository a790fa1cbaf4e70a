"""GPS layers and networks; ``build_model`` builds a network from a configuration."""

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
from kmip_data.models.components import Activation, LayerInfo, NoComponent
from kmip_data.models.config import DEFAULT_HIDDEN_DIM, ModelConfig, plugin_network
from kmip_data.models.encoders import ConcatenatedEncoder
from kmip_data.models.layers.batch import GraphBatch, read_batch
from kmip_data.models.layers.linear import Linear
from kmip_data.models.layers.message_passing import MessagePassingComponent
from kmip_data.models.layers.neighborhood_trimming import trim_to_hops
from kmip_data.models.layers.norms import BatchNorm, apply_norm_block
from kmip_data.models.layers.norms import dropout as dropout_rows
from kmip_data.models.registries import (
    ROW_WISE_NORMS,
    all_heads,
    all_norms,
    edge_encoders,
    node_encoders,
)
from kmip_data.models.search.topk import search_op

log = logging.getLogger(__name__)

MIN_HIDDEN_DIM, MAX_HIDDEN_DIM = 32, 512  #: range of hidden dimensions in the published search


def count_parameters(model: nn.Module) -> int:
    """Count all parameters, whether trained or not."""
    return sum(parameter.numel() for parameter in model.parameters())


class GPSLayer(nn.Module):
    """One layer of GraphGPS, in the order of upstream graphgps/layer/gps_layer.py.

    h is the sum of the local branch ``norm(message_passing(x, e, batch))`` and the global branch
    ``norm(x + dropout(attention(x, batch)))``; the layer returns ``norm(h + dropout(W₂ dropout(act(W₁
    h))))``. A branch without a module is left out; at least one is required. Message passing, the
    local branch, is configured by ``model.local``, and its module is the attribute ``local``.

    Parameters
    ----------
    message_passing
        Module called as ``message_passing(x, e, batch) -> (x, e)`` with nodes (N, d), edge features
        in the form of ``batch.edges`` and a :class:`~kmip_data.models.layers.batch.GraphBatch`. It
        applies dropout itself.
    attention
        Module called as ``attention(x, batch) -> x``; or, with state carried between layers, as
        ``attention(x, batch, *carried) -> (x, *carried)``.
    dim, dropout
        Channels d; dropout probability after attention and twice in the feed-forward block.
    norm
        Name in :data:`~kmip_data.models.registries.NORMS`, or of a plugin's norm.
    feed_forward, activation
        Whether to apply the feed-forward block to h, and its activation.
    message_passing_residual
        Add x to the output of ``message_passing`` before its norm.
    """

    def __init__(
        self,
        message_passing: nn.Module | None,
        attention: nn.Module | None,
        *,
        dim: int,
        dropout: float = 0.0,
        norm: str = "batch",
        activation: Activation = "relu",
        feed_forward: bool = True,
        message_passing_residual: bool = False,
    ) -> None:
        super().__init__()
        if message_passing is None and attention is None:
            raise UsageError("A GPS layer has neither message_passing nor attention.")
        self.local = message_passing
        self.attention = attention
        build_norm = all_norms()[norm]
        self.norm_local = None if message_passing is None else build_norm(dim)
        self.norm_global = None if attention is None else build_norm(dim)
        self.feed_forward = feed_forward
        self.message_passing_residual = message_passing_residual
        if feed_forward:
            self.norm_out = build_norm(dim)
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
        """Update nodes (N, d), edge features and the state carried between layers.

        ``batch`` is a :class:`GraphBatch` or a PyTorch Geometric batch.
        """
        graphs = batch if isinstance(batch, GraphBatch) else read_batch(batch)
        dropout = self.dropout.p if self.dropout.training else 0.0

        # 1. Message passing. A trimmed sample has fewer output rows than input rows.
        h: Tensor | None = None
        if self.local is not None and self.norm_local is not None:
            local, e = self.local(x, e, graphs)
            added = x[: len(local)] if self.message_passing_residual else None
            h = apply_norm_block(self.norm_local, local, added, graphs)

        # 2. Attention to the same input, normalised and added to the local branch.
        if self.attention is not None and self.norm_global is not None:
            attended = self.attention(x, graphs, *carried)
            if carried:
                attended, *carried = attended
            h = apply_norm_block(
                self.norm_global, x, attended, graphs, dropout_before=dropout, residual=h
            )
        assert h is not None
        if not self.feed_forward:
            return h, e, *carried

        # 3. Feed-forward block.
        hidden = self.activation(self.linear_in(h))
        hidden = dropout_rows(hidden, dropout)
        update = self.linear_out(hidden)
        h = apply_norm_block(self.norm_out, h, update, graphs, dropout_before=dropout)
        return h, e, *carried


#: Checkpoint contexts that save the results of searches instead of recomputing them.
_save_search_results = functools.partial(
    create_selective_checkpoint_contexts,
    [search_op._opoverload],  # noqa: SLF001 -- the overload that the dispatcher calls
)


def apply_checkpointed(
    layer: nn.Module,
    x: Tensor,
    e: Tensor | None,
    batch: GraphBatch,
    *carried: object,
) -> Any:
    """Apply ``layer(x, e, batch, *carried)`` with activation checkpointing, without changing any bit.

    The second pass draws the same dropout masks as the first and reuses its search results, which
    take 8 bytes per chosen pair.
    """
    # The first pass updates the running statistics, the second pass updates these copies.
    copies = {name: buffer.clone() for name, buffer in layer.named_buffers()}
    passes = itertools.count()

    def run(x: Tensor, e: Tensor | None, *carried_rows: object) -> object:
        buffers = copies if next(passes) else {}
        return functional_call(layer, buffers, (x, e, batch, *carried_rows))

    return checkpoint(run, x, e, *carried, use_reentrant=False, context_fn=_save_search_results)


class GPSNetwork(nn.Module):
    """Encoders, GPS layers and a head, with the arguments of :func:`build_model`.

    ``parameter_budget`` is ignored.
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        in_channels: int,
        out_channels: int,
        edge_channels: int | None = None,
    ) -> None:
        super().__init__()
        dim = config.hidden_dim
        components = (config.local, config.attention)
        positional_encodings = config.positional_encodings
        nodes = node_encoders()[config.node_encoder]
        edges = edge_encoders()[config.edge_encoder]
        self.added_attributes = config.added_attributes

        # Modules draw their weights when they are built: keep this order, so that seeds reproduce
        # runs.
        encoding_width = sum(encoding.width for encoding in positional_encodings)
        self.node_encoder = nodes.build(in_channels, dim - encoding_width)
        for encoding in positional_encodings:
            if encoding.build is not None and encoding.width:
                self.node_encoder = ConcatenatedEncoder(
                    self.node_encoder, encoding.build(encoding, dim)
                )
        self.node_encoder_norm = BatchNorm(dim) if config.node_encoder_norm else None
        self.edge_encoder = edges.build(edge_channels, dim)
        self.reads_edges = config.reads_edges
        # Kept even if unused, to match upstream's parameter counts; then without gradients.
        self.edge_encoder.requires_grad_(self.reads_edges)
        for component in components:
            component.reinitialise_encoders(self.node_encoder, self.edge_encoder)
        self.position: nn.Module | None = None
        for encoding in positional_encodings:
            if encoding.build is not None and not encoding.width:
                self.position = encoding.build(encoding, dim)
        self.input = nn.Sequential(*(InputBlock(dim) for _ in range(config.input_layers)))
        self.begin = config.attention.build_initial_state(dim)
        self.input_dropout = config.input_dropout
        first_dim = in_channels + encoding_width if config.node_encoder == "none" else dim
        input_dims = [first_dim, *[dim] * (config.layers - 1)]
        self.layers = nn.ModuleList(
            build_gps_layer(config, index, input_dim) for index, input_dim in enumerate(input_dims)
        )
        #: True if a node's output depends only on the sources of its neighbourhood.
        self.can_trim_samples = (
            config.attention.kind == "none"
            and isinstance(config.local, MessagePassingComponent | NoComponent)
            and not config.local.reads_targets
            and config.norm in ROW_WISE_NORMS
            and not any(component.encoding for component in components)
        )
        self.checkpoint_layers = bool(config.checkpoint_layers)
        self.head = all_heads()[config.head or "node"].build(
            dim,
            out_channels,
            layers=config.head_layers,
            l2norm=config.head_l2norm,
            dropout=config.head_dropout,
            activation=config.head_activation,
            pooling=config.pooling,
        )
        self.output_scale = config.output_scale

    def forward(self, batch: Any) -> Tensor:
        """Predict (N, out_channels), or (G, out_channels) with a graph head.

        :func:`~kmip_data.models.layers.batch.read_batch` documents the attributes read from a
        PyTorch Geometric batch. A sampled neighbourhood yields predictions for its seeds only.
        """
        # 1. Encode positions, nodes and edges.
        graphs = read_batch(batch, self.added_attributes)
        if self.position is not None:
            graphs = self.position(graphs)
        x = self.node_encoder(graphs)
        if self.node_encoder_norm is not None:
            x = self.node_encoder_norm(x, graphs)
        x = dropout_rows(x, self.input_dropout if self.training else 0.0)
        for block in self.input:
            x = block(x, graphs)
        e = self.edge_encoder(graphs) if self.reads_edges else None

        # 2. Apply the layers, each to the nodes that the remaining ones need.
        carried: Sequence[object] = () if self.begin is None else self.begin(e, graphs)
        for index, layer in enumerate(self.layers):
            layer_graphs = graphs
            if self.can_trim_samples:
                hops = len(self.layers) - index
                extra_sources = getattr(layer.local, "accepts_extra_sources", False)
                x, e, layer_graphs = trim_to_hops(x, e, graphs, hops, extra_sources=extra_sources)
            if self.checkpoint_layers and self.training:
                x, e, *carried = apply_checkpointed(layer, x, e, layer_graphs, *carried)
            else:
                x, e, *carried = layer(x, e, layer_graphs, *carried)

        # 3. Predict.
        x, _, graphs = trim_to_hops(x, None, graphs, 0)
        out: Tensor = self.head(x, graphs)
        return out if self.output_scale == 1 else out * self.output_scale


class PluginNetwork(nn.Module):
    """A plugin's complete network, called with a :class:`GraphBatch`."""

    def __init__(self, config: ModelConfig, **sizes: Any) -> None:
        super().__init__()
        network = plugin_network(config.name)
        assert network is not None
        self.network = network(config, **sizes)
        self.added_attributes = config.added_attributes

    def forward(self, batch: Any) -> Tensor:
        """Return predictions in the form of the targets."""
        graphs = read_batch(batch, self.added_attributes)
        out: Tensor = self.network(graphs)
        return out if graphs.hops is None else out[: graphs.hops.nodes[0]]


def _instantiate_network(config: ModelConfig, **sizes: Any) -> nn.Module:
    network_class = PluginNetwork if config.is_plugins_network else GPSNetwork
    return network_class(config, **sizes)


class InputBlock(nn.Module):
    """Linear map, batch norm, ReLU, and rows scaled to length 1 (GraphGym's ``layers_pre_mp``)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.linear = Linear(dim, dim, bias=False)
        self.norm = BatchNorm(dim)

    def forward(self, x: Tensor, batch: GraphBatch) -> Tensor:
        """Map rows (N, dim) to rows (N, dim)."""
        h = self.norm(self.linear(x), batch)
        return nn.functional.normalize(h.relu(), dim=1)


def build_gps_layer(config: ModelConfig, index: int, input_dim: int) -> GPSLayer:
    """Build layer ``index`` of a network, whose input nodes have ``input_dim`` channels."""
    layer = LayerInfo(
        config.hidden_dim,
        config.dropout,
        index,
        config.layers,
        has_distances=any(encoding.adds_distances for encoding in config.positional_encodings),
        input_dim=input_dim,
    )
    return GPSLayer(
        config.local.build(layer),
        config.attention.build(layer),
        dim=config.hidden_dim,
        dropout=config.dropout,
        norm=config.norm,
        activation=config.ffn_activation,
        feed_forward=config.feed_forward,
        message_passing_residual=config.local.adds_input,
    )


def fit_hidden_dim(
    config: ModelConfig, *, budget: int | None = None, **sizes: int | None
) -> ModelConfig:
    """Return ``config`` with the largest ``hidden_dim`` within ``budget`` parameters.

    Like upstream ``main.py:find_max_hidden_dim``, this is a binary search over 32 … 512; if even 32
    exceeds the budget, it is used with a warning. Candidates are rounded up to a multiple that the
    components require. Counting draws no random numbers, so weights do not depend on the search
    (upstream's do). ``budget`` defaults to ``config.parameter_budget``, which an explicit
    ``hidden_dim`` overrides. ``sizes`` are the sizes passed to :func:`build_model`.
    """
    if budget is None and config.hidden_dim != DEFAULT_HIDDEN_DIM:
        return config.model_copy(update={"parameter_budget": None})
    budget = config.parameter_budget if budget is None else budget
    if budget is None:
        return config
    multiple = math.lcm(config.attention.dim_multiple, config.local.dim_multiple)

    def with_rounded_dim(dim: int) -> ModelConfig:
        rounded = -(-dim // multiple) * multiple
        return config.model_copy(update={"hidden_dim": rounded, "parameter_budget": None})

    def count(dim: int) -> int:
        # On the meta device, a network has shapes but no memory, and draws no random numbers.
        with torch.device("meta"):
            return count_parameters(_instantiate_network(with_rounded_dim(dim), **sizes))

    dims = range(MIN_HIDDEN_DIM, MAX_HIDDEN_DIM + 1)
    fitting = bisect.bisect_right(dims, budget, key=count)  # the count grows with the width
    if not fitting:
        log.warning(
            "hidden_dim = %d, the smallest tried, has %d parameters: over the budget of %d",
            MIN_HIDDEN_DIM,
            count(MIN_HIDDEN_DIM),
            budget,
        )
    return with_rounded_dim(dims[max(0, fitting - 1)])


def build_model(
    config: ModelConfig, *, in_channels: int, out_channels: int, edge_channels: int | None = None
) -> nn.Module:
    """Build the network of a configuration; its ``forward(batch)`` returns logits (N, C).

    PyTorch's and PyTorch Geometric's default initialisers draw the weights from torch's global
    generator, so seed that first.

    Parameters
    ----------
    config
        If ``parameter_budget`` is set and ``hidden_dim`` is not, the widest network that fits is
        built.
    in_channels, edge_channels
        Columns of the node features, and of the edge features if the encoder reads any.
    out_channels
        Number of outputs C: classes, labels or targets.

    Raises
    ------
    UsageError
        Unknown search backend, or incompatible components.
    """
    sizes = {
        "in_channels": in_channels,
        "out_channels": out_channels,
        "edge_channels": edge_channels,
    }
    if config.parameter_budget:
        config = fit_hidden_dim(config, **sizes)
    return _instantiate_network(config, **sizes)
