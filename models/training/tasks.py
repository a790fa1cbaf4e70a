"""Tasks of networks and their loss functions by name.

Scores and targets of links are padded to (G, W, W), W nodes of the largest graph of a batch: entry [g, i, j]
is of the pair of nodes i and j of graph g. A target is :data:`LINK`, :data:`APART` (also a node with itself)
or :data:`NO_PAIR` where the graph has no such nodes.

Source: ``graphgps/head/inductive_edge.py`` and ``graphgps/loader/dataset/pcqm4mv2_contact.py`` of LRGB and
its re-evaluation (Tönshoff et al., "Where Did the Gap Go?", 2023).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F  # noqa: N812 -- torch's own convention
from torch import Tensor, distributed

from kmip_data.errors import DamagedInput
from kmip_data.format.schema import LINKS
from kmip_data.models.layers.batch import by_graph, pointers_of, read_graphs

LINK = 1
APART = 0
NO_PAIR = -1


def link_targets(batch: Any) -> Tensor:
    """Return which pairs of a batch are links, int8 (G, W, W), from the bits of each node's column."""
    bits = batch[LINKS]
    ptr, graph = read_graphs(batch, bits)
    width = max(ptr.diff().tolist())
    if width > 8 * bits.shape[1]:
        raise DamagedInput(
            f"A graph has {width:,} nodes, its rows of links {8 * bits.shape[1]:,} bits."
        )
    column = torch.arange(width, device=bits.device)
    found = (bits[:, column // 8] >> (column % 8).to(torch.uint8)) & 1
    there = column < pointers_of(graph, len(ptr) - 1).diff()[graph, None]
    return by_graph(torch.where(there, found.to(torch.int8), NO_PAIR), graph, ptr, NO_PAIR)


Level = Literal["node", "graph", "link"]
Kind = Literal["single-label", "multilabel", "regression", "links"]  #: of targets


@dataclass(frozen=True)
class Task:
    """Targets of a network.

    ``single-label``: one of ``outputs`` classes, targets int64 (rows,); ``multilabel``: each of ``outputs``
    labels or not, ``regression``: ``outputs`` numbers, targets float (rows, outputs), NaN where unknown;
    ``links``: one score for each pair of nodes, see :mod:`.links`.
    """

    level: Level  #: unit that a prediction belongs to
    kind: Kind
    outputs: int  #: columns of the network's output
    log10: bool = False  #: True if targets are decimal logarithms, whose metrics are of the numbers themselves

    def targets(self, batch: Any) -> Tensor:
        """Return the targets of a batch, in the form of the network's output."""
        targets: Tensor = link_targets(batch) if self.kind == "links" else batch.y
        return targets


NEGATIVES = 2  #: pairs apart for each link, of those with the same first node
PADDING = -100  #: the whole number that is no target: what torch's losses leave out


def weighted_cross_entropy(logits: Tensor, target: Tensor, count: Tensor | None = None) -> Tensor:
    """Cross-entropy in which a class weighs the more, the rarer it is in the batch; a scalar float32.

    With V labels in the batch and n_c of class c, the weight of class c is (V - n_c) / V, and the
    loss is the weighted mean of the negative log-likelihoods (divided by the sum of the weights).

    A batch of one class has weights 0 and the loss 0/0 = NaN upstream. All its rows weigh the same, so
    here its loss is the plain mean, as it is for any equal weights that are not 0. Without rows it is 0.

    Parameters
    ----------
    logits
        ``(N, C)``, any float dtype; computed in float32.
    target
        ``(N,)`` int64 class indices.
    count
        ``(C,)`` labels of each class, where the batch is larger than these rows.

    Notes
    -----
    Source: ``graphgps/loss/weighted_cross_entropy.py`` of the LRGB re-evaluation, which the paper's
    code uses. The weights belong to a batch, so the loss depends on how graphs are batched; where the
    batch is one graph with masks, they are counted over the nodes of the mask.
    """
    if not target.numel():
        return logits.float().sum()
    if count is None:
        weight = _class_weights(_class_counts(logits, target), target.numel())
    else:
        weight = _class_weights(count, count.sum())
    return F.nll_loss(F.log_softmax(logits.float(), dim=-1), target, weight=weight)


def _class_counts(logits: Tensor, target: Tensor, there: Tensor | None = None) -> Tensor:
    """``(C,)``, of rows that are ``there`` ``(N,)``; as ``bincount``, which has the host wait for a GPU."""
    one = torch.ones_like(target) if there is None else there.to(target.dtype)
    return target.new_zeros(logits.shape[-1]).scatter_add_(0, target, one)


def _class_weights(count: Tensor, total: int | Tensor) -> Tensor:
    weight = (total - count).float() / total
    return torch.where(count == total, torch.ones_like(weight), weight)


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Mean cross-entropy of ``(N, C)`` logits and ``(N,)`` int64 classes, in float32; without rows 0."""
    return F.cross_entropy(logits.float(), target) if target.numel() else logits.float().sum()


def binary_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Mean over the known labels of the binary cross-entropy, in float32; without any known label 0.

    ``logits`` and ``target`` are ``(N, T)``; targets are 0 or 1, NaN where unknown. Source:
    ``graphgps/loss/multilabel_classification_loss.py`` of the LRGB re-evaluation.
    """
    logits, target, known = _known(logits, target)
    each = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
    return (each * known).sum() / known.sum().clamp_min(1)


def l1(logits: Tensor, target: Tensor) -> Tensor:
    """Mean over the known targets of ``|prediction - target|``, both ``(N, T)``, in float32."""
    logits, target, known = _known(logits, target)
    return ((logits - target).abs() * known).sum() / known.sum().clamp_min(1)


def squared_error(logits: Tensor, target: Tensor) -> Tensor:
    """Mean over the known targets of ``(prediction - target)²``, both ``(N, T)``, in float32."""
    logits, target, known = _known(logits, target)
    return ((logits - target) ** 2 * known).sum() / known.sum().clamp_min(1)


def squared_error_or_one(logits: Tensor, target: Tensor) -> Tensor:
    """:func:`squared_error`, 1 without a known target: ``log10_mse``, its logarithm, is then 0."""
    return squared_error(logits, target) + (_known_targets(target) == 0)


def log10_of(mean: Tensor) -> Tensor:
    """Return the decimal logarithm of a mean; of the smallest float32 for 0, without a gradient."""
    return mean.clamp_min(torch.finfo(torch.float32).tiny).log10()


def link_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Binary cross-entropy over the links and, for each, two pairs apart with the same first node, a float32.

    Upstream draws those pairs anew for each batch; here all pairs apart of a node share the weight that the
    draws have in the mean, 2 · links / pairs apart. That is the expectation of upstream's loss and of its
    gradient, and the same for every evaluation. Both arguments are (G, W, W); without any link the loss is 0.
    """
    logits = logits.float()
    link = target == LINK
    weight = link_weights(target)
    return (weight * F.softplus(torch.where(link, -logits, logits))).sum() / weight.sum().clamp_min(
        1
    )


def link_weights(target: Tensor) -> Tensor:
    """Weight of each pair in :func:`link_cross_entropy`, (G, W, W)."""
    link = target == LINK
    apart = target == APART
    links = link.sum(-1, keepdim=True)
    free = apart.sum(-1, keepdim=True)
    return torch.where(link, 1.0, apart * (NEGATIVES * links / free.clamp_min(1)))


def _known(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return both as float32 of one shape, unknown targets as 0, and which are known."""
    target = target.view(logits.shape)
    known = ~target.isnan() if target.is_floating_point() else target != PADDING
    target = target.float()
    return logits.float(), target.masked_fill(~known, 0.0), known


def _known_targets(target: Tensor) -> Tensor:
    return (~target.isnan()).sum()


def _over_processes(own: Tensor) -> Tensor:
    total = own.detach().clone()
    distributed.all_reduce(total)
    return total


@dataclass(frozen=True)
class Loss:
    """A loss function of ``(logits, target)``, a weighted mean over rows, and the targets it is for."""

    compute: Callable[..., Tensor]
    kind: Kind
    weight: Callable[..., Tensor]  #: of the targets: the sum of the weights
    by_class: bool = False  #: True if both also take the number of rows of each class in the batch
    of_mean: Callable[[Tensor], Tensor] | None = (
        None  #: function of the mean over all rows of a batch
    )

    def __call__(self, logits: Tensor, target: Tensor) -> Tensor:
        """Scalar float32."""
        return self._finished(self.compute(logits, target))

    def _finished(self, mean: Tensor) -> Tensor:
        return mean if self.of_mean is None else self.of_mean(mean)

    def padded(self, logits: Tensor, target: Tensor) -> Tensor:
        """Scalar float32, of the rows whose target is neither :data:`PADDING` nor NaN."""
        counts = []
        if self.by_class:
            counts.append(_class_counts(logits, target.clamp_min(0), target != PADDING))
        return self._finished(self.compute(logits, target, *counts))

    def divided(self, logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Loss of a batch of which this process has the rows given, and the others the rest.

        Returns
        -------
        learned
            What this process differentiates: the mean over processes of its gradients is that of the whole.
        whole
            The loss of all rows, without a gradient; the same on all processes.
        """
        counts = []
        if self.by_class:
            counts.append(_over_processes(_class_counts(logits, target)))
        weight = self.weight(target, *counts).double()
        share = weight / _over_processes(weight).clamp_min(torch.finfo(torch.float32).tiny)
        own = self.compute(logits, target, *counts) * share.float()
        learned = own * distributed.get_world_size()
        whole = _over_processes(own)
        if self.of_mean is None:
            return learned, whole
        # The value of the whole with the gradient of this process: f'(whole) times that of ``learned``.
        return self.of_mean(whole + (learned - learned.detach())), self.of_mean(whole)


LOSSES: dict[str, Loss] = {
    "weighted_cross_entropy": Loss(
        weighted_cross_entropy,
        "single-label",
        lambda target, count: _class_weights(count, count.sum())[target].sum(),
        by_class=True,
    ),
    "cross_entropy": Loss(cross_entropy, "single-label", _known_targets),
    "binary_cross_entropy": Loss(binary_cross_entropy, "multilabel", _known_targets),
    "l1": Loss(l1, "regression", _known_targets),
    "mse": Loss(squared_error, "regression", _known_targets),
    "log10_mse": Loss(squared_error_or_one, "regression", _known_targets, of_mean=log10_of),
    "link_cross_entropy": Loss(
        link_cross_entropy, "links", lambda target: link_weights(target).sum()
    ),
}
