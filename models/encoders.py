"""Encoders of features and positions; the tables of ``models/tables.py`` name them."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from kmip_data.errors import DamagedInput, UsageError
from kmip_data.manifest import load_manifest
from kmip_data.models.layers.batch import GraphBatch
from kmip_data.models.layers.linear import Linear
from kmip_data.models.layers.norms import BatchNorm

if TYPE_CHECKING:
    from kmip_data.graphs.encoding import Encoding
    from kmip_data.models.tables import Integers, Positional


def check_integers(integers: Integers, rows: Iterable[Tensor]) -> None:
    """Raise ``UsageError`` or ``DamagedInput`` where there is no embedding for a value.

    ``rows`` are pieces of the data, (…, columns), of which only bounds by column are kept.
    """
    features = integers.features
    sizes = integers.sizes
    low = torch.zeros(len(sizes), dtype=torch.int64)
    high = torch.zeros(len(sizes), dtype=torch.int64)
    for piece in rows:
        if piece.shape[-1:] != (len(sizes),) or piece.is_floating_point():
            columns = piece.shape[-1] if piece.ndim > 1 else 1
            raise UsageError(
                f"The {features} are {columns} columns of {piece.dtype}, not OGB's {len(sizes)} of"
                " whole numbers.",
                next=integers.instead,
            )
        if piece.numel():
            flat = piece.reshape(-1, len(sizes)).long().cpu()
            low = torch.minimum(low, flat.amin(0))
            high = torch.maximum(high, flat.amax(0))

    faults = []
    bounds = zip(low.tolist(), high.tolist(), sizes, strict=True)
    for column, (least, most, size) in enumerate(bounds):
        if least < 0 or most >= size:
            faults.append(f"column {column} is {least} to {most}, OGB's 0 to {size - 1}")
    if not faults:
        return

    step = integers.instead
    if bool((low >= 0).all()) and bool((high < torch.tensor(integers.from_smiles)).all()):
        faults.append("PyTorch Geometric's from_smiles numbers them so")
        step += ", or OGB's numbers (ogb.utils.smiles2graph) instead of from_smiles'"
    raise DamagedInput(f"The {features} are not OGB's.", found="; ".join(faults), next=step)


def _features(batch: GraphBatch, features: str) -> Tensor:
    rows = batch.x if features == "node features" else batch.edge_attr
    if rows is None:
        raise _no_edge_features()
    return rows


def _no_edge_features() -> UsageError:
    return UsageError(
        "The edge encoder needs edge features (edge_attr).", next="--set model.edge_encoder=dummy"
    )


class LinearEncoder(nn.Module):
    """A linear map of node or edge features (upstream ``LinearNode``) to the channels of the network.

    Mean and standard deviation of the columns of a ``published`` dataset are taken away and divided
    by first. They come with its manifest, not with a checkpoint.
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
            raise _no_edge_features()
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
        """(N, dim), or (…, dim) in the form of the batch's edges, of which each may have one number."""
        return self.linear(self.columns(batch))  # type: ignore[no-any-return]

    def columns(self, batch: GraphBatch) -> Tensor:
        """Return the features, standardised where the dataset is published."""
        rows = _features(batch, self.features)
        if rows.ndim == 1:
            rows = rows[:, None]
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
    """Edge features of PascalVOC-SP as :class:`LinearEncoder` takes them, next to an encoding of edges.

    GNN⁺'s ``VOCEdge`` where the nodes have RWSE: random walks between the ends of an edge are not
    standardised.
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
        self.added_name = encoding.name
        self.attribute = column.attribute

    def columns(self, batch: GraphBatch) -> Tensor:
        """(…, channels + T) in the form of the batch's edges."""
        walks = batch.added.get(self.attribute)
        if walks is None:
            raise UsageError(
                f"The data lack the added column {self.added_name}, which the network reads.",
                next=f"kmip-data encode TARGET {self.added_name}; or --set model.edge_encoder=voc",
            )
        rows = super().columns(batch)
        walks = walks.to(rows.dtype).view(*rows.shape[:-1], -1)
        return torch.cat([rows, walks], dim=-1)


class BlockEncoder(LinearEncoder):
    """Linear without bias, batch norm, ReLU, rows scaled to length 1, of node features.

    GraphGym's first layer before message passing, where it has no node encoder.
    """

    def __init__(self, channels: int, dim: int) -> None:
        super().__init__(channels, dim, features="node features", bias=False)
        self.norm = BatchNorm(dim)

    def forward(self, batch: GraphBatch) -> Tensor:
        """(N, dim)."""
        h = super().forward(batch)
        h = self.norm(h, batch.node_rows)
        return nn.functional.normalize(h.relu(), dim=1)


