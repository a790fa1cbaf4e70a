"""Tables of a report for people: results with the paper's figures, as Markdown, LaTeX or HTML."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from kmip_data.builds.home import Home, list_builds
from kmip_data.manifest import load_manifest, read_shipped
from kmip_data.models.reports.tables import BOUNDS, Row, Table
from kmip_data.models.training.run.folder import is_share, title_of, value_text
from kmip_data.wording import as_values, rough_time

FEW = "†"  #: marks a mean of fewer runs than the paper's
MOST_CHANGES = 6  #: that are written out
COLUMNS_ON_PAPER = 3  #: datasets of a grid next to each other
COUNTS = ("graphs", "nodes", "edges", "classes")  #: of a dataset; nodes and edges are means over graphs
_NUMBER = re.compile(r"[+−-]?\d")
_LATEX = str.maketrans(
    {mark: f"\\{mark}" for mark in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"±": r"$\pm$", "−": "$-$", "–": "--", "Δ": r"$\Delta$", "→": r"$\to$", "…": r"\dots{}"}
    # Without width, so that the digits of a right-aligned column stay aligned.
    | {"†": r"\rlap{$^\dagger$}"}
)


@dataclass(frozen=True)
class Sheet:
    """A table of texts."""

    title: str
    header: list[str]
    cells: list[list[str]]
    places: Sequence[int | None] = ()  #: 1 for the best row, 2 for the second
    notes: str = ""
    narrow: Sequence[Sheet] = ()  #: the same within the width of a page, for LaTeX; empty: as it is

    @classmethod
    def of(cls, title: str, rows: Sequence[Mapping[str, Any]], **more: Any) -> Sheet:
        """Leave out the columns that are empty in all rows."""
        header = [name for name in rows[0] if any(row[name] not in {"", None} for row in rows)]
        cells = [["–" if row[name] in {"", None} else str(row[name]) for name in header] for row in rows]
        return cls(title, header, cells, **more)

    def written(self, form: str) -> str:
        """Return the table as ``markdown``, ``latex`` or ``html``; ``places`` are marked in ``test``."""
        if form == "latex" and self.narrow:
            return "\n\n".join(each.written(form) for each in self.narrow)
        quoted = _QUOTED[form]
        rows = [[quoted(cell) for cell in row] for row in (self.header, *self.cells)]
        for row, place in zip(rows[1:], self.places, strict=False):
            if place:
                at = self.header.index("test")
                row[at] = _MARKS[form][place - 1].format(row[at])
        # A column of numbers is aligned to the right.
        numbers = [
            any(map(_NUMBER.match, cells)) and all(cell == "–" or _NUMBER.match(cell) for cell in cells)
            for cells in zip(*self.cells, strict=True)
        ]
        return _WRITTEN[form](quoted(self.title), rows, numbers, quoted(self.notes))


def _markdown(title: str, rows: list[list[str]], numbers: list[bool], notes: str) -> str:
    head, *lines = [f"| {' | '.join(row)} |" for row in rows]
    rule = "|" + "".join("---:|" if number else "---|" for number in numbers)
    table = "\n".join([head, rule, *lines])
    return "\n\n".join(filter(None, [f"**{title}**" * bool(title), table, notes]))


def _latex(title: str, rows: list[list[str]], numbers: list[bool], notes: str) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in rows]
    head, *lines = [rf"    {' & '.join(row)} \\" for row in padded]
    marks = "".join("r" if number else "l" for number in numbers)
    begin = [r"\begin{table}", r"  \centering", rf"  \caption{{{title}. {notes}}}"]
    rules = [rf"  \begin{{tabular}}{{{marks}}}", r"    \toprule", head, r"    \midrule", *lines]
    return "\n".join([*begin, *rules, r"    \bottomrule", r"  \end{tabular}", r"\end{table}"])


def _html(title: str, rows: list[list[str]], numbers: list[bool], notes: str) -> str:
    tags = ['<td class="number">' if number else "<td>" for number in numbers]
    cells = ["".join(f"{tag}{cell}</td>" for tag, cell in zip(tags, row, strict=True)) for row in rows]
    lines = "\n".join(f"<tr>{row}</tr>" for row in cells)
    return f'<h2>{title}</h2><div class="wide"><table>\n{lines}\n</table></div><p>{notes}</p>'


_WRITTEN = {"markdown": _markdown, "latex": _latex, "html": _html}
_MARKS = {  # of the best and the second
    "markdown": ("**{}**", "*{}*"),
    "latex": (r"\textbf{{{}}}", r"\underline{{{}}}"),
    "html": ("<b>{}</b>", "<u>{}</u>"),
}
_QUOTED: dict[str, Callable[[str], str]] = {
    "markdown": lambda text: text.replace("|", "\\|"),
    "latex": lambda text: text.translate(_LATEX).replace(r" \rlap", r"\rlap"),
    "html": lambda text: f'<span class="few">{escape(text)}</span>' if FEW in text else escape(text),
}


def sheet_of(table: Table) -> Sheet:
    """Return a table of results for people."""
    first, rows = table.rows[0], [_shown(row, table.reference) for row in table.rows]
    share = "" if first["share"] in {"", "all"} else f" ({first['share']})"
    split = first["split"] if "," in first["split"] else f"{first['split']} ({first['split_digest']})"
    data = f"{first['dataset']}{share}: {title_of(first['metric'])} on test"
    few = f"{FEW} of fewer runs than the paper's. " if any(FEW in row["test"] for row in rows) else ""
    # A page has room for one difference: to the model of --against, else to the paper, else to the best.
    named = table.reference not in {"", "the best"}
    against = "Δ paper" if any(row["Δ paper"] for row in rows) and not named else f"Δ {table.reference}"
    title = f"{data}; build {first['build']}, split {split}"
    marks: dict[str, Any] = {
        "places": [row["place"] for row in table.rows],
        "notes": few + " ".join(_notes(table)),
    }
    names = zip(_short_names(table.rows), rows, strict=True)
    narrow = [{"model": name, "test": row["test"], against: row[against]} for name, row in names]
    return Sheet.of(title, rows, **marks, narrow=[Sheet.of(title, narrow, **marks)])


def _notes(table: Table) -> Iterator[str]:
    """Say what the differences shown are between."""
    if any(row["to_paper"] is not None for row in table.rows):
        yield "Δ paper: to the paper's mean, with the 95 % interval of Welch's test."
    pairs = sorted({row["pairs"] for row in table.rows if row["pairs"]})
    if pairs:
        count, intervals = " or ".join(map(str, pairs)), ", with 95 % intervals" if pairs[-1] > 1 else ""
        yield f"Δ {table.reference}: over the seeds that both rows have ({count}){intervals}."


def _short_names(rows: Sequence[Row]) -> list[str]:
    """Return the model of each row, and up to two of its changes if several rows are of that model.

    >>> rows = [{"model": "gps-kmip", "changes": "model.attention.k=5 (15)"}]
    >>> _short_names([*rows, {"model": "gps-kmip", "changes": ""}, {"model": "gcn", "changes": "a.b=3 (5)"}])
    ['gps-kmip, k=5', 'gps-kmip', 'gcn']
    """
    count, found = Counter(row["model"] for row in rows), []
    for row in rows:
        changes = [each.partition(" ")[0].rpartition(".")[2] for each in row["changes"].split("; ") if each]
        shown = [*changes[:2], *["…"] * (len(changes) > 2)] if count[row["model"]] > 1 else []
        found.append(", ".join([row["model"], *shown]))
    return found


def grid_of(tables: Sequence[Table]) -> Sheet:
    """Return one sheet of ``tables``: our mean on test and, in brackets, the paper's.

    Rows are models with their changes, so that nothing is left out; builds or splits of one dataset that must
    not be compared have columns of their own.
    """
    rows: dict[tuple[str, str], dict[str, str]] = {}
    columns: list[str] = []
    for table in tables:
        first = table.rows[0]
        name = f"{first['dataset']}, {title_of(first['metric'])}"
        if first["share"] not in {"", "all"}:
            name += f", {first['share']}"
        columns.append(f"{name}, build {first['build']}" if name in columns else name)
        for row in (_shown(each, table.reference) for each in table.rows):
            paper = f" (paper {row['paper']})" if row["paper"] else ""
            rows.setdefault((row["model"], row["changes"]), {})[columns[-1]] = f"{row['test']}{paper}"
    shown = [
        {"model": model, "changes": changes, **{name: of.get(name, "") for name in columns}}
        for (model, changes), of in sorted(rows.items())
    ]
    title = "Models and datasets: mean and standard deviation on test"
    heads = {name: name.partition(",")[0] for name in columns}  # one name of two columns: both in full
    heads = {name: head if [*heads.values()].count(head) == 1 else name for name, head in heads.items()}
    narrow = []
    for some in (columns[i : i + COLUMNS_ON_PAPER] for i in range(0, len(columns), COLUMNS_ON_PAPER)):
        named = zip(_short_names(shown), shown, strict=True)
        part = [{"model": m} | {heads[n]: row[n].partition(" (paper")[0] for n in some} for m, row in named]
        narrow.append(Sheet.of(title, part, notes="; ".join(some)))
    return Sheet.of(title, shown, narrow=narrow)


def _shown(row: Row, reference: str) -> dict[str, str]:
    changes, of = row["changes"].split("; "), row["paper_runs"] or 0
    more = [f"and {len(changes) - MOST_CHANGES} more"] if len(changes) > MOST_CHANGES else []
    few, spent = row["runs"] < of, row["paper_hours"]
    return {
        "model": row["model"] + (f" ({row['variant']})" if row["variant"] != "code" else ""),
        "changes": "; ".join(changes[:MOST_CHANGES] + more),
        "test": _mean(row, "test", row["runs"]) + (f" {FEW}" if few else ""),
        "n": f"{row['runs']} of {of}" if few else str(row["runs"]),
        "paper": _mean(row, "paper", of),
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
    values = [row[f"{name}{bound}"] for bound in BOUNDS]
    words = [f"{scale * value:+.{digits}f}".replace("-", "−") for value in values if value is not None]
    return f"{words[0]} [{words[1]}, {words[2]}]" if len(words) > 1 else "".join(words)


def dataset_rows(home: Home) -> list[dict[str, Any]]:
    """Return the paper's table of datasets: both counts, and why they differ.

    A row is a dataset, by its manifest, or each complete build of it.
    """
    rows, builds = [], list_builds(home)
    for paper in read_shipped("results", "datasets")["dataset"]:
        expected, why = load_manifest(paper["name"]).expected, paper.pop("why", "")
        usual: list[Any] = [expected.graphs, expected.avg_nodes, expected.avg_edges, expected.classes]
        found = [(usual, "manifest", why)]
        for build in builds:
            card = build.card
            if card.complete and not card.sample and card.dataset == paper["name"]:
                graphs, labels = card.counts["graphs"], card.schema_.labels
                means = [round(card.counts[name] / max(graphs, 1), 1) for name in ("nodes", "edges")]
                classes = 0 if labels is None else labels.shape[-1] if labels.shape else labels.num_classes
                counts = [graphs, *means, classes or 0]
                built = f"{why} Built with {as_values(card.parameters)}.".strip()
                found.append((counts, build.path.name, why if counts == usual else built))
        # The paper counts each street once, and gives cities in thousands.
        streets = paper.pop("streets", False)
        digits = dict(zip(COUNTS, (0, -3, -3, 0) if streets else (0, 1, 1, 0), strict=True))
        for counts, source, reason in found[1:] or found:
            ours = {name: round(count or 0, 1) for name, count in zip(COUNTS, counts, strict=True)}
            ours["edges"] /= 1 + streets
            differs = [name for name in COUNTS if round(ours[name], digits[name]) != paper[name]]
            more = {"from": source, "differs": " ".join(differs), "why": reason if differs else ""}
            rows.append({**paper, **{f"our_{name}": ours[name] for name in COUNTS}, **more})
    return rows


def dataset_sheet(rows: Sequence[Mapping[str, Any]]) -> Sheet:
    """Return those rows for people: the paper's count, and ours if it differs."""
    shown = []
    for row in rows:
        counts = {name: f"{row[name]:,}" for name in COUNTS}
        for name in row["differs"].split():
            counts[name] += f" → {row[f'our_{name}']:,.10g}"
        directed = "yes" if row["directed"] else "no"
        others = {name: row[name] for name in ("task", "metric", "from", "why")}
        shown.append({"dataset": row["name"], **counts, "directed": directed, **others})
    title = "Datasets as in the paper's table; → the count here, if it differs"
    narrow = [{name: row[name] for name in ("dataset", "graphs", "nodes", "edges")} for row in shown]
    return Sheet.of(title, shown, narrow=[Sheet.of(title, narrow)])
