"""Slow, obvious oracles for message passing: dense matrices of nodes and edges."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import gelu

Weights = Mapping[str, Tensor]
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": torch.relu, "gelu": gelu}


def linear(weights: Weights, name: str, x: Tensor) -> Tensor:
    """W x + b, without b where there is none."""
    out = x @ weights[f"{name}.weight"].T
    return out + weights[f"{name}.bias"] if f"{name}.bias" in weights else out


def incidence(x: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
    """(E, n) twice: 1 where a node is the source of an edge, and where it is the target."""
    source, target = ((ends[:, None] == torch.arange(len(x))).to(x.dtype) for ends in edge_index)
    return source, target


def sources(x: Tensor, edge_index: Tensor) -> Tensor:
    """(n, n): how often j is a source of i, itself exactly once."""
    source, target = incidence(x, edge_index)
    times = target.T @ source
    return times - torch.diag(times.diagonal()) + torch.eye(len(x), dtype=x.dtype)


def slow_gated_gcn(
    weights: Weights, x: Tensor, e: Tensor, edge_index: Tensor, closeness: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The sums of a GatedGCN layer before norms, by matrices of edges and nodes: new nodes, new edges."""
    from_source, from_target = incidence(x, edge_index)
    a, b, d, s = (linear(weights, name, x) for name in "ABDE")
    pre = from_target @ d + from_source @ s + linear(weights, "C", e)
    gate = torch.sigmoid(pre) if closeness is None else torch.sigmoid(pre) * closeness
    sums = from_target.T @ (gate * (from_source @ b))
    return a + sums / (from_target.T @ gate + 1e-6), pre


def slow_gcn(weights: Weights, x: Tensor, edge_index: Tensor) -> Tensor:
    """GCN by matrices of nodes: every node is its own source exactly once."""
    times = sources(x, edge_index)
    degree = times.sum(1)
    out = times / torch.sqrt(degree[:, None] * degree[None]) @ linear(weights, "lin", x)
    return out + weights["bias"] if "bias" in weights else out


def slow_sage(weights: Weights, x: Tensor, edge_index: Tensor, *, self_loops: bool) -> Tensor:
    """GraphSAGE by matrices of nodes: the mean over the sources, next to the node itself."""
    from_source, from_target = incidence(x, edge_index)
    times = sources(x, edge_index) if self_loops else from_target.T @ from_source
    mean = times @ x / times.sum(1, keepdim=True).clamp_min(1)
    return linear(weights, "lin", mean) + linear(weights, "lin_root", x)


def slow_dir_sage(weights: Weights, x: Tensor, e: Tensor, edge_index: Tensor) -> Tensor:
    """GraphSAGE by matrices of nodes: means of sources and targets, each with those of their edges."""
    from_source, from_target = incidence(x, edge_index)
    out = linear(weights, "lin_root", x)
    for direction, ends, others in (
        ("in", from_target, from_source),
        ("out", from_source, from_target),
    ):
        mean = ends.T / ends.sum(0)[:, None].clamp_min(1)
        out = out + linear(weights, f"lin_{direction}", mean @ others @ x)
        out = out + linear(weights, f"lin_edge_{direction}", mean @ e)
    return out


def slow_gat(weights: Weights, x: Tensor, edge_index: Tensor) -> Tensor:
    """One head of GAT by matrices of nodes: every node is its own source exactly once."""
    h, times = linear(weights, "lin", x), sources(x, edge_index)
    scores = (h @ weights["att_src"][0])[None] + (h @ weights["att_dst"][0])[:, None]
    scores = torch.where(scores > 0, scores, 0.2 * scores)
    most = scores.where(times > 0, -torch.inf).amax(1, keepdim=True)
    exponentials = times * torch.exp((scores - most).clamp_max(0))
    out = exponentials / exponentials.sum(1, keepdim=True) @ h
    return out + weights["bias"] if "bias" in weights else out


def slow_relu_sums(
    x: Tensor, e: Tensor, edge_index: Tensor, closeness: Tensor | float = 1.0
) -> Tensor:
    """Σ closeness relu(x_j + e_ij); ``e`` and ``closeness`` have a row for each edge."""
    from_source, from_target = incidence(x, edge_index)
    return from_target.T @ (torch.relu(from_source @ x + e) * closeness)


def slow_gine_sums(
    x: Tensor, e: Tensor, edge_index: Tensor, closeness: Tensor | None = None
) -> Tensor:
    """x_i + Σ closeness relu(x_j + e_ij)."""
    return x + slow_relu_sums(x, e, edge_index, 1.0 if closeness is None else closeness)


def slow_gcne(weights: Weights, x: Tensor, e: Tensor, edge_index: Tensor) -> Tensor:
    """Σ relu(W x_j + e_ij) + b: no degrees, and the node itself is no source."""
    out = slow_relu_sums(linear(weights, "lin", x), e, edge_index)
    return out + weights["bias"] if "bias" in weights else out


def slow_gine(
    config: Any,
    weights: Weights,
    x: Tensor,
    e: Tensor,
    edge_index: Tensor,
    closeness: Tensor | None,
) -> Tensor:
    """A perceptron of :func:`slow_gine_sums`; its activation is the keys' in two stacks, else ReLU."""
    activation = config.activation if config.stack in {"lrgb", "none"} else "relu"
    inner = linear(weights, "lin_in", slow_gine_sums(x, e, edge_index, closeness))
    return linear(weights, "lin_out", ACTIVATIONS[activation](inner))


class Neighborhood(NamedTuple):
    """Input of message passing from one graph, with its keys and weights."""

    config: Any  #: keys of ``model.local``
    weights: Weights
    x: Tensor  #: (n, d)
    e: Tensor  #: (E, d)
    edge_index: Tensor
    closeness: Tensor | None  #: (E, d) factors of the messages


#: Formula of each kind of message passing but GatedGCN; of a kind with a stack, what comes before
#: the linear residual and the stack.
MESSAGE_PASSING: dict[str, Callable[[Neighborhood], Tensor]] = {
    "gcn": lambda graph: slow_gcn(graph.weights, graph.x, graph.edge_index),
    "gcne": lambda graph: slow_gcne(graph.weights, graph.x, graph.e, graph.edge_index),
    "sage": lambda graph: slow_sage(
        graph.weights, graph.x, graph.edge_index, self_loops=graph.config.self_loops
    ),
    "dir-sage": lambda graph: slow_dir_sage(graph.weights, graph.x, graph.e, graph.edge_index),
    "gat": lambda graph: slow_gat(graph.weights, graph.x, graph.edge_index),
    "gine": lambda graph: slow_gine(*graph),
    "mlp": lambda graph: linear(graph.weights, "lin", graph.x),
}
