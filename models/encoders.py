"""Encoders of features and positions, registered in ``models/component_names.py`` and ``models/positions.py``."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from kmip_data.errors import DamagedInput, UsageError
from kmip_data.manifest import load_manifest
from kmip_data.models.layers.adjacency import neighbor_sum
from kmip_data.models.layers.batch import GraphBatch, NeighborTable
from kmip_data.models.layers.linear import Linear
from kmip_data.models.layers.norms import BatchNorm

if TYPE_CHECKING:
    from kmip_data.graphs.encoding import Encoding
    from kmip_data.models.component_names import Builder, Integers
    from kmip_data.models.positions import Positional


def check_integers(integers: Integers, rows: Iterable[Tensor]) -> None:
    """Raise ``UsageError`` or ``DamagedInput`` for values without an embedding.

    ``rows`` are pieces of the data (…, columns), reduced to bounds by column.
    """
    # 1. Bounds of each column over all pieces.
    features = integers.features
    owner = integers.owner
    sizes = integers.sizes
    low = torch.zeros(len(sizes), dtype=torch.int64)
    high = torch.zeros(len(sizes), dtype=torch.int64)
    for piece in map(_as_columns, rows):
        if piece.shape[-1:] != (len(sizes),) or piece.is_floating_point():
            raise UsageError(
                f"The {features} are {piece.shape[-1]} columns of {piece.dtype}, not {owner}"
                f" {len(sizes)} of integers.",
                next=f"--set {integers.key}="
                + integers.encoder_of_columns(0 if piece.is_floating_point() else piece.shape[-1]),
            )
        if piece.numel():
            flat = piece.reshape(-1, len(sizes)).long().cpu()
            low = torch.minimum(low, flat.amin(0))
            high = torch.maximum(high, flat.amax(0))

    # 2. Columns with values outside their table.
    problems = []
    bounds = zip(low.tolist(), high.tolist(), sizes, strict=True)
    for column, (least, most, size) in enumerate(bounds):
        if least < 0 or most >= size:
            problems.append(f"column {column} is {least} to {most}, {owner} 0 to {size - 1}")
    if problems:
        step = f"--set {integers.key}={integers.encoder_of_range(int(low.min()), int(high.max()))}"
        if integers.others:
            step += f", or {integers.others}"
        raise DamagedInput(f"The {features} are not {owner}.", found="; ".join(problems), next=step)


def _as_columns(rows: Tensor) -> Tensor:
    """Return one number per node or edge as a column."""
    return rows[:, None] if rows.ndim == 1 else rows


def _feature_rows(batch: GraphBatch, features: str) -> Tensor:
    rows = batch.x if features == "node features" else batch.edge_attr
    if rows is None:
        raise _missing_edge_features_error()
    return _as_columns(rows)


def _missing_edge_features_error() -> UsageError:
    return UsageError(
        "The edge encoder needs edge features (edge_attr).", next="--set model.edge_encoder=dummy"
    )


class LinearEncoder(nn.Module):
    """A linear map of node or edge features (upstream ``LinearNode``) to the channels of the network.

    Columns of a ``published`` dataset are first standardised by mean and deviation, which come with
    its manifest, not with a checkpoint.
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
        added: int = 0,
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
                    next="--set model.node_encoder=linear --set model.edge_encoder=linear",
                )
            self.register_buffer("mean", torch.tensor(constants.mean), persistent=False)
            self.register_buffer("std", torch.tensor(constants.std), persistent=False)
        self.linear = Linear(channels + added, dim, bias=bias)

    def forward(self, batch: GraphBatch) -> Tensor:
        """(N, dim), or (…, dim) in the form of the batch's edges."""
        return self.linear(self.columns(batch))  # type: ignore[no-any-return]

    def columns(self, batch: GraphBatch) -> Tensor:
        """Return the features, standardised for a published dataset."""
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


class WalkedEdges(LinearEncoder):
    """Standardised edge features of PascalVOC-SP, followed by an encoding of edges.

    GNN⁺'s ``VOCEdge`` with RWSE: random walks between the ends of an edge are not standardised.
    """

    def __init__(self, channels: int | None, dim: int, *, encoding: Encoding) -> None:
        (column,) = encoding.columns()
        super().__init__(
            channels,
            dim,
            features="edge features",
            published=("pascalvoc-sp", "edge/attr"),
            added=column.shape[0],
        )
        self.encoding = encoding

    def columns(self, batch: GraphBatch) -> Tensor:
        """(…, channels + T) in the form of the batch's edges."""
        rows = super().columns(batch)
        walks = _added_edge_column(batch, self.encoding, "voc").to(rows.dtype)
        return torch.cat([rows, walks], dim=-1)


