"""Attention of one graph by its formula: matrices with a place for each pair of nodes, head by head.

``weights`` holds the tensors of a layer's attention by the names of its ``state_dict``. Nodes are
(n, d).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from support.oracles.slow_layers import Weights, linear
from torch import Tensor
from torch.nn.functional import one_hot, pad

from kmip_data.models.attention.bigbird import draw_random_blocks


def by_head(config: Any, weights: Weights, x: Tensor, *names: str) -> Iterator[tuple[Tensor, ...]]:
    """Linear maps of the nodes by these names, head by head."""
    return zip(
        *(linear(weights, name, x).chunk(config.heads, dim=1) for name in names), strict=True
    )


def gated(config: Any, weights: Weights, x: Tensor, parts: list[Tensor]) -> Tensor:
    """The outputs of the heads next to each other, each times its number if there is a gate."""
    if config.gate == "output":
        numbers = torch.sigmoid(linear(weights, "gate", x))
        parts = [numbers[:, head, None] * part for head, part in enumerate(parts)]
    return torch.cat(parts, 1)


def softmax_of(scores: Tensor, times: Tensor) -> Tensor:
    """Softmax of each row in which a column counts so many ``times``."""
    exponentials = times * torch.exp(scores - scores.max(1, keepdim=True).values)
    return exponentials / exponentials.sum(1, keepdim=True)


def k_mip(config: Any, weights: Weights, x: Tensor, layer: int) -> Tensor:
    """Softmax over the k keys with the largest inner product."""
    parts = []
    for q, k, v in by_head(config, weights, x, "query", "key", "value"):
        scores = q @ k.T
        best = scores.argsort(dim=1, descending=True, stable=True)[:, : config.layer_k(layer)]
        chosen = one_hot(best, len(x)).sum(1)
        parts.append(softmax_of(scores / math.sqrt(q.shape[1]), chosen) @ v)
    out = gated(config, weights, x, parts)
    return linear(weights, "output", out) if config.output_projection else out


def transformer(config: Any, weights: Weights, x: Tensor, layer: int) -> Tensor:
    """Softmax over all or k nodes; queries, keys and values are thirds of one matrix."""
    projected = (x @ weights["in_proj_weight"].T + weights["in_proj_bias"]).chunk(3, dim=1)
    parts = []
    for q, k, v in zip(*(rows.chunk(config.heads, dim=1) for rows in projected), strict=True):
        scores = q @ k.T / math.sqrt(q.shape[1])
        if config.temperature == "adaptive":
            rows = scores.softmax(1)
            h = -(rows * rows.clamp_min(1e-300).log()).sum(1, keepdim=True)
            beta = -0.037 * h**4 + 0.481 * h**3 - 2.3 * h**2 + 4.917 * h - 1.791
            scores = torch.where(h > 0.5, beta.clamp_min(1), 1) * scores
        elif config.temperature != "none":
            scores = max(1, math.log(len(x), int(config.temperature[6:]))) * scores
        best = scores.argsort(dim=1, descending=True, stable=True)[:, : config.k or len(x)]
        parts.append(softmax_of(scores, one_hot(best, len(x)).sum(1)) @ v)
    return linear(weights, "out_proj", gated(config, weights, x, parts))


def performer(config: Any, weights: Weights, x: Tensor, layer: int, zeros: int = 0) -> Tensor:
    """Products of positive features; their largest exponents are no functions of the input.

    So many ``zeros`` count as keys, too.
    """
    directions, parts = weights["fast_attention.projection_matrix"], []

    def features(rows: Tensor, largest: Callable[[Tensor], Tensor]) -> Tensor:
        exponents = rows @ directions.T / config.head_dim**0.25
        squares = (rows**2).sum(1, keepdim=True) / (2 * config.head_dim**0.5)
        return torch.exp(exponents - squares - largest(exponents).detach()) + 1e-4

    for q, *others in by_head(config, weights, x, "to_q", "to_k", "to_v"):
        k, v = (pad(rows, (0, 0, 0, zeros)) for rows in others)
        of_queries = features(q, lambda exponents: exponents.max(1, keepdim=True).values)
        products = of_queries @ features(k, lambda exponents: exponents.max()).T
        parts.append(products @ v / products.sum(1, keepdim=True))
    return linear(weights, "to_out", gated(config, weights, x, parts))


def bigbird(config: Any, weights: Weights, x: Tensor, layer: int) -> Tensor:
    """A whole encoder layer: attention to some blocks, then linear layers, each with a layer norm."""
    size = config.block_size
    blocks, parts = -(-len(x) // size), []
    random = draw_random_blocks(max(blocks, 4), config.heads, config.random_blocks, config.seed)
    for head, (q, k, v) in enumerate(by_head(config, weights, x, "query", "key", "value")):
        times = torch.ones(blocks, blocks)
        for block in range(1, blocks - 1) if blocks >= 4 else ():
            times[block] = 0
            times[block, [0, block - 1, block, block + 1, blocks - 1]] = 1
            for other in random[head, block].tolist():  # one that is there already counts again
                times[block, other] += 1
        of_nodes = times.repeat_interleave(size, 0).repeat_interleave(size, 1)[: len(x), : len(x)]
        parts.append(softmax_of(q @ k.T / math.sqrt(q.shape[1]), of_nodes) @ v)
    h = layer_norm(
        weights,
        "norm_attention",
        x + linear(weights, "output", gated(config, weights, x, parts)),
        config,
    )
    fed = linear(weights, "feed_out", torch.relu(linear(weights, "feed_in", h)))
    return layer_norm(weights, "norm_out", h + fed, config)


def layer_norm(weights: Weights, name: str, x: Tensor, config: Any) -> Tensor:
    centred = x - x.mean(1, keepdim=True)
    scaled = centred / (centred.square().mean(1, keepdim=True) + config.norm_eps).sqrt()
    return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]


ATTENTION = {"k-mip": k_mip, "transformer": transformer, "performer": performer, "bigbird": bigbird}


def exphormer_edges(
    config: Any, begin: Weights, edge_index: Tensor, e: Tensor, expander: Tensor | None, nodes: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Sources, targets and features of all edges of one graph.

    Virtual nodes come after the others.
    """
    pairs, features = (edge_index.T.tolist(), [*e]) if config.real_edges else ([], [])
    links: list[tuple[int, int]] = []
    if config.expander and nodes <= 10:
        links = [(i, j) for i in range(nodes) for j in range(nodes) if i != j]
    elif config.expander and expander is not None:
        links = [
            pair for i in range(nodes) for j in expander[i].tolist() for pair in ((i, j), (j, i))
        ]
    links = [(i, j) for i, j in links if i != j or config.self_loops]
    pairs += links
    features += [begin["expander_edge.weight"][0]] * len(links)
    for v in range(config.virtual_nodes):
        pairs += [(i, nodes + v) for i in range(nodes)] + [(nodes + v, i) for i in range(nodes)]
        features += [begin["edge_in.weight"][v]] * nodes + [begin["edge_out.weight"][v]] * nodes
    source, target = torch.tensor(pairs).T
    return source, target, torch.stack(features)


def exphormer(
    config: Any, weights: Weights, states: Tensor, edges: tuple[Tensor, Tensor, Tensor]
) -> Tensor:
    """Attention along edges; ``states`` are the nodes and the virtual nodes after them."""
    source, target, features = edges
    at_source, at_target = (one_hot(ends, len(states)).double() for ends in (source, target))
    projected = by_head(config, weights, states, "query", "key", "value")
    parts = []
    for (q, k, v), (e,) in zip(projected, by_head(config, weights, features, "edge"), strict=True):
        pairs = (at_source @ k) * (at_target @ q) / math.sqrt(q.shape[1]) * e
        weight = pairs.sum(1, keepdim=True).clamp(-config.clamp, config.clamp).exp()
        parts.append(at_target.T @ (weight * (at_source @ v)) / (at_target.T @ weight + 1e-6))
    out = gated(config, weights, states, parts)
    return linear(weights, "output", out) if config.output_projection else out
