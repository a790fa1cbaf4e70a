"""``dense``: float32 filter, with float64 for unproved rows, against only float64."""

from __future__ import annotations

import time
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from benchmarks.table import Row
from benchmarks.turns import compare
from kmip_data.models.search.backends import dense
from kmip_data.models.search.problem import make_problem

QUERIES = 400


def rows(*, quick: bool = False) -> list[Row]:
    """Measure Gaussian rows in CPU seconds, with the fraction of rows not proved in float32."""
    sizes = [(2_000, 16), (2_000, 1_024)]
    if not quick:
        sizes = [(keys, dim) for keys in (4_000, 20_000) for dim in (10, 64, 256, 1_024)]
    return [_row(*size, repeats=3 if quick else 7) for size in sizes]


def _row(count: int, dim: int, repeats: int) -> Row:
    generator = torch.Generator().manual_seed(0)
    keys = torch.randn(2, count, dim, generator=generator)
    queries = torch.randn(2, QUERIES, dim, generator=generator)
    problem = make_problem(queries, keys, 10)
    unproved = []

    def counted(few: Tensor, all_keys: Tensor, wanted: int) -> Tensor:
        unproved.append(few.shape[1])
        return by_float64(few, all_keys, wanted)

    def ours() -> Any:
        return dense.search(problem)

    def theirs() -> Any:
        in_float64 = dense.Filter(by_float64, dense.float64_sum_error)
        with mock.patch.object(dense, "Filter", return_value=in_float64):
            return dense.search(problem)

    by_float64 = dense._best_by_float64
    with mock.patch.object(dense, "_best_by_float64", counted):
        result = ours()
    assert all(map(torch.equal, result, theirs())), "the two sides do not agree"
    fraction = sum(unproved) / (2 * QUERIES)

    times = compare(ours, theirs, repeats=repeats, clock=time.process_time)
    what = f"{count:,} keys, d = {dim}: {fraction:.1%} of rows not proved in float32"
    note = "dense: 2 × 400 Gaussian queries, k = 10; CPU seconds of all threads"
    return Row.from_times(what, "only float64", times, target=1.0, note=note)
