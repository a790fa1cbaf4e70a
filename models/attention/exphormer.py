"""Exphormer's attention: along the edges, those of an expander, and to and from virtual nodes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor, nn

from kmip_data.models.attention.exphormer_edges import Carried
from kmip_data.models.attention.transformer import check_heads
from kmip_data.models.layers.batch import GraphBatch
from kmip_data.models.layers.edges import EdgeList
from kmip_data.models.search.problem import check_nodes


class ExphormerAttention(nn.Module):
    """Attention along given edges (Shirzad et al., "Exphormer: Sparse Transformers for Graphs", ICML 2023).

    For an edge j → i with features e, and each head of s channels, the weight is
    w = exp(clamp(Σ (W_K x_j)(W_Q x_i)(W_E e) / √s)), and x_i' = Σ w W_V x_j / (Σ w + 10⁻⁶). As upstream has
    it (graphgps/layer/Exphormer.py): no biases, no W_O, and virtual nodes take the result as it is.

    Parameters
    ----------
    dim
        Channels d in and out.
    heads
        Number of heads H.
    clamp
        Bound of what is exponentiated, in both directions.
    output_projection
        End with a linear layer (the paper's W_O; its code has none).
    dropout
        Probability with which a weight is dropped in training, after the sum that it is divided by.

    Examples
    --------
    >>> import torch
    >>> from torch_geometric.data import Data
    >>> from kmip_data.models import ExphormerAttention, ExphormerEdges, read_batch
    >>> x, ring = torch.randn(4, 8), torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
    >>> batch = read_batch(Data(x=x, edge_index=ring))
    >>> begin, attention = ExphormerEdges(8, expander=False), ExphormerAttention(8, heads=2)
    >>> (carried,) = begin(torch.ones(1, 8), batch)
    >>> x, carried = attention(x, batch, carried)
    >>> x.shape, carried.virtual.shape
    (torch.Size([4, 8]), torch.Size([3, 1, 8]))
    """

    def __init__(
        self,
        dim: int,
        *,
        heads: int,
        clamp: float = 5.0,
        output_projection: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check_heads(dim, heads)
        self.heads, self.clamp, self.dropout = heads, clamp, dropout
        self.query, self.key, self.value, self.edge = (nn.Linear(dim, dim, bias=False) for _ in range(4))
        self.output = nn.Linear(dim, dim) if output_projection else nn.Identity()

    def forward(self, x: Tensor, batch: GraphBatch, carried: Carried) -> tuple[Tensor, Carried]:
        """Nodes (N, d) and what is carried to the same."""
        x = check_nodes(x, self.query.weight)
        q, k, v = self._project(x)
        kinds = self.edge(carried.kinds)
        sums = []
        if carried.edges is not None:
            features = self.edge(carried.edges)
            if features.ndim == 2 and len(features) == 1:
                sums.append(self._along(batch.edges, q * features, k, v))
            else:
                sums.append(self._along(batch.edges, q, k, v, features))
        if carried.expander is not None:
            sums.append(self._along(carried.expander, q * kinds[:1], k, v))
        if count := len(carried.virtual):
            virtual_q, virtual_k, virtual_v = self._project(carried.virtual)
            edge_in, edge_out = kinds[1:, None].split(count)
            into, out_of = _IntoVirtual(batch.graph, batch.num_graphs), _OutOfVirtual(batch.graph)
            sums.append(self._along(out_of, q, virtual_k * edge_out, virtual_v))
            virtual = self._along(into, virtual_q * edge_in, k, v)
            carried = carried._replace(virtual=self._divide(*virtual))
        messages, weights = sums[0]
        for more, heavier in sums[1:]:
            messages, weights = messages + more, weights + heavier
        return self._divide(messages, weights), carried

    def _project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, scaled, keys and values: (…, d) each."""
        return self.query(x) / math.sqrt(x.shape[-1] / self.heads), self.key(x), self.value(x)

    def _along(
        self, edges: _Sums, q: Tensor, k: Tensor, v: Tensor, features: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Sums at the targets of some edges: messages (…, d) and weights (…, H).

        Keys and values are those of the sources, queries those of the targets; ``features``, in the form of
        the edges, are None where all have the same, by which the queries are then multiplied.
        """
        pairs = edges.at_source(k) * edges.at_target(q)
        if features is not None:
            pairs = pairs * features
        score = self._by_head(pairs).sum(-1)
        weight = score.clamp(-self.clamp, self.clamp).exp()
        kept = nn.functional.dropout(weight, self.dropout, self.training)
        message = self._by_head(edges.at_source(v)) * kept[..., None]
        return edges.sum_at_target(message.flatten(-2)), edges.sum_at_target(weight)

    def _by_head(self, x: Tensor) -> Tensor:
        """(…, d) → (…, H, s)."""
        return x.reshape(*x.shape[:-1], self.heads, x.shape[-1] // self.heads)

    def _divide(self, messages: Tensor, weights: Tensor) -> Tensor:
        """(…, d) by (…, H)."""
        mean = self._by_head(messages) / (weights + 1e-6)[..., None]
        return self.output(mean.flatten(-2))  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        """Options that the sub-modules do not show."""
        return f"heads={self.heads}, clamp={self.clamp}, dropout={self.dropout}"


class _Sums(Protocol):
    """What attention asks of edges, whose sources and targets may be two sorts of nodes."""

    def at_source(self, x: Tensor) -> Tensor: ...
    def at_target(self, x: Tensor) -> Tensor: ...
    def sum_at_target(self, values: Tensor) -> Tensor: ...


@dataclass(frozen=True, eq=False)
class _OutOfVirtual:
    """Edges from the virtual nodes of each graph, (V, G, d), to its nodes, (N, d): edge values (V, N, d)."""

    graph: Tensor

    def at_source(self, x: Tensor) -> Tensor:
        return _at_nodes(x, self.graph)

    def at_target(self, x: Tensor) -> Tensor:
        return x

    def sum_at_target(self, values: Tensor) -> Tensor:
        return values.sum(0)


@dataclass(frozen=True, eq=False)
class _IntoVirtual:
    """The same the other way round."""

    graph: Tensor
    num_graphs: int

    def at_source(self, x: Tensor) -> Tensor:
        return x

    def at_target(self, x: Tensor) -> Tensor:
        return _at_nodes(x, self.graph)

    def sum_at_target(self, values: Tensor) -> Tensor:
        if self.num_graphs == 1:
            return values.sum(1, keepdim=True)
        nodes = EdgeList(self.graph, self.graph, self.num_graphs)
        sums = nodes.sum_at_target(values.transpose(0, 1).flatten(1))  # (G, V · d)
        return sums.reshape(self.num_graphs, len(values), values.shape[2]).transpose(0, 1)


def _at_nodes(x: Tensor, graph: Tensor) -> Tensor:
    """(V, G, d) → (V, N, d), or (V, 1, d), which broadcasts, where there is one graph."""
    return x if x.shape[1] == 1 else x.index_select(1, graph)
