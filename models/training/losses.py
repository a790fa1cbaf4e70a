"""Loss functions by name; torch is imported when a loss is computed.

A loss is one entry of :data:`LOSSES`: function, supported targets, and division among processes.
Configuration keys, error messages and the table of keys in docs/keys.md read their names here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kmip_data.format.targets import TargetType
from kmip_data.models.training.tasks import LINK, NO_CLASS, NO_LINK, is_known
from kmip_data.registry import with_plugin_entries

if TYPE_CHECKING:
    from torch import Tensor

NEGATIVES = 2  #: unlinked pairs per link, with the same first node
SMALLEST = 2.0**-126  #: smallest normal float32


def weighted_cross_entropy(logits: Tensor, target: Tensor, count: Tensor | None = None) -> Tensor:
    """Cross-entropy with larger weights for classes that are rarer in the batch.

    A scalar float32.

    With V labels in the batch and n_c of class c, the weight of class c is (V - n_c) / V, and the
    loss is the weighted mean of the negative log-likelihoods (divided by the sum of the weights).

    A batch of one class has weights 0 and the loss 0/0 = NaN upstream. Here its loss is the plain
    mean, as for any equal nonzero weights. Without rows the loss is 0.

    Parameters
    ----------
    logits
        ``(N, C)``, any float dtype; computed in float32.
    target
        ``(N,)`` int64 class indices, -1 where unknown.
    count
        ``(C,)`` number of labels per class, if the batch has more than these rows.

    Notes
    -----
    Source: ``graphgps/loss/weighted_cross_entropy.py`` of the LRGB re-evaluation, which the paper's
    code uses. Weights depend on the batch, hence on how graphs are batched; for one graph with
    masks, they are counted over the nodes of the mask.
    """
    from torch.nn.functional import log_softmax, nll_loss

    if not target.numel():
        return logits.float().sum()
    if count is None:
        count = _class_counts(logits, target)
    likelihoods = log_softmax(logits.float(), dim=-1)
    weight = _class_weights(count)
    return _zero_without_classes(
        nll_loss(likelihoods, target, weight=weight, ignore_index=NO_CLASS), logits, target
    )


def weighted_binary_cross_entropy(
    logits: Tensor, target: Tensor, count: Tensor | None = None
) -> Tensor:
    """Cross-entropy (N, 1) with the weights of :func:`weighted_cross_entropy`, divided by the number of labels.

    GraphGPS's loss for a network of one output and two classes: logits z₀ and z₁ of class 0 and 1
    have the loss of its output z₁ - z₀. With shares p and 1 - p of the classes it is 2 · p · (1 - p)
    times the weighted mean. A batch of one class has the loss 0.

    Notes
    -----
    Source: the binary case in ``graphgps/loss/weighted_cross_entropy.py`` of GraphGPS.
    """
    from torch.nn.functional import log_softmax, nll_loss

    if count is None:
        count = _class_counts(logits, target)
    total = count.sum()
    weight = (total - count).float() / total.clamp_min(1)
    likelihoods = log_softmax(logits.float(), dim=-1)
    losses = nll_loss(likelihoods, target, weight=weight, reduction="sum", ignore_index=NO_CLASS)
    # These rows alone: ``count`` may include rows of other processes, too.
    return losses / (target != NO_CLASS).sum().clamp_min(1)


def _class_counts(logits: Tensor, target: Tensor) -> Tensor:
    """Labels of each class ``(C,)``."""
    counts = target.new_zeros(logits.shape[-1])
    # Not ``bincount``, which has the host wait for a GPU.
    return counts.scatter_add_(0, target.clamp_min(0), (target != NO_CLASS).to(target.dtype))


def _class_weights(count: Tensor) -> Tensor:
    total = count.sum()
    weight = (total - count).float() / total
    return weight.masked_fill(count == total, 1.0)


def _sum_of_class_weights(target: Tensor, count: Tensor) -> Tensor:
    return (_class_weights(count)[target.clamp_min(0)] * (target != NO_CLASS)).sum()


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Mean cross-entropy of ``(N, C)`` logits and ``(N,)`` int64 classes in float32, 0 without any.

    A class of -1 is unknown, and left out.
    """
    from torch.nn import functional

    if not target.numel():
        return logits.float().sum()
    loss = functional.cross_entropy(logits.float(), target, ignore_index=NO_CLASS)
    return _zero_without_classes(loss, logits, target)


def _zero_without_classes(loss: Tensor, logits: Tensor, target: Tensor) -> Tensor:
    """Return a mean over known classes, 0 without any."""
    import torch

    return torch.where((target != NO_CLASS).any(), loss, logits.float().sum() * 0)


