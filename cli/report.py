"""``kmip-data report``: results of runs as tables with the paper's figures."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kmip_data.cli.shared.commands import (
    SWEEP_OR_RUN,
    Command,
    home_option,
    path_option,
    plugin_option,
)
from kmip_data.cli.shared.output import csv_of, table
from kmip_data.errors import UsageError
from kmip_data.runtime.progress import say

if TYPE_CHECKING:
    from kmip_data.builds.home import Home
    from kmip_data.models.reports.tables import Table

FORMS = ("text", "markdown", "csv", "json", "latex", "html")


@click.command(cls=Command)
@click.argument("names", metavar="[SWEEP|RUN…]", nargs=-1, type=SWEEP_OR_RUN)
@click.option(
    "--against", metavar="MODEL", help="Model to compare with, seed by seed.  [default: the best]"
)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMS),
    default="text",
    help="[default: text]",
)
@path_option("--output", help="Write to FILE instead of stdout.")
@plugin_option
@home_option
def command(
    names: tuple[str, ...],
    against: str | None,
    form: str,
    output: Path | None,
    home: Home,
) -> None:
    """Tabulate results of runs next to the paper's figures.

    Reads the finished runs of sweeps, those named RUN, or all of the home. A row is the seeds of
    one configuration on the same data: mean ± standard deviation, the published figure, and the
    differences.
    """
    from kmip_data.models.sweeps.running import folders_of

    folders = folders_of(names, home)  # names are checked before PyTorch is imported
    from kmip_data.files.changes import write_output
    from kmip_data.files.reading import readable_json
    from kmip_data.models.reports.sheets import page_of, sheet_of
    from kmip_data.models.reports.tables import read_runs, tables_of

    runs, notices = read_runs(folders)
    if not runs:
        options = "--dataset helsinki --epochs 20"
        if folders:
            options = f"--resume {folders[0]}"
        raise UsageError(
            "There is no finished run to report.",
            found="; ".join(notices) or f"none below {home.runs}",
            next=f"kmip-data train {options}",
        )
    tables, left_out = tables_of(runs, against)
    rows = list(itertools.chain(*(results.rows for results in tables)))
    notices += left_out
    for notice in notices:
        say(notice)

    if form == "html":
        text = page_of("kmip-data report", list(map(sheet_of, tables)), tables, notices)
    elif form == "json":
        text = readable_json({"rows": rows, "notices": notices})
    elif form == "csv":
        text = csv_of(rows).decode()
    elif form == "text":
        text = report_text(tables)
    else:
        # A page of LaTeX is narrower than a screen.
        sheets = [sheet_of(results, narrow=form == "latex") for results in tables]
        text = "\n\n".join(sheet.written(form) for sheet in sheets) + "\n"
    if output is None:
        click.echo(text, nl=False)
    else:
        write_output(output, text.encode())
        say(f"Saved {output}")


def report_text(tables: Iterable[Table]) -> str:
    """Return tables of results as text, each with its title and notes."""
    from kmip_data.models.reports.sheets import sheet_of

    parts = []
    for sheet in map(sheet_of, tables):
        lines = [sheet.title, table(sheet.header, sheet.cells), sheet.notes]
        parts.append("\n".join(filter(None, lines)))
    return "\n\n".join(parts) + "\n"
