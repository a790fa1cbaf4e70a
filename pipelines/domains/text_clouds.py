"""Clouds and labels of points as texts, which are own tables of numbers. Facts: ``docs/point-clouds.md``."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from kmip_data.arrays import Array
from kmip_data.errors import DamagedInput, Setting
from kmip_data.pipelines.datasets.graphs.findings import Notices
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams
from kmip_data.pipelines.domains.cloud_columns import (
    CloudColumns,
    CloudOptions,
    check_column_count,
    default_names,
)
from kmip_data.pipelines.own.columns.facts import MISSING, TableFacts
from kmip_data.pipelines.own.columns.questions import open_sign
from kmip_data.pipelines.own.columns.uses import Candidate
from kmip_data.pipelines.own.headers import name_columns
from kmip_data.pipelines.own.table import Table
from kmip_data.pipelines.own.texts.lines import Rows, read_rows
from kmip_data.pipelines.own.texts.tables import table_of_lines


def read_text(path: Path, name: str, options: CloudOptions) -> CloudColumns:
    """Return the columns of a text: numbers, or texts as objects, ``None`` if missing.

    Raises ``OpenQuestions`` if the first line or a decimal sign is ambiguous, and ``DamagedInput``
    with the line of a fault.
    """
    read_options = options_of_tables(options)
    notices = Notices()
    rows = _without_point_count(read_rows(path, name, read_options))
    top = table_of_lines(rows, read_options, notices)
    check_column_count(len(top.cells))
    if options.header is None and [*top.cells] == [*map(str, range(len(top.cells)))]:
        question = (
            f"{top.whole().location(0)} may be names of columns or a point: {', '.join(top.cells)}"
        )
        notices.questions[f"{question}: header=yes or header=no"] = Setting(header="no")
    (table,) = name_columns({(name, name): top}, read_options, notices)
    notices.raise_questions()
    names = table.column_names
    if not table.has_names:
        # Rows may end with a separator.
        names = names[: len(names) - bool(table.is_empty(names[-1]).all())]
        columns = [table.columns[key] for key in names]
        table = replace(table, columns=dict(zip(default_names(len(names)), columns, strict=True)))
    return _columns_of_table(table, read_options)


def read_labels(path: Path, name: str, points: int, options: CloudOptions) -> Array:
    """Return the label of each point in a text with a line for each: numbers, or texts as objects.

    A further line above them has the name of the column.
    """
    read_options = options_of_tables(options)
    top = table_of_lines(read_rows(path, name, read_options), read_options, Notices())
    if len(top.cells) > 1:
        raise top.whole().error_at(0, f"{len(top.cells)} values, not a single label")
    table = top.below if top.below.rows == points else top.whole()
    return next(iter(_columns_of_table(table, read_options).values.values()))


@lru_cache
def options_of_tables(options: CloudOptions) -> ReadOptions:
    """Return the options as tables have them; names of the position are names of columns."""
    return ReadOptions(
        GraphParams(
            header=options.header,
            encoding=options.encoding,
            decimal=options.decimal,
            feature=options.position,
        )
    )


def _without_point_count(rows: Rows) -> Rows:
    """Return the rows of a text without the number of points that PTS files begin with."""
    head, _, data = rows.data[:].partition(b"\n")
    if not head.strip().isdigit() or not data:
        return rows
    lines = data.count(b"\n")
    if int(head) != lines:
        raise DamagedInput(
            f"{rows.name}: its first line declares {int(head):,} points, but {lines:,} lines follow.",
            steps="leave out the first line, or repair the others",
        )
    return replace(rows, data=data, numbers=rows.numbers[1:])


def _columns_of_table(table: Table, options: ReadOptions) -> CloudColumns:
    facts = TableFacts(table, options.params, {})
    values: dict[str, Array] = {}
    note = ""
    notices = Notices()
    for name in table.column_names:
        column = facts.of(name)
        values[name] = values_of_column(Candidate(table, column, "node", options), notices)
        if column.sign == ",":
            note = "numbers have decimal commas"
        facts.forget(name)
    notices.raise_questions()
    return CloudColumns(values, note=note, lines=table.line_numbers)


def values_of_column(column: Candidate, notices: Notices) -> Array:
    """Return numbers, NaN if missing, or texts as objects, ``None`` if missing; note an open question."""
    facts = column.facts
    if question := open_sign(column):
        notices.questions[question.text] = question.answer
    if facts.numbers is not None and not facts.are_booleans:
        return facts.numbers
    texts = [None if text in MISSING else text for text in facts.texts]
    return np.array([*texts, None], object)[facts.codes]
