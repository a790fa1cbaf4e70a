"""Cells: measured, out of memory, out of time, ended by the system; none ends the program."""

import math
import sys

import pytest
import torch

from kmip_data.models.profiling import measuring
from kmip_data.models.profiling import sweep as sweeping
from kmip_data.models.profiling.measuring import Measurer, Protocol, stages
from kmip_data.models.profiling.methods import get_method
from kmip_data.models.profiling.results import Cell, growth_exponent, published
from kmip_data.models.profiling.sweep import sweep
from kmip_data.models.profiling.workload import Shape, Source

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.slow]
READY = """
import os, signal, sys, time
from multiprocessing.connection import Connection
from kmip_data.models.profiling.results import Cell
asked = Connection(int(sys.argv[1]))
asked.recv_bytes(); asked.send(True)
"""
ANSWER = """
while True:
    method, setting, n, by_stage = asked.recv()
    if n == 10 or setting == "training":
        asked.send(Cell(method=method, setting=setting, n=n, status="ok", forward=(0.5,))); continue
    """


def measurer(**options):
    return Measurer(Source(Shape(k=3)), Protocol(threads=1, **options))


def test_a_real_sweep_with_a_cell_that_does_not_fit():
    cells = sweep(
        ["full", "flash"],
        [50, 14_000],
        shape=Shape(),
        protocol=Protocol(threads=1, repeats=2, memory_limit=2**26),
        settings=["training"],
    )
    small, large, *flash = cells
    assert small.status == "ok"
    assert len(small.forward) == len(small.backward) == 2
    assert large.status == "oom"
    assert large.note
    assert [cell.status for cell in flash] == ["unavailable"] * 2
    assert "CUDA" in flash[0].note


@pytest.mark.parametrize(
    ("end", "status", "note"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "oom", "ended by the system"),
        ("sys.stderr.write('std::bad_alloc\\n'); sys.stderr.flush(); os.abort()", "oom", "std::bad_alloc"),
        ("sys.stderr.write('no such kernel\\n'); sys.exit(3)", "failed", "no such kernel"),
    ],
)
def test_whatever_ends_the_process_is_a_cell(monkeypatch, end, status, note):
    monkeypatch.setattr(sweeping, "COMMAND", [sys.executable, "-c", READY + ANSWER + end])
    told = []
    cells = sweep(["naive"], [10, 20, 30], shape=Shape(), protocol=Protocol(threads=1), tell=told.append)
    assert told == cells
    found = {(cell.setting, cell.n): cell for cell in cells}
    assert found["inference", 20].status == status
    assert found["inference", 20].note == note
    assert found["inference", 10].status == "ok"
    assert found["inference", 30].status == status
    tried = "not tried" not in found["inference", 30].note
    assert tried == (status == "failed"), "after memory or time, larger sizes are left out"
    assert found["training", 30].status == "ok", "the other setting goes on in a new process"


def test_no_answer_in_time_and_a_run_over_the_limit(monkeypatch):
    monkeypatch.setattr(sweeping, "COMMAND", [sys.executable, "-c", READY + ANSWER + "time.sleep(60)"])
    monkeypatch.setattr(sweeping, "COMPILE", 0.5)
    protocol = Protocol(threads=1, time_limit=0.2)
    cells = sweep(["naive"], [11, 20], shape=Shape(), protocol=protocol)
    assert [cell.status for cell in cells] == ["time"] * 4
    assert [cell.note for cell in cells] == ["longer than 0.2 s", "not tried: time at 11 nodes"] * 2


def test_a_process_that_does_not_start_is_a_failed_cell(monkeypatch):
    monkeypatch.setattr(sweeping, "COMMAND", [sys.executable, "-c", "raise SystemExit('no library')"])
    cells = sweep(["naive"], [10], shape=Shape(), protocol=Protocol(threads=1), settings=["inference"])
    assert cells[0].status == "failed"
    assert "no library" in cells[0].note


@pytest.mark.parametrize("name", ["auto", "naive"])
@pytest.mark.parametrize("published_protocol", [False, True])
def test_runs_are_counted_and_the_first_is_not(name, published_protocol, monkeypatch):
    collected = []
    monkeypatch.setattr(measuring.gc, "collect", lambda: collected.append(1))
    measure = measurer(repeats=3, published=published_protocol, memory_limit=2**26)
    for setting in ("inference", "training"):
        cell = measure.cell(get_method(name), setting, 40)
        assert len(cell.forward) == 3
        assert len(cell.backward) == (3 if setting == "training" else 0)
        assert all(seconds > 0 for seconds in cell.totals)
        assert cell.recall is None
        totals = sorted(cell.totals)
        assert cell.seconds == pytest.approx(sum(totals) / 3 if published_protocol else totals[1])
        if sys.platform == "linux":
            assert cell.peak_bytes is not None
            assert cell.peak_bytes >= 0
    if published_protocol:  # before each backward pass and, where the two are apart, after each search
        assert len(collected) == (4 if name == "auto" else 4 + 2 * 4)


