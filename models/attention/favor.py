"""FAVOR+: softmax attention by positive random features (Choromanski et al., ICLR 2021), in linear time.

With features φ of queries and keys a node's result is Σ φ(q)·φ(k) v / Σ φ(q)·φ(k) over the nodes of its
graph: the sums over keys are made once, and are small. φ takes m channels where a query has d, so that the
features of a batch would rule its memory: they are made for some rows at a time, and again going back.

Shapes here besides the usual letters: m features; B graphs with W places each, of a tile.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from kmip_data.models.attention.ragged import Group, Tile, tiles_of
from kmip_data.models.context import PLAIN, ForwardContext

EPSILON = 1e-4  #: added to every feature, as published
SCRATCH = 16 * 2**20  #: bytes of one tensor of features


def favor_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    projection: Tensor,
    ptr: tuple[int, ...],
    *,
    legacy_mask: bool = False,
    context: ForwardContext = PLAIN,
) -> Tensor:
    """Attend within each graph: queries and keys (N, H, d), values (N, H, v) → (N, H, v).

    ``projection`` (m, d) are random directions; graph g has the rows ``ptr[g]:ptr[g + 1]``. The largest
    exponents, which are subtracted before ``exp``, are taken as constants by the gradient; with
    :data:`EPSILON` that makes a (small) difference. ``legacy_mask`` counts zero keys up to the largest graph
    of the batch, as the published code did.
    """
    most = max(1, SCRATCH // (queries.shape[1] * projection.shape[0] * queries.element_size()))
    groups = context.kept(tiles_of(ptr, most, values.shape[2] + 1, queries.device))
    padding = None
    if legacy_mask:
        sizes = torch.tensor(ptr).diff()
        padding = (sizes.max() - sizes).to(queries)
    out: Tensor = _Favor.apply(queries, keys, values, projection, groups, padding)  # type: ignore[no-untyped-call]
    return out


class _Favor(torch.autograd.Function):
    """Keeps its operands and its result, no features and no sums."""

    @staticmethod
    def forward(
        ctx: Any,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        projection: Tensor,
        groups: tuple[Group, ...],
        padding: Tensor | None,
    ) -> Tensor:
        kernel = _Kernel(queries, keys, values, projection, padding)
        out, tops = torch.empty_like(values), []
        for group in groups:
            sums, top = kernel.sums(group)
            tops.append(top)
            for tile in group.tiles:
                found = _times(kernel.query_features(tile)[1], sums)
                tile.put(out, found[..., :-1] / found[..., -1:])
        ctx.save_for_backward(queries, keys, values, projection, padding, out, *tops)
        ctx.groups = groups
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        queries, keys, values, projection, padding, out, *tops = ctx.saved_tensors
        kernel = _Kernel(queries, keys, values, projection, padding)
        grad_queries, grad_keys, grad_values = (torch.empty_like(t) for t in (queries, keys, values))
        for group, top in zip(ctx.groups, tops, strict=True):
            sums, _ = kernel.sums(group, top)
            grad_sums = torch.zeros_like(sums)
            for tile in group.tiles:
                rows, features = kernel.query_features(tile)
                grad_out = tile.clear(tile.take(grad))
                grad_found = torch.cat([grad_out, -(grad_out * tile.take(out)).sum(-1, keepdim=True)], -1)
                grad_found /= _times(features, sums[..., -1:])
                grad_sums += _times(features.mT, grad_found)
                tile.put(grad_queries, kernel.back(rows, features, grad_found @ sums.mT))
            for tile in group.tiles:
                rows, features = kernel.key_features(tile, top)
                tile.put(grad_values, _times(features, grad_sums[..., :-1]))
                with_one = pad(tile.take(values), (0, 1), value=1.0)
                tile.put(grad_keys, kernel.back(rows, features, with_one @ grad_sums.mT))
        return grad_queries, grad_keys, grad_values, None, None, None


class _Kernel:
    """Features of queries and keys less :data:`EPSILON`: exp(w·x − |x|²/2 − largest) where x is t/d^¼.

    The published factor m^-½ of every feature cancels in the result.
    """

    def __init__(
        self, queries: Tensor, keys: Tensor, values: Tensor, projection: Tensor, padding: Tensor | None
    ) -> None:
        self.queries, self.keys, self.values, self.padding = queries, keys, values, padding
        self.scale: float = queries.shape[2] ** -0.25
        self.directions = projection * self.scale  # (m, d)

    def query_features(self, tile: Tile) -> tuple[Tensor, Tensor]:
        """Queries (B, H, W, d) and their features (B, H, W, m)."""
        rows, exponents = self._exponents(self.queries, tile)
        return rows, self._exp(rows, exponents, exponents.amax(-1, keepdim=True))

    def key_features(self, tile: Tile, top: Tensor) -> tuple[Tensor, Tensor]:
        """Keys (B, H, W, d) and their features (B, H, W, m), given the largest exponents (B, H, 1, 1)."""
        rows, exponents = self._exponents(self.keys, tile)
        return rows, self._exp(rows, exponents, top)

    def sums(self, group: Group, top: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Σ φ(k) [v, 1] over each graph's nodes (B, H, m, v + 1), and its largest exponents (B, H, 1, 1)."""
        held: tuple[Tensor, Tensor] | None = None  # exponents of the only tile
        zero = None if self.padding is None else self.padding[group.graphs, None, None, None]
        if top is None:
            for tile in group.tiles:
                held = self._exponents(self.keys, tile)
                here = held[1].amax((-2, -1), keepdim=True)
                top = here if top is None else torch.maximum(top, here)
            assert top is not None
            if zero is not None:  # a zero key has the exponent 0
                top = torch.where(zero > 0, top.clamp(min=0), top)
        held = held if len(group.tiles) == 1 else None
        total: Tensor | None = None
        for tile in group.tiles:
            features = self._exp(*held, top) if held else self.key_features(tile, top)[1]
            part = _times(features.mT, tile.clear(pad(tile.take(self.values), (0, 1), value=1.0)))
            total = part if total is None else total.add_(part)
        assert total is not None
        if zero is not None:
            total[..., -1:] += zero * ((-top).exp() + EPSILON)
        return total, top

    def back(self, rows: Tensor, features: Tensor, grad: Tensor) -> Tensor:
        """Gradient of ``rows`` (B, H, W, d) by that of their features (B, H, W, m), which is overwritten."""
        grad *= features
        found: Tensor = grad @ self.directions - rows * (grad.sum(-1, keepdim=True) * self.scale**2)
        return found

    def _exponents(self, rows: Tensor, tile: Tile) -> tuple[Tensor, Tensor]:
        """Rows (B, H, W, d) and w·x of each direction (B, H, W, m)."""
        taken = tile.take(rows)
        return taken, taken @ self.directions.T

    def _exp(self, rows: Tensor, exponents: Tensor, top: Tensor) -> Tensor:
        half = rows.square().sum(-1, keepdim=True) * (self.scale**2 / 2)
        return exponents.sub_(half + top).exp_()


def _times(features: Tensor, other: Tensor) -> Tensor:
    """(features + :data:`EPSILON`) @ other, without a further tensor of features."""
    return features @ other + EPSILON * other.sum(-2, keepdim=True)
