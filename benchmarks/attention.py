"""k-MIP search and attention against KeOps, FAISS and matrix products."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from benchmarks.table import Row, thread_count
from benchmarks.turns import compare
from kmip_data.models.benchmarking.measuring import SCRATCH_BYTES
from kmip_data.models.benchmarking.methods import (
    Workload,
    WorkloadOptions,
    get_method,
    random_workload,
)
from kmip_data.models.search.topk import topk_inner_product
from kmip_data.runtime.parallel import available_cores

CPU = torch.device("cpu")
FAISS_LABEL = "FAISS IndexFlatIP, built on each call"


@dataclass(frozen=True)
class Sizes:
    """Sizes of the measurements."""

    nodes: int = 100_000
    graphs: int = 2_000
    repeats: int = 5


FULL, QUICK = Sizes(), Sizes(nodes=2_048, graphs=50, repeats=1)


def rows(*, quick: bool = False) -> Iterator[Row]:
    """Measure all rows on the CPU, with KeOps, the slowest, last."""
    sizes = QUICK if quick else FULL
    with thread_count(available_cores()):
        yield from _against_faiss(sizes)
        yield _compare_k(sizes)
        yield _equal_norms(sizes)
        yield _ragged(sizes)
        yield from _against_keops(sizes)


def _search(work: Workload) -> Callable[[], object]:
    return lambda: topk_inner_product(work.queries, work.keys, work.k)


def peer_search(name: str, work: Workload) -> Callable[[], object]:
    """Return the search of another method, ready to run."""
    search = get_method(name).search
    assert search is not None
    return partial(search, work, SCRATCH_BYTES["cpu"])


def faiss_search(work: Workload) -> Callable[[], object]:
    """Return FAISS' exact search, building the index on each call because keys change every step."""
    import faiss

    def search() -> None:
        for queries, keys in zip(work.queries.numpy(), work.keys.numpy(), strict=True):
            index = faiss.IndexFlatIP(keys.shape[1])
            index.add(keys)
            index.search(queries, work.k)

    return search


def both_passes(
    attend: Callable[[Workload, int], Tensor],
    work: Workload,
    scratch_bytes: int = SCRATCH_BYTES["cpu"],
) -> Callable[[], object]:
    """Return one forward and backward pass, ready to run."""
    leaves = [tensor.clone().requires_grad_() for tensor in work.tensors]
    ready = replace(work, queries=leaves[0], keys=leaves[1], values=leaves[2])

    def step() -> None:
        torch.autograd.grad(attend(ready, scratch_bytes).sum(), leaves)

    return step


def _row(
    what: str,
    against: str,
    *sides: Callable[[], object],
    target: float,
    repeats: int,
    warmup: int = 1,
) -> Row:
    return Row.from_times(
        what, against, compare(*sides, repeats=repeats, warmup=warmup), target=target
    )


def _against_keops(sizes: Sizes) -> Iterator[Row]:
    """Measure KeOps once, because it takes minutes, after a small run that compiles its kernel."""
    work, small = (random_workload(WorkloadOptions(), n) for n in (sizes.nodes, 200))
    _search(work)()
    peer_search("symbolic", small)()
    what = f"search, {sizes.nodes:,} nodes, d = 10, k = 10, Gaussian"
    yield _row(
        what,
        "KeOps argKmin",
        _search(work),
        peer_search("symbolic", work),
        target=40,
        repeats=1,
        warmup=0,
    )
    ours = both_passes(get_method("auto").attend, work)
    ours()
    what = f"attention forward + backward, {sizes.nodes:,} nodes, d = 10, k = 10"
    theirs = both_passes(get_method("symbolic").attend, work)
    yield _row(what, "the paper's path", ours, theirs, target=20, repeats=1, warmup=0)


def _against_faiss(sizes: Sizes) -> Iterator[Row]:
    for k, target in ((10, 5.0), (100, 2.0)):
        work = random_workload(WorkloadOptions(k=k), sizes.nodes)
        what = f"search, {sizes.nodes:,} nodes, d = 10, k = {k}, Gaussian"
        yield _row(
            what,
            FAISS_LABEL,
            _search(work),
            faiss_search(work),
            target=target,
            repeats=sizes.repeats,
        )


def _compare_k(sizes: Sizes) -> Row:
    work = random_workload(WorkloadOptions(), sizes.nodes)
    hundred = replace(work, k=100)
    _, _, ratio, spread = compare(_search(work), _search(hundred), repeats=sizes.repeats)
    what = f"time at k = 100 over k = 10, {sizes.nodes:,} nodes (the paper's own: 22)"
    return Row(
        what=what,
        against="itself",
        ours=ratio,
        unit="",
        spread=spread,
        target="≤ 4×",
        met=ratio <= 4,
    )


def _equal_norms(sizes: Sizes) -> Row:
    """Measure keys of equal norm in 64 dimensions, where no bound prunes, against the better peer."""
    work = random_workload(WorkloadOptions(d=64, data="sphere"), sizes.nodes)
    what, repeats = (
        f"search, {sizes.nodes:,} nodes of one norm, d = 64, k = 10",
        max(1, sizes.repeats - 2),
    )
    rows = [
        _row(what, against, _search(work), other, target=0.8, repeats=repeats)
        for other, against in (
            (peer_search("naive", work), "matrix product + topk, in chunks"),
            (faiss_search(work), FAISS_LABEL),
        )
    ]
    return min(rows, key=lambda row: row.ratio or 0.0)


def _ragged(sizes: Sizes) -> Row:
    """Measure graphs of equal size, the best case of the padded form."""
    work = random_workload(WorkloadOptions(), 150 * sizes.graphs)
    ptr = range(0, 150 * sizes.graphs + 1, 150)
    queries = work.queries.view(sizes.graphs, 150, 10)
    keys = work.keys.view(sizes.graphs, 150, 10)

    def ours() -> object:
        return topk_inner_product(work.queries, work.keys, 15, query_ptr=ptr)

    def theirs() -> object:
        return (queries @ keys.mT).topk(15, dim=-1)

    what = f"search, {sizes.graphs:,} graphs of 150 nodes, d = 10, k = 15"
    return _row(what, "padded matrix product + topk", ours, theirs, target=5, repeats=sizes.repeats)
