"""The batch norm of edges, for passes that take its statistics and apply it along with other work."""

from __future__ import annotations

import torch
from torch import Tensor

from kmip_data.models.layers.norms import BatchNorm


def constants_of(
    norm: BatchNorm, own: tuple[Tensor, Tensor] | None, rows: int, *, repeated: bool = False
) -> tuple[Tensor, Tensor]:
    """Make of weights and statistics (d,) (3, d) factors, shifts and means, and 1 / deviations in float64.

    The norm of a value z is factor · z + shift. ``own`` are mean and variance of these ``rows`` values, which
    ``norm`` takes up unless they are ``repeated``; None: its running ones.
    """
    if own is not None:
        norm.note(*own, rows, repeated=repeated)
    mean, variance = own or (norm.running_mean, norm.running_var)
    assert mean is not None
    assert variance is not None
    deviation = (variance.double() + norm.eps).rsqrt()
    factor = norm.weight * deviation
    return torch.stack([factor, norm.bias - mean * factor, mean]).float(), deviation


def gradients_of(
    constants: Tensor, deviation: Tensor, total: Tensor, product: Tensor, share: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of the norm's weight and bias (d,), and what the gradient of a value takes.

    ``total`` and ``product`` (d,) float64 are Σ g and Σ g · (z − mean), g the gradient of what the norm
    gives; ``share`` is 1 / the number of values where their own statistics were taken, else 0: running ones
    do not depend on z. Gives (5, d): ``constants``, offsets and slopes; the gradient of z is
    factor · g − offset − slope · (z − mean).
    """
    more = torch.stack([total * share, product * deviation.square() * share])
    all_ = torch.cat([constants, (constants[0] * more).float()])
    return (product * deviation).float(), total.float(), all_