class IntegerEncoder(nn.Module):
    """Sum of one embedding per integer feature, drawn by Xavier's uniform rule, as OGB's two encoders."""

    def __init__(self, channels: int | None, dim: int, *, integers: Integers) -> None:
        super().__init__()
        if channels is None:
            raise _no_edge_features()
        tables = [nn.Embedding(size, dim) for size in integers.sizes]
        for table in tables:
            nn.init.xavier_uniform_(table.weight)
        self.integers = integers
        self.features = nn.ModuleDict({"embeddings": nn.ModuleList(tables)})  # names in checkpoints

    def forward(self, batch: GraphBatch) -> Tensor:
        """(N, dim), or (…, dim) in the form of the batch's edges."""
        rows = _features(batch, self.integers.features)
        tables: Any = self.features["embeddings"]
        if rows.shape[-1] != len(tables) or rows.is_floating_point():
            check_integers(self.integers, [rows])
        columns = zip(tables, rows.unbind(-1), strict=True)
        try:
            embedded = [table(column) for table, column in columns]
        except IndexError:  # on the CPU, where torch looks; a GPU stops with a text of its own
            check_integers(self.integers, [rows])
            raise
        return functools.reduce(torch.add, embedded)  # type: ignore[no-any-return]


class DummyEdge(nn.Module):
    """One learned vector for all edges (upstream ``DummyEdge``, an embedding with a single row)."""

    def __init__(self, channels: int | None, dim: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(1, dim)

    def forward(self, batch: GraphBatch) -> Tensor:
        """(1, dim), which broadcasts against the edges: never an (E, dim) tensor."""
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
                next=f"kmip-data encode TARGET adds {self.column}; or --set model.positional=none",
            )
        return [batch.added[name] for name in self.reads]


class LapPE(_Columns):
    """Laplacian eigenvectors by a deep set over frequencies (upstream ``LapPE``, model ``DeepSet``).

    Each pair of eigenvector entry (N, K) and eigenvalue (G, K) goes through a perceptron 2 → 32 →
    16; frequencies that a graph does not have (NaN) are left out of the sum. In training the sign
    of each eigenvector is drawn anew, as it means nothing: one sign a frequency for the whole
    batch, as upstream.

    Source: ``graphgps/encoder/laplace_pos_encoder.py`` of the LRGB re-evaluation.
    """

    def __init__(self, position: Positional, _dim: int) -> None:
        super().__init__(position)
        width = self.width
        self.each = nn.Sequential(
            Linear(2, 2 * width),
            nn.ReLU(),
            Linear(2 * width, width),
            nn.ReLU(),
        )

    def forward(self, batch: GraphBatch) -> Tensor:
        """(N, 16)."""
        values, vectors = self.columns(batch)
        if len(values) == batch.num_graphs:
            values = values[batch.graph]
        # Those of the nodes, as transforms of PyTorch Geometric give them, may have another shape.
        values = values.reshape(vectors.shape)
        if self.training:
            drawn = torch.randint(0, 2, (1, vectors.shape[1]), device=vectors.device)
            vectors = vectors * (drawn * 2 - 1)

        pairs = torch.stack([vectors, values], dim=-1)
        exists = ~pairs.isnan().any(-1, keepdim=True)
        mapped = self.each(pairs.nan_to_num()) * exists
        return mapped.sum(1)  # type: ignore[no-any-return]


class ColumnPosition(_Columns):
    """One column of floats: batch norm, then a linear map (upstream ``RWSE``, ``Linear``)."""

    def __init__(self, position: Positional, _dim: int) -> None:
        super().__init__(position)
        self.norm = BatchNorm(self.count)
        self.linear = Linear(self.count, self.width)

    def forward(self, batch: GraphBatch) -> Tensor:
        """(N, width)."""
        (rows,) = self.columns(batch)
        rows = self.norm(rows, batch.node_rows)
        return self.linear(rows)  # type: ignore[no-any-return]


class StablePosition(_Columns):
    """Positions whose distances scale the gates of message passing (upstream ``EquivStableLapPE``).

    The eigenvectors of the encoding, 0 where a graph has fewer, through one linear map. Positions
    are never added to node features: message passing sees the squared distance of the two ends of
    each edge, which is the same when all eigenvectors change their sign, and by an orthogonal map
    also when they are rotated.

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
    """The channels of a node encoder, and those of a positional encoding after them."""

    def __init__(self, features: nn.Module, position: nn.Module) -> None:
        super().__init__()
        self.features = features
        self.position = position

    def forward(self, batch: GraphBatch) -> Tensor:
        """(N, dim)."""
        return torch.cat([self.features(batch), self.position(batch)], dim=1)
