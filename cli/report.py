"""``kmip-data report``: compare the results of runs with each other and with the paper."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kmip_data.cli.shared.command_classes import ClickCommand
from kmip_data.cli.shared.options import (
    force_option,
    home_option,
    path_option,
    plugin_option,
)
from kmip_data.cli.shared.output import check_output_path, completed, rows_as_csv
from kmip_data.cli.shared.printed_tables import command_for_best_run, report_text
from kmip_data.cli.shared.targets import SWEEP_OR_RUN
from kmip_data.errors import Command, Setting, Step, UsageError
from kmip_data.runtime.progress import print_status

if TYPE_CHECKING:
    from kmip_data.builds.home import Home

#: File suffix -> output format.
FORMATS = {
    ".txt": "text", ".md": "markdown", ".csv": "csv", ".json": "json", ".tex": "latex", ".html": "html",
}  # fmt: skip


@click.command(cls=ClickCommand)
@click.argument("names", metavar="[SWEEP|RUN…]", nargs=-1, type=SWEEP_OR_RUN)
@click.option(
    "--against", metavar="MODEL", help="Model to compare with, seed by seed.  [default: the best]"
)
@click.option(
    "--format",
    "output_format",
    type=click.Choice([*FORMATS.values()]),
    help="Output format.  [default: by the suffix of --output, else text]",
)
@path_option("--output", help="Write to FILE instead of stdout.")
@force_option
@plugin_option
@home_option
def command(
    names: tuple[str, ...],
    against: str | None,
    output_format: str | None,
    output: Path | None,
    force: bool,
    home: Home,
) -> None:
    """Compare the results of runs with each other and with the paper.

    Reads the finished runs of the given sweeps, the given runs, or all runs in the home. DATASET
    or DATASET/MODEL names all of its runs. Each row combines the seeds of one configuration on the
    same data: mean ± standard deviation, the paper's result, and the differences. Runs on a sample
    have their own tables.
    """
    from kmip_data.models.sweeps.runs_by_name import select_runs

    # 1. Determine the format.
    if output is not None:
        suffix = output.suffix.lower()
        if output_format is None and suffix not in {"", *FORMATS}:
            *suffixes, last = FORMATS
            raise UsageError(
                f"{output} ends in none of {', '.join(suffixes)} and {last}.",
                steps=Setting(output=output.with_suffix(".html")),
            )
        output_format = output_format or FORMATS.get(suffix)
        check_output_path(output, force=force)
    output_format = output_format or "text"

    # 2. Read the selected runs.
    folders = select_runs(names, home)  # check names before importing PyTorch
    from kmip_data.files.atomic_writes import write_output
    from kmip_data.files.small_files import readable_json
    from kmip_data.models.reports.result_tables import read_finished_runs, tables_of_runs
    from kmip_data.models.reports.sheets import report_page, results_sheet

    runs, notices = read_finished_runs(folders)
    if not runs:
        found = "; ".join(notices or [f"none below {home.runs}"])
        raise _no_finished_run_error(names, found, home, has_folders=bool(folders))

    # 3. Group the runs into tables, and format them.
    tables, left_out = tables_of_runs(runs, against)
    rows = list(itertools.chain(*(results.all_rows for results in tables)))
    notices += left_out
    for notice in notices:
        print_status(notice)

    if output_format == "html":
        text = report_page(tables, home.path, notices)
    elif output_format == "json":
        text = readable_json({"rows": rows, "notices": notices})
    elif output_format == "csv":
        text = rows_as_csv(rows).decode()
    elif output_format == "text":
        text = f"{report_text(tables)}\nNext: {completed(command_for_best_run(tables))}\n"
    else:
        # A LaTeX page is narrower than a screen.
        sheets = [results_sheet(results, narrow=output_format == "latex") for results in tables]
        text = "\n\n".join(sheet.to_text(output_format) for sheet in sheets) + "\n"
    if output is None:
        click.echo(text, nl=False)
    else:
        write_output(output, text.encode())
        print_status(f"Saved {output}")


def _no_finished_run_error(
    names: Sequence[str], found: str, home: Home, *, has_folders: bool
) -> UsageError:
    """Return the error for names without a finished run."""
    from kmip_data.models.sweeps.plans import sweep_names

    if not has_folders and len(names) == 1 and names[0] in sweep_names():
        return UsageError(
            f"There is no finished run of the sweep {names[0]}.",
            found=f"none below {home.runs}",
            steps=Command("kmip-data sweep", names[0]),
        )
    steps: list[Step] = ["resume one of the runs", Command("kmip-data runs")]
    if not has_folders and not names:
        steps = [Command("kmip-data train NAME")]
    return UsageError("There is no finished run to report.", found=found, steps=steps)
