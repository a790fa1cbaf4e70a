"""Third section: peak rates, replayed searches, attention, and search plans."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch import Tensor

from benchmarks.methods import random_inputs
from kmip_data.models import kmip_attention
from kmip_data.models.search import topk_inner_product
from kmip_data.models.search.gpu import plan
from kmip_data.models.training.capture.cuda_graphs import CudaGraphs
from tools.gpu.ceilings import ceilings
from tools.gpu.results import Recorder, milliseconds


class Case(NamedTuple):
    """A search, and its target in milliseconds on an H200."""

    graphs: tuple[int, ...]  #: nodes of each graph
    target: float
    heads: int = 1
    d: int = 10
    k: int = 10

    def __str__(self) -> str:
        many = f"{len(self.graphs)} × " if len(self.graphs) > 1 else ""
        heads = f", {self.heads} heads" if self.heads > 1 else ""
        return f"search, {many}{self.graphs[0]:,} nodes{heads}, d = {self.d}, k = {self.k}"


CASES = (
    *(
        Case((10**power,), target)
        for power, target in ((3, 0.06), (4, 0.15), (5, 0.6), (6, 8), (7, 170))
    ),
    Case((10**6,), 20, k=100),
    Case((4096,) * 8, 0.3, heads=4),
    Case((150,) * 128, 0.15, heads=4, k=15),
    Case((570_000,), 60, heads=4, d=19),
    Case((570_000,), 25, heads=4, k=15),
)
#: Cases that the first section compiles; 10⁷ nodes use the kernels of 10⁶.
WARMED = (*CASES[:4], *CASES[5:])
TINY = (Case((300,), 1e9), Case((40,) * 5, 1e9, heads=2))
#: Nodes -> target for both passes in milliseconds on an H200.
ATTENTION: dict[int, float | None] = {10**3: None, 10**4: None, 10**5: None, 10**6: 25}
REPLAYS = 10  #: replays of a captured search that are timed together
SECONDS, DRY_SECONDS = 0.4, 0.05  #: duration of a measurement
Search = Callable[[], tuple[Tensor, Tensor]]


def run(record: Recorder) -> None:
    """Measure peak rates, each search, attention, then the pairs."""
    with record.attempt("ceilings"):
        ceilings(record)
    for case in TINY if record.dry else CASES:
        with record.attempt(str(case)):
            _measure(record, str(case), searching(case, record.device), case.target)
    for n, most in ({50: None} if record.dry else ATTENTION).items():
        with record.attempt(f"attention, {n:,} nodes"):
            _attention(record, n, most)
    for name, case, what, other in PAIRS:
        with record.attempt(name):
            times = [_planned(record, case), _planned(record, case, **{what: other})]
            # Within 2 % two ways are alike.
            target = None if record.dry else 1.02 * times[1]
            note = f"the other way {times[1]:.4g} ms"
            record(f"{name}, as planned", times[0], "ms", target=target, kind="figure", note=note)


def warm(number: int) -> None:
    """Search once, which compiles the program."""
    searching(WARMED[number], torch.device("cuda"))()


def searching(case: Case, device: torch.device) -> Search:
    """Return a search, ready to run."""
    nodes = sum(case.graphs)
    queries, keys, _ = random_inputs(nodes, case.heads, case.d, device=str(device))
    ptr = (0, *itertools.accumulate(case.graphs))
    return lambda: topk_inner_product(queries, keys, case.k, query_ptr=ptr)


def _measure(record: Recorder, what: str, search: Search, target: float) -> None:
    eager = milliseconds(search, record.device, most=DRY_SECONDS if record.dry else SECONDS)
    took = eager if record.dry else _replayed(search, record.device)
    note = f"with its launches {eager:.4g} ms"
    record(what, took, "ms", target=None if record.dry else target, kind="figure", note=note)


def _replayed(search: Search, device: torch.device) -> float:
    """Milliseconds of a replayed search: no Python, no launch of each kernel and no waiting."""
    graphs = CudaGraphs(device)
    graphs.run(lambda _: search())
    replay, _found = graphs.capture(lambda _: search())  # kept, for replays write to it
    many = milliseconds(lambda: [replay() for _ in range(REPLAYS)], device, most=SECONDS)
    return many / REPLAYS


def _attention(record: Recorder, n: int, target: float | None) -> None:
    """Time k-MIP attention; `python -m benchmarks.attention` compares it with other methods."""
    inputs = random_inputs(n, device=str(record.device))
    leaves = [tensor.clone().requires_grad_() for tensor in inputs]
    passes = {
        "forward": lambda: kmip_attention(*inputs, 10),
        "forward + backward": lambda: torch.autograd.grad(
            kmip_attention(*leaves, 10).sum(), leaves
        ),
    }
    for name, step in passes.items():
        took = milliseconds(step, record.device, most=DRY_SECONDS if record.dry else SECONDS)
        most = target if name != "forward" else None
        what = f"attention {name}, {n:,} nodes, d = 10, k = 10"
        record(what, took, "ms", target=most, kind="figure")


#: Title, search, and a name in the module of plans with another value. The code's value is timed first.
PAIRS: tuple[tuple[str, Case, str, Any], ...] = (
    ("10⁶ nodes, tiles of a warp", CASES[3], "_choose_tiles", lambda *_, **__: (2, 0)),
    ("10⁵ nodes, order of keys", CASES[2], "_MIN_ORDERED_KEYS", 10**9),
    ("10⁵ nodes, tiles of a warp", CASES[2], "_choose_tiles", lambda *_, **__: (4, 1)),
    ("k = 100, tiles of a warp", CASES[5], "_choose_tiles", lambda *_, **__: (2, 0)),
)


def _planned(record: Recorder, case: Case, **changes: Any) -> float:
    """Return the milliseconds of a search whose plan is made with ``changes``."""
    search = searching(TINY[0] if record.dry else case, record.device)
    plan.make_search_plan.cache_clear()
    try:
        with patch.multiple(plan, **changes) if changes else contextlib.nullcontext():
            if record.dry:
                return milliseconds(search, record.device, most=DRY_SECONDS)
            return _replayed(search, record.device)
    finally:
        plan.make_search_plan.cache_clear()
