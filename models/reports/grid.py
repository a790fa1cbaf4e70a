"""Models against datasets, as the paper's tables are: a column for each table of a report."""

from __future__ import annotations

from collections.abc import Sequence

from kmip_data.models.reports.sheets import Sheet, sheet_of
from kmip_data.models.reports.tables import Table
from kmip_data.models.training.run.result import title_of


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
