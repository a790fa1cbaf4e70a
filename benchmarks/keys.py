"""The paper's experiments on the number of keys k: approximation, cumulative weight, and influence.

``python -m benchmarks.keys approximation RUN`` and ``cumulative-weight RUN`` measure the queries, keys
and values of a trained run, or normal ones; ``influence PLAN`` compares finished runs of several k.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.methods import random_inputs
from kmip_data.builds.home import Home
from kmip_data.cli.shared.options import combined_options, parse_distinct_numbers
from kmip_data.cli.shared.output import format_table
from kmip_data.drawing.style import in_current_style, new_figure
from kmip_data.errors import KmipDataError, UsageError
from kmip_data.models import kmip_attention
from kmip_data.models.analysis.projections import Projections, collect_projections
from kmip_data.models.reports.plots import label_plain_ticks
from kmip_data.models.reports.result_tables import Table, read_finished_runs, tables_of_runs
from kmip_data.models.sweeps.runs_by_name import select_runs
from kmip_data.models.training.config.presets import read_influence_of_k
from kmip_data.models.training.metric_text import format_metric
from kmip_data.models.training.metrics import all_metrics
from kmip_data.models.training.run.finished_run import open_run
from kmip_data.saving.image_files import save_figure

MAX_GRAPHS = 50  #: measured graphs of the test part
BLOCK = 256  #: queries whose scores are sorted at a time
Curves = dict[str, NDArray[np.float64]]  #: name -> a value, or mean and deviation, for each k
Row = dict[str, Any]


@click.group()
def main() -> None:
    """Measure how k-MIP attention depends on k."""


picture_option = click.option(
    "--save", type=click.Path(path_type=Path, dir_okay=False), help="Draw FILE.png, .svg or .pdf."
)
measurement_options = combined_options(
    click.argument("run", required=False),
    click.option("--gaussian", type=int, nargs=2, metavar="N D", help="Normal data, without RUN."),
    click.option(
        "--nodes", type=int, nargs=2, default=(1, 5000), show_default=True, metavar="A B",
        help="Graphs of A to B nodes; time grows quadratically with nodes.",
    ),
    click.option("--k", "ks", metavar="LIST", help="Values of k.  [default: the paper's 43, up to n]"),
    picture_option,
)  # fmt: skip


@main.command()
@measurement_options
def approximation(**options: Any) -> None:
    """Measure the distance between k-MIP and full attention, for each k."""
    _measure(approximation_curves, "mean L2 distance to full attention", **options)


@main.command()
@measurement_options
def cumulative_weight(**options: Any) -> None:
    """Measure the fraction of attention weight on the k best keys."""
    _measure(weight_curves, "cumulative attention weight", **options)


def approximation_curves(projections: Projections, ks: Sequence[int]) -> Curves:
    """Return the mean distance of k-MIP attention, and of normal rows, from full attention."""
    full = scaled_dot_product_attention(*projections)
    normal = random_inputs(*projections[2].shape[1::-1], full.shape[2], seed=1)[0]
    outputs = [kmip_attention(*projections, k) for k in ks]
    distances = [float((output - full).norm(dim=-1).mean()) for output in (*outputs, normal)]
    return {"k-MIP": np.array(distances[:-1]), "normal outputs": np.full(len(ks), distances[-1])}


def weight_curves(projections: Projections, ks: Sequence[int]) -> Curves:
    """Return the weight on the k best keys, of the projections and of normal data of their size."""
    heads, n, d = projections[0].shape
    normal = random_inputs(n, heads, d, seed=1)
    weights = [weight_on_best(queries, keys, ks) for queries, keys, _ in (projections, normal)]
    return dict(zip(("k-MIP", "Gaussian"), weights, strict=True))


def weight_on_best(queries: Tensor, keys: Tensor, ks: Sequence[int]) -> NDArray[np.float64]:
    """Return the sum of the k largest softmax weights, averaged over queries and heads.

    As in the published code, scores are scaled by 1/√d and queries are averaged; the formula in the
    paper's text does neither.
    """
    last = torch.tensor(ks).clamp_max(keys.shape[1]) - 1
    sums = []
    for rows in queries.double().split(BLOCK, dim=1):
        scores = rows @ keys.double().mT / math.sqrt(queries.shape[2])
        weights = scores.softmax(-1).sort(dim=-1, descending=True).values
        sums.append(weights.cumsum(-1)[..., last])
    return torch.cat(sums, dim=1).mean((0, 1)).numpy()


def paper_ks(largest: int) -> list[int]:
    """Return the paper's values of k: powers of 1.2, rounded, and ``largest``."""
    powers = [round(1.2**exponent) for exponent in range(1 + int(math.log(largest, 1.2)))]
    return [*dict.fromkeys(k for k in powers if k < largest), largest]


