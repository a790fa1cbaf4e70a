"""Picture of accuracy by distance: equal curves are all seen, bands of few nodes are marked."""

from __future__ import annotations

import numpy as np

from kmip_data.models.analysis import explanations
from kmip_data.models.analysis.explanations import (
    MIN_BAND_NODES,
    MetricByDistance,
    draw_metric_by_distance,
)


def test_equal_curves_are_drawn_apart_and_small_groups_are_hollow(monkeypatch, tmp_path):
    nodes = (900, 400, MIN_BAND_NODES - 1)
    same = MetricByDistance("accuracy", ("1", "2", "19–26"), nodes, (1.0, 0.9, 0.0))
    figures = []
    monkeypatch.setattr(explanations, "save_figure", lambda figure, _: figures.append(figure))
    draw_metric_by_distance(
        {"gps-kmip": same, "full": same}, tmp_path / "p.png", title="t", chance=0.125
    )
    (axes,) = figures[0].axes
    curves = [line for line in axes.lines if line.get_label() in {"gps-kmip", "full"}]
    first, second = (np.asarray(line.get_xdata()) for line in curves)
    assert len(first) == len(second) == 2, "a band of few nodes is no part of a curve"
    assert (np.abs(first - second) > 0.05).all()
    assert curves[0].get_zorder() > curves[1].get_zorder(), "the first stands in front"
    labels = [text.get_text() for text in axes.get_xticklabels()]
    assert labels == ["1\n900", "2\n400", f"19–26\n{MIN_BAND_NODES - 1}"]
    hollow = [line for line in axes.lines if list(line.get_ydata()) == [0.0]]
    assert len(hollow) == 2
    assert f"hollow: fewer than {MIN_BAND_NODES} nodes" in axes.get_xlabel()
