"""Slow, obvious oracles for search, attention and message passing: loops over rows, pairs and edges."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


def slow_score(query: Tensor, key: Tensor) -> float:
    """The rule for one pair: Python floats are float64, the sum runs in index order."""
    total = 0.0
    for a, b in zip(query.tolist(), key.tolist(), strict=True):
        total += a * b
    with np.errstate(over="ignore"):
        return float(np.float32(total)) + 0.0  # no −0


def slow_search(
    queries: Tensor, keys: Tensor, k: int, query_ptr: Sequence[int], key_ptr: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """Sort all keys of the query's graph by (score descending, index); cut to k."""
    heads, rows, _ = queries.shape
    scores = torch.full((heads, rows, k), -math.inf)
    indices = torch.full((heads, rows, k), -1)
    for head in range(heads):
        for graph in range(len(query_ptr) - 1):
            for row in range(query_ptr[graph], query_ptr[graph + 1]):
                ranked = [
                    (slow_score(queries[head, row], keys[head, j]), j)
                    for j in range(key_ptr[graph], key_ptr[graph + 1])
                ]
                ranked.sort(key=lambda pair: (-pair[0], pair[1]))
                for slot, (score, j) in enumerate(ranked[:k]):
                    scores[head, row, slot] = score
                    indices[head, row, slot] = j
    return scores, indices


def full_attention(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Softmax attention over all keys of one graph, (H, N, d) → (H, N, v)."""
    return torch.softmax(queries @ keys.mT / math.sqrt(queries.shape[-1]), -1) @ values


def slow_attention(queries: Tensor, keys: Tensor, values: Tensor, k: int, ptr: Sequence[int]) -> Tensor:
    """Each query, each graph alone: softmax over the k best keys."""
    out = torch.zeros(*queries.shape[:2], values.shape[2], dtype=values.dtype)
    for head in range(queries.shape[0]):
        for start, stop in itertools.pairwise(ptr):
            for row in range(start, stop):
                scores = keys[head, start:stop] @ queries[head, row]
                best = scores.argsort(descending=True, stable=True)[:k]
                weights = torch.softmax(scores[best] / math.sqrt(queries.shape[2]), 0)
                out[head, row] = weights @ values[head, start:stop][best]
    return out


def slow_padded_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    key_bias: Tensor,
    value_bias: Tensor,
    k: int,
    ptr: Sequence[int],
) -> Tensor:
    """The published layer: every graph padded to the longest, pads attended, key 0 in missing slots.

    A pad is a zero row, so its key and value are the biases, (H, d) and (H, v). KeOps keeps the
    lowest index of equal scores and fills with index 0 where k exceeds the padded length.
    """
    longest = max(b - a for a, b in itertools.pairwise(ptr))
    out = torch.zeros(*queries.shape[:2], values.shape[2], dtype=values.dtype)
    for head in range(queries.shape[0]):
        for start, stop in itertools.pairwise(ptr):
            pads = longest - (stop - start)
            all_keys = torch.cat([keys[head, start:stop], key_bias[head].expand(pads, -1)])
            all_values = torch.cat([values[head, start:stop], value_bias[head].expand(pads, -1)])
            for row in range(start, stop):
                scores = all_keys @ queries[head, row]
                best = scores.argsort(descending=True, stable=True)[:k]
                best = torch.cat([best, best.new_zeros(k - len(best))])
                weights = torch.softmax(scores[best] / math.sqrt(queries.shape[2]), 0)
                out[head, row] = weights @ all_values[best]
    return out


def slow_gated_gcn(
    layer: torch.nn.Module, x: Tensor, e: Tensor, edge_index: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The sums of a GatedGCN layer edge by edge, before norms: new nodes, new edges, gates."""
    new_edges = [
        layer.D(x[target]) + layer.E(x[source]) + layer.C(e[edge])
        for edge, (source, target) in enumerate(edge_index.t().tolist())
    ]
    gates = [torch.sigmoid(value) for value in new_edges]
    new_nodes = []
    for node in range(x.shape[0]):
        above, below = torch.zeros(x.shape[1]), torch.zeros(x.shape[1])
        for edge, (source, target) in enumerate(edge_index.t().tolist()):
            if target == node:
                above = above + gates[edge] * layer.B(x[source])
                below = below + gates[edge]
        new_nodes.append(layer.A(x[node]) + above / (below + 1e-6))
    empty = x.new_zeros(0, x.shape[1])
    return (
        torch.stack(new_nodes) if new_nodes else empty,
        torch.stack(new_edges) if new_edges else empty,
        torch.stack(gates) if gates else empty,
    )


def sources_of(node: int, edge_index: Tensor) -> list[tuple[int, int]]:
    """Number and source of each edge into a node."""
    pairs = edge_index.t().tolist()
    return [(edge, source) for edge, (source, target) in enumerate(pairs) if target == node]


def slow_gcn(layer: torch.nn.Module, x: Tensor, e: Tensor | None, edge_index: Tensor) -> Tensor:
    """GCN node by node: every node is its own source exactly once."""
    sources = [
        [source for _, source in sources_of(i, edge_index) if source != i] + [i] for i in range(len(x))
    ]
    rows = []
    for i in range(len(x)):
        row = torch.zeros(x.shape[1], dtype=x.dtype)
        for j in sources[i]:
            row = row + layer.lin.weight @ x[j] / math.sqrt(len(sources[i]) * len(sources[j]))
        rows.append(row if layer.bias is None else row + layer.bias)
    return torch.stack(rows)


def slow_gat(layer: torch.nn.Module, x: Tensor, e: Tensor | None, edge_index: Tensor) -> Tensor:
    """One head of GAT node by node: every node is its own source exactly once."""
    rows = []
    for i in range(len(x)):
        sources = [source for _, source in sources_of(i, edge_index) if source != i] + [i]
        h = [layer.lin.weight @ x[j] for j in sources]
        scores = torch.stack([layer.att_src[0] @ h_j + layer.att_dst[0] @ h[-1] for h_j in h])
        weights = torch.softmax(torch.where(scores > 0, scores, 0.2 * scores), 0)
        row = torch.zeros(x.shape[1], dtype=x.dtype)
        for weight, h_j in zip(weights, h, strict=True):
            row = row + weight * h_j
        rows.append(row if layer.bias is None else row + layer.bias)
    return torch.stack(rows)


def slow_gine_sums(x: Tensor, e: Tensor, edge_index: Tensor) -> Tensor:
    """x_i + Σ relu(x_j + e_ij) node by node; ``e`` has a row for each edge."""
    rows = []
    for i in range(len(x)):
        row = x[i]
        for edge, source in sources_of(i, edge_index):
            row = row + (x[source] + e[edge]).clamp_min(0)
        rows.append(row)
    return torch.stack(rows)
