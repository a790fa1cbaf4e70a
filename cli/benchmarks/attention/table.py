"""Search and attention against KeOps, FAISS and matrix products: the rows of the speed table."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kmip_data.cli.benchmarks import Row, compare, thread_count
from kmip_data.models.attention.kmip import kmip_attention
from kmip_data.models.profiling.cells import growth_exponent
from kmip_data.models.profiling.measuring import CHUNK, Protocol
from kmip_data.models.profiling.methods import get_method
from kmip_data.models.profiling.sweep import sweep
from kmip_data.models.profiling.workload import Shape, Source, Workload, pad
from kmip_data.models.search.topk import topk_inner_product

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Sizes:
    """How large the rows are."""

    nodes: int = 100_000
    many: int = 1_000_000
    graphs: int = 2_000
    repeats: int = 5


FULL, QUICK = Sizes(), Sizes(nodes=2_048, many=8_192, graphs=50, repeats=1)


def measure(*, quick: bool = False, trained: str | None = None, threads: int | None = None) -> Iterator[Row]:
    """Measure all rows on the CPU, each given out as soon as it is there; KeOps, the slowest, comes last.

    Parameters
    ----------
    trained
        A file of ``kmip-data evaluate --dump-qk``: the row on it, and no other.
    threads
        Of every library; all cores of this process by default.
    """
    sizes = QUICK if quick else FULL
    with _threads(threads):
        for row in _all_rows(sizes, trained, threads):
            found = replace(
                row, note=f"attention: {row.note or 'the same number of threads for every library'}"
            )
            # The targets are for the full sizes.
            yield replace(found, target="", met=None) if quick else found


def _all_rows(sizes: Sizes, trained: str | None, threads: int | None) -> Iterator[Row]:
    if trained is not None:
        yield _on_trained(trained, sizes)
        return
    yield from _against_faiss(sizes)
    yield from _by_itself(sizes)
    yield _on_the_sphere(sizes)
    yield _ragged(sizes)
    yield _memory(sizes, threads)
    yield from _against_keops(sizes)


def _search(work: Workload) -> Callable[[], object]:
    queries, keys, _ = work.tensors
    return lambda: topk_inner_product(queries, keys, work.k, query_ptr=work.ptr)


def _peer(name: str, work: Workload) -> Callable[[], object] | None:
    """The search of another method, ready to run; ``None`` where it cannot."""
    method = get_method(name)
    if method.search is None or method.unusable("cpu") is not None:
        return None
    search, inputs = method.search, pad(work)
    return lambda: search(inputs, CHUNK["cpu"])


def _row(
    what: str,
    against: str,
    ours: Callable[[], object],
    theirs: Callable[[], object] | None,
    *,
    target: float,
    repeats: int,
    warmup: int = 1,
    missing: str = "not installed",
) -> Row:
    if theirs is None:
        alone = compare(ours, lambda: None, repeats=repeats)[0]
        return Row(what=what, against=against, ours=alone, theirs=None, unit="s", ratio=None, note=missing)
    mine, other, ratio, spread = compare(ours, theirs, repeats=repeats, warmup=warmup)
    return Row(
        what=what,
        against=against,
        ours=mine,
        theirs=other,
        unit="s",
        ratio=ratio,
        spread=spread,
        target=f"≥ {target:g}×",
        met=ratio >= target,
    )


def _against_keops(sizes: Sizes) -> Iterator[Row]:
    """KeOps takes minutes: once, after a small run that compiles its kernel."""
    work, small = (Source(Shape()).draw(n, CPU) for n in (sizes.nodes, 200))
    theirs, compile_it = _peer("symbolic", work), _peer("symbolic", small)
    _search(work)()
    if compile_it is not None:
        compile_it()
    yield _row(
        f"search, {sizes.nodes:,} nodes, d = 10, k = 10, Gaussian",
        "KeOps argKmin",
        _search(work),
        theirs,
        target=40,
        repeats=1,
        warmup=0,
    )
    symbolic = get_method("symbolic")
    what, against = f"attention forward + backward, {sizes.nodes:,} nodes, d = 10, k = 10", "the paper's path"
    ours = _step(lambda q, k, v: kmip_attention(q, k, v, work.k), work)
    ours()
    if theirs is None:
        yield _row(what, against, ours, None, target=20, repeats=1)
        return
    padded = pad(work)
    attend = _step(
        lambda q, k, v: symbolic.attend(
            replace(padded, queries=q[None], keys=k[None], values=v[None]), CHUNK["cpu"]
        ),
        work,
    )
    yield _row(what, against, ours, attend, target=20, repeats=1, warmup=0)


def _step(attend: Callable[[Tensor, Tensor, Tensor], Tensor], work: Workload) -> Callable[[], object]:
    """One forward and backward pass."""
    leaves = [tensor.clone().requires_grad_() for tensor in work.tensors]

    def step() -> None:
        out = attend(leaves[0], leaves[1], leaves[2])
        torch.autograd.grad(out.sum(), leaves)

    return step


def _against_faiss(sizes: Sizes) -> Iterator[Row]:
    for k, target in ((10, 5.0), (100, 2.0)):
        work = Source(Shape(k=k)).draw(sizes.nodes, CPU)
        yield _row(
            f"search, {sizes.nodes:,} nodes, d = 10, k = {k}, Gaussian",
            "FAISS IndexFlatIP, built each time",
            _search(work),
            _peer("faiss-flat", work),
            target=target,
            repeats=sizes.repeats,
        )


def _by_itself(sizes: Sizes) -> Iterator[Row]:
    work = Source(Shape()).draw(sizes.nodes, CPU)
    hundred = replace(work, k=100)
    _, _, ratio, spread = compare(_search(work), _search(hundred), repeats=sizes.repeats)
    yield Row(
        what=f"time at k = 100 over k = 10, {sizes.nodes:,} nodes (the paper's own: 22)",
        against="itself",
        ours=ratio,
        theirs=None,
        unit="×",
        ratio=None,
        spread=spread,
        target="≤ 4×",
        met=ratio <= 4,
    )
    many = Source(Shape()).draw(sizes.many, CPU)
    points = []
    for load in (work, many):
        run = _search(load)
        run()
        times = []
        for _ in range(max(1, sizes.repeats - 2)):
            start = time.perf_counter()
            run()
            times.append(time.perf_counter() - start)
        points.append((load.queries.shape[1], statistics.median(times)))
    exponent = growth_exponent(points) or 0.0
    yield Row(
        what=f"growth of time from {sizes.nodes:,} to {sizes.many:,} nodes: exponent of n",
        against="itself",
        ours=exponent,
        theirs=None,
        unit="",
        ratio=None,
        target="≤ 1.6",
        met=exponent <= 1.6,
    )


def _on_trained(file: str, sizes: Sizes) -> Row:
    source = Source(Shape(data=f"trained:{file}"))
    work = source.draw(source.largest or 0, CPU)
    heads, n, d = work.queries.shape
    return _row(
        f"search, queries and keys of a trained run, {heads} heads, {n:,} nodes, d = {d}, k = 10",
        "FAISS IndexFlatIP, built each time",
        _search(work),
        _peer("faiss-flat", work),
        target=2,
        repeats=sizes.repeats,
    )


def _on_the_sphere(sizes: Sizes) -> Row:
    """Rows of one norm in 64 dimensions, where no bound can leave anything out: the better of two peers."""
    work = Source(Shape(d=64, data="sphere")).draw(sizes.nodes, CPU)
    rows = [
        _row(
            f"search, {sizes.nodes:,} nodes of one norm, d = 64, k = 10",
            against,
            _search(work),
            _peer(name, work),
            target=0.8,
            repeats=max(1, sizes.repeats - 2),
        )
        for name, against in (
            ("naive", "matrix product + topk, in chunks"),
            ("faiss-flat", "FAISS IndexFlatIP, built each time"),
        )
    ]
    return min((row for row in rows if row.ratio is not None), key=lambda row: row.ratio or 0.0)


def _ragged(sizes: Sizes) -> Row:
    """Graphs of one size, so that the padded form pads nothing: the case that suits it best."""
    work = Source(Shape(k=15, graph_sizes=(150,) * sizes.graphs)).draw(150 * sizes.graphs, CPU)
    padded = pad(work)

    def theirs() -> object:
        return (padded.queries @ padded.keys.mT).topk(15, dim=-1)

    return _row(
        f"search, {sizes.graphs:,} graphs of 150 nodes, d = 10, k = 15",
        "padded matrix product + topk",
        _search(work),
        theirs,
        target=5,
        repeats=sizes.repeats,
    )


def _memory(sizes: Sizes, threads: int | None) -> Row:
    from kmip_data.runtime.threads import available_cores

    cell = sweep(
        ["auto"],
        [sizes.nodes],
        shape=Shape(),
        protocol=Protocol(repeats=1),
        settings=["training"],
        threads=threads or available_cores(),
    )[0]
    each = (cell.peak_bytes or 0) / sizes.nodes
    return Row(
        what=f"peak memory a node, forward + backward, {sizes.nodes:,} nodes, d = 10, k = 10, one head",
        against="the limit",
        ours=each,
        theirs=1000.0,
        unit="B",
        ratio=1000 / each if each else None,
        target="≤ 1 kB",
        met=0 < each <= 1000,
        note="resident memory at its peak, inputs counted, in a process of its own",
    )


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    """The same number of threads for torch, our kernels and FAISS, while inside."""
    from kmip_data.runtime.threads import available_cores

    wanted = count or available_cores()
    with suppress(ImportError):
        import faiss

        faiss.omp_set_num_threads(wanted)
    with thread_count(wanted):
        yield