@torch.inference_mode()
def _measure(
    curves_of: Callable[[Projections, Sequence[int]], Curves],
    label: str,
    run: str | None,
    gaussian: tuple[int, int] | None,
    nodes: tuple[int, int],
    ks: str | None,
    save: Path | None,
) -> None:
    """Measure curves over k, print their means over graphs, and draw them."""
    if (run is None) == (gaussian is None):
        raise UsageError("Give either RUN or --gaussian.", steps="give --gaussian 2500 16")
    if run is not None:
        source = run
        graphs = run_projections(run, *nodes)
    else:
        n, d = gaussian
        source = f"Gaussian queries, keys and values, n = {n:,}, d = {d}"
        graphs = [[random_inputs(n, 1, d)]]
    chosen = paper_ks(max(layers[0][0].shape[1] for layers in graphs))
    if ks is not None:
        chosen = sorted(parse_distinct_numbers("--k", ks))

    # Average over layers first: layers of one graph are not independent samples.
    by_graph = []
    for layers in graphs:
        curves = [curves_of(projections, chosen) for projections in layers]
        by_graph.append(np.mean([[*values.values()] for values in curves], axis=0))
    names = list(curves[0])
    summary = np.stack([np.mean(by_graph, axis=0), np.std(by_graph, axis=0)], axis=-1)

    cells = []
    for index, k in enumerate(chosen):
        cells.append([k, *(f"{mean:.4f} ± {std:.4f}" for mean, std in summary[:, index])])
    click.echo(format_table(["k", *names], cells))
    click.echo(f"{source}; graphs: {len(graphs)}, layers of each: {len(graphs[0])}")
    if save is not None:
        draw_curves(dict(zip(names, summary, strict=True)), chosen, label, source, save)


def run_projections(run: str, least: int, most: int) -> list[list[Projections]]:
    """Return the projections of a run on graphs of its test part, by graph and layer.

    The first layer, whose input has many equal rows, is left out unless it is the only one.
    """
    opened = open_run(run, home=Home.locate())
    data = opened.data
    graphs = 0
    with (
        opened.load_for_inference("measuring attention") as module,
        collect_projections(module.model) as collected,
    ):
        for position in range(1 if data.part_members == "nodes" else data.sizes["test"]):
            batch = data.record_batch("test", position)
            if least <= batch.num_nodes <= most and graphs < MAX_GRAPHS:
                module.model(batch.to(opened.device.type))
                graphs += 1

    layers = list(collected.values())
    if not layers or not graphs:
        raise UsageError(
            f"{run} has {len(layers)} layers of k-MIP attention, and {graphs} of its test graphs have "
            f"{least:,} to {most:,} nodes.",
            steps="use a run of gps-kmip, or other --nodes",
        )
    by_graph = zip(*layers[min(1, len(layers) - 1) :], strict=True)
    return [[tuple(rows.float() for rows in layer) for layer in graph] for graph in by_graph]


@in_current_style()
def draw_curves(curves: Curves, ks: Sequence[int], label: str, source: str, path: Path) -> None:
    """Draw the mean of each curve over k, and its standard deviation over graphs as a band."""
    figure = new_figure(8, 5, title=source)
    axes = figure.subplots()
    for name, curve in curves.items():
        mean, std = curve.T
        axes.plot(ks, mean, label=name)
        axes.fill_between(ks, mean - std, mean + std, alpha=0.15, linewidth=0)
    axes.set(xscale="log", xlabel="k", ylabel=label)
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.grid()
    axes.legend()
    save_figure(figure, path)


