"""Standardisation of a network's features and regression targets by statistics in its state.

The statistics are buffers of the network, so weights, checkpoints and runs that start from them keep
the mean and deviation that the weights were trained with. Layers and encoders know nothing of it: one
hook scales a copy of the batch before the network, another turns its output back into the user's unit.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from kmip_data.format.schema import FieldKind

SCALING = "scaling"  #: name of the module, and prefix of its buffers in the weights
NO_FLAG = -1  #: in place of the column that marks missing numbers


class ColumnScale(nn.Module):
    """Mean and deviation of columns; 0 and 1, which change nothing, until they are measured."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("deviation", torch.ones(width))

    def set_statistics(self, mean: Tensor, deviation: Tensor) -> None:
        """Set the statistics (C,)."""
        self.mean.copy_(mean)
        self.deviation.copy_(deviation)

    def scale(self, values: Tensor) -> Tensor:
        """Scale values (…, C), or (N,) of a single column; NaN stays."""
        return (values - self.mean) / self.deviation

    def restore(self, scaled: Tensor) -> Tensor:
        """Return values (…, C) in the user's unit, at least in float32, from scaled ones."""
        return scaled * self.deviation + self.mean


class FeatureScale(ColumnScale):
    """Scale of features, which replaces missing numbers by the mean."""

    missing_flag: Tensor

    def __init__(self, width: int) -> None:
        super().__init__(width)
        #: column that is 1 where a number of this column is missing, or :data:`NO_FLAG`
        self.register_buffer("missing_flag", torch.full((width,), NO_FLAG))

    def with_missing_as_nan(self, features: Tensor) -> Tensor:
        """Return features (N, C) as floats, with NaN in place of numbers that a column marks as missing."""
        values = features if features.is_floating_point() else features.float()
        flags = values.index_select(1, self.missing_flag.clamp_min(0))
        return values.masked_fill((self.missing_flag != NO_FLAG) & (flags != 0), torch.nan)

    def forward(self, features: Tensor) -> Tensor:
        """Return scaled features in the shape of ``features`` (N, C) or (N,); missing numbers are 0."""
        width = len(self.mean)
        # The encoder reports features of another width with the remedy.
        if features.ndim > 1 and features.shape[-1] != width:
            return features
        scaled = self.scale(self.with_missing_as_nan(features.reshape(-1, width)))
        return scaled.masked_fill(scaled.isnan(), 0.0).view(features.shape)


class Scaling(nn.Module):
    """Scales of the batch attributes that a network reads, and of its regression targets.

    Parameters
    ----------
    features
        Number of columns of each scaled attribute, such as ``x``.
    targets
        Number of regression targets; ``None`` if they are not scaled.
    """

    def __init__(self, features: Mapping[str, int], targets: int | None) -> None:
        super().__init__()
        self.features = nn.ModuleDict(
            {name: FeatureScale(width) for name, width in features.items()}
        )
        self.targets = None if targets is None else ColumnScale(targets)

    @torch.compiler.disable  # type: ignore[untyped-decorator] # copies a batch, which has no arithmetic
    def scale_batch(self, batch: Any) -> Any:
        """Return a shallow copy of a batch with scaled features."""
        scaled = copy.copy(batch)
        for attribute, scale in self.features.items():
            setattr(scaled, attribute, scale(getattr(batch, attribute)))
        return scaled


def add_scaling(network: nn.Module, features: Mapping[str, int], targets: int | None) -> None:
    """Make ``network(batch)`` scale its input and output; for the arguments see :class:`Scaling`.

    A child module with hooks, rather than a module around the network, keeps the names of the
    weights, so that a run can start from the weights of a run without scaling.
    """
    network.add_module(SCALING, Scaling(features, targets))
    network.register_forward_pre_hook(_scale_input)
    if targets is not None:
        network.register_forward_hook(_restore_output)


def _scale_input(network: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    return scaling_of(network).scale_batch(arguments[0]), *arguments[1:]


def _restore_output(network: nn.Module, _: object, output: Tensor) -> Tensor:
    restored: Tensor = scaling_of(network).targets.restore(output)
    return restored


def scaling_of(network: nn.Module) -> Any:
    """Return the :class:`Scaling` of a network; ``None`` if it has none."""
    return getattr(network, SCALING, None)


def target_scale(network: nn.Module) -> ColumnScale | None:
    """Return the scale of a network's targets, which its loss uses; ``None`` if it has none."""
    scaling = scaling_of(network)
    return None if scaling is None else scaling.targets


class Moments:
    """Mean, deviation and range of columns, over rows that are added block by block.

    Blocks are summed in float64 and merged by Chan's rule, whose result depends on their order alone.
    NaN is missing and not counted.
    """

    def __init__(self, width: int) -> None:
        self.count = torch.zeros(width, dtype=torch.float64)
        self.mean = torch.zeros(width, dtype=torch.float64)
        self.squares = torch.zeros(width, dtype=torch.float64)  #: Σ (value - mean)²
        self.low = torch.full((width,), torch.inf, dtype=torch.float64)
        self.high = torch.full((width,), -torch.inf, dtype=torch.float64)
        #: True for columns without a known value except 0 and 1, such as categories and flags
        self.is_binary = torch.ones(width, dtype=torch.bool)

    def add(self, rows: Tensor) -> None:
        """Add rows (n, C)."""
        # 1. Moments of the block, without missing values.
        values = rows.double()
        is_missing = values.isnan()
        count = (~is_missing).sum(0).double()
        divisor = count.clamp_min(1)
        mean = values.masked_fill(is_missing, 0).sum(0) / divisor
        squares = (values - mean).square().masked_fill(is_missing, 0).sum(0)

        # 2. Merge them.
        total = self.count + count
        difference = mean - self.mean
        share = count / total.clamp_min(1)
        self.mean = self.mean + difference * share
        self.squares = self.squares + squares + difference.square() * self.count * share
        self.count = total

        # 3. Range.
        if len(values):
            self.low = self.low.minimum(values.masked_fill(is_missing, torch.inf).amin(0))
            self.high = self.high.maximum(values.masked_fill(is_missing, -torch.inf).amax(0))
            self.is_binary &= ((values == 0) | (values == 1) | is_missing).all(0)

    @property
    def is_constant(self) -> Tensor:
        """True for columns (C,) with at most one known value."""
        return self.low >= self.high

    def statistics(self) -> tuple[Tensor, Tensor]:
        """Return mean and deviation (C,) in float32; the deviation of a constant column is 1."""
        deviation = (self.squares / self.count.clamp_min(1)).sqrt().float()
        # A deviation below the smallest normal number would make the quotient infinite.
        is_usable = ~self.is_constant & (deviation >= torch.finfo(torch.float32).tiny)
        # The rounding of a mean must not turn a constant into noise.
        mean = self.low.where(self.is_constant & (self.count > 0), self.mean)
        return mean.float(), deviation.where(is_usable, 1.0)


def missing_flags(fields: Sequence[str], kinds: Sequence[FieldKind] = ()) -> Tensor:
    """Return, for each named field, the index of the field that marks its missing numbers, (C,).

    With ``kinds``, a mark must be one by its kind, not only by its name.
    """
    numbers = {name: index for index, name in enumerate(fields)}
    if len(kinds) == len(fields):
        numbers = {name: number for name, number in numbers.items() if kinds[number] == "missing"}
    flags = []
    for name in fields:
        without_unit = name.rpartition(" [")[0] or name
        marks = (f"{name} missing", f"{without_unit} missing")
        flags.append(next((numbers[mark] for mark in marks if mark in numbers), NO_FLAG))
    return torch.tensor(flags)