def binary_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Mean over the known labels of the binary cross-entropy in float32, 0 without any.

    ``logits`` and ``target`` are ``(N, T)``; targets are 0 or 1, NaN where unknown. Source:
    ``graphgps/loss/multilabel_classification_loss.py`` of the LRGB re-evaluation.
    """
    from torch.nn.functional import binary_cross_entropy_with_logits

    return _mean_over_known(binary_cross_entropy_with_logits, logits, target)


def l1(logits: Tensor, target: Tensor) -> Tensor:
    """Mean over the known targets of ``|prediction - target|``, both ``(N, T)``, in float32."""
    from torch.nn.functional import l1_loss

    return _mean_over_known(l1_loss, logits, target)


def squared_error(logits: Tensor, target: Tensor) -> Tensor:
    """Mean over the known targets of ``(prediction - target)²``, both ``(N, T)``, in float32."""
    from torch.nn.functional import mse_loss

    return _mean_over_known(mse_loss, logits, target)


def squared_error_for_log10(logits: Tensor, target: Tensor) -> Tensor:
    """:func:`squared_error` of (N, C), 1 without a known target: ``log10_mse``, its logarithm, is 0."""
    return squared_error(logits, target) + (count_known_targets(target) == 0)


def log10_of(mean: Tensor) -> Tensor:
    """Return the decimal logarithm of a mean (); 0 is replaced by the smallest float32, without a gradient."""
    return mean.clamp_min(SMALLEST).log10()


def link_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Binary cross-entropy over the links and, per link, two unlinked pairs with the same first node.

    Upstream samples those pairs for each batch; here all unlinked pairs of a node share the
    expected weight of the samples, 2 · links / unlinked pairs. That is the expectation of
    upstream's loss and of its gradient, and the same for every evaluation. Both arguments are (G,
    W, W); without any link the loss is 0.
    """
    import torch
    from torch.nn.functional import softplus

    logits = logits.float()
    weight = link_weights(target)
    opposite = torch.where(target == LINK, -logits, logits)
    losses = softplus(opposite)
    total = weight.sum()
    return (weight * losses).sum() / total.clamp_min(1)


def link_weights(target: Tensor) -> Tensor:
    """Weight of each pair in :func:`link_cross_entropy`, (G, W, W)."""
    import torch

    link = target == LINK
    apart = target == NO_LINK
    links = link.sum(-1, keepdim=True)
    free = apart.sum(-1, keepdim=True)
    share = NEGATIVES * links / free.clamp_min(1)
    return torch.where(link, 1.0, apart * share)


def _sum_of_link_weights(target: Tensor) -> Tensor:
    return link_weights(target).sum()


def _mean_over_known(loss: Callable[..., Tensor], logits: Tensor, target: Tensor) -> Tensor:
    """Return the mean of a loss of PyTorch over the known targets, in float32."""
    target = target.view(logits.shape).float()
    known = ~target.isnan()
    losses = loss(logits.float(), target.masked_fill(~known, 0.0), reduction="none")
    return (losses * known).sum() / known.sum().clamp_min(1)


def count_known_targets(target: Tensor) -> Tensor:
    """Return the number of targets (N, …) that are not NaN, or -1 for classes: the weight of a plain mean."""
    return is_known(target).sum()


def _sum_over_processes(local: Tensor) -> Tensor:
    from torch import distributed

    total = local.detach().clone()
    distributed.all_reduce(total)
    return total


@dataclass(frozen=True)
class Loss:
    """A loss function of ``(logits, target)``, a weighted mean over rows, and its supported targets.

    ``compute`` ignores targets that are NaN or class -1, and returns 0 if there are no others.
    """

    compute: Callable[..., Tensor]
    target_type: TargetType
    weight: Callable[..., Tensor] = count_known_targets  #: sum of the weights of targets
    by_class: bool = False  #: True if both also take the number of rows per class in the batch
    #: function applied to the mean over all rows of a batch
    of_mean: Callable[[Tensor], Tensor] | None = None

    def __call__(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the loss of a batch, a scalar in float32."""
        mean = self.compute(logits, target, *self._counts_by_class(logits, target))
        return mean if self.of_mean is None else self.of_mean(mean)

    def _counts_by_class(self, logits: Tensor, target: Tensor) -> list[Tensor]:
        return [_class_counts(logits, target)] if self.by_class else []

    def divided(self, logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Loss of a batch that is divided among processes; this one has the given rows.

        Returns
        -------
        learned
            Loss to differentiate here: the mean of its gradients over processes is the gradient of the
            whole loss.
        whole
            Loss of all rows, without a gradient; equal on all processes.
        """
        from torch import distributed

        counts = [_sum_over_processes(count) for count in self._counts_by_class(logits, target)]
        weight = self.weight(target, *counts).double()
        total = _sum_over_processes(weight)
        share = weight / total.clamp_min(SMALLEST)
        local = self.compute(logits, target, *counts) * share.float()

        learned = local * distributed.get_world_size()
        whole = _sum_over_processes(local)

        if self.of_mean is None:
            return learned, whole
        # The value of the whole with the gradient of this process: f'(whole) times the gradient of
        # ``learned``.
        differentiable = whole + (learned - learned.detach())
        return self.of_mean(differentiable), self.of_mean(whole)


LOSSES: dict[str, Loss] = {
    "weighted_cross_entropy": Loss(
        weighted_cross_entropy, "classification", weight=_sum_of_class_weights, by_class=True
    ),
    "weighted_binary_cross_entropy": Loss(
        weighted_binary_cross_entropy,
        "classification",
        weight=lambda target, _: count_known_targets(target),
        by_class=True,
    ),
    "cross_entropy": Loss(cross_entropy, "classification"),
    "binary_cross_entropy": Loss(binary_cross_entropy, "multilabel"),
    "l1": Loss(l1, "regression"),
    "mse": Loss(squared_error, "regression"),
    "log10_mse": Loss(squared_error_for_log10, "regression", of_mean=log10_of),
    "link_cross_entropy": Loss(link_cross_entropy, "links", weight=_sum_of_link_weights),
}


def all_losses() -> Mapping[str, Loss]:
    """Return the losses by name, with the losses of loaded plugins."""
    return with_plugin_entries("losses", LOSSES)
