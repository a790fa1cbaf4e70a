"""Tables of a report with the paper's figures, as Markdown, LaTeX or HTML; its page with pictures."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from kmip_data.drawing.page import asset, filled
from kmip_data.drawing.style import STYLES
from kmip_data.models.reports.pictures import pictures_of, short_name
from kmip_data.models.reports.tables import Row, Table
from kmip_data.models.training.metrics import is_share
from kmip_data.models.training.run.folder import title_of, value_text
from kmip_data.wording import rough_time

FEW = "†"  #: marks a mean of fewer runs than the paper's
MOST_CHANGES = 6  #: that are written out
_NUMBER = re.compile(r"[+−-]?\d")
_LATEX = str.maketrans(
    {mark: f"\\{mark}" for mark in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"±": r"$\pm$", "−": "$-$", "–": "--", "Δ": r"$\Delta$", "…": r"\dots{}", "†": r"$^\dagger$"}
)


@dataclass(frozen=True)
class Sheet:
    """A table of texts."""

    title: str
    header: list[str]
    cells: list[list[str]]
    places: Sequence[int | None]  #: of each row: 1 for the best, 2 for the second
    notes: str = ""

    def written(self, form: str) -> str:
        """Return the table as ``markdown``, ``latex`` or ``html``; ``places`` are marked in ``test``."""
        quoted, marks, write = _FORMS[form]
        rows = [[quoted(cell) for cell in row] for row in (self.header, *self.cells)]
        at = self.header.index("test")
        for row, place in zip(rows[1:], self.places, strict=True):
            if place:
                row[at] = marks[place - 1].format(row[at])
        # A column of numbers is aligned to the right.
        numbers = [
            any(map(_NUMBER.match, cells))
            and all(cell == "–" or _NUMBER.match(cell) for cell in cells)
            for cells in zip(*self.cells, strict=True)
        ]
        return write(quoted(self.title), rows, numbers, quoted(self.notes))


def _markdown(title: str, rows: list[list[str]], numbers: list[bool], notes: str) -> str:
    head, *lines = [f"| {' | '.join(row)} |" for row in rows]
    rule = "|" + "".join("---:|" if number else "---|" for number in numbers)
    return "\n\n".join(filter(None, [f"**{title}**", "\n".join([head, rule, *lines]), notes]))


def _latex(title: str, rows: list[list[str]], numbers: list[bool], notes: str) -> str:
    head, *lines = [rf"    {' & '.join(row)} \\" for row in rows]
    marks = "".join("r" if number else "l" for number in numbers)
    begin = [r"\begin{table}", r"  \centering\small", rf"  \caption{{{title}. {notes}}}"]
    rules = [rf"  \begin{{tabular}}{{{marks}}}", r"    \toprule", head, r"    \midrule", *lines]
    return "\n".join([*begin, *rules, r"    \bottomrule", r"  \end{tabular}", r"\end{table}"])


def _html(title: str, rows: list[list[str]], numbers: list[bool], notes: str) -> str:
    tags = ['<td class="number">' if number else "<td>" for number in numbers]
    cells = [
        "".join(f"{tag}{cell}</td>" for tag, cell in zip(tags, row, strict=True)) for row in rows
    ]
    lines = "\n".join(f"<tr>{row}</tr>" for row in cells)
    headline, _, data = title.partition("; ")
    head = f'<h2>{headline}</h2><p class="about">{data}</p>'
    return f'{head}<div class="wide"><table>\n{lines}\n</table></div><p>{notes}</p>'


#: Form -> how it quotes a text, the marks of the best and the second, and how it writes a table.
_FORMS: dict[str, tuple[Callable[[str], str], tuple[str, str], Callable[..., str]]] = {
    "markdown": (lambda text: text.replace("|", "\\|"), ("**{}**", "*{}*"), _markdown),
    "latex": (lambda text: text.translate(_LATEX), (r"\textbf{{{}}}", r"\underline{{{}}}"), _latex),
    "html": (escape, ("<b>{}</b>", "<u>{}</u>"), _html),
}


def sheet_of(table: Table, *, narrow: bool = False) -> Sheet:
    """Return a table of results for people, without empty columns; ``narrow``: as fits a page on paper.

    A page has room for one difference: to the model of ``--against``, else to the paper, else to the best.
    """
    first = table.rows[0]
    rows = [_shown(row, table.reference) for row in table.rows]
    share = "" if first["share"] in {"", "all"} else f" ({first['share']})"
    split = (
        first["split"] if "," in first["split"] else f"{first['split']} ({first['split_digest']})"
    )
    title = f"{first['dataset']}{share}: {title_of(first['metric'])} on test; build {first['build']}, split"
    if narrow:
        named = table.reference not in {"", "the best"}
        against = (
            "Δ paper"
            if any(row["Δ paper"] for row in rows) and not named
            else f"Δ {table.reference}"
        )
        both = zip(map(short_name, table.rows), rows, strict=True)
        rows = [{"model": name, "test": row["test"], against: row[against]} for name, row in both]
    header = [name for name in rows[0] if any(row[name] for row in rows)]
    cells = [[row[name] or "–" for name in header] for row in rows]
    notes = (
        [f"{FEW} of fewer runs than the paper's."]
        if any(FEW in row["test"] for row in rows)
        else []
    )
    if first["leaderboard"] is not None and first["share"] != "all":
        notes.append("The leaderboard is of the complete published data, and these rows are not.")
    if pairs := sorted({row["pairs"] for row in table.rows if row["pairs"]}):
        count = " or ".join(map(str, pairs))
        notes.append(f"Δ {table.reference}: mean over the seeds that both rows have ({count}).")
    places = [row["place"] for row in table.rows]
    return Sheet(f"{title} {split}", header, cells, places, " ".join(notes))


def _shown(row: Row, reference: str) -> dict[str, str]:
    changes = row["changes"].split("; ")
    of = row["paper_runs"] or 0
    more = [f"and {len(changes) - MOST_CHANGES} more"] if len(changes) > MOST_CHANGES else []
    few = row["runs"] < of
    spent = row["paper_hours"]
    return {
        "model": row["model"] + (f" ({row['variant']})" if row["variant"] != "code" else ""),
        "changes": "; ".join(changes[:MOST_CHANGES] + more),
        "test": _mean(row, "test", row["runs"]) + (f" {FEW}" if few else ""),
        "n": f"{row['runs']} of {of}" if few else str(row["runs"]),
        "paper": _mean(row, "paper", of),
        "leaderboard": f"{_mean(row, 'leaderboard', 2)} {row['leaderboard_entry'] or ''}".strip(),
        "ours": _mean(row, "ours", row["ours_runs"] or 0),
        "Δ paper": _difference(row, "to_paper"),
        f"Δ {reference}": _difference(row, "to_reference"),
        "time": rough_time(3600 * row["hours"]),
        "paper's": f"{rough_time(3600 * spent)}, {row['paper_hardware']}" if spent else "",
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
    scale, digits = (100, 2) if is_share(row["metric"]) else (1, 4)
    return "" if row[name] is None else f"{scale * row[name]:+.{digits}f}".replace("-", "−")


def page_of(
    title: str, sheets: Sequence[Sheet], tables: Sequence[Table], notices: Sequence[str]
) -> str:
    """Return the page: each sheet, and below it the pictures of its table."""
    parts = list[str]()
    for sheet, table in zip(sheets, tables, strict=True):
        parts += [sheet.written("html"), *pictures_of(table)]
    parts += [f"<p>{escape(notice)}</p>" for notice in notices]
    colors = {
        f"{name}_{of}": getattr(STYLES[name], of)
        for name in ("light", "dark")
        for of in ("ink", "ground", "quiet")
    }
    fields = {
        "title": escape(title),
        "body": "\n".join(parts),
        "script": asset("report.js"),
        **colors,
    }
    return filled("report.html", fields) + "\n"
