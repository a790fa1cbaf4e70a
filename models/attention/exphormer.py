"""Exphormer's attention along the graph's edges, an expander's edges, and edges of virtual nodes."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from kmip_data.errors import DamagedInput, Setting, UsageError
from kmip_data.graphs.encodings.expander import MAX_COMPLETE_NODES
from kmip_data.models.attention.gate import Gate, apply_gate, build_gate
from kmip_data.models.attention.overflow import check_attention_weights
from kmip_data.models.layers.batch import Edges, GraphBatch, NeighborTable
from kmip_data.models.layers.edge_list import EdgeList
from kmip_data.models.layers.linear import Linear
from kmip_data.models.search.problem import check_heads, check_nodes

_NO_EXPANDER = Setting({"model.attention.expander": 0})


class ExphormerState(NamedTuple):
    """State passed from layer to layer; only ``virtual_states`` change."""

    virtual_states: Tensor  #: (V, G, d) states of each graph's V virtual nodes
    #: (1 + 2V, d) features of expander edges, then of edges to and from each virtual node
    edge_features: Tensor
    edges: Tensor | None  #: encoded features of the graph's edges; None: ignore these edges
    expander: Edges | None  #: expander edges, if used


class ExphormerInitialState(nn.Module):
    """Initial state of Exphormer's attention (upstream ``ExpanderEdgeFixer``).

    Parameters
    ----------
    dim
        Channels d.
    virtual_nodes
        Virtual nodes V per graph, connected to every node in both directions.
    expander
        Read ``batch.added["expander"]``: (N, D) node numbers within each graph, drawn by
        :func:`~kmip_data.graphs.encodings.expander.expander_targets`.
    self_loops
        Keep expander edges from a node to itself.
    real_edges
        Also attend along the graph's edges.
    """

    def __init__(
        self,
        dim: int,
        *,
        virtual_nodes: int = 3,
        expander: bool = True,
        self_loops: bool = True,
        real_edges: bool = True,
    ) -> None:
        super().__init__()
        self.virtual_nodes = virtual_nodes
        self.expander = expander
        self.self_loops = self_loops
        self.real_edges = real_edges
        self.expander_edge = nn.Embedding(1, dim)
        # Kept even if unused, to match upstream's parameter counts; then without gradients.
        self.expander_edge.requires_grad_(expander or virtual_nodes > 0)
        if virtual_nodes:
            self.virtual = nn.Embedding(virtual_nodes, dim)
            self.edge_in = nn.Embedding(virtual_nodes, dim)
            self.edge_out = nn.Embedding(virtual_nodes, dim)

    def forward(self, e: Tensor | None, batch: GraphBatch) -> tuple[ExphormerState]:
        """Return the first layer's state for encoded edge features ``e``, of each edge or (1, d)."""
        edge_features = self.expander_edge.weight
        virtual_states = edge_features.new_empty(0, batch.num_graphs, edge_features.shape[1])
        if self.virtual_nodes:
            edge_features = torch.cat([edge_features, self.edge_in.weight, self.edge_out.weight])
            virtual_states = self.virtual.weight[:, None].expand(-1, batch.num_graphs, -1)
        expander = read_expander_edges(batch, self_loops=self.self_loops) if self.expander else None
        edges = e if self.real_edges else None
        return (ExphormerState(virtual_states, edge_features, edges, expander),)


