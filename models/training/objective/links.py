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
    width = int(ptr.diff().max())
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

    A link (i, j) competes with the pairs (i, c) of its graph; with an equal score it stands half above it,
    as in OGB's evaluator. Hits count in the first of the rankings. From (G, W, W) each to float64 (7): three
    mean reciprocal ranks, three shares of hits, and the number of graphs with links.
    """
    graph, i, j = (target == LINK).nonzero(as_tuple=True)
    rows, kinds = scores[graph, i], target[graph, i]
    own = rows.gather(1, j[:, None])
    other = torch.arange(scores.shape[-1], device=scores.device)
    candidates = (
        (kinds != NO_PAIR) & (other != j[:, None]),
        kinds == APART,
        (kinds == APART) & (other != i[:, None]),
    )
    above = (rows > own).double() + (rows == own).double() / 2
    ranks = [1 + (above * among).sum(1) for among in candidates]
    values = [*(1 / rank for rank in ranks), *((ranks[0] <= most).double() for most in HITS)]
    each = torch.stack(values, 1).masked_fill(own.isnan(), torch.nan)
    per_graph = each.new_zeros(len(target), each.shape[1]).index_add(0, graph, each)
    links = torch.bincount(graph, minlength=len(target))
    means = per_graph / links.clamp_min(1)[:, None]
    return torch.cat([means.sum(0), (links > 0).sum()[None]])
