"""Column names of a text table: in its first line, or in the comment above."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pandas as pd

from kmip_data.errors import OpenQuestions, Setting
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams
from kmip_data.pipelines.datasets.graphs.tables import known_columns
from kmip_data.pipelines.datasets.graphs.tables.roles.end_columns import values_after_header
from kmip_data.pipelines.datasets.graphs.tables.table import Table, is_row_index
from kmip_data.pipelines.formats.header_line import looks_like_names, strings_in
from kmip_data.pipelines.formats.written_numbers import MISSING_WORDS, is_written_number
from kmip_data.text import list_names


def are_names(
    first_cells: Sequence[str],
    separator: str,
    parse_rest: Callable[[], pd.DataFrame],
    names: Sequence[str],
) -> bool:
    """True if the cells of a comment are names of columns, and differ from the first row.

    One is a common name; or the row is data, and the separator no blank, as in a sentence.
    """
    if list(names) == list(first_cells):
        return False
    if known_columns.matching_names(names, known_columns.HEADER_NAMES):
        return True
    may_be_names = separator in "\t;,|" and looks_like_names(names, parse_rest()) is not False
    return may_be_names and looks_like_names(first_cells, parse_rest()) is False


def first_line_has_names(
    first_cells: Sequence[str],
    parse_rest: Callable[[], pd.DataFrame],
    table: Table,
    level: str,
    params: GraphParams,
    *,
    is_only_table: bool,
) -> bool:
    """True if the first line has column names; raise ``OpenQuestions`` if it is ambiguous."""
    if params.header and is_only_table:
        return params.header == "yes"

    # 1. Common column names, and names that a parameter gives.
    if level == "edge" and params.source and params.target:
        ends = {params.source, params.target}
        if ends <= {*first_cells} and not any(map(is_written_number, ends)):
            return True
    names_in_options = {
        *params.label,
        *params.feature,
        *params.ignore,
        params.source,
        params.target,
    }
    names_in_options |= {params.graph, params.node, params.smiles}
    names_in_options = {name for name in names_in_options if not is_written_number(name)}
    known_names = [
        cell
        for cell in first_cells
        if cell
        and (
            known_columns.normalized_name(cell) in known_columns.HEADER_NAMES
            or cell in names_in_options
        )
    ]
    if known_names and not {*known_names} <= strings_in(parse_rest()):
        return True

    # 2. A square of numbers is a matrix. Names are above it and mostly in its first column, too;
    # pandas writes no name above its index.
    numbers = [str(number) for number in range(len(first_cells))]
    is_square = len(parse_rest()) == len(first_cells) - 1 > 1
    are_numbers = all(is_written_number(cell) or cell in MISSING_WORDS for cell in first_cells)
    if is_square and first_cells != numbers and are_numbers:
        return False
    if not parse_rest().empty and len({*first_cells}) == len(first_cells):
        first_column = parse_rest()[0]
        if not first_cells[0] and is_row_index(first_column):
            return True
        if is_square and list(first_column.map(str)) == list(first_cells[1:]):
            return True

    # 3. The cells decide, except for 0, 1, 2, …, which pandas writes above an array.
    has_names = None
    if not known_names and (level == "edge" or list(first_cells) != numbers):
        has_names = looks_like_names(first_cells, parse_rest())
    if has_names is not None:
        return has_names
    if params.header:
        return params.header == "yes"

    # 4. Ask, and name the options that each answer will need, so that the file is asked about once.
    answers = {answer: Setting(header=answer) for answer in ("yes", "no")}
    if level == "edge" and not known_names and not parse_rest().empty:
        for answer, names in (("yes", list(first_cells)), ("no", numbers)):
            frame = parse_rest().set_axis(names, axis=1)
            answered = replace(table, frame=frame, has_names=answer == "yes")
            needed = values_after_header(answered, params, is_only_table=is_only_table)
            answers[answer] = Setting({"header": answer, **needed})
    question = (
        f"{table.name}, line 1 may be names of columns or data: {list_names(first_cells, 200)}: "
        f"{answers['yes']} for names, {answers['no']} for data"
    )
    raise OpenQuestions({question: answers["yes"]})
