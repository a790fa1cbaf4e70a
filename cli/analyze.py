"""``kmip-data analyze``: curves over k of k-MIP attention, as in the paper.

``approximation`` and ``cumulative-weight`` measure queries, keys and values, of a trained run or drawn
at random. ``influence-of-k`` collects the metric and training time of finished runs.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kmip_data.cli.shared.command_classes import Command, Group
from kmip_data.cli.shared.options import (
    combined_options,
    force_option,
    home_option,
    json_option,
    long_running_options,
    number_option,
    parse_distinct_numbers,
    plugin_option,
)
from kmip_data.cli.shared.output import (
    Json,
    default_output_path,
    format_table,
    picture_and_csv_paths,
    print_result,
    rows_as_csv,
)
from kmip_data.cli.shared.targets import RUN, SWEEP_OR_RUN
from kmip_data.errors import UsageError
from kmip_data.format.card import coverage_suffix
from kmip_data.text import count_with_noun

if TYPE_CHECKING:
    from kmip_data.builds.home import Home
    from kmip_data.models.analysis.study import CurveFunction

MAX_GRAPHS = 50  #: graphs of the test part that are measured

SAVE_HELP = "Write PREFIX.png (or .svg, .pdf) and PREFIX.csv."


def _parse_two_integers(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> tuple[int, int] | None:
    """Parse two integers in the form of the option's metavar, such as ``2500x16`` or ``1..9``."""
    if value is None:
        return None
    form = str(param.metavar)
    # At most nine digits: no dataset has more nodes.
    integer = r"0*([1-9]\d{0,8})"
    match = re.fullmatch(integer + re.escape(form[1:-1]) + integer, value)
    if match is None:
        raise click.BadParameter(f"{value!r} is not {form} of numbers above 0", ctx, param)
    return int(match[1]), int(match[2])


#: Options of the commands that measure attention: queries and keys, values of k, and the output.
measurement_options = combined_options(
    click.argument("run", required=False, type=RUN),
    click.option(
        "--gaussian", callback=_parse_two_integers, metavar="NxD",
        help="Instead of RUN: standard normal queries, keys and values, such as 2500x16.",
    ),
    click.option(
        "--nodes", callback=_parse_two_integers, default="1..5000", show_default=True, metavar="A..B",
        help="Only graphs with A to B nodes; time grows quadratically with nodes.",
    ),
    number_option("--queries", "Number of query nodes per graph, chosen at random.  [default: all]"),
    click.option(
        "--k", "ks", metavar="LIST",
        help="Values of k, such as 1,10,100.  [default: the paper's 43 values, up to n]",
    ),
    click.option(
        "--save", metavar="PREFIX",
        help=f"{SAVE_HELP}  [default: the command's name, in the folder of RUN]",
    ),
    force_option,
    plugin_option,
    long_running_options,
)  # fmt: skip


@click.group(cls=Group)
def command() -> None:
    """Measure how k-MIP attention depends on k."""


@command.command("approximation", cls=Command)
@measurement_options
def measure_distance_to_full_attention(**options: Any) -> None:
    """Measure the distance between k-MIP and full attention, for each k.

    Prints the mean Euclidean distance between their outputs. Queries, keys and values are taken
    from RUN, in every layer but the first, or drawn from a normal distribution. For comparison it prints
    the distance of standard normal outputs from full attention.
    """
    from kmip_data.models.analysis.study import approximation_curves

    _measure_attention("approximation", approximation_curves, options)


@command.command("cumulative-weight", cls=Command)
@measurement_options
def measure_weight_on_best_keys(**options: Any) -> None:
    """Measure the fraction of attention weight on the k best keys.

    Prints the sum of the k largest softmax weights, averaged over nodes and heads. Queries and keys
    are taken from RUN, in every layer but the first, or drawn from a normal distribution.
    """
    from kmip_data.models.analysis.study import cumulative_weight_curves

    _measure_attention("cumulative-weight", cumulative_weight_curves, options)


def _measure_attention(name: str, measure: CurveFunction, options: Json) -> None:
    """Apply ``measure`` to queries, keys and values, save its curves over k, and print their means."""
    from kmip_data.files.atomic_writes import write_output
    from kmip_data.models.analysis.drawing import draw_curves_over_k
    from kmip_data.models.analysis.study import (
        collect_run_projections,
        gaussian_projections,
        measure_curves,
    )

    # Check the options before the work.
    saved = _paths_to_save(
        name, options["save"], options["run"], options["home"], force=options["force"]
    )
    ks = None
    if options["ks"] is not None:
        ks = sorted(parse_distinct_numbers("--k", options["ks"]))
    run = options["run"]
    gaussian = options["gaussian"]
    if bool(run) == bool(gaussian):
        message = "Neither RUN nor --gaussian is given."
        if run:
            message = "Both RUN and --gaussian are given."
        raise UsageError(
            message,
            next=f"kmip-data analyze {name} {shlex.quote(run or 'RUN')}; "
            f"or kmip-data analyze {name} --gaussian {'x'.join(map(str, gaussian or (2500, 16)))}",
        )
    if gaussian:
        projections = gaussian_projections(*gaussian)
    else:
        projections = collect_run_projections(
            run, graphs=MAX_GRAPHS, sizes=options["nodes"], home=options["home"]
        )
    measured = measure_curves(
        projections, measure, ks=ks, queries=options["queries"], quiet=options["quiet"]
    )

    source = _describe_measured_data(projections.origin)
    if saved:
        picture, csv_file = saved
        write_output(csv_file, measured.to_csv())
        draw_curves_over_k(measured, picture, name=name, subtitle=source)

    # Every layer is measured on every graph.
    layers = len({layer for layer, *_ in measured.samples})
    graphs = len(measured.samples) // layers
    samples = f"{count_with_noun(layers, 'layer')} of {count_with_noun(graphs, 'graph')}"
    if len(projections.layers) > layers:
        samples += ", the first layer left out"
    curves = {}
    header = ["k"]
    columns = []
    for curve in measured.curves:
        mean, std = measured.summary(curve)
        curves[curve] = {"mean": mean, "std": std}
        header.append(curve)
        columns.append(mean)
        if graphs > 1:
            header.append("±")
            columns.append(std)

    rows = []
    for number, k in enumerate(measured.ks):
        rows.append([k, *(f"{column[number]:.4f}" for column in columns)])
    text = [format_table(header, rows), f"{source}; {samples}", *_saved_files_line(saved)]
    result = {
        "analysis": name,
        "about": dict(projections.origin),
        "k": measured.ks,
        "samples": len(measured.samples),
        "curves": curves,
        "saved": saved or [],
    }
    print_result(result, *text)


