"""Encoders: raw node and edge features to the network's channels, by name."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from kmip_data.errors import UsageError
from kmip_data.models.layers.batch import GraphBatch


class LinearNode(nn.Module):
    """A linear map of the node features (upstream ``LinearNode``).

    Parameters
    ----------
    channels
        Columns of ``x``.
    dim
        Channels of the network.
    """

    def __init__(self, channels: int, dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(channels, dim)

    def forward(self, batch: GraphBatch) -> Tensor:
        """(N, dim)."""
        if batch.x.shape[1] != self.linear.in_features:
            raise UsageError(
                "the node features do not fit the network",
                expected=f"{self.linear.in_features} columns",
                found=f"{batch.x.shape[1]}",
            )
        return self.linear(batch.x)  # type: ignore[no-any-return]


class DummyEdge(nn.Module):
    """One learned vector for all edges (upstream ``DummyEdge``, an embedding with a single row)."""

    def __init__(self, channels: int | None, dim: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(1, dim)

    def forward(self, batch: GraphBatch) -> Tensor:
        """(1, dim), which broadcasts against the edges: never an (E, dim) tensor."""
        return self.embedding.weight


class LinearEdge(nn.Module):
    """A linear map of the edge features."""

    def __init__(self, channels: int | None, dim: int) -> None:
        super().__init__()
        if channels is None:
            raise UsageError(
                "the edge encoder needs edge features",
                expected="a dataset with edge_attr",
                found="none",
                next="set edge_encoder to 'dummy'",
            )
        self.linear = nn.Linear(channels, dim)

    def forward(self, batch: GraphBatch) -> Tensor:
        """Edge features in the form of the batch's edges."""
        if batch.edge_attr is None or batch.edge_attr.shape[-1] != self.linear.in_features:
            raise UsageError(
                "the edge features do not fit the network",
                expected=f"edge_attr with {self.linear.in_features} columns",
                found="none" if batch.edge_attr is None else f"{batch.edge_attr.shape[-1]}",
            )
        return self.linear(batch.edge_attr)  # type: ignore[no-any-return]


NODE_ENCODERS: dict[str, Callable[[int, int], nn.Module]] = {"linear": LinearNode}
EDGE_ENCODERS: dict[str, Callable[[int | None, int], nn.Module]] = {"dummy": DummyEdge, "linear": LinearEdge}