@pytest.mark.skipif(sys.platform != "linux", reason="the peak can be reset on Linux only")
def test_peak_memory_counts_scores_and_is_reset():
    n = 2000
    measure = measurer(repeats=1)
    full = measure.cell(get_method("full"), "training", n).peak_bytes
    small = measure.cell(get_method("sdpa"), "inference", n).peak_bytes
    scores = 4 * n * n
    assert full > 2 * scores
    assert small < scores / 2, "what was taken before does not count"


def test_inputs_differ_between_runs_and_repeat_between_methods():
    measure = measurer()
    one, two = (measure.inputs(get_method("auto"), 20, number, training=False) for number in (1, 2))
    again = measure.inputs(get_method("naive"), 20, 1, training=True)
    assert not torch.equal(one.keys, two.keys)
    assert torch.equal(one.keys, again.keys[0])
    assert again.keys.requires_grad
    stream = measurer(published=True)
    first = stream.inputs(get_method("auto"), 20, 1, training=False)
    assert not torch.equal(first.keys, stream.inputs(get_method("auto"), 20, 1, training=False).keys)


def test_an_approximate_method_has_recall():
    pytest.importorskip("faiss")
    cell = measurer(repeats=1).cell(get_method("faiss-lsh"), "inference", 300)
    assert 0 < cell.recall <= 1


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("naive", {"search", "gather", "softmax", "multiply", "backward"}),
        ("full", {"scores", "softmax", "multiply", "backward"}),
        ("auto", {"search", "attend", "backward"}),
        ("sdpa", {"attend", "backward"}),
    ],
)
def test_stages(name, names):
    found = stages(measurer(repeats=2), get_method(name), 50)
    assert set(found) == names
    assert all(seconds >= 0 for seconds in found.values())


def test_breakdown_says_why_a_method_has_none():
    protocol = Protocol(threads=1)
    (found,) = sweep(["flash"], [10], shape=Shape(), protocol=protocol, settings=["training"], by_stage=True)
    assert found.status == "unavailable"
    assert not found.stages


def test_figures_of_a_cell():
    cell = Cell(method="m", setting="training", n=10, status="ok", forward=(1.0, 3.0), backward=(1.0, 1.0))
    assert cell.seconds == 3.0
    ended = Cell(method="m", setting="training", n=20, status="oom", note="a, b")
    assert ended.seconds is None
    assert [*ended.as_dict()][:5] == ["method", "setting", "n", "status", "seconds"]
    mean = Cell(method="m", setting="inference", n=1, status="ok", forward=(1.0, 3.0, 8.0), published=True)
    assert mean.seconds == 4.0
    assert mean.as_dict()["most"] == pytest.approx(4 + math.sqrt(26 / 3))


def test_growth_is_fitted_over_the_last_decade():
    points = [(n, 1e-3 + 1e-9 * n**1.5) for n in (100, 316, 1000)]
    points += [(n, 1e-9 * n**1.5) for n in (10_000, 31_622, 100_000)]
    assert growth_exponent(points) == pytest.approx(1.5)
    assert growth_exponent(points[:1]) is None
    assert growth_exponent([]) is None


def test_published_figures():
    paper = published()
    curves = {(curve.method, curve.setting): curve for curve in paper.curve}
    for curve in paper.curve:
        assert len(curve.n) == len(curve.milliseconds)
        assert len(curve.megabytes) in {0, len(curve.n)}
        assert list(curve.n) == sorted(curve.n)
    seconds = {key: dict(zip(curve.n, curve.milliseconds, strict=True)) for key, curve in curves.items()}
    full, symbolic = seconds["full", "inference"], seconds["symbolic", "inference"]
    assert full[10**6] / symbolic[10**6] == pytest.approx(11.4, rel=0.01)
    assert seconds["naive", "inference"][10**6] / symbolic[10**6] == pytest.approx(12.43, rel=0.01)
    training = seconds["full", "training"][31622] / seconds["symbolic", "training"][31622]
    assert training == pytest.approx(8.45, rel=0.01)
    assert growth_exponent(symbolic.items()) == pytest.approx(1.96, abs=0.02)
