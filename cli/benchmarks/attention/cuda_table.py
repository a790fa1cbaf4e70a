"""Search and attention on one GPU against matrix products and FlashAttention: the rows of the GPU table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from kmip_data.cli.benchmarks import Row, compare
from kmip_data.cli.benchmarks.attention.table import both_passes, peer
from kmip_data.models.profiling.methods import get_method
from kmip_data.models.profiling.workload import Shape, Source, Workload, pad
from kmip_data.models.search.topk import topk_inner_product


class Case(NamedTuple):
    """A search, with the milliseconds aimed at on an H200."""

    graphs: tuple[int, ...]  #: nodes of each
    target: float
    heads: int = 1
    d: int = 10
    k: int = 10


CASES = (
    *(Case((10**power,), target) for power, target in ((3, 0.06), (4, 0.15), (5, 0.6), (6, 8), (7, 200))),
    Case((10**6,), 20, k=100),
    Case((4096,) * 8, 0.3, heads=4),
    Case((150,) * 128, 0.15, heads=4, k=15),
    Case((570_000,), 60, heads=4, d=19),
)
CITY, CITY_HINTED = Case((570_000,), 25, heads=4, k=15), 12.0
ATTENTION = (10**3, 10**4, 10**5, 10**6)  #: nodes
MOST_PAIRS = 2 * 10**12  #: of a query and a key, that a matrix product may take


def measure_on_gpu(
    *,
    device: str = "cuda",
    quick: bool = False,
    cases: tuple[Case, ...] = (*CASES, CITY),
    sizes: tuple[int, ...] = ATTENTION,
) -> Iterator[Row]:
    """Measure all rows, each given out as soon as it is there; of ``quick`` ones the smallest two."""
    place, repeats = torch.device(device), 1 if quick else 7
    for case in cases[:2] if quick else cases:
        row = _search(case, place, repeats)
        yield replace(row, target="", met=None) if quick else row
    if CITY in cases and not quick:
        yield _hinted(CITY, place, repeats)
    for n in sizes[:2] if quick else sizes:
        work = Source(Shape()).draw(n, place)
        for passes, step in (("forward", _forward), ("forward + backward", both_passes)):
            yield _attention(f"attention {passes}, {n:,} nodes, d = 10, k = 10", work, step, repeats)


def _work(case: Case, device: torch.device) -> Workload:
    shape = Shape(heads=case.heads, d=case.d, value_dim=1, k=case.k, graph_sizes=case.graphs)
    return Source(shape).draw(sum(case.graphs), device)


def _searching(work: Workload, hint: Tensor | None = None) -> Callable[[], Tensor]:
    queries, keys, _ = work.tensors
    return lambda: topk_inner_product(queries, keys, work.k, query_ptr=work.ptr, hint=hint)[1]


def _search(case: Case, device: torch.device, repeats: int) -> Row:
    work, theirs = _work(case, device), None
    if case.heads * sum(n * n for n in case.graphs) <= MOST_PAIRS:
        theirs = peer("naive", work)
    graphs = f"{len(case.graphs)} × {case.graphs[0]:,}" if len(case.graphs) > 1 else f"{case.graphs[0]:,}"
    heads = f", {case.heads} heads" if case.heads > 1 else ""
    what = f"search, {graphs} nodes{heads}, d = {case.d}, k = {case.k}"
    return _row(
        what, "matrix product + topk, in chunks", (_searching(work), theirs), device, repeats, case.target
    )


def _hinted(case: Case, device: torch.device, repeats: int) -> Row:
    work = _work(case, device)
    sides = _searching(work, _searching(work)()), _searching(work)
    what = f"search, {case.graphs[0]:,} nodes, {case.heads} heads, its own result as hint"
    return _row(what, "without the hint", sides, device, repeats, CITY_HINTED)


def _forward(attend: Callable[[Workload, int], Tensor], work: Workload) -> Callable[[], object]:
    def step() -> None:
        with torch.no_grad():
            attend(work, 0)

    return step


def _attention(what: str, work: Workload, step: Callable[..., Callable[[], object]], repeats: int) -> Row:
    """Ours in float32 against all keys in half precision: not the same result, but the usual way."""
    device, flash, theirs = work.queries.device, get_method("flash"), None
    if flash.unusable(device.type) is None:
        queries, keys, values = (tensor.to(flash.dtype) for tensor in pad(work).tensors)
        theirs = step(flash.attend, replace(work, queries=queries, keys=keys, values=values))
    sides = step(get_method("auto").attend, work), theirs
    return _row(what, "FlashAttention, float16, all keys", sides, device, repeats)


def _row(
    what: str,
    against: str,
    sides: tuple[Callable[[], object], Callable[[], object] | None],
    device: torch.device,
    repeats: int,
    target: float | None = None,
) -> Row:
    """``target`` in milliseconds of ours; without one, ours is to be the faster."""
    ours, theirs = (_finished(side, device) for side in sides)
    times = compare(ours, theirs, repeats=repeats, warmup=2)
    row = Row.compared(what, against, times, target=None if target else 1.0)
    if target is not None:
        row = replace(row, target=f"≤ {target:g} ms", met=1000 * row.ours <= target)
    if sides[1] is None:
        row = replace(row, theirs=None, ratio=None, spread=None)
    return row if target or sides[1] else replace(row, target="", met=None)


def _finished(side: Callable[[], object] | None, device: torch.device) -> Callable[[], object]:
    """The same until the device is done with it."""

    def run() -> None:
        if side is not None:
            side()
            if device.type == "cuda":
                torch.cuda.synchronize(device)

    return run