@torch.compiler.disable  # type: ignore[untyped-decorator] # which graphs are complete depends on the data
def read_expander_edges(batch: GraphBatch, *, self_loops: bool = True) -> Edges:
    """Return the edges of the column ``expander`` in both directions, and all node pairs of small graphs.

    Small graphs have no expander. Returns a neighbour table if every node has the same number of
    edges, else a list. Raises ``UsageError`` if the batch has no such column, and ``DamagedInput``
    if it names missing nodes.
    """
    targets = batch.added.get("expander")
    if targets is None or targets.ndim != 2:
        raise UsageError(
            "The data lack the added column expander (N, D), which the network reads.",
            steps=["add it with kmip_data.open(…, columns=['expander3'])", _NO_EXPANDER],
        )
    device = targets.device
    numbers = torch.arange(len(targets), device=device)
    nodes = numbers[:, None].expand_as(targets)
    is_edge = targets >= 0

    # 1. Check that the numbers are nodes of their graph.
    targets = targets.long()
    sizes = batch.ptr.diff()
    size = sizes.to(device)[batch.graph_index, None]
    outside = (targets < -1) | (targets >= size)
    if bool(outside.any()):
        raise DamagedInput(
            f"An expander names nodes {int(targets.min())} to {int(targets.max())}, which do not exist"
            " in its graph.",
            steps=["use the column of these graphs", _NO_EXPANDER],
        )

    # 2. If each column is a permutation, every node is a target once per column: return a table.
    first = batch.ptr.to(device)[batch.graph_index, None]
    links = torch.where(is_edge, targets + first, nodes)
    inverse = torch.full_like(links, -1).scatter_(0, links, nodes)
    is_small = (sizes <= MAX_COMPLETE_NODES) & (sizes > 1)
    are_permutations = bool((is_edge & (inverse >= 0)).all())
    if self_loops and are_permutations and not bool(is_small.any()):
        return NeighborTable(torch.cat([links, inverse], 1))

    # 3. Otherwise return a list of both directions, and of all pairs in small graphs.
    if not self_loops:
        is_edge = is_edge & (links != nodes)
    pairs = torch.stack([nodes[is_edge], links[is_edge]])
    small_graph_pairs = _all_pairs_in_graphs(batch.ptr, is_small).to(device)
    pairs = torch.cat([pairs, pairs.flip(0), small_graph_pairs], 1)
    return EdgeList(pairs[0], pairs[1], len(targets))


