"""Tables as people read them, in the forms that papers and pages take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

from kmip_data.models.reports.tables import BOUNDS, Row, Table
from kmip_data.models.training.objective.metrics import METRICS
from kmip_data.models.training.run.result import title_of, value_text
from kmip_data.wording import rough_time

FEW = "†"  #: marks a mean of fewer runs than the paper's
MOST_CHANGES = 6
LATEX = str.maketrans(
    {mark: f"\\{mark}" for mark in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "†": r"$^\dagger$"}
    | {"±": r"$\pm$", "−": "$-$", "–": "--", "Δ": r"$\Delta$", "→": r"$\to$"}
)


class Form(NamedTuple):
    """How a sheet is written."""

    quoted: Callable[[str], str]  #: a text so that it stands for itself
    best: str
    second: str
    row: str
    between: str
    whole: str  #: with ``title``, ``notes``, ``head``, ``rows`` and ``columns``, one mark a column


FORMS = {
    "markdown": Form(
        lambda text: text.replace("|", "\\|"), "**{}**", "*{}*", "| {} |", " | ",
        "**{title}**\n\n{head}\n|{columns}\n{rows}\n\n{notes}",
    ),
    "latex": Form(
        lambda text: text.translate(LATEX), r"\textbf{{{}}}", r"\underline{{{}}}", r"    {} \\", " & ",
        "\\begin{{table}}\n  \\centering\n  \\caption{{{title}. {notes}}}\n"
        "  \\begin{{tabular}}{{{columns}}}\n"
        "    \\toprule\n{head}\n    \\midrule\n{rows}\n    \\bottomrule\n  \\end{{tabular}}\n\\end{{table}}",
    ),
    "html": Form(
        lambda text: f'<span class="few">{escape(text)}</span>' if FEW in text else escape(text),
        "<b>{}</b>", "<u>{}</u>", "<tr><td>{}</td></tr>", "</td><td>",
        "<h2>{title}</h2><table>\n{head}\n{rows}\n</table><p>{notes}</p>",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Sheet:
    """Headings and cells."""

    title: str
    header: list[str]
    cells: list[list[str]]
    places: Sequence[int | None]  #: of each row: the best is 1, the second 2
    notes: str

    @classmethod
    def of(
        cls, title: str, rows: Sequence[dict[str, str]], places: Sequence[int | None] = (), notes: str = ""
    ) -> Sheet:
        """Leave out the columns that are empty in all rows."""
        header = [name for name in rows[0] if any(row[name] for row in rows)]
        return cls(title, header, [[row[name] or "–" for name in header] for row in rows], places, notes)

    def written(self, name: str) -> str:
        """Return it in one of :data:`FORMS`; the best and the second are marked in the column ``test``."""
        form = FORMS[name]
        rows = [[form.quoted(cell) for cell in row] for row in (self.header, *self.cells)]
        for row, place in zip(rows[1:], self.places, strict=False):
            if place:
                at = self.header.index("test")
                row[at] = (form.best if place == 1 else form.second).format(row[at])
        head, *lines = [form.row.format(form.between.join(row)) for row in rows]
        columns = len(self.header) * ("---|" if name == "markdown" else "l")
        title, notes = form.quoted(self.title), form.quoted(self.notes)
        whole = form.whole.format(title=title, notes=notes, head=head, rows="\n".join(lines), columns=columns)
        return whole.strip()


def sheet_of(table: Table) -> Sheet:
    """Return a table of results as it is read."""
    first, rows = table.rows[0], [_shown(row, table.reference) for row in table.rows]
    share = "" if first["share"] in {"", "all"} else f" ({first['share']})"
    split = first["split"] if "," in first["split"] else f"{first['split']} ({first['split_digest']})"
    data = f"{first['dataset']}{share}: {title_of(first['metric'])} on test"
    few = f"{FEW} of fewer runs than the paper's. " if any(FEW in row["test"] for row in rows) else ""
    delta = "Δ: differences with 95 % intervals, to the paper by Welch, to a row over the same seeds."
    return Sheet.of(
        f"{data}; build {first['build']}, split {split}",
        rows,
        [row["place"] for row in table.rows],
        few + delta,
    )


def grid_of(tables: Sequence[Table]) -> Sheet:
    """Return one sheet of ``tables``: our mean on test, and the paper's behind it where there is one.

    Rows are models with what was changed, so that nothing is left out; builds or splits of one dataset that
    may not be compared are columns of their own.
    """
    rows: dict[tuple[str, str], dict[str, str]] = {}
    columns: list[str] = []
    for table in tables:
        sheet, first = sheet_of(table), table.rows[0]
        name = f"{first['dataset']}, {title_of(first['metric'])}"
        if first["share"] not in {"", "all"}:
            name += f", {first['share']}"
        columns.append(f"{name}, build {first['build']}" if name in columns else name)
        for cells in sheet.cells:
            cell = dict(zip(sheet.header, cells, strict=True))
            paper = cell.get("paper", "–")
            text = cell["test"] + (f" (paper {paper})" if paper != "–" else "")
            rows.setdefault((cell["model"], cell.get("changes", "–")), {})[columns[-1]] = text
    shown = [
        {"model": model, "changes": changes.strip("–"), **{name: of.get(name, "") for name in columns}}
        for (model, changes), of in sorted(rows.items())
    ]
    return Sheet.of("Models and datasets: mean and standard deviation on test", shown)


def _shown(row: Row, reference: str) -> dict[str, str]:
    changes, of = row["changes"].split("; "), row["paper_runs"] or 0
    more = [f"and {len(changes) - MOST_CHANGES} more"] if len(changes) > MOST_CHANGES else []
    few = row["runs"] < of
    return {
        "model": row["model"] + (f" ({row['variant']})" if row["variant"] != "code" else ""),
        "changes": "; ".join(changes[:MOST_CHANGES] + more),
        "test": _mean(row, "test", row["runs"]) + (f" {FEW}" if few else ""),
        "n": f"{row['runs']} of {of}" if few else str(row["runs"]),
        "paper": _mean(row, "paper", of),
        "Δ paper": _difference(row, "to_paper"),
        f"Δ {reference}": _difference(row, "to_reference"),
        "time": rough_time(3600 * row["hours"]),
        "paper's": f"{rough_time(3600 * row['paper_hours'])}, {row['paper_hardware']}"
        if row["paper_hours"]
        else "",
        "device": row["device"],
        "memory": f"{row['memory'] / 1e9:.2f} GB",
        "parameters": f"{row['parameters']:,}",
        "version": row["version"],
    }


def _mean(row: Row, name: str, runs: int) -> str:
    std = row[f"{name}_std"] if runs > 1 else None
    return "" if row[name] is None else value_text(row["metric"], row[name], std)


def _difference(row: Row, name: str) -> str:
    """In percentage points where the metric is in percent."""
    scale, digits = (100, 2) if METRICS[row["metric"]].percent else (1, 4)
    values = [row[f"{name}{bound}"] for bound in BOUNDS]
    words = [f"{scale * value:+.{digits}f}".replace("-", "−") for value in values if value is not None]
    return f"{words[0]} [{words[1]}, {words[2]}]" if len(words) > 1 else "".join(words)
