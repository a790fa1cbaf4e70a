"""Loss functions by name; torch is imported when a loss is computed.

A loss is one entry of :data:`LOSSES`: function, supported targets, and weights for several
processes. Configuration keys, error messages and docs/keys.md are derived from it.
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

NEGATIVES_PER_LINK = 2  #: unlinked pairs per link, with the same first node
SMALLEST_FLOAT32 = 2.0**-126  #: smallest normal float32


def weighted_cross_entropy(logits: Tensor, target: Tensor, count: Tensor | None = None) -> Tensor:
    """Cross-entropy with larger weights for classes that are rarer in the batch, a scalar float32.

    With V labels in the batch and n_c of class c, the weight of class c is (V - n_c) / V, and the
    loss is the weighted mean of the negative log-likelihoods (divided by the sum of the weights).

    For a batch of one class, upstream's weights are 0 and the loss is 0/0 = NaN. Here it is the
    unweighted mean, as for any equal nonzero weights. Without rows the loss is 0.

    Parameters
    ----------
    logits
        ``(N, C)``, any float dtype; computed in float32.
    target
        ``(N,)`` int64 class indices, -1 if unknown.
    count
        ``(C,)`` number of labels per class in the batch; default: counted from ``target``.

    Notes
    -----
    Source: ``graphgps/loss/weighted_cross_entropy.py`` of the LRGB re-evaluation, which the paper's
    code uses. The weights depend on how graphs are batched; for a single graph with masks, labels
    are counted over the nodes in the mask.
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


def weighted_two_class_cross_entropy(
    logits: Tensor, target: Tensor, count: Tensor | None = None
) -> Tensor:
    """Cross-entropy (N, 1) with the weights of :func:`weighted_cross_entropy`, divided by the number of labels.

    This is GraphGPS's loss for two classes and a network with a single output, which corresponds to
    the difference z₁ - z₀ of the logits here. If the classes have fractions p and 1 - p, it is
    2 · p · (1 - p) times the weighted mean. For a batch of one class it is 0.

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
    # Divide by the local rows, because ``count`` may include other processes.
    return losses / (target != NO_CLASS).sum().clamp_min(1)


def _class_counts(logits: Tensor, target: Tensor) -> Tensor:
    """Count the labels of each class ``(C,)``."""
    counts = target.new_zeros(logits.shape[-1])
    # ``bincount`` would make the host wait for a GPU.
    return counts.scatter_add_(0, target.clamp_min(0), (target != NO_CLASS).to(target.dtype))


def _class_weights(count: Tensor) -> Tensor:
    total = count.sum()
    weight = (total - count).float() / total
    return weight.masked_fill(count == total, 1.0)


def _sum_of_class_weights(target: Tensor, count: Tensor) -> Tensor:
    return (_class_weights(count)[target.clamp_min(0)] * (target != NO_CLASS)).sum()


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Mean cross-entropy of ``(N, C)`` logits and ``(N,)`` int64 classes in float32.

    Rows of class -1 are unknown and ignored. Without known rows the loss is 0.
    """
    from torch.nn import functional

    if not target.numel():
        return logits.float().sum()
    loss = functional.cross_entropy(logits.float(), target, ignore_index=NO_CLASS)
    return _zero_without_classes(loss, logits, target)


def _zero_without_classes(loss: Tensor, logits: Tensor, target: Tensor) -> Tensor:
    """Return ``loss``, or 0 if no class is known."""
    import torch

    return torch.where((target != NO_CLASS).any(), loss, logits.float().sum() * 0)


def binary_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Mean binary cross-entropy over the known labels in float32, 0 without known labels.

    ``logits`` and ``target`` are ``(N, T)``; targets are 0 or 1, NaN if unknown. Source:
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


def squared_error_or_one(logits: Tensor, target: Tensor) -> Tensor:
    """:func:`squared_error` of (N, T), or 1 without known targets, so that ``log10_mse`` is 0."""
    return squared_error(logits, target) + (count_known_targets(target) == 0)


def log10_of(mean: Tensor) -> Tensor:
    """Decimal logarithm of a scalar (), clamped from below to the smallest normal float32."""
    return mean.clamp_min(SMALLEST_FLOAT32).log10()


