"""Encoders: raw features and positional encodings to the network's channels, by name."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from kmip_data.errors import DamagedInput, UsageError
from kmip_data.manifest import Standardisation, load_manifest
from kmip_data.models.config import Positional
from kmip_data.models.layers.batch import GraphBatch
from kmip_data.models.layers.norms import BatchNorm

#: Values of each integer feature of OGB's molecules, plus one for all others (ogb 1.3.6).
ATOM_FEATURES = (119, 5, 12, 12, 10, 6, 6, 2, 2)
BOND_FEATURES = (5, 6, 2)


class _Linear(nn.Module):
    """A linear map of features, of which a dataset's constants may be taken away first."""

    what: ClassVar[str]

    def __init__(self, channels: int | None, dim: int, constants: Standardisation | None = None) -> None:
        super().__init__()
        if channels is None:
            raise _no_edge_features()
        if constants is not None and len(constants.mean) != channels:
            raise UsageError(
                f"The {self.what} have {channels} columns, the encoder's constants {len(constants.mean)}.",
                next="--set model.node_encoder=linear --set model.edge_encoder=linear",
            )
        self.standardise = nn.Identity() if constants is None else _Standardise(constants)
        self.linear = nn.Linear(channels, dim)

    def mapped(self, rows: Tensor) -> Tensor:
        if rows.shape[-1] != self.linear.in_features:
            fits = self.linear.in_features
            raise UsageError(f"The {self.what} have {rows.shape[-1]} columns, the network takes {fits}.")
        return self.linear(self.standardise(rows.to(self.linear.weight.dtype)))  # type: ignore[no-any-return]


class LinearNode(_Linear):
    """A linear map of the node features (upstream ``LinearNode``) to the channels of the network.

    ``constants``, mean and standard deviation of each column, are taken away and divided by first.
    """

    what = "node features"

    def forward(self, batch: GraphBatch) -> Tensor:
        """(N, dim)."""
        return self.mapped(batch.x)


class LinearEdge(_Linear):
    """A linear map of the edge features; parameters as of :class:`LinearNode`."""

    what = "edge features"

    def forward(self, batch: GraphBatch) -> Tensor:
        """Edge features in the form of the batch's edges."""
        attr = _edge_features(batch)
        return self.mapped(attr[:, None] if attr.ndim == 1 else attr)  # it may be one number per edge


