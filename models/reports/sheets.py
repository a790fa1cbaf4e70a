"""Results as the tables of a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kmip_data.models.reports.tables import BOUNDS, Row, Table
from kmip_data.models.reports.writer import FEW, Sheet
from kmip_data.models.training.objective.metrics import METRICS
from kmip_data.models.training.run.folder import title_of, value_text
from kmip_data.wording import rough_time

MOST_CHANGES, MOST_ON_PAPER = 6, 2  #: changes that are written out
COLUMNS_ON_PAPER = 3  #: datasets of a grid side by side


def sheet_of(table: Table) -> Sheet:
    """Return a table of results for people."""
    first, rows = table.rows[0], [_shown(row, table.reference) for row in table.rows]
    share = "" if first["share"] in {"", "all"} else f" ({first['share']})"
    split = first["split"] if "," in first["split"] else f"{first['split']} ({first['split_digest']})"
    data = f"{first['dataset']}{share}: {title_of(first['metric'])} on test"
    few = f"{FEW} of fewer runs than the paper's. " if any(FEW in row["test"] for row in rows) else ""
    delta = "Δ: differences with 95 % intervals, to the paper by Welch, to a row over the same seeds."
    title = f"{data}; build {first['build']}, split {split}"
    places = [row["place"] for row in table.rows]
    # A page has room for one difference: to the model of --against, else to the paper, else to the best.
    named = table.reference not in {"", "the best"}
    against = "Δ paper" if any(row["Δ paper"] for row in rows) and not named else f"Δ {table.reference}"
    names = zip(_short_names(table.rows), rows, strict=True)
    narrow = [{"model": name, "test": row["test"], against: row[against]} for name, row in names]
    notes = few + delta
    return Sheet.of(title, rows, places, notes, [Sheet.of(title, narrow, places, notes)])


def _short_names(rows: Sequence[Row]) -> list[str]:
    """Return the model of each row, and what was changed in it if several rows are of that model.

    >>> rows = [{"model": "gps-kmip", "changes": "model.attention.k=5 (15)"}]
    >>> rows += [{"model": "gps-kmip", "changes": ""}, {"model": "gcn", "changes": "model.layers=3 (5)"}]
    >>> _short_names(rows)
    ['gps-kmip, k=5', 'gps-kmip', 'gcn']
    """
    count, found = Counter(row["model"] for row in rows), []
    for row in rows:
        changes = [
            change.partition(" ")[0].rpartition(".")[2] for change in row["changes"].split("; ") if change
        ]
        more = ["…"] * (len(changes) > MOST_ON_PAPER)
        shown = [*changes[:MOST_ON_PAPER], *more] if count[row["model"]] > 1 else []
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
    title = "Models and datasets: mean and standard deviation on test"
    short = _short_names(shown)
    heads = {name: name.partition(",")[0] for name in columns}  # one name of two columns: both in full
    heads = {name: head if [*heads.values()].count(head) == 1 else name for name, head in heads.items()}
    parts = [columns[i : i + COLUMNS_ON_PAPER] for i in range(0, len(columns), COLUMNS_ON_PAPER)]
    narrow = [
        Sheet.of(
            title,
            [
                {"model": model} | {heads[name]: row[name].partition(" (paper")[0] for name in part}
                for model, row in zip(short, shown, strict=True)
            ],
            notes="; ".join(part),
        )
        for part in parts
    ]
    return Sheet.of(title, shown, narrow=narrow)


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
