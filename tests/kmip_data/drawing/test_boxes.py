"""Nothing in a picture is clipped or overlaps, whatever its data: the boxes of texts and panels are measured."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from support.shared import shared_data

from kmip_data.builds.home import Home
from kmip_data.cli.preview import label_distribution
from kmip_data.drawing import pictures
from kmip_data.drawing.layers import Categories
from kmip_data.drawing.maps import city_layers, draw_map
from kmip_data.drawing.pictures import plot_records
from kmip_data.drawing.plottable_record import (
    Labels,
    PlottableRecord,
    read_plottable_record,
)
from kmip_data.pipelines.build import build_dataset
from kmip_data.reading.numpy_records import Records

LONG_NAMES = [f"{'very ' * 14}long {number}" for number in (18, 19)]  # 77 letters


@pytest.fixture
def draw(monkeypatch):
    """Function that calls another, and returns the figure that would be saved."""

    def figure_of(function, *args, **options):
        figures = []
        monkeypatch.setattr(pictures, "save_figure", lambda figure, *_: figures.append(figure))
        function(*args, Path("p.png"), **options)
        figures[0].draw_without_rendering()
        return figures[0]

    return figure_of


def texts_of(axes):
    """Visible texts of a panel or page."""
    texts = [*axes.texts]
    for axis in (axes.xaxis, axes.yaxis) if axes.axison else ():
        low, high = sorted(axis.get_view_interval())
        texts.append(axis.label)
        texts += [tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
    return [text for text in texts if text.get_text()]


def assert_boxes_are_apart(figure):
    """Fail if a text or panel is clipped, or overlaps another or a text of another."""
    (page,) = figure.axes
    renderer = figure._get_renderer()
    words = [(axes, text) for axes in (page, *page.child_axes) for text in texts_of(axes)]
    boxes = [(owner, text, text.get_window_extent(renderer)) for owner, text in words]
    panels = [(panel, panel, panel.get_window_extent(renderer)) for panel in page.child_axes]
    assert len(boxes) >= 3
    for _, item, box in boxes + panels:
        outside = max(-box.x0, -box.y0, box.x1 - figure.bbox.x1, box.y1 - figure.bbox.y1)
        assert outside < 1, item
    for (_, item, box), (_, other, other_box) in combinations(boxes, 2):
        assert not overlap(box, other_box), (item, other)
    for owner, item, box in boxes + panels:
        for panel, _, panel_box in panels:
            assert panel is owner or not overlap(box, panel_box), item


def overlap(one, other):
    """True if two boxes share more than a pixel in both directions."""
    width = min(one.x1, other.x1) - max(one.x0, other.x0)
    height = min(one.y1, other.y1) - max(one.y0, other.y0)
    return width > 1 and height > 1


@pytest.mark.parametrize("stretch", [(9.0, 1.0), (1.0, 9.0)])
def test_maps_of_wide_and_tall_cities_are_apart(draw, city, stretch):
    small = city.position[:100] * stretch
    few = {
        "classes": city.classes[:100],
        "eccentricity": city.eccentricity[:100],
        "splits": {LONG_NAMES[0]: city.splits["random-seed0"][:100]},
        "streets": city.streets[:, :0],
        "bends": {},
        "lengths": city.lengths[:0],
        "class_names": [LONG_NAMES[0]] * 10,
        "places": [*zip([LONG_NAMES[0], *map(str, range(99))], small, strict=True)],
    }
    few = replace(city, position=small, **few)
    layers = [layer for layer in city_layers(few) if isinstance(layer, Categories)]
    figure = draw(draw_map, few, layers)
    assert_boxes_are_apart(figure)
    map_panels = [panel for panel in figure.axes[0].child_axes if panel.collections]
    assert len(map_panels) == len(layers)
    for panel in map_panels:
        longest_side = max(panel.get_window_extent().size) / figure.dpi
        assert longest_side > 3.5, "a map is no stamp"


def test_panels_of_records_are_apart(draw):
    rng = np.random.default_rng(0)
    graph = PlottableRecord(LONG_NAMES[0], rng.random((60, 2)), None, rng.integers(0, 60, (2, 90)))
    cloud = PlottableRecord(
        "cloud",
        rng.random((1_200, 3)) * (8, 3, 2),
        rng.integers(0, 2, 1_200),
        rng.integers(0, 1_200, (2, 3_000)),
        metres=True,
    )
    records = [
        PlottableRecord("one node", np.zeros((1, 2)), None, np.zeros((2, 0), np.int64)),
        replace(graph, y=rng.integers(0, 2, 60)),
        replace(graph, values=rng.normal(size=60), unit="eV"),
        replace(graph, label=LONG_NAMES[0]),
        cloud,
    ]
    records = [replace(record, label_value=np.array([1, 0])) for record in records]
    labels = Labels(tuple(LONG_NAMES), np.array([1_010, 1]), 1_010)
    texts = {"title": LONG_NAMES[0], "footer": LONG_NAMES[0], "class_names": LONG_NAMES}
    assert_boxes_are_apart(draw(plot_records, records, labels=labels, **texts))
    assert_boxes_are_apart(draw(plot_records, records[:1], **texts))


def test_panels_of_a_real_peptide_are_apart(draw, tmp_path):
    folder = shared_data("peptides_func")
    archives = [str(path) for path in folder.iterdir()]
    records = {"limit": 1}
    build = build_dataset(
        "peptides-func",
        archives=archives,
        parameters=records,
        home=Home(tmp_path),
        jobs=1,
        quiet=True,
    )
    dataset = Records(build)
    record = read_plottable_record(dataset, 0)
    labels = label_distribution(dataset)
    figure = draw(plot_records, [record], title="t", footer="f", labels=labels)
    assert_boxes_are_apart(figure)


def test_a_histogram_of_targets_has_all_values_in_equally_wide_bars(draw):
    """Bars at the ends hold what lies beyond."""
    values = np.concatenate([np.linspace(10, 20, 500), [-90] * 3, [90] * 3])
    record = PlottableRecord("a", np.zeros((len(values), 2)), None, np.zeros((2, 0), np.int64))
    decades = np.append(np.logspace(-1, 4, 400), [0, 1e6])
    for ends in (values, values[:503], np.full(4, 7.0), np.full(4, 7.5), decades):
        one = replace(record, pos=record.pos[: len(ends)], values=ends)
        page = draw(plot_records, [one], title="t", footer="f").axes[0]
        histogram = page.child_axes[0]
        assert sum(bar.get_height() for bar in histogram.patches) == len(ends)
        assert len({round(bar.get_width(), 6) for bar in histogram.patches}) == 1
        names = [label.get_text() for label in histogram.get_xticklabels()]
        assert ("≥" in "".join(names)) == bool(np.ptp(ends)), "ends are clipped"
