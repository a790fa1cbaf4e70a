"""The GPS network, and ``build_model`` which makes it from a configuration."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from kmip_data.models.config import ModelConfig
from kmip_data.models.encoders import EDGE_ENCODERS, NODE_ENCODERS
from kmip_data.models.heads import HEADS
from kmip_data.models.kinds import Place
from kmip_data.models.layers.batch import read_batch
from kmip_data.models.layers.gps import GPSLayer
from kmip_data.models.layers.norms import BatchNorm
from kmip_data.models.layers.recompute import recomputed
from kmip_data.models.positional import WithPositional
from kmip_data.models.registry import POSITIONAL


class GPSNetwork(nn.Module):
    """Encoders, GPS layers and a head.

    Parameters
    ----------
    config
        All options; ``hidden_dim`` is taken as it is.
    in_channels
        Columns of ``batch.x``.
    num_classes
        Columns of the logits.
    edge_channels
        Columns of ``batch.edge_attr``, for an edge encoder that reads it.
    """

    def __init__(
        self, config: ModelConfig, *, in_channels: int, num_classes: int, edge_channels: int | None = None
    ) -> None:
        super().__init__()
        dim = config.hidden_dim
        self.node_encoder = _node_encoder(config, in_channels)
        self.edge_encoder = EDGE_ENCODERS[config.edge_encoder](edge_channels, dim)
        position, parts = POSITIONAL[config.positional], (config.local, config.attention)
        self.reads_edges = any(part.reads_edges for part in parts)
        # Without a reader it stays, for the parameter counts of upstream, but takes no gradient.
        self.edge_encoder.requires_grad_(self.reads_edges)
        self.position = None if position.width else position.build(dim)
        self.input = nn.Sequential(*(InputBlock(dim) for _ in range(config.input_layers)))
        self.layers = nn.ModuleList(_gps_layer(config, number) for number in range(config.layers))
        self.checkpoint_layers = bool(config.checkpoint_layers)
        self.head = HEADS[config.head or "node"](
            dim,
            num_classes,
            layers=config.head_layers,
            l2norm=config.head_l2norm,
            dropout=config.head_dropout,
            activation=config.head_activation,
            pooling=config.pooling,
        )
        self.reads = (*position.reads, *(name for part in parts for name in part.reads))

    def forward(self, batch: Any) -> Tensor:
        """Predictions (ΣN, num_classes), or (G, num_classes) by a head for graphs.

        :func:`~kmip_data.models.layers.batch.read_batch` says what is read of a PyTorch Geometric batch.
        """
        graphs = read_batch(batch, self.reads)
        if self.position is not None:
            graphs = self.position(graphs)
        x = self.input(self.node_encoder(graphs))
        e = self.edge_encoder(graphs) if self.reads_edges else None
        for layer in self.layers:
            if self.checkpoint_layers and self.training:
                x, e = recomputed(layer, x, e, graphs)
            else:
                x, e = layer(x, e, graphs)
        return self.head(x, graphs)  # type: ignore[no-any-return]


class InputBlock(nn.Module):
    """Linear, batch norm, ReLU, rows scaled to length 1 (GraphGym's layer before message passing)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, dim, bias=False)
        self.norm = BatchNorm(dim)

    def forward(self, x: Tensor) -> Tensor:
        """(N, dim) to the same."""
        return nn.functional.normalize(self.norm(self.linear(x)).relu(), dim=1)


def _node_encoder(config: ModelConfig, in_channels: int) -> nn.Module:
    position, dim = POSITIONAL[config.positional], config.hidden_dim
    encoder = NODE_ENCODERS[config.node_encoder](in_channels, dim - position.width)
    beside = position.build(dim) if position.width else None
    return encoder if beside is None else WithPositional(encoder, beside)


def _gps_layer(config: ModelConfig, number: int) -> GPSLayer:
    place = Place(
        config.hidden_dim,
        dropout=config.dropout,
        layer=number,
        layers=config.layers,
        distances=POSITIONAL[config.positional].distances,
    )
    return GPSLayer(
        config.local.build(place),
        config.attention.build(place),
        dim=config.hidden_dim,
        dropout=config.dropout,
        norm=config.norm,
        activation=config.ffn_activation,
        feed_forward=config.feed_forward,
        add_local_input=config.local.adds_input,
    )


def build_model(
    config: ModelConfig, *, in_channels: int, num_classes: int, edge_channels: int | None = None
) -> nn.Module:
    """Make the network that a configuration describes; its ``forward(batch)`` gives logits (ΣN, C).

    Weights are drawn by PyTorch's and PyTorch Geometric's default initialisers from torch's global
    generator: seed that first.

    Parameters
    ----------
    config
        Where ``parameter_budget`` is set and ``hidden_dim`` is not, that becomes the widest that fits.
    in_channels
        Columns of the node features.
    num_classes
        Number of classes C.
    edge_channels
        Columns of the edge features, where the edge encoder reads them.

    Raises
    ------
    UsageError
        An unknown search backend, or parts that do not go together.
    """
    if config.parameter_budget is not None:
        from kmip_data.models.budget import fit_hidden_dim

        config = fit_hidden_dim(
            config, in_channels=in_channels, num_classes=num_classes, edge_channels=edge_channels
        )
    return GPSNetwork(config, in_channels=in_channels, num_classes=num_classes, edge_channels=edge_channels)
