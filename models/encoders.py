"""Encoders of features and positions, listed in ``registries.py`` and ``positional_encodings.py``."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from kmip_data.errors import DamagedInput, Setting, UsageError
from kmip_data.manifest import load_manifest
from kmip_data.models.layers.batch import GraphBatch, NeighborTable
from kmip_data.models.layers.linear import Linear
from kmip_data.models.layers.norms import BatchNorm

if TYPE_CHECKING:
    from kmip_data.graphs.encoding import Encoding
    from kmip_data.models.positional_encodings import (
        LapPEOptions,
        PositionalEncoding,
        RWSEOptions,
    )
    from kmip_data.models.registries import EmbeddedIntegers, ModuleBuilder


def check_integers(integers: EmbeddedIntegers, rows: Iterable[Tensor]) -> None:
    """Raise ``UsageError`` or ``DamagedInput`` for values without an embedding.

    ``rows`` are pieces of the data, (…, columns) each.
    """
    # 1. Find the range of each column over all pieces.
    features = integers.features
    owner = integers.owner
    sizes = integers.sizes
    low = torch.zeros(len(sizes), dtype=torch.int64)
    high = torch.zeros(len(sizes), dtype=torch.int64)
    for piece in map(_as_columns, rows):
        if piece.shape[-1:] != (len(sizes),) or piece.is_floating_point():
            columns = 0 if piece.is_floating_point() else piece.shape[-1]
            raise UsageError(
                f"The {features} are {piece.shape[-1]} columns of {piece.dtype}, not {owner}"
                f" {len(sizes)} of integers.",
                steps=Setting({integers.key: integers.encoder_for_columns(columns)}),
            )
        if piece.numel():
            values = piece.reshape(-1, len(sizes)).long().cpu()
            low = torch.minimum(low, values.amin(0))
            high = torch.maximum(high, values.amax(0))

    # 2. Report columns with values outside their embedding table.
    problems = []
    bounds = zip(low.tolist(), high.tolist(), sizes, strict=True)
    for column, (least, most, size) in enumerate(bounds):
        if least < 0 or most >= size:
            problems.append(f"column {column} is {least} to {most}, {owner} 0 to {size - 1}")
    if problems:
        encoder = integers.encoder_for_range(int(low.min()), int(high.max()))
        raise DamagedInput(
            f"The {features} are not {owner}.",
            found="; ".join(problems),
            steps=[Setting({integers.key: encoder}), *integers.remedies],
        )


def _as_columns(rows: Tensor) -> Tensor:
    """Reshape one number per node or edge (N,) to (N, 1)."""
    return rows[:, None] if rows.ndim == 1 else rows


def _feature_rows(batch: GraphBatch, features: str) -> Tensor:
    rows = batch.x if features == "node features" else batch.edge_attr
    if rows is None:
        raise _missing_edge_features_error()
    return _as_columns(rows)


def _missing_edge_features_error() -> UsageError:
    return UsageError(
        "The edge encoder needs edge features (edge_attr).",
        steps=Setting({"model.edge_encoder": "dummy"}),
    )


class LinearEncoder(nn.Module):
    """Linear map of node or edge features to ``dim`` channels (upstream ``LinearNode``).

    ``published`` (dataset, column) first standardises the features by the mean and standard
    deviation in the dataset's manifest; checkpoints do not store them.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        channels: int | None,
        dim: int,
        *,
        features: str,
        published: tuple[str, str] | None = None,
        bias: bool = True,
        added_channels: int = 0,
    ) -> None:
        super().__init__()
        if channels is None:
            raise _missing_edge_features_error()
        self.features = features
        self.channels = channels
        self.standardised = published is not None
        if published is not None:
            dataset, column = published
            constants = load_manifest(dataset).standardisation[column]
            if len(constants.mean) != channels:
                raise UsageError(
                    f"The {features} have {channels} columns, the encoder's constants"
                    f" {len(constants.mean)}.",
                    steps=Setting({"model.node_encoder": "linear", "model.edge_encoder": "linear"}),
                )
            self.register_buffer("mean", torch.tensor(constants.mean), persistent=False)
            self.register_buffer("std", torch.tensor(constants.std), persistent=False)
        self.linear = Linear(channels + added_channels, dim, bias=bias)

    def forward(self, batch: GraphBatch) -> Tensor:
        """Return (N, dim) for nodes, or (…, dim) in the form of the batch's edges."""
        return self.linear(self.feature_rows(batch))  # type: ignore[no-any-return]

    def feature_rows(self, batch: GraphBatch) -> Tensor:
        """Return the features, standardised if ``published`` was given."""
        rows = _feature_rows(batch, self.features)
        if rows.shape[-1] != self.channels:
            raise UsageError(
                f"The {self.features} have {rows.shape[-1]} columns, the network takes"
                f" {self.channels}."
            )
        rows = rows.to(self.linear.weight.dtype)
        if self.standardised:
            rows = (rows - self.mean) / self.std
        return rows


