"""Distinguish column names from data in the first line of a text."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from kmip_data.pipelines.formats.delimited import MIXED, split_rows
from kmip_data.pipelines.formats.written_numbers import MISSING_WORDS, is_written_number

UNNAMED_PREFIX = "Unnamed: "  #: begins the names of columns without a name, as in pandas


def rows_of_names(comments: Sequence[str], separator: str, width: int) -> list[list[str]]:
    """Return the comments that have a cell for each of ``width`` columns, from the last to the first."""
    candidates = []
    for comment in reversed(comments):
        for comment_separator in (separator, MIXED):
            (cells,) = split_rows([comment], comment_separator, strict=False)
            if len(cells) == width:
                candidates.append([cell.strip("\"'") for cell in cells])
                break
    return candidates


def looks_like_names(first_cells: Sequence[str], body: pd.DataFrame) -> bool | None:
    """Distinguish names from data by the first cells; None if both are possible.

    ``body`` has the rows below, or a sample of them.
    """
    filled = [cell for cell in first_cells if cell]
    if any(map(is_written_number, filled)) or len({*filled}) < len(filled):
        return False
    if body.empty:
        return None
    possible_names = {
        column: cell
        for column, cell in enumerate(first_cells)
        if cell and cell not in MISSING_WORDS
    }
    if any(_has_only_numbers(body[column]) for column in possible_names):
        return True
    if len(possible_names) < len(first_cells):
        return False
    if strings_in(body) & {*possible_names.values()}:
        return False
    return None


def strings_in(body: pd.DataFrame) -> set[str]:
    """Return the strings in any column."""
    strings: set[str] = set()
    for column in body:
        if body[column].dtype.kind == "O":
            strings.update(body[column].dropna().unique())
    return strings


def _has_only_numbers(cells: pd.Series) -> bool:
    """True if all cells of a column are numbers or missing; words such as NA are missing."""
    if cells.dtype.kind in "iuf":
        return True
    strings = cells.dropna().map(str).str.strip()
    filled = strings[~strings.isin(MISSING_WORDS) & (strings != "")]
    return bool(len(filled)) and all(map(is_written_number, filled.unique()))
