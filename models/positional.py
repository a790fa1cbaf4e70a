"""Positional encodings: channels from added columns, next to those of the node encoder."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from kmip_data.errors import UsageError
from kmip_data.models.encodings import Positional
from kmip_data.models.layers.batch import GraphBatch
from kmip_data.models.layers.norms import BatchNorm


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
                "the network reads a positional encoding that the data do not have",
                expected=f"{name} (the added column {column})",
                found="none",
                next=f"kmip-data encode TARGET adds {column}; or --set model.positional=none",
            )
    return [batch.added[name] for name in position.reads]
