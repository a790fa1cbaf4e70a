"""Search and attention on one GPU against matrix products and FlashAttention: the rows of the GPU table."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
from benchmarks.attention import both_passes, peer
from benchmarks.table import Row, compare
from torch import Tensor

from kmip_data.models.profiling.measuring import CHUNK
from kmip_data.models.profiling.methods import Shape, Workload, draw, get_method, pad
from kmip_data.models.search.topk import topk_inner_product
from kmip_data.models.training.capture.graphs import CudaGraphs
from kmip_data.runtime.memory import is_out_of_memory

Search = Callable[[], tuple[Tensor, Tensor]]
Sides = tuple[Callable[[], object], Callable[[], object] | None]  #: ours and theirs


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
REPLAYS = 10  #: of a recorded search, timed together
LONGEST = 60.0  #: seconds that the repeats of a row may take
PEERS = {"naive": "naive: matrix product, topk, softmax", "flash": "FlashAttention, float16, all keys"}


def rows(
    *,
    device: str = "cuda",
    quick: bool = False,
    alone: bool = False,
    cases: tuple[Case, ...] = (*CASES, CITY),
    sizes: tuple[int, ...] = ATTENTION,
) -> Iterator[Row]:
    """Measure all rows, each given out as soon as it is there; of ``quick`` ones the smallest two.

    ``alone``: searches without what they are compared with, which takes most of the time.
    """
    place, repeats = torch.device(device), 1 if quick else 7
    for case in cases[:2] if quick else cases:
        row = _search(case, place, repeats, alone=alone)
        yield replace(row, target="", met=None) if quick else row
    if CITY in cases and not quick:
        yield _hinted(CITY, place, repeats)
    for n in () if alone else sizes[:2] if quick else sizes:
        work = draw(Shape(), n, device=device)
        for passes, step in (("forward", _forward), ("forward + backward", both_passes)):
            yield from _attention(f"attention {passes}, {n:,} nodes, d = 10, k = 10", work, step, repeats)


def _work(case: Case, device: torch.device) -> Workload:
    shape = Shape(heads=case.heads, d=case.d, k=case.k, graph_sizes=case.graphs)
    return draw(shape, sum(case.graphs), device=str(device))


def _searching(work: Workload, hint: Tensor | None = None) -> Search:
    queries, keys, _ = work.tensors
    return lambda: topk_inner_product(queries, keys, work.k, query_ptr=work.ptr, hint=hint)


def _search(case: Case, device: torch.device, repeats: int, *, alone: bool) -> Row:
    work, theirs = _work(case, device), None
    if not alone and case.heads * sum(n * n for n in case.graphs) <= MOST_PAIRS:
        theirs = peer("naive", work)
    graphs = f"{len(case.graphs)} × {case.graphs[0]:,}" if len(case.graphs) > 1 else f"{case.graphs[0]:,}"
    heads = f", {case.heads} heads" if case.heads > 1 else ""
    what = f"search, {graphs} nodes{heads}, d = {case.d}, k = {case.k}"
    sides = _searching(work), theirs
    row = _row(what, "matrix product + topk, in chunks", sides, device, repeats)
    return _recorded(row, sides[0], device, case.target)


def _hinted(case: Case, device: torch.device, repeats: int) -> Row:
    work = _work(case, device)
    sides = _searching(work, _searching(work)()[1]), _searching(work)
    what = f"search, {case.graphs[0]:,} nodes, {case.heads} heads, its own result as hint"
    row = _row(what, "without the hint", sides, device, repeats)
    return _recorded(row, sides[0], device, CITY_HINTED)


def _recorded(row: Row, search: Search, device: torch.device, target: float) -> Row:
    """The row with the time of its search as a CUDA graph, to which its target, milliseconds, applies."""
    try:
        captured = None if row.ours is None else _replayed(search, device)
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        captured, row = None, replace(row, note=f"{row.what}: not recorded as a CUDA graph: {reason}")
    taken = row.ours if captured is None else captured
    met = None if taken is None else 1000 * taken <= target
    return replace(row, captured=captured, target=f"≤ {target:g} ms", met=met)


def _replayed(search: Search, device: torch.device) -> float:
    """Seconds of a replayed search on the card: no Python, no launch of each kernel and no waiting."""
    graphs = CudaGraphs(device)
    graphs.run(lambda _: search())
    replay, _found = graphs.record(lambda _: search())  # kept, for replays write to it
    replay()
    begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    begun.record()
    for _ in range(REPLAYS):
        replay()
    ended.record()
    ended.synchronize()
    return float(begun.elapsed_time(ended)) / 1000 / REPLAYS


def _forward(attend: Callable[[Workload, int], Tensor], work: Workload) -> Callable[[], object]:
    def step() -> None:
        with torch.no_grad():
            attend(work, 0)

    return step


def _attention(
    what: str, work: Workload, step: Callable[..., Callable[[], object]], repeats: int
) -> Iterator[Row]:
    """Ours against each peer; Flash takes all keys in half precision, as is usual: another result."""
    device, padded = work.queries.device, pad(work)
    ours = step(get_method("auto").attend, work)
    for name, against in PEERS.items():
        method, theirs = get_method(name), None
        if method.unusable(device.type) is None:
            queries, keys, values = (tensor.to(method.dtype) for tensor in padded.tensors)
            ready = replace(padded, queries=queries, keys=keys, values=values)
            theirs = step(lambda given, _, method=method: method.attend(given, CHUNK[device.type]), ready)
        row = _row(what, against, (ours, theirs), device, repeats)
        yield row if row.ratio is None else replace(row, target="≥ 1×", met=row.ratio >= 1)


def _row(what: str, against: str, sides: Sides, device: torch.device, repeats: int) -> Row:
    ours, theirs = (None if side is None else _finished(side, device) for side in sides)
    assert ours is not None
    first, other = (None if side is None else _seconds(side) for side in (ours, theirs))
    tried = (("ours", ours, first), (against, theirs, other))
    missing = ", ".join(name for name, side, took in tried if side is not None and took is None)
    note = f"{what}: out of memory: {missing}" if missing else ""
    if first is None:
        return Row(what=what, against=against, ours=None, theirs=other, unit="s", note=note)
    repeats = max(1, min(repeats, int(LONGEST / (first + (other or 0.0)))))
    fits = theirs if other is not None else None
    times = compare(ours, fits or (lambda: None), repeats=repeats, warmup=0)
    row = replace(Row.compared(what, against, times), note=note)
    return row if fits else replace(row, theirs=None, ratio=None, spread=None)


def _seconds(side: Callable[[], object]) -> float | None:
    """Seconds of a second run, for the first one compiles; ``None`` where memory runs out."""
    try:
        side()
        start = time.perf_counter()
        side()
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        return None
    return time.perf_counter() - start


def _finished(side: Callable[[], object], device: torch.device) -> Callable[[], object]:
    """The same until the device is done with it."""
    wait = partial(torch.cuda.synchronize, device) if device.type == "cuda" else lambda: None
    return lambda: (side(), wait())
