"""Encoders: raw features and positional encodings to the network's channels, by name."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from kmip_data.errors import DamagedInput, UsageError
from kmip_data.manifest import load_manifest
from kmip_data.models.config import EDGE_ENCODINGS, POSITIONAL, positional
from kmip_data.models.layers.batch import GraphBatch
from kmip_data.models.layers.linear import Linear
from kmip_data.models.layers.norms import BatchNorm

#: Values of each integer feature of OGB's molecules, plus one for all others (ogb 1.3.6).
ATOM_FEATURES = (119, 5, 12, 12, 10, 6, 6, 2, 2)
BOND_FEATURES = (5, 6, 2)
#: The same by ``torch_geometric.utils.from_smiles``, which numbers chirality, hydrogens, hybridisation and
#: types of bonds otherwise (2.8).
FROM_SMILES = {"node features": (119, 9, 11, 12, 9, 5, 8, 2, 2), "edge features": (22, 6, 2)}
#: Encoders of whole numbers -> option, features and number of values of each column.
INTEGER_FEATURES = {
    "atom": ("model.node_encoder", "node features", ATOM_FEATURES),
    "bond": ("model.edge_encoder", "edge features", BOND_FEATURES),
}


def check_integers(name: str, rows: Iterable[Tensor]) -> None:
    """Raise ``UsageError`` or ``DamagedInput`` where the encoder ``name`` has no embedding for a value.

    ``rows`` are pieces of the data, (…, columns), of which only bounds by column are kept.
    """
    option, what, sizes = INTEGER_FEATURES[name]
    linear = f"--set {option}=linear"
    low = torch.zeros(len(sizes), dtype=torch.int64)
    high = torch.zeros(len(sizes), dtype=torch.int64)
    for piece in rows:
        if piece.shape[-1:] != (len(sizes),) or piece.is_floating_point():
            columns = piece.shape[-1] if piece.ndim > 1 else 1
            found = f"{columns} columns of {piece.dtype}, not OGB's {len(sizes)} of whole numbers"
            raise UsageError(f"The {what} are {found}.", next=linear)
        if piece.numel():
            flat = piece.reshape(-1, len(sizes)).long().cpu()
            low = torch.minimum(low, flat.amin(0))
            high = torch.maximum(high, flat.amax(0))

    wrong = []
    for column, (least, most, size) in enumerate(
        zip(low.tolist(), high.tolist(), sizes, strict=True)
    ):
        if least < 0 or most >= size:
            wrong.append(f"column {column} is {least} to {most}, OGB's 0 to {size - 1}")
    if not wrong:
        return
    step = linear
    bounds = torch.tensor(FROM_SMILES[what])
    if bool((low >= 0).all()) and bool((high < bounds).all()):
        wrong.append("PyTorch Geometric's from_smiles numbers them so")
        step += ", or OGB's numbers (ogb.utils.smiles2graph) instead of from_smiles'"
    raise DamagedInput(f"The {what} are not OGB's.", found="; ".join(wrong), next=step)


def _features(batch: GraphBatch, what: str) -> Tensor:
    rows = batch.x if what == "node features" else batch.edge_attr
    if rows is None:
        raise _no_edge_features()
    return rows


def _no_edge_features() -> UsageError:
    return UsageError(
        "The edge encoder needs edge features (edge_attr).", next="--set model.edge_encoder=dummy"
    )


class LinearEncoder(nn.Module):
    """A linear map of node or edge features (upstream ``LinearNode``) to the channels of the network.

    Mean and standard deviation of the columns of a ``published`` dataset are taken away and divided by first.
    They come with its manifest, not with a checkpoint.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        what: str,
        channels: int | None,
        dim: int,
        published: tuple[str, str] | None = None,
        *,
        bias: bool = True,
        added: int = 0,
    ) -> None:
        super().__init__()
        if channels is None:
            raise _no_edge_features()
        constants = (
            None if published is None else load_manifest(published[0]).standardisation[published[1]]
        )
        if constants is not None and len(constants.mean) != channels:
            raise UsageError(
                f"The {what} have {channels} columns, the encoder's constants {len(constants.mean)}.",
                next="--set model.node_encoder=linear --set model.edge_encoder=linear",
            )
        self.what = what
        self.channels = channels
        self.standardised = constants is not None
        if constants is not None:
            self.register_buffer("mean", torch.tensor(constants.mean), persistent=False)
            self.register_buffer("std", torch.tensor(constants.std), persistent=False)
        self.linear = Linear(channels + added, dim, bias=bias)

    def forward(self, batch: GraphBatch) -> Tensor:
        """(N, dim), or (…, dim) in the form of the batch's edges, of which each may have one number."""
        return self.linear(self.columns(batch))  # type: ignore[no-any-return]

    def columns(self, batch: GraphBatch) -> Tensor:
        """What the linear map takes: the features, standardised where the dataset is published."""
        rows = _features(batch, self.what)
        rows = rows[:, None] if rows.ndim == 1 else rows
        if rows.shape[-1] != self.channels:
            found = f"{rows.shape[-1]} columns, the network takes {self.channels}"
            raise UsageError(f"The {self.what} have {found}.")
        rows = rows.to(self.linear.weight.dtype)
        return (rows - self.mean) / self.std if self.standardised else rows


