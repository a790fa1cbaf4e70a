"""Tables printed by several commands."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kmip_data.cli.shared.output import add_row_notes, format_table
from kmip_data.errors import Command
from kmip_data.text import TEXT_WIDTH, human_bytes

if TYPE_CHECKING:
    from kmip_data.builds.home import Build
    from kmip_data.models.reports.result_tables import Table
    from kmip_data.models.reports.sheets import Sheet
    from kmip_data.models.training.run.run_status import RunStatus


def builds_table(builds: list[Build]) -> str:
    """Return a table of builds; below each, its sources and its difference from builds of one name."""
    from kmip_data.builds.home import date_of_build, differences_of_builds
    from kmip_data.cli.shared.removable_folders import folder_bytes

    rows = []
    notes = []
    for build in builds:
        card = build.card
        size = human_bytes(folder_bytes(build.path))
        rows.append(
            [build.path.name, card.counts.get("graphs", 0), size, date_of_build(build)[:10]]
        )

        same_name = [other for other in builds if other.card.dataset_label == card.dataset_label]
        difference = differences_of_builds(same_name)[same_name.index(build)]
        state = card.coverage or card.raw_file_status
        date = f"built {date_of_build(build)}" if len(same_name) > 1 else ""
        note = ", ".join(filter(None, [difference, card.sources, date, state]))
        notes.append(textwrap.wrap(note, 76))
    return add_row_notes(format_table(["name", "graphs", "disk", "built"], rows), notes)


def runs_table(runs: Sequence[RunStatus]) -> str:
    """Return a table of runs; below each, the remaining time, its error and the command to resume."""
    from kmip_data.models.training.metric_text import format_metric_with_unit
    from kmip_data.models.training.metrics import all_metrics

    names = []
    rows = []
    notes = []
    for run in runs:
        metric = all_metrics().get(run.metric or "")  # the plugin of a metric may be missing
        title = metric.title if metric else run.metric
        values = []
        for value in (run.val, run.test):
            if value is None or run.metric is None:
                values.append("")
            else:
                values.append(format_metric_with_unit(run.metric, value))
        if run.test is not None:
            values[1] = f"{values[1]} {title}"
        if run.edited:
            values[1] += " (edited)"
        epochs = str(run.epoch)
        if run.epochs is not None:
            epochs += f" of {run.epochs}"
        names.append([f"{run.dataset}/{run.model}/{run.name}"])
        rows.append([run.begun[:10], run.seed, run.state, epochs, *values])

        remaining = None
        if run.state == "running" and run.remaining:
            remaining = f"{run.remaining} left, by the epochs so far"
        notes.append([remaining, run.reason, run.resume and f"resume: {run.resume}"])
    # A name may be as long as a line, so that the values have their own.
    header = ["begun", "seed", "state", "epochs", "val", "test"]
    head, *lines = format_table(header, rows).splitlines()
    notes = [[line, *texts] for line, texts in zip(lines, notes, strict=True)]
    title, *text = add_row_notes(format_table(["run"], names), notes).splitlines()
    return "\n".join([title, f"    {head}", *text])


def report_text(tables: Iterable[Table]) -> str:
    """Return tables of results as text, with titles and notes."""
    from kmip_data.models.reports.sheets import results_sheet

    return "\n\n".join(_sheet_text(results_sheet(results)) for results in tables) + "\n"


def command_for_best_run(tables: Sequence[Table]) -> Command:
    """Return the command that explores the best run in the best row of the first table."""
    from kmip_data.models.training.metrics import all_metrics
    from kmip_data.models.training.run.run_folder import run_options, short_run_name

    table = tables[0]
    # A single row has no rank.
    ranks = [row.get("rank") for row in table.rows]
    runs = table.runs[ranks.index(1) if 1 in ranks else 0]
    higher = all_metrics()[runs[0].result.metric].higher_is_better
    best = max(runs, key=lambda run: run.test if higher else -run.test)
    run = best.folder
    return Command("kmip-data explore", short_run_name(run), *run_options(run))


def _sheet_text(sheet: Sheet) -> str:
    # 1. Find how many columns fit. Changes are easier to read below the row.
    columns = list(zip(sheet.header, *sheet.cells, strict=True))
    shown = 0
    width = 0
    for column in columns:
        width += max(map(len, column)) + 2
        if width > TEXT_WIDTH or column[0] == "changes":
            break
        shown += 1

    # 2. List the other columns below each row.
    notes = []
    for cells in sheet.cells:
        others = []
        for name, value in list(zip(sheet.header, cells, strict=True))[shown:]:
            if value != "–":
                others.append(value if name == "changes" else f"{name} {value}")
        notes.append(_wrap_text("; ".join(others), TEXT_WIDTH - 4).splitlines())
    rows = format_table(sheet.header[:shown], [cells[:shown] for cells in sheet.cells])

    parts = [_wrap_text(sheet.title), _wrap_text(sheet.shared), add_row_notes(rows, notes)]
    return "\n".join(filter(None, [*parts, _wrap_text(sheet.notes)]))


def _wrap_text(text: str, width: int = TEXT_WIDTH) -> str:
    """Break lines between words only; names of runs and settings have hyphens."""
    return textwrap.fill(
        text, width, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )
