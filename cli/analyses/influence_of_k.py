"""``kmip-data analyze influence-of-k``: metric and seconds per epoch over k, with the paper's."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from kmip_data.cli.analyses.shared import save_option, save_paths
from kmip_data.cli.shared.command import Command
from kmip_data.cli.shared.names import SWEEP_OR_RUN
from kmip_data.cli.shared.options import home_option, json_option
from kmip_data.cli.shared.output import print_json, table
from kmip_data.errors import UsageError

if TYPE_CHECKING:
    from kmip_data.builds.home import Home


@click.command(
    cls=Command,
    examples=[
        "kmip-data analyze influence-of-k",
        "kmip-data analyze influence-of-k malnet-tiny/gps-kmip/k1 malnet-tiny/gps-kmip/k10",
    ],
)
@click.argument("names", metavar="[SWEEP|RUN…]", nargs=-1, type=SWEEP_OR_RUN)
@save_option
@home_option
@json_option
def command(names: tuple[str, ...], save: str | None, home: Home, as_json: bool) -> None:
    """Metric and seconds per epoch over k, with the paper's.

    Takes the finished runs of sweeps, those named RUN, or all of the home. Runs that differ only in k and the
    seed are a curve: mean ± standard deviation over seeds for each k.
    """
    from kmip_data.files.changes import csv_bytes, write_output
    from kmip_data.models.analysis.drawing import Panel, draw_panels
    from kmip_data.models.reports.listing import folders_of
    from kmip_data.models.reports.over_k import rows_over_k
    from kmip_data.models.reports.runs import read_runs
    from kmip_data.models.reports.tables import tables_of
    from kmip_data.models.training.objective.metrics import METRICS

    saved = save_paths("influence-of-k", save)
    runs, notes = read_runs(folders_of(names, home))
    tables, others = tables_of(runs)
    rows, panels = [], []
    for ours, paper in map(rows_over_k, tables):
        if ours:
            rows += ours
            metric, epoch = METRICS[ours[0]["metric"]], "seconds of a training epoch"
            drawn, test = [*ours, *paper], f"{ours[0]['dataset']}: {metric.title} on test"
            percent = metric.percent
            panels += [
                Panel("k", "test", test, drawn, ("log", "linear"), percent=percent),
                Panel("k", "seconds", epoch, drawn, ("log", "log")),
                Panel("seconds", "test", test, drawn, ("log", "linear"), epoch, percent),
            ]
    if not rows:
        raise UsageError(
            "No finished runs differ in k alone.",
            expected="runs of k-MIP attention with several k",
            found="; ".join(notes) or f"{len(runs)} runs",
            next="kmip-data train --dataset helsinki --set model.attention.k=5, and the same with another k",
        )
    devices = ", ".join(dict.fromkeys(row["device"] for row in rows))
    notes += [*others, f"Seconds of a training epoch on {devices}; the paper's on a V100 with 16 GB."]
    columns: dict[str, Any] = {
        "runs of": "curve", "k": "k", "n": "runs", "test": partial(_pair, "test"),
        "s/epoch": partial(_pair, "seconds"), "the paper's": partial(_pair, "paper_test"),
        "its s/epoch": partial(_pair, "paper_seconds"),
    }  # fmt: skip
    draw_panels(panels, saved[0], title="Influence of k")
    write_output(saved[1], csv_bytes([*rows[0]], (row.values() for row in rows)))
    if as_json:
        print_json({"analysis": "influence-of-k", "rows": rows, "notes": notes, "saved": saved})
        return
    cells = ([of(row) if callable(of) else row[of] for of in columns.values()] for row in rows)
    click.echo(table([*columns], cells))
    click.echo("\n".join([*notes, "saved  " + "  ".join(map(str, saved))]))


def _pair(of: str, row: dict[str, Any]) -> str | None:
    """Return a mean with its deviation, or None."""
    from kmip_data.models.training.run.folder import value_text

    mean, runs = row[of], row["paper_runs" if of.startswith("paper") else "runs"]
    std = row[f"{of}_std"] if runs and runs > 1 else None
    return None if mean is None else value_text(row["metric"] if of.endswith("test") else "", mean, std)
