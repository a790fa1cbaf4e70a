"""``kmip-data report``: results of runs as tables with the paper's figures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kmip_data.cli.shared.commands import Command, Name, home_option, path_option
from kmip_data.cli.shared.output import table
from kmip_data.errors import UsageError
from kmip_data.runtime.progress import say

if TYPE_CHECKING:
    from kmip_data.builds.home import Home

REPORTED = Name("sweep", "run", words=("datasets", "sweep"))
FORMS = ("text", "markdown", "csv", "json", "latex", "html")


@click.command(
    cls=Command,
    examples=[
        "kmip-data report",
        "kmip-data report small-cities --against gps-kmip --format markdown",
        "kmip-data report --format html --output report.html",
        "kmip-data report paper-city paper-points --grid",
        "kmip-data report datasets",
    ],
)
@click.argument("names", metavar="[SWEEP|RUN…|datasets]", nargs=-1, type=REPORTED)
@click.option(
    "--against", metavar="MODEL", help="Compare with this model, seed by seed.  [default: the best]"
)
@click.option("--grid", is_flag=True, help="One table: models by datasets, as in the paper.")
@click.option("--format", "form", type=click.Choice(FORMS), default="text", help="[default: text]")
@path_option("--output", help="Write to FILE, not stdout.")
@home_option
def command(
    names: tuple[str, ...], against: str | None, grid: bool, form: str, output: Path | None, home: Home
) -> None:
    """Tabulate the results of runs with the paper's figures.

    Reads the finished runs of sweeps, those named RUN, or all of the home; `datasets`: the paper's table of
    datasets and the counts of what is built. A row is the seeds of one configuration on the same data: mean ±
    standard deviation, the published figure, and 95 % intervals of the differences.
    """
    from kmip_data.models.sweeps.state import folders_of

    of_datasets = names == ("datasets",)
    folders = [] if of_datasets else folders_of(names, home)  # names are checked before PyTorch is imported
    from kmip_data.files.changes import write_output
    from kmip_data.files.reading import csv_bytes, readable_json
    from kmip_data.models.reports.page import page_of
    from kmip_data.models.reports.sheets import dataset_rows, dataset_sheet, grid_of, sheet_of
    from kmip_data.models.reports.tables import read_runs, tables_of

    runs, notices = read_runs(folders)
    tables, others = tables_of(runs, against) if runs else ([], [])
    notices += others
    if of_datasets:
        rows = dataset_rows(home)
        sheets = [dataset_sheet(rows)]
    else:
        rows, sheets = [row for each in tables for row in each.rows], [sheet_of(each) for each in tables]
    if not rows:
        begun = f"--resume {folders[0]}" if folders else "--dataset helsinki --epochs 20"
        raise UsageError(
            "There is no finished run to report.",
            found="; ".join(notices) or f"none below {home.runs}",
            next=f"kmip-data train {begun}",
        )
    if grid:
        sheets, tables = [grid_of(tables)], []
    for notice in notices:
        say(notice)
    if form == "html":
        text = page_of("kmip-data report", sheets, tables, notices)
    elif form == "json":
        text = readable_json({"rows": rows, "notices": notices})
    elif form == "csv":
        text = csv_bytes([*rows[0]], (row.values() for row in rows)).decode()
    elif form == "text":
        parts = [(each.title, table(each.header, each.cells), each.notes) for each in sheets]
        text = "\n\n".join("\n".join(filter(None, lines)) for lines in parts) + "\n"
    else:
        text = "\n\n".join(each.written(form) for each in sheets) + "\n"
    click.echo(text, nl=False) if output is None else write_output(output, text.encode())
