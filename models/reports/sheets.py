"""Tables of a report as Markdown, LaTeX or HTML, and the page with curves."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path

from kmip_data.drawing.style import STYLES
from kmip_data.files.page_templates import asset_text, page_template
from kmip_data.format.card import SAMPLE_NOTE
from kmip_data.models.reports.plots import (
    ModelColors,
    learning_curves_svg,
    model_with_changes,
    row_colors,
)
from kmip_data.models.reports.result_tables import REFERENCE, Row, Table
from kmip_data.models.training.metric_text import format_metric, metric_title
from kmip_data.models.training.metrics import all_metrics
from kmip_data.text import format_duration

FEWER_RUNS_MARK = "†"  #: mark of a mean over fewer runs than the paper's
EDITED_MARK = "(edited)"  #: mark of a mean that includes an edited result
_NUMBER = re.compile(r"[+−-]?\d")
_LATEX = str.maketrans(
    {mark: f"\\{mark}" for mark in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {
        "±": r"$\pm$",
        "−": "$-$",
        "–": "--",
        "Δ": r"$\Delta$",
        "…": r"\dots{}",
        "†": r"$^\dagger$",
    }
)


@dataclass(frozen=True)
class Sheet:
    """A table of results, formatted for people."""

    title: str
    docs: dict[str, str]  #: meaning of each column, by its name
    cells: list[list[str]]
    #: 1 for the best row and 2 for the second-best, if the best is clearly ahead
    ranks: list[int | None]
    colors: list[str]  #: colour of each row's curves, as CSS
    shared: str  #: properties shared by all rows
    notes: str

    @property
    def header(self) -> list[str]:
        """Names of the columns."""
        return list(self.docs)

    @property
    def is_numeric_column(self) -> list[bool]:
        """True for each column of numbers, which are right-aligned."""
        are_numeric = []
        for cells in zip(*self.cells, strict=True):
            values = [cell for cell in cells if cell != "–"]
            are_numeric.append(bool(values) and all(map(_NUMBER.match, values)))
        return are_numeric

    @property
    def remarks(self) -> str:
        """Properties shared by all rows, and notes."""
        return " ".join(filter(None, [self.shared, self.notes]))

    def to_text(self, form: str) -> str:
        """Return the table as ``markdown`` or ``latex``, with the best values of ``test`` marked."""
        return page_template("kmip_data.drawing", f"report.{form}", _escape_latex).render(
            sheet=self
        )


def _escape_latex(text: str) -> str:
    return text.translate(_LATEX)


@dataclass(frozen=True)
class Column:
    """Column of a sheet."""

    doc: str  #: meaning, shown on the page
    cell: Callable[[Row], str]  #: formats a row's cell; empty without a value


def _format_mean(name: str, row: Row) -> str:
    """Format a mean, with its deviation if any."""
    if row[name] is None:
        return ""
    return format_metric(row["metric"], row[name], row[f"{name}_std"])


def _format_difference(name: str, row: Row) -> str:
    """Format a difference, in percentage points if the metric is in percent."""
    if row[name] is None:
        return ""
    sign = "−" if row[name] < 0 else "+"
    return sign + format_metric(row["metric"], abs(row[name]), None)


def _format_model(row: Row) -> str:
    if row["variant"] == "code":
        return str(row["model"])
    return f"{row['model']} ({row['variant']})"


def _has_fewer_runs(row: Row) -> bool:
    return int(row["runs"]) < (row["paper_runs"] or 0)


def _format_test(row: Row) -> str:
    spread = row["test_error"] if row["runs"] == 1 else row["test_std"]
    text = format_metric(row["metric"], row["test"], spread)
    if _has_fewer_runs(row):
        text += f" {FEWER_RUNS_MARK}"
    if row["edited"]:
        text += f" {EDITED_MARK}"
    return text


def _format_run_count(row: Row) -> str:
    return f"{row['runs']} of {row['paper_runs']}" if _has_fewer_runs(row) else str(row["runs"])


def _format_paper_time(row: Row) -> str:
    if not row["paper_hours"]:
        return ""
    return f"{format_duration(3600 * row['paper_hours'])}, {row['paper_hardware']}"


#: Columns by name; ``baseline`` in a name is replaced by the row or model that others are compared with.
COLUMNS = {
    "model": Column("model, with the variant of its preset unless that is code", _format_model),
    "test": Column(
        "the metric on the test part, with the weights of the best epoch on val: mean ± standard "
        "deviation over the seeds; of a single run, ± standard error over the test items; the best "
        "is bold and the second-best underlined if they are more than a standard error apart",
        _format_test,
    ),
    "n": Column(
        "number of runs, one per seed; “2 of 4”: the published mean has four", _format_run_count
    ),
    "paper": Column(
        "the paper's result for this model on this data", partial(_format_mean, "paper")
    ),
    "Δ paper": Column(
        "test minus paper, only for the same configuration",
        partial(_format_difference, "to_paper"),
    ),
    "Δ baseline": Column(
        "mean difference over the seeds that both rows have",
        partial(_format_difference, "to_baseline"),
    ),
    "time": Column(
        "time of a complete run, mean over the runs",
        lambda row: format_duration(3600 * row["hours"]),
    ),
    "paper's": Column("the paper's time per run, and its hardware", _format_paper_time),
    "device": Column("GPU or processor that the runs were trained on", itemgetter("device")),
    "memory": Column(
        "peak memory of a run on the GPU, or else of the process",
        lambda row: f"{row['memory'] / 1e9:.2f} GB",
    ),
    "parameters": Column("number of learned parameters", lambda row: f"{row['parameters']:,}"),
    "version": Column("version of kmip-data", itemgetter("version")),
    "changes": Column(
        "settings that differ from the preset, whose value follows “instead of”",
        itemgetter("changes"),
    ),
}


def _format_cells(row: Row) -> dict[str, str]:
    # A reference answer has only a model and a result.
    names = ["model", "test"] if row["variant"] == REFERENCE else list(COLUMNS)
    return {name: COLUMNS[name].cell(row) for name in names}


def results_sheet(
    table: Table, colors: ModelColors | None = None, *, narrow: bool = False
) -> Sheet:
    """Format a table of results, the best row first, without empty columns.

    A reference answer stands where its result puts it; no row is marked if one is better.

    Properties shared by all rows are listed once. A ``narrow`` sheet fits a printed page and has
    only one column of differences: to the model of ``--against``, else to the paper, else to the
    best row.
    """
    first = table.rows[0]
    higher = all_metrics()[first["metric"]].higher_is_better
    ranked = sorted(table.all_rows, key=lambda row: float(row["test"]), reverse=higher)
    rows = list(map(_format_cells, ranked))
    title = first["dataset"]
    if first["share"] not in {"", "all"}:
        title += f" ({first['share']})"
    title += f": {metric_title(first['metric'])} on test; build {first['build']}, split {first['split']!r}"
    if "," not in first["split"]:
        title += f" ({first['split_digest']})"

    # 1. Select the columns with any value, or the few that fit on paper.
    shared = ""
    if narrow:
        against = "Δ baseline"
        if table.baseline in {"", "the best"} and any(cells.get("Δ paper") for cells in rows):
            against = "Δ paper"
        for row, cells in zip(ranked, rows, strict=True):
            if row["variant"] != REFERENCE:
                cells["model"] = model_with_changes(row)
        names = ["model", "test", against]
    else:
        shared = _extract_shared_properties([cells for cells in rows if "n" in cells])
        names = list(COLUMNS)
    names = [name for name in names if any(cells.get(name) for cells in rows)]
    docs = {}
    for name in names:
        docs[name.replace("baseline", table.baseline)] = COLUMNS[name].doc
    lines = [[cells.get(name) or "–" for name in names] for cells in rows]

    # 2. Explain marks and differences.
    notes = []
    if any(_has_fewer_runs(row) for row in ranked):
        notes.append(f"{FEWER_RUNS_MARK} mean over fewer runs than the paper's.")
    if any(row["edited"] for row in ranked):
        notes.append(f"{EDITED_MARK}: a result.json was edited after it was written.")
    if any(row["runs"] == 1 and row["test_error"] is not None for row in ranked):
        notes.append("n = 1: ± is the standard error over the test items.")
    if "sample" in first["share"]:
        notes.append(SAMPLE_NOTE)
    pairs = sorted({row["pairs"] for row in table.rows if row["pairs"]})
    if pairs:
        count = " or ".join(map(str, pairs))
        notes.append(f"Δ {table.baseline}: mean over the seeds that both rows have ({count}).")
    clear = _best_is_clearly_ahead(ranked)
    ranks = [row["rank"] if clear else None for row in ranked]
    css = row_colors(table, ModelColors() if colors is None else colors)
    color_of_row = dict(zip(map(id, table.rows), css, strict=True))
    css = [color_of_row.get(id(row), "transparent") for row in ranked]
    return Sheet(title, docs, lines, ranks, css, shared, " ".join(notes))


def _best_is_clearly_ahead(ranked: Sequence[Row]) -> bool:
    """True if the best of all rows is a run's, and clearly ahead of the second run's.

    Clearly: by more than a standard error of the difference.
    """
    runs = [row for row in ranked if row["rank"]]
    if not runs or runs[0] is not ranked[0]:
        return False
    best, second = runs
    if best["test_error"] is None or second["test_error"] is None:
        return False
    error = math.hypot(best["test_error"], second["test_error"])
    return abs(float(best["test"]) - float(second["test"])) > error


def _extract_shared_properties(rows: list[dict[str, str]]) -> str:
    """Remove properties shared by several rows, and return them as a sentence."""
    if len(rows) == 1:
        return ""
    texts = []
    for name in list(rows[0]):
        value = rows[0][name]
        # Results and differences stay in their rows even if they are equal.
        stays = name in {"model", "test", "changes"} or name.startswith("Δ")
        if stays or any(row[name] != value for row in rows):
            continue
        if value:
            texts.append(f"{name} {value}")
        for row in rows:
            del row[name]

    changes = [row["changes"].split("; ") for row in rows]
    shared = [change for change in changes[0] if all(change in others for others in changes)]
    for row, row_changes in zip(rows, changes, strict=True):
        row["changes"] = "; ".join(change for change in row_changes if change not in shared)
    texts += filter(None, shared)
    return f"All rows: {'; '.join(texts)}." if texts else ""


def report_page(tables: Sequence[Table], home: Path, notices: Sequence[str]) -> str:
    """Return the HTML page with the sheet of each table, followed by its learning curves."""
    colors = ModelColors()
    # Embed the script, so that the page is a single file that works offline.
    page = page_template("kmip_data.drawing", "report.html").render(
        title="kmip-data report",
        about=f"{time.strftime('%Y-%m-%d %H:%M')}; runs of {home}",
        sections=[
            (results_sheet(table, colors), learning_curves_svg(table, colors)) for table in tables
        ],
        notices=notices,
        script=asset_text("kmip_data.drawing", "report.js"),
        **STYLES,
    )
    return page + "\n"