class WalkedEdges(LinearEncoder):
    """Edge features as :class:`LinearEncoder` takes them, next to the columns of an encoding of edges.

    GNN⁺'s ``VOCEdge`` where the nodes have RWSE: random walks between the ends of an edge are not standardised.
    """

    def __init__(self, encoder: str, channels: int | None, dim: int, dataset: str) -> None:
        encoding = EDGE_ENCODINGS[encoder]
        column = encoding.columns()[0]
        published = dataset, "edge/attr"
        super().__init__("edge features", channels, dim, published, added=column.shape[0])
        self.added_name = encoding.name
        self.attribute = column.attribute

    def columns(self, batch: GraphBatch) -> Tensor:
        """(…, channels + T) in the form of the batch's edges."""
        rows = super().columns(batch)
        walks = batch.added.get(self.attribute)
        if walks is None:
            raise UsageError(
                f"The data lack the added column {self.added_name}, which the network reads.",
                next=f"kmip-data encode TARGET {self.added_name}; or --set model.edge_encoder=voc",
            )
        return torch.cat([rows, walks.to(rows.dtype).view(*rows.shape[:-1], -1)], dim=-1)


class BlockEncoder(LinearEncoder):
    """Linear without bias, batch norm, ReLU, rows scaled to length 1, of node features.

    GraphGym's first layer before message passing, where it has no node encoder.
    """

    def __init__(self, channels: int, dim: int) -> None:
        super().__init__("node features", channels, dim, bias=False)
        self.norm = BatchNorm(dim)

    def forward(self, batch: GraphBatch) -> Tensor:
        """(N, dim)."""
        h = self.norm(super().forward(batch), batch.node_rows)
        return nn.functional.normalize(h.relu(), dim=1)


class IntegerEncoder(nn.Module):
    """Sum of one embedding per integer feature, drawn by Xavier's uniform rule, as OGB's two encoders."""

    def __init__(self, name: str, channels: int | None, dim: int) -> None:
        super().__init__()
        if channels is None:
            raise _no_edge_features()
        _, what, sizes = INTEGER_FEATURES[name]
        tables = [nn.Embedding(size, dim) for size in sizes]
        for table in tables:
            nn.init.xavier_uniform_(table.weight)
        self.name = name
        self.what = what
        self.features = nn.ModuleDict({"embeddings": nn.ModuleList(tables)})  # names in checkpoints

    def forward(self, batch: GraphBatch) -> Tensor:
        """(N, dim), or (…, dim) in the form of the batch's edges."""
        rows = _features(batch, self.what)
        tables: Any = self.features["embeddings"]
        if rows.shape[-1] != len(tables) or rows.is_floating_point():
            check_integers(self.name, [rows])
        try:
            parts = [table(column) for table, column in zip(tables, rows.unbind(-1), strict=True)]
        except IndexError:  # on the CPU, where torch looks; a GPU stops with a text of its own
            check_integers(self.name, [rows])
            raise
        total: Tensor = functools.reduce(torch.add, parts)
        return total


