"""Link prediction inside graphs: which pairs of nodes are links, their loss, and the ranks of the links.

Scores and targets of a batch are padded to (G, W, W), W nodes of its largest graph: entry [g, i, j] is of
the pair of nodes i and j of graph g. A target is :data:`LINK`, :data:`APART` (also a node with itself) or
:data:`NO_PAIR` where the graph has no such nodes.

Source: ``graphgps/head/inductive_edge.py`` and ``graphgps/loader/dataset/pcqm4mv2_contact.py`` of LRGB and
its re-evaluation (Tönshoff et al., "Where Did the Gap Go?", 2023).
"""

from __future__ import annotations

from typing import Any, Final

import torch
import torch.nn.functional as F  # noqa: N812 -- torch's own convention
from torch import Tensor

from kmip_data.errors import DamagedInput
from kmip_data.format.schema import LINKS
from kmip_data.models.layers.batch import by_graph, pointers_of, read_graphs

LINK, APART, NO_PAIR = 1, 0, -1
NEGATIVES: Final = 2  #: pairs apart for each link, of those with the same first node
#: Ranks of a link among the nodes of its graph: all others; without its other links; nor itself.
RANKINGS: Final = ("mrr", "mrr_filtered", "mrr_extended")
HITS: Final = (1, 3, 10)


def link_targets(batch: Any) -> Tensor:
    """Return which pairs of a batch are links, int8 (G, W, W), from the bits of each node's column."""
    bits = batch[LINKS]
    ptr, graph = read_graphs(batch, bits)
    width = max(ptr.diff().tolist())
    if width > 8 * bits.shape[1]:
        raise DamagedInput(
            "A graph has more nodes than its rows of links have bits.",
            expected=f"at most {8 * bits.shape[1]:,} nodes",
            found=f"{width:,}",
        )
    column = torch.arange(width, device=bits.device)
    found = (bits[:, column // 8] >> (column % 8).to(torch.uint8)) & 1
    there = column < pointers_of(graph, len(ptr) - 1).diff()[graph, None]
    return by_graph(torch.where(there, found.to(torch.int8), NO_PAIR), graph, ptr, NO_PAIR)


def link_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Binary cross-entropy over the links and, for each, two pairs apart with the same first node, a float32.

    Upstream draws those pairs anew for each batch; here all pairs apart of a node share the weight that the
    draws have in the mean, 2 · links / pairs apart. That is the expectation of upstream's loss and of its
    gradient, and the same for every evaluation. Both arguments are (G, W, W); without any link the loss is 0.
    """
    logits, link, weight = logits.float(), target == LINK, link_weights(target)
    return (weight * F.softplus(torch.where(link, -logits, logits))).sum() / weight.sum().clamp_min(1)


def link_weights(target: Tensor) -> Tensor:
    """Weight of each pair in :func:`link_cross_entropy`, (G, W, W)."""
    link, apart = target == LINK, target == APART
    links, free = link.sum(-1, keepdim=True), apart.sum(-1, keepdim=True)
    return torch.where(link, 1.0, apart * (NEGATIVES * links / free.clamp_min(1)))


def link_ranks(scores: Tensor, target: Tensor) -> Tensor:
    """Sum over graphs of the mean over a graph's links of what :data:`RANKINGS` and :data:`HITS` name.

    A link (i, j) competes with the pairs (i, c) of its graph; with an equal score it ranks half above it,
    as in OGB's evaluator. Hits count in the first of the rankings. From (G, W, W) each to float64 (7): three
    mean reciprocal ranks, three shares of hits, and the number of graphs with links.
    """
    graph, i, j = links_alone(target) if target.is_cpu else all_pairs(target)
    nan = scores[graph, i].isnan()
    rows, kinds = scores[graph, i].masked_fill(nan, torch.inf), target[graph, i]
    own, link = rows.gather(1, j), kinds.gather(1, j) == LINK
    # A score's rank follows from its places among all of its row, which one sort gives for every j.
    ordered, order = rows.sort(1)
    first, behind = (torch.searchsorted(ordered, own, right=right) for right in (False, True))
    other = torch.arange(rows.shape[1], device=i.device) != i[:, None]
    ranks = []
    for among in (kinds != NO_PAIR, kinds == APART, (kinds == APART) & other):
        upto = F.pad((among & ~nan).gather(1, order).cumsum(1), (1, 0))
        ranks.append(1 + upto[:, -1:] - (upto.gather(1, first) + upto.gather(1, behind)).double() / 2)
    ranks[0] -= 0.5  # the link itself, which is as good as itself
    values = [*(1 / rank for rank in ranks), *((ranks[0] <= most).double() for most in HITS)]
    each = torch.stack(values, 2).masked_fill(nan.gather(1, j)[:, :, None], torch.nan)
    each = each.where(link[:, :, None], 0).flatten(0, 1)
    per_graph = each.new_zeros(len(target), each.shape[1])
    per_graph.index_add_(0, graph[:, None].expand_as(j).flatten(), each)
    links = (target == LINK).sum((1, 2))
    means = per_graph / links.clamp_min(1)[:, None]
    return torch.cat([means.sum(0), (links > 0).sum()[None]])


def links_alone(target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Links (graph, i, j) of :data:`LINK` in (G, W, W): (R,), (R,) and (R, 1)."""
    graph, i, j = (target == LINK).nonzero(as_tuple=True)
    return graph, i, j[:, None]


def all_pairs(target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """All pairs of (G, W, W), (G · W,) twice and (G · W, W), where the host would wait to learn the links."""
    graphs, width, _ = target.shape
    row, column = (torch.arange(count, device=target.device) for count in (graphs * width, width))
    return row // width, row % width, column.expand(len(row), -1)