class VOCEdgeEncoder(LinearEncoder):
    """Linear map of PascalVOC-SP's standardised edge features and random-walk probabilities.

    Equals GNN⁺'s ``VOCEdge`` with RWSE; the probabilities are not standardised.
    """

    def __init__(self, channels: int | None, dim: int, *, encoding: Encoding) -> None:
        (column,) = encoding.columns()
        super().__init__(
            channels,
            dim,
            features="edge features",
            published=("pascalvoc-sp", "edge/attr"),
            added_channels=column.shape[0],
        )
        self.encoding = encoding

    def feature_rows(self, batch: GraphBatch) -> Tensor:
        """Return (…, channels + T) in the form of the batch's edges."""
        rows = super().feature_rows(batch)
        walks = _added_edge_column(batch, self.encoding, "voc").to(rows.dtype)
        return torch.cat([rows, walks], dim=-1)


def _added_edge_column(batch: GraphBatch, encoding: Encoding, fallback: str) -> Tensor:
    """Return an added edge column (…, T) in the form of the batch's edges.

    If it is missing, the error suggests the edge encoder ``fallback``.
    """
    (column,) = encoding.columns()
    rows = batch.added.get(column.attribute)
    if rows is None:
        raise UsageError(
            f"The data lack the added column {encoding.name}, which the network reads.",
            steps=[
                f"add it with kmip_data.open(…, columns=[{encoding.name!r}])",
                Setting({"model.edge_encoder": fallback}),
            ],
        )
    if isinstance(batch.edges, NeighborTable):
        return rows.view(*batch.edges.neighbor.shape, -1)
    return rows