@main.command()
@click.argument("names", metavar="[PLAN|RUN]...", nargs=-1)
@picture_option
def influence(names: tuple[str, ...], save: Path | None) -> None:
    """Compare runs that differ only in k and seed with each other and with the paper's.

    Shows the metric on test and the seconds of a training epoch, by default of all runs in the home.
    """
    runs, notes = read_finished_runs(select_runs(names, Home.locate()))
    tables = [rows for table in tables_of_runs(runs)[0] if (rows := rows_over_k(table))]
    if not tables:
        raise UsageError(
            f"None of {len(runs)} finished runs differ only in k. {' '.join(notes)}",
            steps="kmip-data sweep --dataset NAME --model gps-kmip --set model.attention.k=2,5,10",
        )
    for rows in tables:
        cells = []
        for row in rows:
            test = format_metric(row["metric"], row["test"], row["test_std"])
            cells.append([row["curve"], row["k"], row["runs"], test, f"{row['seconds']:.3g}"])
        click.echo(format_table([rows[0]["dataset"], "k", "runs", "test", "s/epoch"], cells))
    for note in notes:
        click.echo(note)
    if save is not None:
        draw_frontiers(tables, save)


def rows_over_k(table: Table) -> list[Row]:
    """Return the rows of a table that differ only in k, by curve, then the paper's on complete data."""
    curves: dict[str, list[Row]] = {}
    for row, runs in zip(table.rows, table.runs, strict=True):
        k = getattr(runs[0].config.model.attention, "k", None)
        if isinstance(k, int):  # otherwise no k, or one per layer
            changes = [
                each for each in runs[0].changes if not each.startswith("model.attention.k=")
            ]
            curve = ", ".join([row["model"], row["variant"], row["device"], *changes])
            seconds = statistics.fmean(run.result.seconds.train_epoch for run in runs)
            curves.setdefault(curve, []).append({**row, "curve": curve, "k": k, "seconds": seconds})
    ours = []
    for rows in curves.values():
        if len(rows) > 1:
            ours += sorted(rows, key=itemgetter("k"))
    if not ours or ours[0]["share"] not in {"", "all"}:
        return ours

    paper = read_influence_of_k()
    shared = {"curve": f"the paper, {paper['hardware']}", "runs": paper["runs"]}
    theirs = []
    for row in paper["row"]:
        if (row["dataset"], row["metric"]) == (ours[0]["dataset"], ours[0]["metric"]):
            # All metrics of the experiment are in percent.
            fractions = {name: row[name] / 100 for name in ("test", "test_std")}
            theirs.append({**row, **fractions, **shared})
    return [*ours, *theirs]


@in_current_style()
def draw_frontiers(tables: Sequence[Sequence[Row]], path: Path) -> None:
    """Draw the metric over seconds of an epoch for each dataset, with the Pareto frontiers of k."""
    figure = new_figure(7 * len(tables), 5, title="Pareto frontier of k (numbers at points)")
    for axes, rows in zip(figure.subplots(1, len(tables), squeeze=False)[0], tables, strict=True):
        metric = rows[0]["metric"]
        sign = 1 if all_metrics()[metric].higher_is_better else -1
        for curve, group in groupby(rows, key=itemgetter("curve")):
            ks, *columns = zip(
                *map(itemgetter("k", "seconds", "test", "test_std"), group), strict=True
            )
            seconds, test, spread = np.array(columns, float)  # a single run has no deviation: NaN
            points = axes.errorbar(seconds, test, spread, fmt="o", capsize=2, label=curve)
            # A staircase: between two points, only the cheaper one's value is reached.
            best = pareto_frontier(seconds, sign * test)
            axes.step(seconds[best], test[best], where="post", color=points[0].get_color())
            for k, *point in zip(ks, seconds, test, strict=True):
                axes.annotate(k, point, fontsize="small")
        axes.set(xscale="log", xlabel="seconds of a training epoch", title=rows[0]["dataset"])
        axes.set_ylabel(f"{metric} on test")
        label_plain_ticks(axes.xaxis)
        axes.grid()
        axes.legend()
    save_figure(figure, path)


def pareto_frontier(seconds: NDArray[np.float64], score: NDArray[np.float64]) -> list[int]:
    """Return the indices of the points that no other beats in both, the fastest first."""
    best = -math.inf
    frontier = []
    # Of equally fast points, the better is first.
    for index in np.lexsort((-score, seconds)).tolist():
        if score[index] > best:
            best = score[index]
            frontier.append(index)
    return frontier


if __name__ == "__main__":
    try:
        main()
    except KmipDataError as error:
        raise SystemExit(f"Error: {error}") from None
