"""Learning curves of a report."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest
from support.runs.reports import write_run

from kmip_data.builds.home import Home
from kmip_data.drawing.style import new_figure
from kmip_data.models.reports.plots import (
    ModelColors,
    draw_learning_curves,
    legend_names,
    mean_over_seeds,
    row_colors,
)
from kmip_data.models.reports.result_tables import read_finished_runs, tables_of_runs
from kmip_data.models.reports.sheets import report_page
from kmip_data.models.sweeps.runs_by_name import select_runs


def tables(home: Path):
    return tables_of_runs(read_finished_runs(select_runs((), Home(home)))[0])[0]


def curve(folder: Path, *rows: str) -> None:
    (folder / "metrics.csv").write_text("\n".join(["epoch,seconds,val_accuracy", *rows]) + "\n")


def drawn(table, colors=None):
    figure = new_figure(6, 4)
    draw_learning_curves(figure, table, ModelColors() if colors is None else colors)
    figure.draw_without_rendering()
    return figure.axes[0]


def test_a_curve_is_the_mean_of_its_seeds_in_a_band_of_their_deviation(tmp_path):
    for seed in range(3):
        rows = (f"{epoch},1,{0.3 + seed / 80 + epoch / 20}" for epoch in range(8))
        curve(write_run(tmp_path, 0.5, seed=seed), *rows)
    (table,) = tables(tmp_path)
    epochs, means, spread = mean_over_seeds(table.runs[0], "val_accuracy", 100)
    assert epochs == [*range(1, 9)]
    assert means[0] == pytest.approx(100 * (0.3 + 1 / 80))
    assert spread[0] == pytest.approx(100 * statistics.stdev([0, 1 / 80, 2 / 80]))
    axes = drawn(table)
    assert len(axes.lines) == len(axes.collections) == 1
    colors = ModelColors()
    assert len({colors[f"model {number}"] for number in range(9)}) == 9


def test_one_epoch_is_a_point(tmp_path):
    curve(write_run(tmp_path, 0.5), "0,40,0.1")
    (table,) = tables(tmp_path)
    axes = drawn(table)
    assert [axes.get_xlim(), [*axes.get_xticks()]] == [(0, 2), [1]]
    assert axes.lines[0].get_marker() == "o"


def test_row_names_omit_shared_settings(tmp_path):
    write_run(tmp_path, 0.5, changes=["training.epochs=20", "model.attention.k=5"])
    write_run(tmp_path, 0.5, changes=["training.epochs=20"])
    (table,) = tables(tmp_path)
    assert sorted(legend_names(table)) == ["gps-kmip", "gps-kmip, k=5"]


def test_rows_are_in_the_order_of_their_numbers(tmp_path):
    for k in (100, 20, 3):
        write_run(tmp_path, 0.5, changes=[f"model.attention.k={k}"])
    (table,) = tables(tmp_path)
    assert legend_names(table) == ["gps-kmip, k=3", "gps-kmip, k=20", "gps-kmip, k=100"]


def test_a_model_has_one_colour_in_all_tables(tmp_path):
    """Whatever other models a table has: the dot of its row, and the line of each plot."""
    write_run(tmp_path, 0.5, dataset="cora", model="gcn", changes=["training.epochs=5"])
    write_run(tmp_path, 0.5, dataset="cora", model="gat")
    for model, changes in (
        ("gat", []),
        ("gps-kmip", []),
        ("gat", ["training.epochs=5"]),
        ("gcn", []),
    ):
        write_run(tmp_path, 0.5, dataset="citeseer", model=model, changes=changes)
    found = tables(tmp_path)
    page = report_page(found, tmp_path, [])
    colors = ModelColors()
    shown = set()
    for table in found:
        lines = drawn(table, colors).lines
        for row, color, line in zip(table.rows, row_colors(table, colors), lines, strict=True):
            assert f"light-dark({line.get_color()}, " in color
            assert f'<i style="background: {color}"></i>{row["model"]}' in page
            shown.add((row["model"], color))
    assert len(shown) == len({color for _, color in shown}) == 4, "gat has two rows in one table"