class SummedEdgeEncoder(nn.Module):
    """Sum of another edge encoder and a linear map of an added edge encoding.

    Equals GNN⁺'s ``TypeDictEdge`` and ``DummyEdge`` for nodes with RWSE.
    """

    def __init__(
        self,
        channels: int | None,
        dim: int,
        *,
        encoder: str,
        features: ModuleBuilder,
        encoding: Encoding,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.encoding = encoding
        self.features = features(channels, dim)
        (column,) = encoding.columns()
        self.linear = Linear(column.shape[0], dim)

    def forward(self, batch: GraphBatch) -> Tensor:
        """Return (…, dim) in the form of the batch's edges."""
        rows = _added_edge_column(batch, self.encoding, self.encoder)
        mapped = self.linear(rows.to(self.linear.weight.dtype))
        return self.features(batch) + mapped  # type: ignore[no-any-return]


class InputBlockEncoder(LinearEncoder):
    """Linear map of node features without bias, batch norm, ReLU, and rows scaled to length 1.

    Equals GraphGym's layer before message passing if there is no node encoder.
    """

    def __init__(self, channels: int, dim: int) -> None:
        super().__init__(channels, dim, features="node features", bias=False)
        self.norm = BatchNorm(dim)

    def forward(self, batch: GraphBatch) -> Tensor:
        """Encode the nodes: (N, dim)."""
        h = super().forward(batch)
        h = self.norm(h, batch)
        return nn.functional.normalize(h.relu(), dim=1)


class LayerNormEncoder(LinearEncoder):
    """Linear map of node features, layer norm and ReLU: tunedGNN's first layer on ogbn-products."""

    def __init__(self, channels: int, dim: int) -> None:
        super().__init__(channels, dim, features="node features")
        self.norm = nn.LayerNorm(dim)

    def forward(self, batch: GraphBatch) -> Tensor:
        """Encode the nodes: (N, dim)."""
        return self.norm(super().forward(batch)).relu()  # type: ignore[no-any-return]


class RawNodeFeatures(nn.Module):
    """Unchanged node features, for a first layer that maps them."""

    def __init__(self, channels: int, dim: int) -> None:
        super().__init__()

    def forward(self, batch: GraphBatch) -> Tensor:
        """Return the node features as floats: (N, channels)."""
        rows = _feature_rows(batch, "node features")
        return rows if rows.is_floating_point() else rows.float()


class IntegerEncoder(nn.Module):
    """Sum of one embedding per integer feature, as in OGB's encoders."""

    def __init__(self, channels: int | None, dim: int, *, integers: EmbeddedIntegers) -> None:
        super().__init__()
        if channels is None:
            raise _missing_edge_features_error()
        tables = [nn.Embedding(size, dim) for size in integers.sizes]
        if integers.xavier_init:
            for table in tables:
                nn.init.xavier_uniform_(table.weight)
        self.integers = integers
        self.features = nn.ModuleDict({"embeddings": nn.ModuleList(tables)})  # names in checkpoints

    def forward(self, batch: GraphBatch) -> Tensor:
        """Return (N, dim) for nodes, or (…, dim) in the form of the batch's edges."""
        rows = _feature_rows(batch, self.integers.features)
        tables: Any = self.features["embeddings"]
        if rows.shape[-1] != len(tables) or rows.is_floating_point():
            check_integers(self.integers, [rows])
        columns = zip(tables, rows.unbind(-1), strict=True)
        try:
            embedded = [table(column) for table, column in columns]
        except IndexError:  # only on a CPU: on a GPU, an assertion on the device fails
            check_integers(self.integers, [rows])
            raise
        return functools.reduce(torch.add, embedded)  # type: ignore[no-any-return]


class DummyEdge(nn.Module):
    """One learned vector shared by all edges (upstream ``DummyEdge``)."""

    def __init__(self, channels: int | None, dim: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(1, dim)

    def forward(self, batch: GraphBatch) -> Tensor:
        """Return (1, dim), which broadcasts against the edges without an (E, dim) tensor."""
        return self.embedding.weight


class _EncodingReader(nn.Module):
    """Base of modules that read the columns of a positional encoding."""

    def __init__(self, positional: PositionalEncoding) -> None:
        super().__init__()
        assert positional.encoding is not None
        self.width = positional.width
        self.added_attributes = positional.added_attributes
        self.encoding_name = positional.encoding.name
        self.channels = positional.encoding.columns()[0].shape[0]

    def encoding_rows(self, batch: GraphBatch) -> list[Tensor]:
        """Return the values of each read column, with one row per node or graph."""
        missing = [name for name in self.added_attributes if name not in batch.added]
        if missing:
            name = self.encoding_name
            raise UsageError(
                f"The data lack {missing[0]} of the added column {name}, which the network reads.",
                steps=[
                    f"add it with kmip_data.open(…, columns=[{name!r}])",
                    Setting({"model.positional": "none"}),
                ],
            )
        return [batch.added[name] for name in self.added_attributes]


def _perceptron(*widths: int) -> nn.Sequential:
    """Build linear layers of these widths, each followed by ReLU."""
    layers = []
    for in_width, out_width in itertools.pairwise(widths):
        layers += [Linear(in_width, out_width), nn.ReLU()]
    return nn.Sequential(*layers)


def _output_widths(width: int, layers: int) -> list[int]:
    """Return the output widths of a perceptron: ``width``, and twice that for hidden layers."""
    return [2 * width] * (layers - 1) + [width]


class LapPE(_EncodingReader):
    """Laplacian eigenvectors read by a deep set over frequencies or a transformer (upstream ``LapPE``).

    Each pair of eigenvector entry (N, K) and eigenvalue (G, K) goes through a perceptron 2 → 2 w →
    w, or through a linear layer and PyTorch's transformer encoder, whose tokens are a node's pairs.
    Neither reads missing frequencies (NaN). The sum over frequencies may go through another
    perceptron. In training, the arbitrary sign of each eigenvector is redrawn: one sign per
    frequency for the whole batch, as upstream.

    Source: ``graphgps/encoder/laplace_pos_encoder.py`` of the LRGB re-evaluation.
    """

    def __init__(self, positional: PositionalEncoding, _dim: int) -> None:
        super().__init__(positional)
        options = cast("LapPEOptions", positional.options)
        width = options.width
        self.transformer: nn.Module | None = None
        if options.reader == "deepset":
            self.pair_encoder = _perceptron(2, *_output_widths(width, options.layers))
        else:
            self.pair_encoder = nn.Sequential(Linear(2, width))
            layer = nn.TransformerEncoderLayer(width, options.heads, batch_first=True)
            self.transformer = nn.TransformerEncoder(
                layer, options.layers, enable_nested_tensor=False
            )
        self.post_perceptron = nn.Sequential()
        if options.post_layers:
            self.post_perceptron = _perceptron(width, *_output_widths(width, options.post_layers))

    def forward(self, batch: GraphBatch) -> Tensor:
        """Encode the positions: (N, w)."""
        values, vectors = self.encoding_rows(batch)
        if len(values) == batch.num_graphs:
            values = values[batch.graph_index]
        # PyG's transforms give eigenvalues per node, possibly with an additional axis.
        values = values.reshape(vectors.shape)
        if self.training:
            bits = torch.randint(0, 2, (1, vectors.shape[1]), device=vectors.device)
            vectors = vectors * (bits * 2 - 1)

        pairs = torch.stack([vectors, values], dim=-1)
        exists = ~pairs.isnan().any(-1, keepdim=True)
        encoded = self.pair_encoder(pairs.nan_to_num())
        if self.transformer is not None:
            encoded = self.transformer(encoded, src_key_padding_mask=~exists.squeeze(-1))
        encoded = encoded * exists
        return self.post_perceptron(encoded.sum(1))  # type: ignore[no-any-return]


class ColumnEncoder(_EncodingReader):
    """Batch norm, then a linear map or a perceptron, of one column of floats (upstream ``RWSE``)."""

    def __init__(self, positional: PositionalEncoding, _dim: int) -> None:
        super().__init__(positional)
        options = cast("RWSEOptions | None", positional.options)
        self.norm = None
        if options is None or options.norm:
            self.norm = BatchNorm(self.channels)
        self.linear: nn.Module
        if options is None or options.reader == "linear":
            self.linear = Linear(self.channels, self.width)
        else:
            self.linear = _perceptron(self.channels, *_output_widths(self.width, options.layers))

    def forward(self, batch: GraphBatch) -> Tensor:
        """Encode the positions: (N, width)."""
        (rows,) = self.encoding_rows(batch)
        if self.norm is not None:
            rows = self.norm(rows, batch)
        return self.linear(rows)  # type: ignore[no-any-return]


class EquivStableLapPE(_EncodingReader):
    """Positions whose distances scale the gates of message passing (upstream ``EquivStableLapPE``).

    Positions are a linear map of the eigenvectors, with 0 for missing ones. Message passing reads
    only the squared distance between the ends of each edge, which is invariant to the signs of the
    eigenvectors and, for an orthogonal map, to rotations.

    Source: Wang et al., ICLR 2022; ``graphgps/encoder/equivstable_laplace_pos_encoder.py`` of
    GraphGPS.
    """

    def __init__(self, positional: PositionalEncoding, dim: int) -> None:
        super().__init__(positional)
        self.linear = Linear(self.channels, dim)

    def forward(self, batch: GraphBatch) -> GraphBatch:
        """Return the batch with distances on its edges."""
        (vectors,) = self.encoding_rows(batch)
        position = self.linear(vectors.nan_to_num())
        edges = batch.edges
        difference = edges.at_source(position) - edges.at_target(position)
        distance = difference.square().sum(-1, keepdim=True)
        return replace(batch, edges=replace(edges, distance=distance))


class ConcatenatedEncoder(nn.Module):
    """Concatenated channels of a node encoder and a positional encoding."""

    def __init__(self, features: nn.Module, position: nn.Module) -> None:
        super().__init__()
        self.features = features
        self.position = position

    def forward(self, batch: GraphBatch) -> Tensor:
        """Encode the nodes: (N, dim)."""
        return torch.cat([self.features(batch), self.position(batch)], dim=1)
