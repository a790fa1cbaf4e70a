"""Tables of a report as Markdown, LaTeX or HTML, and the page with plots."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kmip_data.drawing.style import STYLES
from kmip_data.files.templates import asset, template
from kmip_data.format.card import OF_SAMPLE
from kmip_data.models.reports.pictures import pictures_of, short_name
from kmip_data.models.reports.tables import Row, Table
from kmip_data.models.training.metrics import all_metrics, is_share
from kmip_data.models.training.run.result import title_of, value_text
from kmip_data.wording import rough_time

FEW = "†"  #: marks a mean over fewer runs than the paper's
EDITED = "(edited)"  #: marks a mean that includes an edited result
#: Descriptions of the columns, for the page.
COLUMNS = {
    "test": "the metric on the test part, with the weights of the epoch that is best on val: mean ± standard "
    "deviation over the seeds; the best is bold, the second underlined",
    "n": "number of runs, one per seed; “2 of 4”: the published mean is over four",
    "paper": "the paper's result for this model on this data",
    "leaderboard": "the entry of the same network on a leaderboard, or the best one",
    "ours": "the result that comes with kmip-data, for the same configuration",
    "Δ paper": "test minus paper, only for the same configuration",
    "time": "time of a complete training, mean over the runs",
    "paper's": "the paper's time of a training, and its hardware",
    "device": "GPU or processor that the runs were trained on",
    "memory": "peak memory of a run, on the device or else in the process",
    "parameters": "number of learned parameters",
    "version": "version of kmip-data",
    "changes": "settings that differ from the preset, with its value in brackets",
}
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
    """A formatted table."""

    title: str
    header: list[str]
    cells: list[list[str]]
    ranks: list[int | None]  #: rank of each row: 1 for the best, 2 for the second
    shared: str = ""  #: properties shared by all rows
    notes: str = ""

    @property
    def numbers(self) -> list[bool]:
        """True for each column of numbers, which are right-aligned."""
        numbers = []
        for cells in zip(*self.cells, strict=True):
            with_value = [cell for cell in cells if cell != "–"]
            numbers.append(bool(with_value) and all(map(_NUMBER.match, with_value)))
        return numbers

    @property
    def remarks(self) -> str:
        """Properties shared by all rows, and notes."""
        return " ".join(filter(None, [self.shared, self.notes]))

    def written(self, form: str) -> str:
        """Return the table as ``markdown`` or ``latex``; ``ranks`` mark ``test``."""
        quoted, marks, write = _FORMS[form]
        rows = [list(map(quoted, row)) for row in (self.header, *self.cells)]
        test = self.header.index("test")
        for row, rank in zip(rows[1:], self.ranks, strict=True):
            if rank:
                row[test] = marks[rank - 1].format(row[test])
        return write(quoted(self.title), rows, self.numbers, quoted(self.remarks))


def _markdown(
    title: str,
    rows: list[list[str]],
    numbers: list[bool],
    notes: str,
) -> str:
    head, *lines = [f"| {' | '.join(row)} |" for row in rows]
    rule = "|" + "".join("---:|" if number else "---|" for number in numbers)
    table = "\n".join([head, rule, *lines])
    return "\n\n".join(filter(None, [f"**{title}**", table, notes]))


def _latex(
    title: str,
    rows: list[list[str]],
    numbers: list[bool],
    notes: str,
) -> str:
    head, *lines = [rf"    {' & '.join(row)} \\" for row in rows]
    marks = "".join("r" if number else "l" for number in numbers)
    written = [
        r"\begin{table}",
        r"  \centering\small",
        rf"  \caption{{{title}. {notes}}}",
        rf"  \begin{{tabular}}{{{marks}}}",
        r"    \toprule",
        head,
        r"    \midrule",
        *lines,
        r"    \bottomrule",
        r"  \end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(written)


#: Format -> function that quotes a text, marks of the best and the second, writer of a table.
_FORMS: dict[str, tuple[Callable[[str], str], tuple[str, str], Callable[..., str]]] = {
    "markdown": (lambda text: text.replace("|", "\\|"), ("**{}**", "*{}*"), _markdown),
    "latex": (lambda text: text.translate(_LATEX), (r"\textbf{{{}}}", r"\underline{{{}}}"), _latex),
}


def sheet_of(table: Table, *, narrow: bool = False) -> Sheet:
    """Return a table of results for people, the best row first, without empty columns.

    Properties shared by all rows appear once, above them.

    ``narrow``: for a printed page, with room for one difference: to the model of
    ``--against``, else to the paper, else to the best.
    """
    first = table.rows[0]
    higher = all_metrics()[first["metric"]].better == "higher"
    ranked = sorted(table.rows, key=lambda row: float(row["test"]), reverse=higher)
    rows = [_shown(row, table.reference) for row in ranked]
    title = first["dataset"]
    if first["share"] not in {"", "all"}:
        title += f" ({first['share']})"
    title += (
        f": {title_of(first['metric'])} on test; build {first['build']}, split {first['split']}"
    )
    if "," not in first["split"]:
        title += f" ({first['split_digest']})"

    # Columns: those with any value, or the few that fit on paper.
    shared = ""
    if narrow:
        against = f"Δ {table.reference}"
        if table.reference in {"", "the best"} and any(row["Δ paper"] for row in rows):
            against = "Δ paper"
        names = map(short_name, ranked)
        narrow_rows = []
        for name, row in zip(names, rows, strict=True):
            narrow_rows.append({"model": name, "test": row["test"], against: row[against]})
        rows = narrow_rows
    else:
        shared = _take_shared(rows)
    header = [name for name in rows[0] if any(row[name] for row in rows)]
    cells = [[row[name] or "–" for name in header] for row in rows]

    # Notes: the meaning of marks, and of differences.
    notes = []
    if any(FEW in row["test"] for row in rows):
        notes.append(f"{FEW} mean over fewer runs than the paper's.")
    if any(row["edited"] for row in table.rows):
        notes.append(f"{EDITED}: a result.json was edited after it was written.")
    if first["leaderboard"] is not None and first["share"] != "all":
        notes.append("The leaderboard uses the complete published data; these rows do not.")
    if "sample" in first["share"]:
        notes.append(OF_SAMPLE)
    pairs = sorted({row["pairs"] for row in table.rows if row["pairs"]})
    if pairs:
        count = " or ".join(map(str, pairs))
        notes.append(f"Δ {table.reference}: mean over the seeds that both rows have ({count}).")
    ranks = [row["rank"] for row in ranked]
    return Sheet(title, header, cells, ranks, shared, " ".join(notes))


def _take_shared(rows: list[dict[str, str]]) -> str:
    """Remove properties shared by several rows, and return them as a sentence."""
    if len(rows) == 1:
        return ""
    texts = []
    for name in list(rows[0]):
        value = rows[0][name]
        # Differences and results stay with their rows even if equal.
        stays = name in {"model", "test", "changes"} or name.startswith("Δ")
        if stays or any(row[name] != value for row in rows):
            continue
        if value:
            texts.append(f"{name} {value}")
        for row in rows:
            del row[name]

    changes = [row["changes"].split("; ") for row in rows]
    common = [change for change in changes[0] if all(change in of_row for of_row in changes)]
    for row, of_row in zip(rows, changes, strict=True):
        row["changes"] = "; ".join(change for change in of_row if change not in common)
    texts += filter(None, common)
    return f"All rows: {'; '.join(texts)}." if texts else ""


def _shown(row: Row, reference: str) -> dict[str, str]:
    """Format the columns of a row; empty without a value."""
    model = row["model"]
    if row["variant"] != "code":
        model += f" ({row['variant']})"
    published_runs = row["paper_runs"] or 0
    test = _mean(row, "test", row["runs"])
    runs = str(row["runs"])
    if row["runs"] < published_runs:
        test += f" {FEW}"
        runs += f" of {published_runs}"
    if row["edited"]:
        test += f" {EDITED}"
    published_time = ""
    if row["paper_hours"]:
        published_time = f"{rough_time(3600 * row['paper_hours'])}, {row['paper_hardware']}"
    entry = f"{_mean(row, 'leaderboard', 2)} {row['leaderboard_entry'] or ''}"
    return {
        "model": model,
        "test": test,
        "n": runs,
        "paper": _mean(row, "paper", published_runs),
        "leaderboard": entry.strip(),
        "ours": _mean(row, "ours", row["ours_runs"] or 0),
        "Δ paper": _difference(row, "to_paper"),
        f"Δ {reference}": _difference(row, "to_reference"),
        "time": rough_time(3600 * row["hours"]),
        "paper's": published_time,
        "device": row["device"],
        "memory": f"{row['memory'] / 1e9:.2f} GB",
        "parameters": f"{row['parameters']:,}",
        "version": row["version"],
        "changes": row["changes"],
    }


def _mean(row: Row, name: str, runs: int) -> str:
    """Format a mean, with its deviation over several runs."""
    if row[name] is None:
        return ""
    std = row[f"{name}_std"] if runs > 1 else None
    return value_text(row["metric"], row[name], std)


def _difference(row: Row, name: str) -> str:
    """Format a difference, in percentage points if the metric is in percent."""
    if row[name] is None:
        return ""
    text = f"{row[name]:+.4f}"
    if is_share(row["metric"]):
        text = f"{100 * row[name]:+.2f}"
    return text.replace("-", "−")


def page_of(tables: Sequence[Table], home: Path, notices: Sequence[str]) -> str:
    """Return the page: the sheet of each table, followed by its plots."""
    # The script is embedded: the page works as a single file, offline.
    page = template("kmip_data.drawing", "report.html").render(
        title="kmip-data report",
        about=f"{time.strftime('%Y-%m-%d %H:%M')}; runs of {home}",
        sections=[(sheet_of(table), pictures_of(table)) for table in tables],
        columns=COLUMNS,
        notices=notices,
        script=asset("kmip_data.drawing", "report.js"),
        **STYLES,
    )
    return page + "\n"
