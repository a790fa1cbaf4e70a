"""Encoders: raw node and edge features to the network's channels, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from kmip_data.errors import DamagedInput, UsageError
from kmip_data.manifest import Standardisation, load_manifest
from kmip_data.models.layers.batch import GraphBatch

#: Values of each integer feature of OGB's molecules, plus one for all others (ogb 1.3.6).
ATOM_FEATURES = (119, 5, 12, 12, 10, 6, 6, 2, 2)
BOND_FEATURES = (5, 6, 2)


class LinearNode(nn.Module):
    """A linear map of the node features (upstream ``LinearNode``).

    Parameters
    ----------
    channels
        Columns of ``x``.
    dim
        Channels of the network.
    constants
        Mean and standard deviation of each column, taken away and divided by first.
    """

    def __init__(self, channels: int, dim: int, constants: Standardisation | None = None) -> None:
        super().__init__()
        self.standardise = _standardise(constants, channels, "node features")
        self.linear = nn.Linear(channels, dim)

    def forward(self, batch: GraphBatch) -> Tensor:
        """(N, dim)."""
        if batch.x.shape[1] != self.linear.in_features:
            raise UsageError(
                "the node features do not fit the network",
                expected=f"{self.linear.in_features} columns",
                found=f"{batch.x.shape[1]}",
            )
        x = self.standardise(batch.x.to(self.linear.weight.dtype))
        return self.linear(x)  # type: ignore[no-any-return]


class DummyEdge(nn.Module):
    """One learned vector for all edges (upstream ``DummyEdge``, an embedding with a single row)."""

    def __init__(self, channels: int | None, dim: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(1, dim)

    def forward(self, batch: GraphBatch) -> Tensor:
        """(1, dim), which broadcasts against the edges: never an (E, dim) tensor."""
        return self.embedding.weight


class LinearEdge(nn.Module):
    """A linear map of the edge features; ``constants`` as for :class:`LinearNode`."""

    def __init__(self, channels: int | None, dim: int, constants: Standardisation | None = None) -> None:
        super().__init__()
        if channels is None:
            raise _no_edge_features()
        self.standardise = _standardise(constants, channels, "edge features")
        self.linear = nn.Linear(channels, dim)

    def forward(self, batch: GraphBatch) -> Tensor:
        """Edge features in the form of the batch's edges."""
        attr = batch.edge_attr
        if attr is not None and attr.ndim == 1:
            attr = attr[:, None]  # one number an edge
        if attr is None or attr.shape[-1] != self.linear.in_features:
            raise UsageError(
                "the edge features do not fit the network",
                expected=f"edge_attr with {self.linear.in_features} columns",
                found="none" if attr is None else f"{attr.shape[-1]}",
            )
        return self.linear(self.standardise(attr.to(self.linear.weight.dtype)))  # type: ignore[no-any-return]


class IntegerFeatures(nn.Module):
    """Sum of one embedding a feature, as OGB's ``AtomEncoder`` and ``BondEncoder``.

    Parameters
    ----------
    sizes
        Number of values of each feature.
    dim
        Channels; weights are drawn by Xavier's uniform rule.
    what
        Name of the features, for errors.
    """

    def __init__(self, sizes: Sequence[int], dim: int, what: str) -> None:
        super().__init__()
        tables = [nn.Embedding(size, dim) for size in sizes]
        for table in tables:
            nn.init.xavier_uniform_(table.weight)
        self.embeddings = nn.ModuleList(tables)
        self.what = what

    def forward(self, features: Tensor) -> Tensor:
        """(…, features) integers → (…, dim)."""
        if features.shape[-1] != len(self.embeddings) or features.is_floating_point():
            raise UsageError(
                f"the {self.what} are not those of OGB's molecules",
                expected=f"{len(self.embeddings)} columns of whole numbers",
                found=f"{features.shape[-1]} columns of {features.dtype}",
            )
        columns = features.unbind(-1)
        try:
            total: Tensor = self.embeddings[0](columns[0])
            for embedding, column in zip(self.embeddings[1:], columns[1:], strict=True):
                total = total + embedding(column)
        except IndexError as error:  # on the CPU, where torch looks; a GPU stops with a text of its own
            raise DamagedInput(
                f"The {self.what} are not those of OGB's molecules.",
                expected=f"numbers from 0 below {[table.num_embeddings for table in self.embeddings]}",
                found=f"{features.min()} to {features.max()}",
            ) from error
        return total


class AtomNode(nn.Module):
    """Nodes that are atoms (upstream ``Atom``)."""

    def __init__(self, channels: int, dim: int) -> None:
        super().__init__()
        self.features = IntegerFeatures(ATOM_FEATURES, dim, "node features")

    def forward(self, batch: GraphBatch) -> Tensor:
        """(N, dim)."""
        return self.features(batch.x)  # type: ignore[no-any-return]


class BondEdge(nn.Module):
    """Edges that are bonds (upstream ``Bond``)."""

    def __init__(self, channels: int | None, dim: int) -> None:
        super().__init__()
        if channels is None:
            raise _no_edge_features()
        self.features = IntegerFeatures(BOND_FEATURES, dim, "edge features")

    def forward(self, batch: GraphBatch) -> Tensor:
        """Edge features in the form of the batch's edges."""
        if batch.edge_attr is None:
            raise _no_edge_features()
        return self.features(batch.edge_attr)  # type: ignore[no-any-return]


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


def _standardise(constants: Standardisation | None, channels: int, what: str) -> nn.Module:
    if constants is None:
        return nn.Identity()
    if len(constants.mean) != channels:
        raise UsageError(
            f"the {what} are not those that the encoder has constants for",
            expected=f"{len(constants.mean)} columns",
            found=f"{channels}",
            next="--set model.node_encoder=linear --set model.edge_encoder=linear",
        )
    return _Standardise(constants)


def _no_edge_features() -> UsageError:
    return UsageError(
        "the edge encoder needs edge features",
        expected="a dataset with edge_attr",
        found="none",
        next="--set model.edge_encoder=dummy",
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
