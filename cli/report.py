"""``kmip-data report``: what runs found, beside the paper."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kmip_data.cli.shared.command import Command
from kmip_data.cli.shared.names import Name
from kmip_data.cli.shared.options import home_option
from kmip_data.cli.shared.output import table
from kmip_data.errors import UsageError
from kmip_data.runtime.progress import say

if TYPE_CHECKING:
    from kmip_data.builds.home import Home
    from kmip_data.models.reports.tables import Table

REPORTED = Name("sweep", "run", words=("datasets", "empty"))
FORMS = ("text", "markdown", "csv", "json", "latex", "html")


@click.command(
    cls=Command,
    examples=[
        "kmip-data report",
        "kmip-data report small-cities --against gps-kmip --format markdown",
        "kmip-data report --format html --output report.html",
        "kmip-data report paper-city paper-points --grid",
        "kmip-data report datasets",
        "kmip-data report empty",
    ],
)
@click.argument("names", metavar="[SWEEP|RUN…|datasets|empty]", nargs=-1, type=REPORTED)
@click.option("--against", metavar="MODEL", help="Compare seed by seed with it.  [default: the best]")
@click.option("--grid", is_flag=True, help="One table: models by datasets, as the paper's are.")
@click.option("--no-step", is_flag=True, help="With `empty`: estimate memory, and run no step.")
@click.option("--format", "form", type=click.Choice(FORMS), default="text", help="[default: text]")
@click.option("--output", metavar="FILE", type=click.Path(path_type=Path), help="Write FILE, not stdout.")
@home_option
def command(
    names: tuple[str, ...],
    against: str | None,
    grid: bool,
    no_step: bool,
    form: str,
    output: Path | None,
    home: Home,
) -> None:
    """What runs found, as tables beside the paper's.

    The finished runs of sweeps or of RUN…, or all of the home; `datasets`: the paper's table of datasets
    beside what is built; `empty`: what its tables leave empty, and whether that fits here. Seeds of one
    configuration on the same data are a row: mean ± standard deviation, the published figure, and 95 %
    intervals of the differences.
    """
    from kmip_data.files.changes import csv_bytes, write_output
    from kmip_data.files.digests import readable_json
    from kmip_data.models.reports.datasets import dataset_facts, dataset_sheet
    from kmip_data.models.reports.empty import empty_facts, empty_sheet
    from kmip_data.models.reports.page import page_of
    from kmip_data.models.reports.runs import read_runs
    from kmip_data.models.reports.sheets import grid_of, sheet_of
    from kmip_data.models.reports.tables import tables_of

    tables: list[Table] = []
    notices: list[str] = []
    if names == ("datasets",):
        rows = dataset_facts(home)
        sheets = [dataset_sheet(rows)]
    elif names == ("empty",):
        rows = empty_facts(home, step=not no_step, tell=say)
        sheets = [empty_sheet(rows)]
    else:
        runs, notices = read_runs(names, home)
        tables, others = tables_of(runs, against)
        notices += others
        rows, sheets = [row for each in tables for row in each.rows], [sheet_of(each) for each in tables]
        if grid and tables:
            sheets, tables = [grid_of(tables)], []
    if not rows:
        raise UsageError(
            "There is no finished run to report.",
            expected="a run with its result",
            found="; ".join(notices) or f"none below {home.runs}",
            next="kmip-data train --dataset helsinki --epochs 20",
        )
    if form == "json":
        text = readable_json({"rows": rows, "notices": notices})
    elif form == "csv":
        text = csv_bytes([*rows[0]], (row.values() for row in rows)).decode()
    elif form == "html":
        text = page_of("kmip-data report", sheets, tables, notices)
    elif form == "text":
        parts = [f"{each.title}\n{table(each.header, each.cells)}\n{each.notes}" for each in sheets]
        text = "\n\n".join(parts).rstrip() + "\n"
    else:
        text = "\n\n".join(each.written(form) for each in sheets) + "\n"
    for notice in notices:
        say(notice)
    click.echo(text, nl=False) if output is None else write_output(output, text.encode())