def _added_edge_column(batch: GraphBatch, encoding: Encoding, instead: str) -> Tensor:
    """Return an added column of edges (…, T), in the form of the batch's edges."""
    (column,) = encoding.columns()
    rows = batch.added.get(column.attribute)
    if rows is None:
        raise UsageError(
            f"The data lack the added column {encoding.name}, which the network reads.",
            next=f"kmip-data encode NAME {encoding.name}; or --set model.edge_encoder={instead}",
        )
    if isinstance(batch.edges, NeighborTable):
        return rows.view(*batch.edges.neighbor.shape, -1)
    return rows


class SummedEdges(nn.Module):
    """Edge features by an encoder, plus a linear map of an encoding of edges.

    GNN⁺'s ``TypeDictEdge`` and ``DummyEdge`` where the nodes have RWSE.
    """

    def __init__(
        self, channels: int | None, dim: int, *, encoder: str, features: Builder, encoding: Encoding
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.encoding = encoding
        self.features = features(channels, dim)
        (column,) = encoding.columns()
        self.linear = Linear(column.shape[0], dim)

    def forward(self, batch: GraphBatch) -> Tensor:
        """(…, dim) in the form of the batch's edges."""
        rows = _added_edge_column(batch, self.encoding, self.encoder)
        mapped = self.linear(rows.to(self.linear.weight.dtype))
        return self.features(batch) + mapped  # type: ignore[no-any-return]


class BlockEncoder(LinearEncoder):
    """Linear without bias, batch norm, ReLU, rows scaled to length 1, of node features.

    GraphGym's layer before message passing without a node encoder.
    """

    def __init__(self, channels: int, dim: int) -> None:
        super().__init__(channels, dim, features="node features", bias=False)
        self.norm = BatchNorm(dim)

    def forward(self, batch: GraphBatch) -> Tensor:
        """Return the encoded nodes, (N, dim)."""
        h = super().forward(batch)
        h = self.norm(h, batch)
        return nn.functional.normalize(h.relu(), dim=1)


class NormedEncoder(LinearEncoder):
    """Linear, layer norm, ReLU, of node features: tunedGNN's first layer on ogbn-products."""

    def __init__(self, channels: int, dim: int) -> None:
        super().__init__(channels, dim, features="node features")
        self.norm = nn.LayerNorm(dim)

    def forward(self, batch: GraphBatch) -> Tensor:
        """Return the encoded nodes, (N, dim)."""
        return self.norm(super().forward(batch)).relu()  # type: ignore[no-any-return]


class RawNodes(nn.Module):
    """Unchanged node features, which the first layer maps."""

    def __init__(self, channels: int, dim: int) -> None:
        super().__init__()

    def forward(self, batch: GraphBatch) -> Tensor:
        """Return the encoded nodes, (N, channels)."""
        rows = _feature_rows(batch, "node features")
        return rows if rows.is_floating_point() else rows.float()


class IntegerEncoder(nn.Module):
    """Sum of one embedding per integer feature, as in OGB's encoders."""

    def __init__(self, channels: int | None, dim: int, *, integers: Integers) -> None:
        super().__init__()
        if channels is None:
            raise _missing_edge_features_error()
        tables = [nn.Embedding(size, dim) for size in integers.sizes]
        if integers.xavier:
            for table in tables:
                nn.init.xavier_uniform_(table.weight)
        self.integers = integers
        self.features = nn.ModuleDict({"embeddings": nn.ModuleList(tables)})  # names in checkpoints

    def forward(self, batch: GraphBatch) -> Tensor:
        """(N, dim), or (…, dim) in the form of the batch's edges."""
        rows = _feature_rows(batch, self.integers.features)
        tables: Any = self.features["embeddings"]
        if rows.shape[-1] != len(tables) or rows.is_floating_point():
            check_integers(self.integers, [rows])
        columns = zip(tables, rows.unbind(-1), strict=True)
        try:
            embedded = [table(column) for table, column in columns]
        except IndexError:  # on the CPU torch checks the range; on a GPU the device assertion fails
            check_integers(self.integers, [rows])
            raise
        return functools.reduce(torch.add, embedded)  # type: ignore[no-any-return]


class DummyEdge(nn.Module):
    """One learned vector for all edges (upstream ``DummyEdge``, an embedding with a single row)."""

    def __init__(self, channels: int | None, dim: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(1, dim)

    def forward(self, batch: GraphBatch) -> Tensor:
        """(1, dim), which broadcasts against the edges; never an (E, dim) tensor."""
        return self.embedding.weight


class _Columns(nn.Module):
    """A module that reads the columns of an added encoding."""

    def __init__(self, position: Positional) -> None:
        super().__init__()
        assert position.encoding is not None
        self.width = position.width
        self.reads = position.reads
        self.column = position.encoding.name
        self.count = position.encoding.columns()[0].shape[0]

    def columns(self, batch: GraphBatch) -> list[Tensor]:
        missing = [name for name in self.reads if name not in batch.added]
        if missing:
            raise UsageError(
                f"The data lack {missing[0]} of the added column {self.column}, which the network reads.",
                next=f"kmip-data encode NAME adds {self.column}; or --set model.positional=none",
            )
        return [batch.added[name] for name in self.reads]


def _perceptron(*widths: int) -> nn.Sequential:
    """Linear layers of these widths, each followed by ReLU."""
    layers = []
    for wide, narrow in itertools.pairwise(widths):
        layers += [Linear(wide, narrow), nn.ReLU()]
    return nn.Sequential(*layers)


def _layer_widths(width: int, layers: int) -> list[int]:
    """Widths of all layers but the first: twice the last layer's width."""
    return [2 * width] * (layers - 1) + [width]


class LapPE(_Columns):
    """Laplacian eigenvectors by a deep set over frequencies, or by a transformer (upstream ``LapPE``).

    Each pair of eigenvector entry (N, K) and eigenvalue (G, K) goes through a perceptron 2 → 2 w →
    w, or through one linear layer and PyTorch's transformer encoder, whose tokens are the pairs of
    a node; missing frequencies (NaN) are left out of it and of the sum. A perceptron may follow. In
    training, the arbitrary sign of each eigenvector is drawn anew: one sign per frequency for the
    whole batch, as upstream.

    Source: ``graphgps/encoder/laplace_pos_encoder.py`` of the LRGB re-evaluation.
    """

    def __init__(self, position: Positional, _dim: int) -> None:
        super().__init__(position)
        keys = position.keys
        width = keys.width
        self.transformer: nn.Module | None = None
        if keys.reader == "deepset":
            self.each = _perceptron(2, *_layer_widths(width, keys.layers))
        else:
            self.each = nn.Sequential(Linear(2, width))
            layer = nn.TransformerEncoderLayer(width, keys.heads, batch_first=True)
            self.transformer = nn.TransformerEncoder(layer, keys.layers, enable_nested_tensor=False)
        self.after = nn.Sequential()
        if keys.post_layers:
            self.after = _perceptron(width, *_layer_widths(width, keys.post_layers))

    def forward(self, batch: GraphBatch) -> Tensor:
        """Return the encoded nodes, (N, w)."""
        values, vectors = self.columns(batch)
        if len(values) == batch.num_graphs:
            values = values[batch.graph]
        # Eigenvalues from PyG's transforms, one row per node, may have another shape.
        values = values.reshape(vectors.shape)
        if self.training:
            drawn = torch.randint(0, 2, (1, vectors.shape[1]), device=vectors.device)
            vectors = vectors * (drawn * 2 - 1)

        pairs = torch.stack([vectors, values], dim=-1)
        exists = ~pairs.isnan().any(-1, keepdim=True)
        mapped = self.each(pairs.nan_to_num())
        if self.transformer is not None:
            mapped = self.transformer(mapped, src_key_padding_mask=~exists.squeeze(-1))
        mapped = mapped * exists
        return self.after(mapped.sum(1))  # type: ignore[no-any-return]


class ColumnPosition(_Columns):
    """One column of floats: batch norm, then a linear map or a perceptron (upstream ``RWSE``)."""

    def __init__(self, position: Positional, _dim: int) -> None:
        super().__init__(position)
        keys = position.keys
        self.norm = None
        if keys is None or keys.norm:
            self.norm = BatchNorm(self.count)
        self.linear: nn.Module
        if keys is None or keys.reader == "linear":
            self.linear = Linear(self.count, self.width)
        else:
            self.linear = _perceptron(self.count, *_layer_widths(self.width, keys.layers))

    def forward(self, batch: GraphBatch) -> Tensor:
        """Return the encoded nodes, (N, width)."""
        (rows,) = self.columns(batch)
        if self.norm is not None:
            rows = self.norm(rows, batch)
        return self.linear(rows)  # type: ignore[no-any-return]


class SignNet(_Columns):
    """Sign-invariant network of eigenvectors (upstream ``SignNet``).

    φ(v) + φ(-v) of each eigenvector v, φ being a stack of GIN layers over the edges of the graph;
    then a perceptron of all K concatenated results (``mlp``), or of their sum over existing
    frequencies (``deepset``). Missing eigenvectors are 0 in φ and enter its batch norms, as
    upstream.

    Source: Lim et al., "Sign and Basis Invariant Networks", ICLR 2023;
    ``graphgps/encoder/signnet_pos_encoder.py`` of GraphGPS.
    """

    def __init__(self, position: Positional, _dim: int) -> None:
        super().__init__(position)
        keys = position.keys
        hidden = keys.hidden
        self.by_sum = keys.reader == "deepset"
        widths = [1, *[hidden] * (keys.layers - 1), keys.out]
        self.phi = nn.ModuleList(
            NormedPerceptron([wide, hidden, narrow]) for wide, narrow in itertools.pairwise(widths)
        )
        self.norms = nn.ModuleList(BatchNorm(hidden) for _ in range(keys.layers - 1))
        wide = keys.out if self.by_sum else keys.out * self.count
        self.rho = NormedPerceptron([wide, *[hidden] * (keys.post_layers - 1), keys.width])

    def forward(self, batch: GraphBatch) -> Tensor:
        """Return the encoded nodes, (N, width)."""
        _, vectors = self.columns(batch)
        values = vectors.nan_to_num()[..., None]
        mapped = self._apply_phi(values, batch) + self._apply_phi(-values, batch)
        if self.by_sum:
            exists = ~vectors.isnan()[..., None]
            mapped = (mapped * exists).sum(1)
        return self.rho(mapped.flatten(1), batch)  # type: ignore[no-any-return]

    def _apply_phi(self, x: Tensor, batch: GraphBatch) -> Tensor:
        """φ: (N, K, 1) to (N, K, out)."""
        nodes, count, _ = x.shape
        for number, update in enumerate(self.phi):
            if number:
                x = self.norms[number - 1](x.flatten(0, 1), batch)
            # All frequencies in one sum over the edges.
            x = x.reshape(nodes, -1)
            x = x + neighbor_sum(batch.edges.adjacency, x)
            x = update(x.view(nodes * count, -1), batch).view(nodes, count, -1)
        return x


class NormedPerceptron(nn.Module):
    """Linear layers of these widths; each but the last is followed by ReLU, then batch norm."""

    def __init__(self, widths: Sequence[int]) -> None:
        super().__init__()
        self.linears = nn.ModuleList(itertools.starmap(Linear, itertools.pairwise(widths)))
        self.norms = nn.ModuleList(map(BatchNorm, widths[1:-1]))

    def forward(self, x: Tensor, batch: GraphBatch) -> Tensor:
        """(M, first width) to (M, last width), rows of ``batch``."""
        *hidden, last = self.linears
        for linear, norm in zip(hidden, self.norms, strict=True):
            x = norm(linear(x).relu(), batch)
        return last(x)  # type: ignore[no-any-return]


class StablePosition(_Columns):
    """Positions that scale the gates of message passing by distance (upstream ``EquivStableLapPE``).

    A linear map of the eigenvectors, 0 where a graph has fewer. Positions are never added to node
    features: message passing reads the squared distance between the ends of each edge, which is
    invariant to the signs of the eigenvectors and, for an orthogonal map, to rotations.

    Source: Wang et al., ICLR 2022; ``graphgps/encoder/equivstable_laplace_pos_encoder.py`` of
    GraphGPS.
    """

    def __init__(self, position: Positional, dim: int) -> None:
        super().__init__(position)
        self.linear = Linear(self.count, dim)

    def forward(self, batch: GraphBatch) -> GraphBatch:
        """Return the batch, its edges with their distances."""
        (vectors,) = self.columns(batch)
        position = self.linear(vectors.nan_to_num())
        edges = batch.edges
        difference = edges.at_source(position) - edges.at_target(position)
        distance = difference.square().sum(-1, keepdim=True)
        return replace(batch, edges=replace(edges, distance=distance))


class WithPositional(nn.Module):
    """Channels of a node encoder followed by the channels of a positional encoding."""

    def __init__(self, features: nn.Module, position: nn.Module) -> None:
        super().__init__()
        self.features = features
        self.position = position

    def forward(self, batch: GraphBatch) -> Tensor:
        """Return the encoded nodes, (N, dim)."""
        return torch.cat([self.features(batch), self.position(batch)], dim=1)
