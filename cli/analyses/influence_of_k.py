"""``kmip-data analyze influence-of-k``: the metric and the seconds of an epoch over k, beside the paper's."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import click

from kmip_data.cli.analyses.shared import finish, save_option, save_paths
from kmip_data.cli.shared.command import Command
from kmip_data.cli.shared.names import SWEEP_OR_RUN
from kmip_data.cli.shared.options import home_option, json_option
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
    """Metric and seconds of an epoch over k, beside the paper's.

    Of the finished runs of sweeps or of RUN…, or all of the home, those that differ in k and the seed alone
    make a curve: mean ± standard deviation over seeds for each k.
    """
    from kmip_data.models.analysis.drawing import Panel
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
    columns = {
        "runs of": "curve", "k": "k", "n": "runs", "test": partial(_pair, "test"),
        "s/epoch": partial(_pair, "seconds"), "the paper's": partial(_pair, "paper_test"),
        "its s/epoch": partial(_pair, "paper_seconds"),
    }  # fmt: skip
    finish(
        "influence-of-k", rows, columns, panels=panels, title="Influence of k", notes=notes, saved=saved,
        as_json=as_json,
    )  # fmt: skip


def _pair(of: str, row: dict[str, Any]) -> str | None:
    """A mean with its deviation, or nothing."""
    from kmip_data.models.training.run.result import value_text

    mean, runs = row[of], row["paper_runs" if of.startswith("paper") else "runs"]
    std = row[f"{of}_std"] if runs and runs > 1 else None
    return None if mean is None else value_text(row["metric"] if of.endswith("test") else "", mean, std)
