"""Plots of a report: hours, with the paper's results where they belong."""

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
    draw_over_hours,
    legend_names,
    mean_curve_over_hours,
    mean_over_seeds,
    paper_results_with_hours,
    plots_of_table,
    row_colors,
)
from kmip_data.models.reports.result_tables import read_finished_runs, tables_of_runs
from kmip_data.models.reports.sheets import report_page
from kmip_data.models.sweeps.runs_by_name import select_runs


def tables(home: Path):
    return tables_of_runs(read_finished_runs(select_runs((), Home(home)))[0])[0]


def test_the_papers_hours_equal_its_table():
    by_model = {
        model: (result.hours, result.mean, result.std)
        for model, result in paper_results_with_hours("paris", "accuracy").items()
    }
    assert by_model["gps-kmip"] == (3.09, 53.62, 0.22)
    assert by_model["gps-bigbird"] == (11.50, 53.53, 0.37)
    assert by_model["gcn"] == (0.051, 52.93, 0.06)
    assert "gps-transformer" not in by_model  # ran out of memory
    assert (
        paper_results_with_hours("paris", "f1")
        == paper_results_with_hours("my-data", "accuracy")
        == {}
    )


def curve(folder: Path, *rows: str) -> None:
    (folder / "metrics.csv").write_text("\n".join(["epoch,seconds,val_accuracy", *rows]) + "\n")


def test_hours_add_up_over_epochs_and_are_means_over_seeds(tmp_path):
    curve(write_run(tmp_path, 0.5, seed=0), "0,1800,0.1", "1,1800,", "2,3600,0.3")
    curve(write_run(tmp_path, 0.5, seed=1), "0,3600,0.2", "1,3600,0.9", "2,3600,0.5")
    (table,) = tables(tmp_path)
    hours, values = mean_curve_over_hours(table.runs[0], "val_accuracy")
    assert hours == pytest.approx([0.75, 2.5])
    assert values == pytest.approx([0.15, 0.4])
    for strange in ("0,-1,0.1", "0,,0.1", "0,1e200,0.1", "x"):
        curve(table.runs[0][0].folder, strange)
        assert mean_curve_over_hours(table.runs[0], "val_accuracy").shape == (2, 0)


def drawn(draw, table, colors=None):
    figure = new_figure(6, 4)
    draw(figure, table, ModelColors() if colors is None else colors)
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
    axes = drawn(draw_learning_curves, table)
    assert len(axes.lines) == len(axes.collections) == 1
    colors = ModelColors()
    assert len({colors[f"model {number}"] for number in range(9)}) == 9


def test_one_epoch_and_short_runs_have_axes_that_can_be_read(tmp_path):
    for number, seconds in enumerate((0.004, 0.15, 1.4, 40, 5000, 1e6)):
        home = tmp_path / str(number)
        run = write_run(home, 0.5, hours=seconds / 3600)
        curve(run, f"0,{seconds},0.1")
        (table,) = tables(home)
        epochs = drawn(draw_learning_curves, table)
        assert [epochs.get_xlim(), [*epochs.get_xticks()]] == [(0, 2), [1]]
        axis = drawn(draw_over_hours, table).xaxis
        assert axis.axes.lines[0].get_marker() == "_", "a line of one point would not be seen"
        labels = [label.get_text() for label in axis.get_ticklabels()]
        assert len(labels) > 1, seconds
        assert all(float(label.replace(",", "")) > 0 for label in labels), labels


def test_no_curve_is_cut_off(tmp_path):
    run = write_run(tmp_path, 0.5, hours=0.01)
    curve(run, "0,9,0.01", "1,9,0.99", "2,9,0.6")
    (table,) = tables(tmp_path)
    axes = drawn(draw_over_hours, table)
    (low, high), (start, end) = axes.get_ylim(), axes.get_xlim()
    assert low <= 1 < 99 <= high
    assert start <= 9 < 27 <= end, "in seconds"


def test_the_paper_is_drawn_only_with_complete_data(tmp_path):
    for complete in (True, False):
        home = tmp_path / str(complete)
        write_run(home, 0.53, dataset="paris", complete=complete)
        write_run(home, 0.52, dataset="paris", model="gcn", complete=complete)
        (table,) = tables(home)
        curves, hours = plots_of_table(table, ModelColors())
        assert "paris: accuracy over epochs</text>" in curves
        assert "over training time" in hours
        assert ("gps-bigbird</text>" in hours) == complete
        assert ("the paper's test, at the end; one 40 GB A100</text>" in hours) == complete
        assert "gps-bigbird" not in curves


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


def test_the_test_result_stands_at_the_epoch_of_its_weights(tmp_path):
    for seed in (0, 1):
        run = write_run(tmp_path, 0.5, seed=seed, hours=4 / 3600, best_epoch=1)
        curve(run, *(f"{epoch},{1 + seed},0.4" for epoch in range(4)))
    (table,) = tables(tmp_path)
    (dot,) = (line for line in drawn(draw_over_hours, table).lines if line.get_marker() == "o")
    assert dot.get_xdata() == [3], "after two epochs of 1 s, or 2 s"
    curve(run, "0,,0.1")
    (dot,) = (line for line in drawn(draw_over_hours, table).lines if line.get_marker() == "o")
    assert dot.get_xdata() == [3], "2 s, and the 4 s of the other run whose epochs are not known"


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
        lines = drawn(draw_learning_curves, table, colors).lines
        for row, color, line in zip(table.rows, row_colors(table, colors), lines, strict=True):
            assert f"light-dark({line.get_color()}, " in color
            assert f'<i style="background: {color}"></i>{row["model"]}' in page
            shown.add((row["model"], color))
    assert len(shown) == len({color for _, color in shown}) == 4, "gat has two rows in one table"
