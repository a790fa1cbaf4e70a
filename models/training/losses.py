"""Loss functions by name."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812 -- torch's own convention
from torch import Tensor

Loss = Callable[[Tensor, Tensor], Tensor]


def weighted_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy in which a class weighs the more, the rarer it is in the batch.

    With V labels in the batch and n_c of class c, the weight of class c is (V - n_c) / V, and the
    loss is the weighted mean of the negative log-likelihoods (divided by the sum of the weights).

    A batch of one class has weights 0 and the loss 0/0 = NaN upstream. All its rows weigh the same, so
    here its loss is the plain mean, as it is for any equal weights that are not 0.

    Parameters
    ----------
    logits
        ``(N, C)``, any float dtype; computed in float32.
    target
        ``(N,)`` int64 class indices.

    Returns
    -------
    Tensor
        Scalar float32.

    Notes
    -----
    Source: ``graphgps/loss/weighted_cross_entropy.py`` of the LRGB re-evaluation, which the paper's
    code uses. The weights belong to a batch, so the loss depends on how graphs are batched.
    """
    count = torch.bincount(target, minlength=logits.shape[-1])
    total = target.numel()
    weight = (total - count).float() / total
    weight = torch.where(count == total, torch.ones_like(weight), weight)
    return F.nll_loss(F.log_softmax(logits.float(), dim=-1), target, weight=weight)


def cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Mean cross-entropy of ``(N, C)`` logits and ``(N,)`` int64 classes, in float32."""
    return F.cross_entropy(logits.float(), target)


LOSSES: dict[str, Loss] = {
    "weighted_cross_entropy": weighted_cross_entropy,
    "cross_entropy": cross_entropy,
}
