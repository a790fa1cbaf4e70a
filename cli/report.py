"""``kmip-data report``: tables of results, with the paper's."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kmip_data.cli.shared.commands import (
    SWEEP_OR_RUN,
    Command,
    force_option,
    home_option,
    path_option,
    plugin_option,
)
from kmip_data.cli.shared.output import annotated, check_output, csv_of, table
from kmip_data.errors import UsageError
from kmip_data.runtime.progress import say

if TYPE_CHECKING:
    from kmip_data.builds.home import Home
    from kmip_data.models.reports.sheets import Sheet
    from kmip_data.models.reports.tables import Table

WIDTH = 100  #: columns of a terminal that tables take at most
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
@force_option
@plugin_option
@home_option
def command(
    names: tuple[str, ...],
    against: str | None,
    form: str,
    output: Path | None,
    force: bool,
    home: Home,
) -> None:
    """Tabulate results of runs next to the paper's.

    Reads the finished runs of the given sweeps, the given runs, or all runs in the home. Each row
    combines the seeds of one configuration on the same data: mean ± standard deviation, the
    published result, and the differences.
    """
    from kmip_data.models.sweeps.states import folders_of

    if output is not None:
        check_output(output, force=force)
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
        text = page_of(tables, home.root, notices)
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

    return "\n\n".join(_text(sheet_of(results)) for results in tables) + "\n"


def _text(sheet: Sheet) -> str:
    # 1. As many columns as have room; changes are easier to read on lines of their own.
    columns = list(zip(sheet.header, *sheet.cells, strict=True))
    shown = 0
    used = 0
    for column in columns:
        used += max(map(len, column)) + 2
        if used > WIDTH or column[0] == "changes":
            break
        shown += 1

    # 2. The others, by name, below each row.
    notes = []
    for cells in sheet.cells:
        others = []
        for name, value in list(zip(sheet.header, cells, strict=True))[shown:]:
            if value != "–":
                others.append(value if name == "changes" else f"{name} {value}")
        notes.append(textwrap.wrap("; ".join(others), WIDTH - 4))
    rows = table(sheet.header[:shown], [cells[:shown] for cells in sheet.cells])

    about = [_filled(text) for text in (sheet.title, sheet.shared) if text]
    return "\n".join([*about, annotated(rows, notes), *filter(None, [_filled(sheet.notes)])])


def _filled(text: str) -> str:
    return textwrap.fill(text, WIDTH, subsequent_indent="    ", break_long_words=False)