class DummyEdge(nn.Module):
    """One learned vector for all edges (upstream ``DummyEdge``, an embedding with a single row)."""

    def __init__(self, channels: int | None, dim: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(1, dim)

    def forward(self, batch: GraphBatch) -> Tensor:
        """(1, dim), which broadcasts against the edges: never an (E, dim) tensor."""
        return self.embedding.weight


_NODES = partial(LinearEncoder, "node features")
_EDGES = partial(LinearEncoder, "edge features")
#: Called with the columns of the data (None: there are no edge features) and the network's channels.
NODE_ENCODERS: dict[str, Callable[[int, int], nn.Module]] = {
    "linear": _NODES,
    "atom": partial(IntegerEncoder, "atom"),  # upstream ``Atom``
    "voc": partial(_NODES, published=("pascalvoc-sp", "node/x")),  # upstream VOCNode
    "coco": partial(_NODES, published=("coco-sp", "node/x")),  # upstream COCONode
    "block": BlockEncoder,
}
EDGE_ENCODERS: dict[str, Callable[[int | None, int], nn.Module]] = {
    "dummy": DummyEdge,
    "linear": _EDGES,
    "bond": partial(IntegerEncoder, "bond"),  # upstream ``Bond``
    "voc": partial(
        _EDGES, published=("pascalvoc-sp", "edge/attr")
    ),  # as LRGB; the paper's code: linear
    "coco": partial(_EDGES, published=("coco-sp", "edge/attr")),  # upstream COCOEdge
    "voc-rwse32": partial(WalkedEdges, "voc-rwse32", dataset="pascalvoc-sp"),
}


class _Columns(nn.Module):
    """A module that reads the columns of an added encoding."""

    def __init__(self, name: str) -> None:
        super().__init__()
        found = positional(name)
        encoding = positional(name).encoding
        assert encoding is not None
        self.width = found.width
        self.reads = found.reads
        self.column = encoding.name
        self.count = encoding.columns()[0].shape[0]

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

    Each pair of eigenvector entry (N, K) and eigenvalue (G, K) goes through a perceptron 2 → 32 → 16;
    frequencies that a graph does not have (NaN) are left out of the sum. In training the sign of each
    eigenvector is drawn anew, as it means nothing: one sign a frequency for the whole batch, as upstream.

    Source: ``graphgps/encoder/laplace_pos_encoder.py`` of the LRGB re-evaluation.
    """

    def __init__(self, _dim: int) -> None:
        super().__init__("lappe")
        width = self.width
        self.each = nn.Sequential(
            Linear(2, 2 * width), nn.ReLU(), Linear(2 * width, width), nn.ReLU()
        )

    def forward(self, batch: GraphBatch) -> Tensor:
        """(N, 16)."""
        values, vectors = self.columns(batch)
        if len(values) == batch.num_graphs:
            values = values[batch.graph]
        values = values.reshape(
            vectors.shape
        )  # of the nodes, as transforms of PyTorch Geometric give them
        if self.training:
            vectors = vectors * (
                torch.randint(0, 2, (1, vectors.shape[1]), device=vectors.device) * 2 - 1
            )
        pairs = torch.stack([vectors, values], dim=-1)
        there = ~pairs.isnan().any(-1, keepdim=True)
        return (self.each(pairs.nan_to_num()) * there).sum(1)  # type: ignore[no-any-return]


class RandomWalkSE(_Columns):
    """Return probabilities of random walks: batch norm, then a linear map (upstream ``RWSE``, ``Linear``).

    Encodings of plugins, too.
    """

    def __init__(self, _dim: int, name: str = "rwse") -> None:
        super().__init__(name)
        self.norm = BatchNorm(self.count)
        self.linear = Linear(self.count, self.width)

    def forward(self, batch: GraphBatch) -> Tensor:
        """(N, 28), or (N, 16) of a plugin's."""
        (rows,) = self.columns(batch)
        return self.linear(self.norm(rows, batch.node_rows))  # type: ignore[no-any-return]


class StablePosition(_Columns):
    """Positions whose distances scale the gates of message passing (upstream ``EquivStableLapPE``).

    The eigenvectors of the encoding, 0 where a graph has fewer, through one linear map. Positions are
    never added to node features: message passing sees the squared distance of the two ends of each edge,
    which is the same when all eigenvectors change their sign, and by an orthogonal map also when they are
    rotated.

    Source: Wang et al., ICLR 2022; ``graphgps/encoder/equivstable_laplace_pos_encoder.py`` of GraphGPS.
    """

    def __init__(self, dim: int) -> None:
        super().__init__("equivstable")
        self.linear = Linear(self.count, dim)

    def forward(self, batch: GraphBatch) -> GraphBatch:
        """The batch, its edges with their distances."""
        (vectors,) = self.columns(batch)
        position = self.linear(vectors.nan_to_num())
        edges = batch.edges
        apart = edges.at_source(position) - edges.at_target(position)
        return replace(batch, edges=replace(edges, distance=apart.square().sum(-1, keepdim=True)))


POSITIONAL_ENCODERS: dict[str, Callable[[int], nn.Module]] = {
    "lappe": LapPE,
    "rwse": RandomWalkSE,
    "rwse32": partial(RandomWalkSE, name="rwse32"),
    "equivstable": StablePosition,
}


def positional_encoder(name: str, dim: int) -> nn.Module | None:
    """Return the module of a value of ``model.positional``, for ``dim`` channels.

    ``module(batch)`` gives (N, width), or where the encoding takes no channels the batch with what it adds.
    """
    if name in POSITIONAL:
        return POSITIONAL_ENCODERS[name](dim) if name != "none" else None
    return RandomWalkSE(dim, name)


class WithPositional(nn.Module):
    """The channels of a node encoder, and those of a positional encoding after them."""

    def __init__(self, features: nn.Module, position: nn.Module) -> None:
        super().__init__()
        self.features = features
        self.position = position

    def forward(self, batch: GraphBatch) -> Tensor:
        """(N, dim)."""
        return torch.cat([self.features(batch), self.position(batch)], dim=1)
