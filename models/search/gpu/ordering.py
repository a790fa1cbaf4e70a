"""An order of rows in which tiles are narrow: keys by norm, then direction; queries by direction.

Any order gives the same answer; a good one lets the bounds rule more out. Everything runs on the
rows' device, one sort per level for all heads and graphs together, and waits for nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor

_SAMPLE = 4096  # rows that the principal directions are taken from
_CENTRE_SAMPLE = 1024  # rows of a graph whose mean is its centre
_CENTRE_ROWS = 2**22  # and of all graphs together
_ROWS_AT_ONCE = 2**20


def centres_of(rows: Tensor, ptr: Tensor, largest: int) -> Tensor:
    """Mean of up to 1,024 evenly spaced rows of each graph, (H, G, d) float32; 0 for empty graphs.

    Subtracting any one vector from all keys of a graph changes no ranking; one near the mean makes
    bounds tight.
    """
    heads, count, dim = rows.shape
    graphs = len(ptr) - 1
    sample = max(1, min(_CENTRE_SAMPLE, largest, _CENTRE_ROWS // max(1, graphs)))
    sizes = ptr.diff()
    steps = torch.arange(sample, device=rows.device)
    places = ptr[:-1, None] + steps * sizes[:, None] // sample
    chosen = rows[:, places.clamp_max(max(0, count - 1)).flatten()] if count else rows.new_zeros(1)
    means = chosen.view(heads, graphs, sample, dim).mean(2) if count else rows.new_zeros(heads, graphs, dim)
    return torch.where((sizes > 0)[:, None], means, 0.0)


def order_rows(
    rows: Tensor, ptr: Tensor, spans: list[int], centres: Tensor | None, *, by_norm: bool
) -> Tensor:
    """Which row (H, N, d) stands at each place, (H, N) int32, a permutation of each graph's rows.

    ``ptr`` (G + 1) int64 is on their device. ``spans`` are halving lengths: at each level the rows of every
    span of a graph are sorted by one principal coordinate of their directions, so that its halves become
    spans of the next. ``centres`` (H, G, d) are subtracted first, unless None. ``by_norm`` sorts each graph
    by falling norm before the first level.
    """
    heads, count, _ = rows.shape
    device = rows.device
    graph = torch.repeat_interleave(torch.arange(len(ptr) - 1, device=device), ptr.diff(), output_size=count)
    begin = ptr[:-1][graph]
    norms, coordinates = _coordinates(rows, graph, centres, len(spans))
    base = torch.arange(heads, device=device)[:, None] * count
    local = torch.arange(count, device=device) - begin
    order = torch.arange(heads * count, device=device)
    if by_norm:
        order = _sort_within((base + begin).flatten(), -norms.flatten(), order)
    for level, span in enumerate(spans):
        segment = (base + begin + local // span * span).flatten()
        order = _sort_within(segment, coordinates[level].flatten(), order)
    return (order.view(heads, count) - base).int()


def _sort_within(segment: Tensor, value: Tensor, order: Tensor) -> Tensor:
    """Sort the rows of each segment by value: one int64 per row holds both."""
    bits = value[order].contiguous().view(torch.int32).long()
    bits = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits) + 2**31
    return order[((segment << 32) | bits).argsort()]


def _coordinates(rows: Tensor, graph: Tensor, centres: Tensor | None, levels: int) -> tuple[Tensor, Tensor]:
    """Norms (H, N) and the principal coordinate of each row's direction for each level, (levels, H, N)."""
    heads, count, dim = rows.shape
    norms = torch.empty((heads, count), device=rows.device)
    coordinates = torch.empty((levels, heads, count), device=rows.device)
    places = torch.arange(min(_SAMPLE, count), device=rows.device) * count // max(1, min(_SAMPLE, count))
    sample = rows[:, places] if centres is None else rows[:, places] - centres[:, graph[places]]
    sample = torch.nn.functional.normalize(sample, dim=2)
    variances, directions = torch.linalg.eigh(sample.mT @ sample)
    chosen = torch.empty((heads, dim, levels), device=rows.device)
    for level in range(levels):
        widest = variances.argmax(1, keepdim=True)
        chosen[:, :, level] = directions.gather(2, widest[:, None].expand(-1, dim, 1))[:, :, 0]
        # Halving a uniform spread quarters its variance.
        variances = variances.scatter(1, widest, variances.gather(1, widest) / 4)
    for start in range(0, count, _ROWS_AT_ONCE):
        part = slice(start, min(start + _ROWS_AT_ONCE, count))
        x = rows[:, part] if centres is None else rows[:, part] - centres[:, graph[part]]
        # In float64, for the kernel relies on the order of norms.
        norms[:, part] = x.double().norm(dim=2).float()
        projected = (x @ chosen) / norms[:, part, None].clamp_min(1e-30)
        coordinates[:, :, part] = projected.permute(2, 0, 1)
    return norms, coordinates