def _paths_to_save(
    name: str, save: str | None, run: str | None, home: Home, *, force: bool
) -> tuple[Path, Path] | None:
    """Return the paths of picture and CSV file, or None if there is neither ``save`` nor a run.

    Raises UsageError if one cannot be written, or exists.
    """
    from kmip_data.models.training.run.find_runs import find_run

    if save is not None:
        return picture_and_csv_paths(save, force=force)
    if run is None:
        return None
    folder = find_run(run, home)
    paths = folder / f"{name}.png", folder / f"{name}.csv"
    for path in paths:
        default_output_path(path, force=force)
    return paths


def _saved_files_line(paths: tuple[Path, Path] | None) -> list[str]:
    """Return the output line about saved files, if any."""
    return [f"saved  {paths[0]}  {paths[1]}"] if paths else []


def _describe_measured_data(about: Mapping[str, Any]) -> str:
    if about.get("data") == "Gaussian":
        return f"Gaussian queries, keys and values, n = {about['n']:,}, d = {about['d']}"
    coverage = coverage_suffix(bool(about.get("sample")), about.get("complete"))
    run = "/".join(Path(str(about.get("run"))).parts[-3:])  # DATASET/MODEL/NAME
    return f"{about.get('dataset')}{coverage}, part {about.get('part')}, run {run}"


@command.command("influence-of-k", cls=Command)
@click.argument(
    "names",
    metavar="[SWEEP|RUN…]",
    nargs=-1,
    type=SWEEP_OR_RUN,
)
@click.option("--save", metavar="PREFIX", help=SAVE_HELP)
@force_option
@plugin_option
@home_option
@json_option
def compare_runs_over_k(
    names: tuple[str, ...],
    save: str | None,
    force: bool,
    home: Home,
) -> None:
    """Show the metric and the seconds per epoch for each k, next to the paper's.

    Reads the finished runs of the given sweeps, the given runs, or all runs in the home. Runs that
    differ only in k and seed form a curve: mean ± standard deviation over seeds for each k.
    """
    from kmip_data.files.atomic_writes import write_output
    from kmip_data.models.analysis.drawing import draw_results_over_k
    from kmip_data.models.reports.result_tables import (
        read_finished_runs,
        rows_over_k,
        tables_of_runs,
    )
    from kmip_data.models.sweeps.runs_by_name import select_runs

    saved = _paths_to_save("influence-of-k", save, None, home, force=force)
    runs, notes = read_finished_runs(select_runs(names, home))
    tables, left_out = tables_of_runs(runs)
    curves = []
    rows = []
    for ours, paper in map(rows_over_k, tables):
        if ours:
            curves.append((ours, paper))
            rows += ours
    if not rows:
        raise UsageError(
            "No finished runs differ only in k.",
            expected="runs of k-MIP attention with several k",
            found="; ".join(notes) or f"{len(runs)} runs",
            next="kmip-data sweep --dataset NAME --model gps-kmip --set model.attention.k=2,5,10",
        )
    devices = ", ".join(dict.fromkeys(row["device"] for row in rows))
    notes += left_out
    notes.append(f"Seconds of a training epoch on {devices}; the paper's on a V100 with 16 GB.")

    if saved:
        picture, csv_file = saved
        write_output(csv_file, rows_as_csv(rows))
        draw_results_over_k(curves, picture)
    header = ["runs of", "k", "n", "test", "s/epoch", "the paper's", "its s/epoch"]
    cells = []
    for row in rows:
        means = [
            _format_mean(row, name) for name in ("test", "seconds", "paper_test", "paper_seconds")
        ]
        cells.append([row["curve"], row["k"], row["runs"], *means])
    text = [format_table(header, cells), *notes, *_saved_files_line(saved)]
    result = {
        "analysis": "influence-of-k",
        "rows": rows,
        "notes": notes,
        "saved": saved or [],
    }
    print_result(result, *text)


def _format_mean(row: Json, name: str) -> str | None:
    """Return a mean of a row, with its standard deviation over several runs."""
    from kmip_data.models.training.metric_text import format_metric

    mean = row[name]
    if mean is None:
        return None
    metric = row["metric"] if name.endswith("test") else ""
    return format_metric(metric, mean, row[f"{name}_std"])
