"""``kmip-data analyze influence-of-k``: the metric and the seconds of an epoch over k, beside the paper's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kmip_data.cli.analyses.shared import finish, save_option, save_paths
from kmip_data.cli.shared.command import Command
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
@click.argument("names", metavar="[SWEEP|RUN…]", nargs=-1)
@save_option
@home_option
@json_option
def command(names: tuple[str, ...], save: str | None, home: Home, as_json: bool) -> None:
    """Metric and seconds of an epoch over k, beside the paper's.

    Of the finished runs of sweeps or of RUN…, or all of the home, those that differ in k and the seed alone
    make a curve: mean ± standard deviation over seeds for each k.
    """
    from kmip_data.models.analysis.drawing import draw_panels
    from kmip_data.models.reports.over_k import beside, curves_over_k, published_over_k
    from kmip_data.models.reports.runs import read_runs
    from kmip_data.models.reports.tables import tables_of

    saved = save_paths("influence-of-k", save)
    runs, notes = read_runs(names, home)
    tables, others = tables_of(runs)
    notes += others
    rows, shown, panels = [], [], []
    for each in tables:
        first, found = each.rows[0], curves_over_k(each)
        found = {name: of for name, of in found.items() if len(of) > 1}
        if not found:
            continue
        share = "" if first["share"] in {"", "all"} else f" ({first['share']})"
        paper = {} if share else published_over_k(first["dataset"], first["metric"])
        curves = {f"{first['dataset']}{share}, {name}": of for name, of in found.items()}
        rows += [row for of in curves.values() for row in beside(of, paper)]
        shown += [_shown(name, row) for name, of in curves.items() for row in beside(of, paper)]
        devices = ", ".join(dict.fromkeys(row["device"] for of in curves.values() for row in of.values()))
        if paper:
            curves["the paper's"] = paper
            devices += f"; the paper's on {next(iter(paper.values()))['device']}"
        notes.append(f"{first['dataset']}: seconds of a training epoch on {devices}")
        panels += _panels(curves, first["metric"])
    if not rows:
        raise UsageError(
            "No finished runs differ in k alone.",
            expected="runs of k-MIP attention with several k",
            found="; ".join(notes) or f"{len(runs)} runs",
            next="kmip-data train --dataset helsinki --attention-k 5, and the same with another k",
        )
    draw_panels(panels, saved[0], title="Influence of k")
    finish("influence-of-k", rows, shown, notes=notes, saved=saved, as_json=as_json)


def _shown(name: str, row: dict[str, Any]) -> dict[str, object]:
    from kmip_data.models.reports.over_k import AMONG
    from kmip_data.models.training.run.result import title_of, value_text

    cells: dict[str, object] = {
        "runs of": name,
        "metric": title_of(row["metric"]),
        "k": row["k"],
        "n": row["runs"],
    }
    for who, words in {"": ("test", "s/epoch"), "paper_": ("the paper's", "its s/epoch")}.items():
        runs, test, off, seconds, spread = (row.get(f"{who}{of}") for of in ("runs", *AMONG))
        if test is None or runs is None:
            return cells | dict.fromkeys(words)
        cells[words[0]] = value_text(row["metric"], test, off if runs > 1 else None)
        cells[words[1]] = f"{seconds:.4g}" + (f" ± {spread:.2g}" if runs > 1 else "")
    return cells


def _panels(curves: dict[str, dict[int, Any]], metric: str) -> list[Any]:
    """The metric and the seconds over k, and one over the other with the frontier that nothing beats."""
    from kmip_data.models.analysis.drawing import Line, Panel
    from kmip_data.models.reports.over_k import frontier
    from kmip_data.models.training.objective.metrics import METRICS
    from kmip_data.models.training.run.result import title_of

    scale, title = 100 if METRICS[metric].percent else 1, f"test {title_of(metric)}"
    over_k: dict[str, dict[str, Line]] = {"test": {}, "seconds": {}}
    trade: dict[str, Line] = {}
    for name, of in curves.items():
        for what, lines in over_k.items():
            by = scale if what == "test" else 1
            y, spread = ([by * row[key] for row in of.values()] for key in (what, f"{what}_std"))
            lines[name] = Line([*of], y, spread, "s--" if name == "the paper's" else "o-")
        rows = frontier([*of.values()], higher=METRICS[metric].better == "higher")
        trade[f"{name}: frontier"] = Line(
            [row["seconds"] for row in rows], [scale * row["test"] for row in rows]
        )
        trade[name] = Line(
            over_k["seconds"][name].y, over_k["test"][name].y, over_k["test"][name].spread, "o"
        )
    seconds = "seconds of a training epoch"
    return [
        Panel("k", title, over_k["test"], ("log", "linear")),
        Panel("k", seconds, over_k["seconds"], ("log", "log")),
        Panel(seconds, title, trade, ("log", "linear")),
    ]
