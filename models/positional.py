"""Positional encodings: added columns of a dataset to channels beside those of the node encoder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar, Final

import torch
from torch import Tensor, nn

from kmip_data.errors import UsageError
from kmip_data.models.layers.batch import GraphBatch
from kmip_data.models.layers.norms import BatchNorm

#: Attributes of a batch: eigenvectors (N, K) and the eigenvalues (G, K) of each graph, NaN where a graph has
#: fewer than K nodes; (N, T) return probabilities of random walks.
LAPPE_VECTORS: Final = "lappe_vectors"
LAPPE_VALUES: Final = "lappe_values"
RWSE: Final = "rwse"


class LapPE(nn.Module):
    """Laplacian eigenvectors by a deep set over frequencies (upstream ``LapPE``, model ``DeepSet``).

    Each pair of eigenvector entry and eigenvalue goes through a perceptron 2 → 32 → 16; frequencies
    that a graph does not have are left out of the sum. In training the sign of each eigenvector is
    drawn anew, because it means nothing: one sign a frequency for the whole batch, as upstream.

    Source: ``graphgps/encoder/laplace_pos_encoder.py`` of the LRGB re-evaluation.
    """

    dim: ClassVar[int] = 16
    reads: ClassVar[tuple[str, ...]] = (LAPPE_VECTORS, LAPPE_VALUES)

    def __init__(self) -> None:
        super().__init__()
        self.each = nn.Sequential(
            nn.Linear(2, 2 * self.dim), nn.ReLU(), nn.Linear(2 * self.dim, self.dim), nn.ReLU()
        )

    def forward(self, batch: GraphBatch) -> Tensor:
        """(N, 16)."""
        vectors, values = (_column(batch, name, "lappe10") for name in self.reads)
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

    dim: ClassVar[int] = 28
    reads: ClassVar[tuple[str, ...]] = (RWSE,)
    steps: ClassVar[int] = 20

    def __init__(self) -> None:
        super().__init__()
        self.norm = BatchNorm(self.steps)
        self.linear = nn.Linear(self.steps, self.dim)

    def forward(self, batch: GraphBatch) -> Tensor:
        """(N, 28)."""
        return self.linear(self.norm(_column(batch, RWSE, "rwse20")))  # type: ignore[no-any-return]


class StablePosition(nn.Module):
    """Positions whose distances scale the gates of message passing (upstream ``EquivStableLapPE``).

    The first eight eigenvectors, 0 where a graph has fewer, through one linear map. Positions are never
    added to node features: of them message passing sees the squared distance of the two ends of each
    edge, which is the same when all eigenvectors change their sign, and by an orthogonal map also when
    they are rotated.

    Source: Wang et al., ICLR 2022; ``graphgps/encoder/equivstable_laplace_pos_encoder.py`` of GraphGPS.

    Parameters
    ----------
    dim
        Coordinates of a position: the channels of the network.
    """

    reads: ClassVar[tuple[str, ...]] = (LAPPE_VECTORS,)
    frequencies: ClassVar[int] = 8

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(self.frequencies, dim)

    def forward(self, batch: GraphBatch) -> GraphBatch:
        """The batch, its edges with their distances."""
        vectors = _column(batch, LAPPE_VECTORS, COLUMNS["equivstable"])
        position = self.linear(vectors.nan_to_num())
        edges = batch.edges
        apart = edges.at_source(position) - edges.at_target(position)
        distance = apart.square().sum(-1, keepdim=True)
        return replace(batch, edges=replace(edges, distance=distance))  # type: ignore[type-var]


class WithPositional(nn.Module):
    """The channels of a node encoder, and those of a positional encoding after them."""

    def __init__(self, features: nn.Module, position: nn.Module) -> None:
        super().__init__()
        self.features, self.position = features, position

    def forward(self, batch: GraphBatch) -> Tensor:
        """(N, dim)."""
        return torch.cat([self.features(batch), self.position(batch)], dim=1)


def _column(batch: GraphBatch, name: str, column: str) -> Tensor:
    found = batch.added.get(name)
    if found is None:
        raise UsageError(
            "the network reads a positional encoding that the data do not have",
            expected=f"{name} (the added column {column})",
            found="none",
            next=f"kmip-data encode TARGET adds {column}; or --set model.positional=none",
        )
    return found


POSITIONAL: dict[str, Callable[[], nn.Module]] = {"lappe": LapPE, "rwse": RandomWalkSE}
#: Channels that an encoding takes from those of the node encoder.
WIDTHS: dict[str, int] = {"none": 0, "lappe": LapPE.dim, "rwse": RandomWalkSE.dim, "equivstable": 0}
#: Names under which ``kmip-data encode`` adds what the encoders read.
COLUMNS: dict[str, str] = {
    "lappe": "lappe10",
    "rwse": f"rwse{RandomWalkSE.steps}",
    "equivstable": f"lappe{StablePosition.frequencies}",
}
READS: dict[str, tuple[str, ...]] = {
    "none": (),
    "lappe": LapPE.reads,
    "rwse": RandomWalkSE.reads,
    "equivstable": StablePosition.reads,
}
