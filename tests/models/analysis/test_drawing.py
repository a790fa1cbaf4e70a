"""Pictures of analyses: what an axis shows, and what it leaves out."""

from __future__ import annotations

from itertools import product

import pytest
from matplotlib.figure import Figure

from kmip_data.manifest import read_shipped
from kmip_data.models.analysis.drawing import draw_over_k
from kmip_data.models.profiling.results import Measurement, draw_sweep


@pytest.fixture
def drawn(monkeypatch):
    """The axes of what was drawn last, their ticks in place."""
    figures = []
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, *a, **b: (figures.append(self), save(self, *a, **b)))
    return figures


def ticks(axis):
    low, high = sorted(axis.get_view_interval())
    return [tick.label1.get_text() for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]


def test_shares_and_short_logarithmic_axes(drawn, tmp_path):
    row = {"dataset": "helsinki", "metric": "accuracy", "seconds": 0.5}
    ours = [row | {"curve": "a run", "k": k, "test": test} for k, test in ((5, 0.2), (15, 0.22))]
    draw_over_k([(ours, [{"curve": "the paper's", "k": 10, "test": 0.21, "seconds": 0}])], tmp_path / "p.png")
    over_k, seconds, tradeoff = drawn[0].axes
    assert {"5", "10", "15"} & set(ticks(over_k.xaxis)), "less than a decade has ticks, too"
    assert "22 %" in ticks(over_k.yaxis)
    assert tradeoff.get_xlabel() == seconds.get_ylabel() == "seconds of a training epoch"
    assert seconds.get_yscale() == "log"
    assert seconds.get_ylim()[0] > 0.01, "no line goes down to a zero"


def test_a_sweep_has_one_legend_and_ticks_without_markup(drawn, tmp_path):
    known = {"setting": "inference", "status": "ok"}
    cells = [
        Measurement(method=method, n=n, forward=(n / 1e6,), peak_bytes=n * 100, **known)
        for method, n in product(("auto", "full"), (100, 1000, 10_000))
    ]
    draw_sweep(cells, tmp_path / "p.png", title="", paper=read_shipped("results", "efficiency"))
    labels = [text.get_text() for text in drawn[0].legends[0].get_texts()]
    assert len(labels) == len(set(labels))
    assert {"auto, here", "full, here"} <= set(labels)
    time = drawn[0].axes[0]
    assert "1k" in ticks(time.xaxis)
    assert "1 ms" in ticks(time.yaxis)
