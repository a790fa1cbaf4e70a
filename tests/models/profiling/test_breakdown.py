"""Stages of a step: which each method has, what they add up to, and clocks of the CPU and of a GPU."""

import math
from types import SimpleNamespace

import pytest
import torch

from kmip_data.cli import bench
from kmip_data.drawing.style import using_style
from kmip_data.models.profiling import breakdown
from kmip_data.models.profiling.breakdown import StageClock, draw_breakdown, projections
from kmip_data.models.profiling.measuring import Measurement, Measurer, Protocol
from kmip_data.models.profiling.methods import Shape, draw, get_method
from kmip_data.shipped import read_shipped

pytestmark = pytest.mark.usefixtures("one_thread")

GATHERED = ["projections", "search", "scores", "softmax", "weighted sum", "backward"]
STAGES = {
    "full": ["projections", "scores", "softmax", "weighted sum", "backward"],
    "naive": GATHERED,
    "auto": ["projections", "search", "fused", "backward"],
    "sdpa": ["projections", "fused", "backward"],
}


def test_each_method_has_its_stages_and_the_forward_pass_is_their_sum():
    measurer = Measurer(Shape(k=3), Protocol(threads=1, repeats=2, stages=True))
    for name, stages in STAGES.items():
        cell = measurer.cell(get_method(name), "training", 40)
        assert list(cell.stages) == stages, name
        assert all(len(seconds) == 2 and min(seconds) > 0 for seconds in cell.stages.values())
        for run in range(2):
            before = sum(cell.stages[stage][run] for stage in stages[:-1])
            assert cell.forward[run] == pytest.approx(before)
            assert cell.backward[run] == cell.stages["backward"][run]
        assert [row["stage"] for row in cell.stage_rows()] == stages
    inference = measurer.cell(get_method("naive"), "inference", 40)
    assert list(inference.stages) == GATHERED[:-1]
    assert inference.backward == ()


def test_a_clock_changes_no_output():
    work = draw(Shape(k=3, heads=2), 50)
    for name in STAGES:
        method = get_method(name)
        ended = []
        for chunk in (2**20, 2**10):  # at once, and a few queries at a time
            with torch.no_grad():
                out = method.attend(work, chunk, ended.append)
                torch.testing.assert_close(out, method.attend(work, chunk), rtol=0, atol=0)
        assert set(ended) <= set(breakdown.STAGES)


def test_projected_inputs_keep_their_distribution():
    for matrix in projections(torch.ones(2, 5, 7)):
        assert matrix.shape == (2, 7, 7)
        unit = torch.eye(7).expand(2, 7, 7)
        torch.testing.assert_close(matrix @ matrix.mT, unit, atol=1e-5, rtol=0)
    queries, keys, _ = projections(torch.ones(1, 3, 5))
    assert not torch.allclose(queries, keys)


def test_a_gpu_is_timed_by_events_and_awaited_once(monkeypatch):
    waited = []

    class Event:
        """An event at the next power of two, in milliseconds."""

        number = 0

        def __init__(self, *, enable_timing):
            assert enable_timing

        def record(self):
            self.at = 2**Event.number
            Event.number += 1

        def synchronize(self):
            waited.append(self.at)

        def elapsed_time(self, other):
            return other.at - self.at

    monkeypatch.setattr(torch.cuda, "Event", Event)
    clock = StageClock(SimpleNamespace(type="cuda"))
    for stage in ("start", "scores", "softmax", "scores", "backward"):
        clock(stage)
    seconds = clock.seconds()
    assert seconds == pytest.approx({"scores": 0.001 + 0.004, "softmax": 0.002, "backward": 0.008})
    assert waited == [16]


def measured(method, **stages):
    runs = {stage.replace("_", " "): (seconds,) * 3 for stage, seconds in stages.items()}
    forward = (sum(seconds for stage, seconds in stages.items() if stage != "backward"),) * 3
    return Measurement(
        method=method, setting="training", n=31_622, status="ok", forward=forward, stages=runs
    )


CELLS = [
    measured("full", projections=0.01, scores=1.0, softmax=0.5, weighted_sum=0.49, backward=2.0),
    measured("auto", projections=0.01, search=0.08, fused=0.01, backward=0.1),
    Measurement(method="naive", setting="training", n=31_622, status="oom", note="no memory"),
]


def test_the_table_has_shares_and_the_papers_passes():
    paper = read_shipped("results", "efficiency")
    header, *lines = bench._stage_table(CELLS, paper).splitlines()
    rows = {line.split("  ")[0]: line.split("  ") for line in lines}
    rows = {name: [cell.strip() for cell in cells if cell.strip()] for name, cells in rows.items()}
    assert header.split()[:5] == ["training,", "31,622", "nodes", "full", "auto"]
    assert rows["search"][1:4] == ["–", "80 ms (40%)", "–"]
    assert rows["forward pass"][1:] == [
        "2 s (50%)", "100 ms (50%)", "–", "24.4 ms (34%)", "31.8 ms (95%)", "6.62 ms (78%)"
    ]  # fmt: skip
    assert rows["sum"][1:] == ["4 s", "200 ms", "–", "71.5 ms", "33.5 ms", "8.46 ms"]
    assert "A100" not in bench._stage_table(CELLS, None)
    assert [row["stage"] for row in CELLS[2].stage_rows()] == [""]


def test_the_papers_passes_are_its_totals():
    paper = read_shipped("results", "efficiency")
    totals = {
        curve["method"]: dict(zip(curve["n"], curve["milliseconds"], strict=True))[31_622]
        for curve in paper["curve"]
        if curve["setting"] == "training"
    }
    assert {row["method"] for row in paper["split"]} == {"full", "naive", "symbolic"}
    for row in paper["split"]:
        total = row["forward"] + row["backward"]
        assert math.isclose(total, totals[row["method"]], abs_tol=0.011), row


def test_the_picture_has_every_stage_and_is_drawn_without_any(tmp_path):
    paper = read_shipped("results", "efficiency")
    with using_style("dark"):
        draw_breakdown(CELLS, tmp_path / "a.svg", title="A step\nof a machine", paper=paper)
    draw_breakdown(CELLS[2:], tmp_path / "b.png", title="A step\nof a machine", paper=None)
    svg = (tmp_path / "a.svg").read_text("utf-8")
    for text in ("4.0 s", "80.0 ms", "forward pass (the paper's)", "auto alone", "71.5 ms"):
        assert f"<!-- {text} -->" in svg, text
    assert (tmp_path / "b.png").read_bytes()[:4] == b"\x89PNG"