def link_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Binary cross-entropy over the links and, per link, two unlinked pairs with the same first node.

    Upstream samples these pairs anew for each batch. Here every unlinked pair of a node has the
    expected weight of the samples, 2 · links / unlinked pairs. This is the expectation of upstream's
    loss and of its gradient, and deterministic. Both arguments are (G, W, W); without links the loss
    is 0.
    """
    import torch
    from torch.nn.functional import softplus

    logits = logits.float()
    weight = link_weights(target)
    losses = softplus(torch.where(target == LINK, -logits, logits))
    total = weight.sum()
    return (weight * losses).sum() / total.clamp_min(1)


def link_weights(target: Tensor) -> Tensor:
    """Weight of each pair in :func:`link_cross_entropy`, (G, W, W)."""
    import torch

    is_link = target == LINK
    is_unlinked = target == NO_LINK
    links = is_link.sum(-1, keepdim=True)
    unlinked = is_unlinked.sum(-1, keepdim=True)
    unlinked_weight = NEGATIVES_PER_LINK * links / unlinked.clamp_min(1)
    return torch.where(is_link, 1.0, is_unlinked * unlinked_weight)


def _sum_of_link_weights(target: Tensor) -> Tensor:
    return link_weights(target).sum()


def _mean_over_known(loss: Callable[..., Tensor], logits: Tensor, target: Tensor) -> Tensor:
    """Return the mean of a PyTorch loss over the known targets, in float32."""
    target = target.view(logits.shape).float()
    known = ~target.isnan()
    losses = loss(logits.float(), target.masked_fill(~known, 0.0), reduction="none")
    return (losses * known).sum() / known.sum().clamp_min(1)


def count_known_targets(target: Tensor) -> Tensor:
    """Count the known targets (N, …), which is the weight of an unweighted mean."""
    return is_known(target).sum()


def _sum_over_processes(local: Tensor) -> Tensor:
    from torch import distributed

    total = local.detach().clone()
    distributed.all_reduce(total)
    return total


@dataclass(frozen=True)
class Loss:
    """A loss function, a weighted mean over rows, and its supported targets."""

    #: Return the mean loss of ``(logits, target)``, a scalar in float32. It ignores unknown targets
    #: (NaN or class -1) and is 0 if no target is known.
    compute: Callable[..., Tensor]
    target_type: TargetType
    #: return the sum of the targets' weights
    sum_weights: Callable[..., Tensor] = count_known_targets
    #: True if ``compute`` and ``sum_weights`` also take the number of rows per class in the batch
    uses_class_counts: bool = False
    #: function applied to the mean over all rows of a batch
    transform_mean: Callable[[Tensor], Tensor] | None = None

    def __call__(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the loss of a batch, a scalar in float32."""
        mean = self.compute(logits, target, *self._class_count_arguments(logits, target))
        return mean if self.transform_mean is None else self.transform_mean(mean)

    def _class_count_arguments(self, logits: Tensor, target: Tensor) -> list[Tensor]:
        return [_class_counts(logits, target)] if self.uses_class_counts else []

    def losses_across_processes(self, logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Return the losses () of a batch whose rows (N, …) are divided among processes.

        Returns
        -------
        local_loss
            Loss to differentiate in this process: the mean of its gradient over processes is the
            gradient of the total loss.
        total_loss
            Loss of all rows, without a gradient; equal on all processes.
        """
        from torch import distributed

        counts = [
            _sum_over_processes(count) for count in self._class_count_arguments(logits, target)
        ]
        weight = self.sum_weights(target, *counts).double()
        total_weight = _sum_over_processes(weight)
        fraction = weight / total_weight.clamp_min(SMALLEST_FLOAT32)
        contribution = self.compute(logits, target, *counts) * fraction.float()

        local_loss = contribution * distributed.get_world_size()
        total_loss = _sum_over_processes(contribution)

        if self.transform_mean is None:
            return local_loss, total_loss
        # Transform the value of the total loss with this process's gradient: f'(total) · ∇local.
        differentiable = total_loss + (local_loss - local_loss.detach())
        return self.transform_mean(differentiable), self.transform_mean(total_loss)


LOSSES: dict[str, Loss] = {
    "weighted_cross_entropy": Loss(
        weighted_cross_entropy,
        "classification",
        sum_weights=_sum_of_class_weights,
        uses_class_counts=True,
    ),
    "weighted_binary_cross_entropy": Loss(
        weighted_two_class_cross_entropy,
        "classification",
        sum_weights=lambda target, _: count_known_targets(target),
        uses_class_counts=True,
    ),
    "cross_entropy": Loss(cross_entropy, "classification"),
    "binary_cross_entropy": Loss(binary_cross_entropy, "multilabel"),
    "l1": Loss(l1, "regression"),
    "mse": Loss(squared_error, "regression"),
    "log10_mse": Loss(squared_error_or_one, "regression", transform_mean=log10_of),
    "link_cross_entropy": Loss(link_cross_entropy, "links", sum_weights=_sum_of_link_weights),
}


def all_losses() -> Mapping[str, Loss]:
    """Return the losses by name, with the losses of loaded plugins."""
    return with_plugin_entries("losses", LOSSES)