def _all_pairs_in_graphs(ptr: Tensor, selected: Tensor) -> Tensor:
    """Return all pairs of distinct nodes within the selected graphs: int64 (2, E), on the CPU."""
    size = ptr.diff()[selected]
    first = ptr[:-1][selected]
    count = size * size
    graph = torch.arange(len(size)).repeat_interleave(count)
    offset = count.cumsum(0) - count
    pair = torch.arange(len(graph)) - offset[graph]
    width = size[graph]
    pairs = torch.stack([pair // width, pair % width]) + first[graph]
    return pairs[:, pairs[0] != pairs[1]]


class ExphormerAttention(nn.Module):
    """Attention along edges (Shirzad et al., "Exphormer: Sparse Transformers for Graphs", ICML 2023).

    For an edge j → i with features e, and each head of s channels, the weight is w = exp(clamp(Σ
    (W_K x_j)(W_Q x_i)(W_E e) / √s)), and x_i' = Σ w W_V x_j / (Σ w + 10⁻⁶). As upstream
    (graphgps/layer/Exphormer.py), there are no biases and no W_O, and the result replaces the
    virtual nodes' states.

    Parameters
    ----------
    dim, heads
        Input and output channels d, and number of heads H.
    clamp
        Largest absolute value of the exponents.
    output_projection
        End with a linear layer (the paper's W_O; its code has none).
    dropout
        Dropout probability of the normalised weights in training.
    gate
        ``"output"``: multiply each head's output by a learned number
        (:class:`~kmip_data.models.attention.gate.HeadGate`).

    Examples
    --------
    >>> import torch
    >>> from torch_geometric.data import Data
    >>> from kmip_data.models import ExphormerAttention, ExphormerInitialState, read_batch
    >>> x, ring = torch.randn(4, 8), torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
    >>> batch = read_batch(Data(x=x, edge_index=ring))
    >>> begin, attention = ExphormerInitialState(8, expander=False), ExphormerAttention(8, heads=2)
    >>> (carried,) = begin(torch.ones(1, 8), batch)
    >>> x, carried = attention(x, batch, carried)
    >>> x.shape, carried.virtual_states.shape
    (torch.Size([4, 8]), torch.Size([3, 1, 8]))
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        *,
        clamp: float = 5.0,
        output_projection: bool = False,
        dropout: float = 0.0,
        gate: Gate = "none",
    ) -> None:
        super().__init__()
        check_heads(dim, heads)
        self.heads = heads
        self.clamp = clamp
        self.dropout = dropout
        self.query = Linear(dim, dim, bias=False)
        self.key = Linear(dim, dim, bias=False)
        self.value = Linear(dim, dim, bias=False)
        self.edge = Linear(dim, dim, bias=False)
        self.output = Linear(dim, dim) if output_projection else nn.Identity()
        self.gate = build_gate(gate, dim, heads)

    def forward(
        self, x: Tensor, batch: GraphBatch, carried: ExphormerState
    ) -> tuple[Tensor, ExphormerState]:
        """Update nodes (N, d) and the carried state."""
        x = check_nodes(x, self.query.weight)
        q, k, v = self._project(x)
        edge_features = self.edge(carried.edge_features)

        # 1. Along the edges of the graph and of the expander.
        sums = []
        if carried.edges is not None:
            features = self.edge(carried.edges)
            if features.ndim == 2 and len(features) == 1:
                # All edges share their features: multiply the N queries instead of the E edges.
                sums.append(self._attend_over_edges(batch.edges, q * features, k, v))
            else:
                sums.append(self._attend_over_edges(batch.edges, q, k, v, features))
        if carried.expander is not None:
            sums.append(self._attend_over_edges(carried.expander, q * edge_features[:1], k, v))
        if count := len(carried.virtual_states):
            nodes = batch.nodes_to_graphs
            virtual_q, virtual_k, virtual_v = self._project(carried.virtual_states)
            edge_in, edge_out = edge_features[1:, None].split(count)

            # 2. From virtual nodes (V, G, d) to nodes; edge values are (V, N, d).
            pairs = _expand_to_nodes(virtual_k * edge_out, nodes) * q
            messages, weights = self._weigh_messages(pairs, _expand_to_nodes(virtual_v, nodes))
            sums.append((messages.sum(0), weights.sum(0)))

            # 3. From nodes to virtual nodes.
            pairs = k * _expand_to_nodes(virtual_q * edge_in, nodes)
            messages, weights = self._weigh_messages(pairs, v)
            messages = _sum_in_graphs(messages, nodes)
            weights = _sum_in_graphs(weights, nodes)
            states = self._finish(carried.virtual_states, messages, weights)
            carried = carried._replace(virtual_states=states)

        # 4. Normalise over all kinds of edges together.
        messages, weights = sums[0]
        for more_messages, more_weights in sums[1:]:
            messages = messages + more_messages
            weights = weights + more_weights
        return self._finish(x, messages, weights), carried

    def _project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return scaled queries, keys and values: (…, d) each."""
        root = math.sqrt(x.shape[-1] / self.heads)
        return self.query(x) / root, self.key(x), self.value(x)

    def _attend_over_edges(
        self,
        edges: Edges,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        features: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the sums of messages (N, d) and weights (N, H) at the targets of ``edges``.

        ``features`` have the form of the edges; None: the queries already include shared features.
        """
        pairs = edges.at_source(k) * edges.at_target(q)
        if features is not None:
            pairs = pairs * features
        messages, weights = self._weigh_messages(pairs, edges.at_source(v))
        return edges.sum_at_target(messages), edges.sum_at_target(weights)

    def _weigh_messages(self, pairs: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return messages (…, d) and weights (…, H) of edges.

        ``pairs`` (…, d) are products of queries, keys and features.
        """
        scores = self._split_heads(pairs).sum(-1)
        weight = scores.clamp(-self.clamp, self.clamp).exp()
        kept_weight = nn.functional.dropout(weight, self.dropout, self.training)
        messages = self._split_heads(values) * kept_weight[..., None]
        return messages.flatten(-2), weight

    def _split_heads(self, x: Tensor) -> Tensor:
        """(…, d) → (…, H, s)."""
        return x.reshape(*x.shape[:-1], self.heads, x.shape[-1] // self.heads)

    def _finish(self, x: Tensor, messages: Tensor, weights: Tensor) -> Tensor:
        """Divide the messages (…, d) to ``x`` by the sums of weights (…, H), gate and project."""
        # Scores are clamped, so a weight is finite unless products overflow to both sides: NaN.
        check_attention_weights(weights)
        mean = self._split_heads(messages) / (weights + 1e-6)[..., None]
        return self.output(apply_gate(self.gate, x, mean.flatten(-2)))  # type: ignore[no-any-return]


def _expand_to_nodes(x: Tensor, nodes: EdgeList) -> Tensor:
    """(V, G, d) → (V, N, d), or (V, 1, d), which broadcasts, if there is one graph."""
    if x.shape[1] == 1:
        return x
    at_nodes = nodes.at_target(x.transpose(0, 1).flatten(1))  # (N, V · d)
    return at_nodes.view(len(nodes.target), len(x), -1).transpose(0, 1)


def _sum_in_graphs(values: Tensor, nodes: EdgeList) -> Tensor:
    """Sum over the nodes of each graph: (V, N, d) → (V, G, d)."""
    if nodes.num_nodes == 1:
        return values.sum(1, keepdim=True)
    sums = nodes.sum_at_target(values.transpose(0, 1).flatten(1))  # (G, V · d)
    return sums.view(nodes.num_nodes, len(values), -1).transpose(0, 1)
