"""Encoders: raw node and edge features to the network's channels, by name."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from kmip_data.errors import DamagedInput, UsageError
from kmip_data.manifest import Standardisation, load_manifest
from kmip_data.models.layers.batch import GraphBatch

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
                f"the {self.what} are not those that the encoder has constants for",
                expected=f"{len(constants.mean)} columns",
                found=f"{channels}",
                next="--set model.node_encoder=linear --set model.edge_encoder=linear",
            )
        self.standardise = nn.Identity() if constants is None else _Standardise(constants)
        self.linear = nn.Linear(channels, dim)

    def mapped(self, rows: Tensor) -> Tensor:
        if rows.shape[-1] != self.linear.in_features:
            raise UsageError(
                f"the {self.what} do not fit the network",
                expected=f"{self.linear.in_features} columns",
                found=f"{rows.shape[-1]}",
            )
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
            raise UsageError(
                f"the {self.what} are not those of OGB's molecules",
                expected=f"{len(self.embeddings)} columns of whole numbers",
                found=f"{features.shape[-1]} columns of {features.dtype}",
            )
        columns = features.unbind(-1)
        try:
            parts = [table(column) for table, column in zip(self.embeddings, columns, strict=True)]
        except IndexError as error:  # on the CPU, where torch looks; a GPU stops with a text of its own
            raise DamagedInput(
                f"The {self.what} are not those of OGB's molecules.",
                expected=f"numbers from 0 below {[table.num_embeddings for table in self.embeddings]}",
                found=f"{features.min()} to {features.max()}",
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