class DummyEdge(nn.Module):
    """One learned vector for all edges (upstream ``DummyEdge``, an embedding with a single row)."""

    def __init__(self, channels: int | None, dim: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(1, dim)

    def forward(self, batch: GraphBatch) -> Tensor:
        """(1, dim), which broadcasts against the edges: never an (E, dim) tensor."""
        return self.embedding.weight


class _IntegerFeatures(nn.Module):
    """Sum of one embedding per feature, drawn by Xavier's uniform rule, as OGB's two encoders."""

    def __init__(self, sizes: Sequence[int], dim: int, what: str) -> None:
        super().__init__()
        tables = [nn.Embedding(size, dim) for size in sizes]
        for table in tables:
            nn.init.xavier_uniform_(table.weight)
        self.embeddings = nn.ModuleList(tables)
        self.what = what

    def forward(self, features: Tensor) -> Tensor:
        if features.shape[-1] != len(self.embeddings) or features.is_floating_point():
            found = f"{features.shape[-1]} columns of {features.dtype}"
            raise UsageError(
                f"The {self.what} are {found}, not OGB's {len(self.embeddings)} of whole numbers."
            )
        columns = features.unbind(-1)
        try:
            parts = [table(column) for table, column in zip(self.embeddings, columns, strict=True)]
        except IndexError as error:  # on the CPU, where torch looks; a GPU stops with a text of its own
            most = [table.num_embeddings for table in self.embeddings]
            raise DamagedInput(
                f"The {self.what} are {features.min()} to {features.max()}, OGB's from 0 below {most}."
            ) from error
        total: Tensor = functools.reduce(torch.add, parts)
        return total


class AtomNode(nn.Module):
    """Nodes that are atoms (upstream ``Atom``)."""

    def __init__(self, channels: int, dim: int) -> None:
        super().__init__()
        self.features = _IntegerFeatures(ATOM_FEATURES, dim, "node features")

    def forward(self, batch: GraphBatch) -> Tensor:
        """(N, dim)."""
        return self.features(batch.x)  # type: ignore[no-any-return]


class BondEdge(nn.Module):
    """Edges that are bonds (upstream ``Bond``)."""

    def __init__(self, channels: int | None, dim: int) -> None:
        super().__init__()
        if channels is None:
            raise _no_edge_features()
        self.features = _IntegerFeatures(BOND_FEATURES, dim, "edge features")

    def forward(self, batch: GraphBatch) -> Tensor:
        """Edge features in the form of the batch's edges."""
        return self.features(_edge_features(batch))  # type: ignore[no-any-return]


class _Standardise(nn.Module):
    """(values - mean) / std, by column."""

    mean: Tensor
    std: Tensor

    def __init__(self, constants: Standardisation) -> None:
        super().__init__()
        # Constants of a dataset, not weights: they come with the code, not with a checkpoint.
        self.register_buffer("mean", torch.tensor(constants.mean), persistent=False)
        self.register_buffer("std", torch.tensor(constants.std), persistent=False)

    def forward(self, values: Tensor) -> Tensor:
        return (values - self.mean) / self.std


def _edge_features(batch: GraphBatch) -> Tensor:
    if batch.edge_attr is None:
        raise _no_edge_features()
    return batch.edge_attr


def _no_edge_features() -> UsageError:
    return UsageError(
        "The edge encoder needs edge features (edge_attr).", next="--set model.edge_encoder=dummy"
    )


def _standardised(encoder: Callable[..., nn.Module], dataset: str, column: str) -> Callable[..., nn.Module]:
    """The encoder with a dataset's published constants, which its manifest has."""

    def build(channels: int | None, dim: int) -> nn.Module:
        return encoder(channels, dim, load_manifest(dataset).standardisation[column])

    return build


NODE_ENCODERS: dict[str, Callable[[int, int], nn.Module]] = {
    "linear": LinearNode,
    "atom": AtomNode,
    "voc": _standardised(LinearNode, "pascalvoc-sp", "node/x"),  # upstream VOCNode
    "coco": _standardised(LinearNode, "coco-sp", "node/x"),  # upstream COCONode
}
EDGE_ENCODERS: dict[str, Callable[[int | None, int], nn.Module]] = {
    "dummy": DummyEdge,
    "linear": LinearEdge,
    "bond": BondEdge,
    "voc": _standardised(LinearEdge, "pascalvoc-sp", "edge/attr"),  # as LRGB; the paper's code: linear
    "coco": _standardised(LinearEdge, "coco-sp", "edge/attr"),  # upstream COCOEdge
}


class LapPE(nn.Module):
    """Laplacian eigenvectors by a deep set over frequencies (upstream ``LapPE``, model ``DeepSet``).

    Each pair of eigenvector entry and eigenvalue goes through a perceptron 2 → 32 → 16; frequencies
    that a graph does not have are left out of the sum. In training the sign of each eigenvector is
    drawn anew, because it means nothing: one sign a frequency for the whole batch, as upstream.

    It reads eigenvectors (N, K) and eigenvalues (G, K), NaN where a graph has fewer than K nodes.

    Source: ``graphgps/encoder/laplace_pos_encoder.py`` of the LRGB re-evaluation.
    """

    def __init__(self, position: Positional, _dim: int) -> None:
        super().__init__()
        width, self.position = position.width, position
        self.each = nn.Sequential(nn.Linear(2, 2 * width), nn.ReLU(), nn.Linear(2 * width, width), nn.ReLU())

    def forward(self, batch: GraphBatch) -> Tensor:
        """(N, 16)."""
        values, vectors = _columns(batch, self.position)
        if len(values) == batch.num_graphs:
            values = values[batch.graph]
        values = values.reshape(vectors.shape)  # of the nodes, as transforms of PyTorch Geometric give them
        if self.training:
            signs = torch.randint(0, 2, (1, vectors.shape[1]), device=vectors.device) * 2 - 1
            vectors = vectors * signs
        pairs = torch.stack([vectors, values], dim=-1)
        there = ~pairs.isnan().any(-1, keepdim=True)
        return (self.each(pairs.nan_to_num()) * there).sum(1)  # type: ignore[no-any-return]


class RandomWalkSE(nn.Module):
    """Return probabilities of random walks: batch norm, then a linear map (upstream ``RWSE``, ``Linear``)."""

    def __init__(self, position: Positional, _dim: int) -> None:
        super().__init__()
        assert position.encoding is not None
        steps, self.position = position.encoding.parameter, position
        self.norm = BatchNorm(steps)
        self.linear = nn.Linear(steps, position.width)

    def forward(self, batch: GraphBatch) -> Tensor:
        """(N, 28)."""
        (rows,) = _columns(batch, self.position)
        return self.linear(self.norm(rows, batch.node_rows))  # type: ignore[no-any-return]


class StablePosition(nn.Module):
    """Positions whose distances scale the gates of message passing (upstream ``EquivStableLapPE``).

    The eigenvectors of the encoding, 0 where a graph has fewer, through one linear map. Positions are
    never added to node features: of them message passing sees the squared distance of the two ends of each
    edge, which is the same when all eigenvectors change their sign, and by an orthogonal map also when they
    are rotated.

    Source: Wang et al., ICLR 2022; ``graphgps/encoder/equivstable_laplace_pos_encoder.py`` of GraphGPS.
    """

    def __init__(self, position: Positional, dim: int) -> None:
        super().__init__()
        assert position.encoding is not None
        self.position = position
        self.linear = nn.Linear(position.encoding.parameter, dim)

    def forward(self, batch: GraphBatch) -> GraphBatch:
        """The batch, its edges with their distances."""
        (vectors,) = _columns(batch, self.position)
        position = self.linear(vectors.nan_to_num())
        edges = batch.edges
        apart = edges.at_source(position) - edges.at_target(position)
        distance = apart.square().sum(-1, keepdim=True)
        return replace(batch, edges=replace(edges, distance=distance))


class WithPositional(nn.Module):
    """The channels of a node encoder, and those of a positional encoding after them."""

    def __init__(self, features: nn.Module, position: nn.Module) -> None:
        super().__init__()
        self.features, self.position = features, position

    def forward(self, batch: GraphBatch) -> Tensor:
        """(N, dim)."""
        return torch.cat([self.features(batch), self.position(batch)], dim=1)


MODULES = {"lappe": LapPE, "rwse": RandomWalkSE, "equivstable": StablePosition}  #: by ``model.positional``


def build_positional(position: Positional, dim: int) -> nn.Module | None:
    """Make the module of a positional encoding in a network of ``dim`` channels, called as ``module(batch)``.

    It gives (N, ``width``), or where that is 0 the :class:`~kmip_data.models.layers.batch.GraphBatch`. None:
    there is no encoding.
    """
    module = MODULES.get(position.name)
    return None if module is None else module(position, dim)


def _columns(batch: GraphBatch, position: Positional) -> list[Tensor]:
    """Return the columns of the encoding, in their order."""
    assert position.encoding is not None
    column = position.encoding.name
    for name in position.reads:
        if name not in batch.added:
            raise UsageError(
                f"The network reads {name} of the added column {column}, which the data do not have.",
                next=f"kmip-data encode TARGET adds {column}; or --set model.positional=none",
            )
    return [batch.added[name] for name in position.reads]
