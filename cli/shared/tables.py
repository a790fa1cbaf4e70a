"""Print tables in the format that ``--format`` names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kmip_data.cli.shared.output import table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kmip_data.models.reports.writer import Sheet


def written(
    sheets: Sequence[Sheet], rows: Sequence[dict[str, Any]], form: str, notices: Sequence[str] = ()
) -> str:
    """Return ``sheets`` as text, Markdown or LaTeX, or their ``rows`` with all digits as CSV or JSON."""
    from kmip_data.files.changes import csv_bytes
    from kmip_data.files.reading import readable_json

    if form == "json":
        return readable_json({"rows": rows, "notices": notices})
    if form == "csv":
        return csv_bytes([*rows[0]], (row.values() for row in rows)).decode()
    if form == "text":
        parts = [(each.title, table(each.header, each.cells), each.notes) for each in sheets]
        return "\n\n".join("\n".join(filter(None, lines)) for lines in parts) + "\n"
    return "\n\n".join(each.written(form) for each in sheets) + "\n"
