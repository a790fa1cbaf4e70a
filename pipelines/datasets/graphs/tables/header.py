"""Column names of a text table: in its first line, or in the comment above."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pandas as pd

from kmip_data.errors import DamagedInput
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams
from kmip_data.pipelines.datasets.graphs.tables import known_columns
from kmip_data.pipelines.datasets.graphs.tables.cell_values import MISSING_STRINGS
from kmip_data.pipelines.datasets.graphs.tables.end_columns import options_after_header
from kmip_data.pipelines.datasets.graphs.tables.table import Table, is_row_index


def names_in_comment(comment: str, separator: str, first_cells: Sequence[str]) -> list[str] | None:
    """Return the column names in the comment above the first row; None if it has none."""
    comment = comment.lstrip("#% ")
    cells = comment.split() if separator == " " else comment.split(separator)
    names = [cell.strip() for cell in cells]
    if (
        len(names) == len(first_cells)
        and names != first_cells
        and known_columns.matching_names(names, known_columns.HEADER_NAMES)
    ):
        return names
    return None


def first_line_has_names(
    first_cells: Sequence[str],
    parse_rest: Callable[[], pd.DataFrame],
    table: Table,
    level: str,
    params: GraphParams,
    *,
    is_only_table: bool,
) -> bool:
    """True if the first line has column names; raise ``DamagedInput`` if it is ambiguous."""
    if params.header and is_only_table:
        return params.header == "yes"

    # 1. Common column names, and names that a parameter gives.
    names_in_options = {
        *params.label,
        *params.feature,
        *params.ignore,
        params.source,
        params.target,
    }
    names_in_options |= {params.graph, params.node, params.smiles}
    names_in_options = {name for name in names_in_options if not _is_number(name)}
    known_names = [
        cell
        for cell in first_cells
        if cell
        and (
            known_columns.normalized_name(cell) in known_columns.HEADER_NAMES
            or cell in names_in_options
        )
    ]
    if known_names and not all(_is_in_body(cell, parse_rest()) for cell in known_names):
        return True

    # 2. pandas writes no name above its index.
    if (
        not first_cells[0]
        and not parse_rest().empty
        and is_row_index(parse_rest()[0])
        and len({*first_cells}) == len(first_cells)
    ):
        return True

    # 3. The cells decide, except for 0, 1, 2, …, which pandas writes above an array.
    has_names = None
    numbers = [str(number) for number in range(len(first_cells))]
    if not known_names and (level == "edge" or list(first_cells) != numbers):
        has_names = _cells_look_like_names(first_cells, parse_rest())
    if has_names is not None:
        return has_names
    if params.header:
        return params.header == "yes"

    # 4. Ask, and name the options that each answer will need, so that the file is asked about once.
    options = {"yes": "", "no": ""}
    if level == "edge" and not known_names and not parse_rest().empty:
        for answer, names in (("yes", list(first_cells)), ("no", numbers)):
            frame = parse_rest().set_axis(names, axis=1)
            answered = replace(table, frame=frame, has_names=answer == "yes")
            options[answer] = options_after_header(answered, params, is_only_table=is_only_table)
    raise DamagedInput(
        f"{table.name}, line 1 may be names of columns or data: {', '.join(first_cells)[:200]}.",
        next=f"--set header=yes{options['yes']} for names, --set header=no{options['no']} for data",
    )


def _cells_look_like_names(first_cells: Sequence[str], body: pd.DataFrame) -> bool | None:
    """Distinguish names from data by the cells of the first line; None if both are possible."""
    filled = [cell for cell in first_cells if cell]
    if any(map(_is_number, filled)) or len({*filled}) < len(filled):
        return False
    if body.empty:
        return None
    possible_names = {
        column: cell
        for column, cell in enumerate(first_cells)
        if cell and cell not in MISSING_STRINGS
    }
    if any(_has_only_numbers(body[column]) for column in possible_names):
        return True
    if len(possible_names) < len(first_cells):
        return False
    if any(_is_in_body(cell, body) for cell in possible_names.values()):
        return False
    return None


def _has_only_numbers(cells: pd.Series) -> bool:
    """True if all cells of a column are numbers or missing; words such as NA are missing."""
    if cells.dtype.kind in "iuf":
        return True
    strings = cells.dropna().map(str).str.strip()
    filled = strings[~strings.isin(MISSING_STRINGS)]
    return bool(len(filled) and pd.to_numeric(filled, errors="coerce").notna().all())


def _is_in_body(cell: str, body: pd.DataFrame) -> bool:
    """True if a string occurs in a column below the first line."""
    return any((body[column] == cell).any() for column in body if body[column].dtype.kind == "O")


def _is_number(cell: str) -> bool:
    """True if a cell is a number, possibly with a decimal comma."""
    return bool(pd.notna(pd.to_numeric(cell.replace(",", "."), errors="coerce")))
