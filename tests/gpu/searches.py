"""Section 5: searches by replay, attention next to Flash, and plans of searches against others."""

from __future__ import annotations

import contextlib
from typing import Any
from unittest.mock import patch

from benchmarks.attention_gpu import CASES, CITY, Case, _replayed, _searching, _work, rows
from benchmarks.table import Row
from gpu.results import Recorder, milliseconds

from kmip_data.models.search.gpu import plan

TINY = (Case((300,), 1e9), Case((40,) * 5, 1e9, heads=2))
PEERS = (10**3, 10**4, 10**5)  #: nodes; beyond that FlashAttention takes seconds


def run(record: Recorder) -> None:
    """Measure each row alone, then attention with its peers, then the pairs."""
    device = str(record.device)
    cases = TINY if record.dry else (*CASES, CITY)
    with record.attempt("searches"):
        for row in rows(device=device, quick=record.dry, alone=True, cases=cases):
            _search(record, row)
    with record.attempt("attention"):
        for row in rows(device=device, quick=record.dry, cases=(), sizes=(50,) if record.dry else PEERS):
            theirs = "not measured" if row.theirs is None else f"{_ms(row.theirs):.4g} ms"
            record(row.what, _ms(row.ours), "ms", kind="figure", note=row.note or f"{row.against}: {theirs}")
    for name, case, what, other in PAIRS:
        with record.attempt(name):
            times = [_time(record, case), _time(record, case, **{what: other})]
            # Within 2 % two ways are alike.
            target = None if record.dry else 1.02 * times[1]
            note = f"the other way {times[1]:.4g} ms"
            record(f"{name}, as planned", times[0], "ms", target=target, kind="figure", note=note)


def _search(record: Recorder, row: Row) -> None:
    target = None if record.dry or not row.target else float(row.target.split()[1])
    value = row.ours if row.captured is None else row.captured
    eager = "" if row.ours is None else f"with its launches {_ms(row.ours):.4g} ms"
    note = row.note.removeprefix(f"{row.what}: ") or eager
    record(row.what, _ms(value), "ms", target=target, kind="figure", note=note)


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else 1000 * seconds


#: A search, and a name of the module of plans with another value; the first of two times is that of the code.
PAIRS: tuple[tuple[str, Case, str, Any], ...] = (
    ("10⁶ nodes, tiles of a warp", CASES[3], "_tiles", lambda *_, **__: (2, 0)),
    ("10⁵ nodes, order of keys", CASES[2], "_ORDERED_KEYS", 10**9),
    ("10⁵ nodes, tiles of a warp", CASES[2], "_tiles", lambda *_, **__: (4, 1)),
    ("k = 100, tiles of a warp", CASES[5], "_tiles", lambda *_, **__: (2, 0)),
)


def _time(record: Recorder, case: Case, **changes: Any) -> float:
    """Return the milliseconds of a search that is planned with these names."""
    search = _searching(_work(TINY[0] if record.dry else case, record.device))
    plan.plan_for.cache_clear()
    try:
        with patch.multiple(plan, **changes) if changes else contextlib.nullcontext():
            if record.dry:
                return milliseconds(search, record.device, most=0.05)
            search()
            return 1000 * _replayed(search, record.device)
    finally:
        plan.plan_for.cache_clear()
