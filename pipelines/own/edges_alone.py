"""Edges without a table of nodes: which table has them, and which of its columns are the ends."""

from __future__ import annotations

from itertools import combinations
from operator import itemgetter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kmip_data.errors import DamagedInput, Setting, Step
from kmip_data.pipelines.datasets.graphs.findings import Notices
from kmip_data.pipelines.formats.graph_texts.line_formats import REMEDIES
from kmip_data.pipelines.own import names
from kmip_data.pipelines.own.columns.numbers import all_match
from kmip_data.pipelines.own.ids import MIN_COVERAGE, IdsOfTables, positions_in
from kmip_data.pipelines.own.readings import COMPARED_COLUMNS, Ends, Readings, agrees
from kmip_data.pipelines.own.table import Table
from kmip_data.text import list_names

#: Fraction of the most values that two columns have in common from which another pair may be the ends.
_MIN_COMMON = 0.1
#: Letters of SMILES: atoms, bonds, branches and rings.
_ATOM = r"Cl|Br|[BCNOPSFIbcnops]|\[[^\]]*\]"
_MOLECULES = rf"^(?:{_ATOM})[-=#(0-9]*(?:{_ATOM})(?:{_ATOM}|[-=#$:/\\.%0-9()@+])*$"


class EdgesAlone:
    """Tables of which one has edges, and none the nodes."""

    def __init__(self, readings: Readings, notices: Notices) -> None:
        self.readings = readings
        self.tables = readings.tables
        self.params = readings.params
        self.ids = readings.ids
        self.notices = notices

    def find(self) -> tuple[Table, Ends]:
        """Return the table of edges and its ends; ask if these are uncertain."""
        found: list[tuple[bool, bool, Table, Ends]] = []
        for table in self.tables:
            pair = self._ends_alone(table)
            if pair is not None:
                found.append((names.level_of(table.name) == "edge", pair[1], table, pair[0]))
        found.sort(key=itemgetter(0, 1), reverse=True)
        likeliest = [item for item in found if item[:2] == found[0][:2]]
        if not likeliest:
            steps: Step = "separate the cells of each line by tabs, semicolons, commas or blanks"
            if any(len(table.column_names) > 1 for table in self.tables):
                self.notices.raise_questions()
                steps = "name the columns with the ends of an edge as source and target"
            for name, cells in self.tables[0].columns.items():
                if pa.types.is_string(cells.type) and all_match(cells, _MOLECULES):
                    steps = Setting(smiles=name)
            raise DamagedInput(
                "No table has two columns with ids of another one, or with values in common.",
                found="; ".join(f"{table.name}: {table.column_list}" for table in self.tables)[
                    :2_000
                ],
                steps=steps,
            )
        _, is_certain, edges, ends = likeliest[0]
        if len(likeliest) > 1:
            raise DamagedInput(
                f"Several files may be the table of edges: {list_names([item[2].name for item in likeliest])}.",
                steps="copy the files of one graph into a folder, and use it as archive",
            )
        first, second = ends
        if not edges.has_names:
            self._refuse_counts(edges, ends)
        if not is_certain and not edges.has_names:
            raise DamagedInput(
                f"{edges.name} has no names of columns, and may be an adjacency list.",
                steps=[
                    REMEDIES["an adjacency list"].format(file=edges.name),
                    Setting(source=first, target=second),
                ],
            )
        if not is_certain and not self.notices.questions:
            if may_be_of_two_kinds(edges, ends, self.ids):
                raise two_kinds_error(edges, ends)
            ask_about_ends(edges, ends, self.notices.questions)
        return edges, ends

    def _refuse_counts(self, edges: Table, ends: Ends) -> None:
        """Refuse a first line that has the numbers of nodes and edges, as some programs write it."""
        ids = [self.ids.of(edges, name) for name in ends]
        if self.params.header or edges.rows < 2 or not all(end.are_numbers for end in ids):
            return
        nodes, count = (end.cells[0].as_py() for end in ids)
        below = [end.cells[1:] for end in ids]
        spread = max(pc.max(cells).as_py() for cells in below) - min(
            pc.min(cells).as_py() for cells in below
        )
        if count == edges.rows - 1 and nodes > spread:
            raise edges.error_at(
                0,
                f"{nodes} {count} may be the numbers of nodes and edges, as {count} lines follow (if each "
                "has the neighbours of a node, it is METIS, and no table of edges)",
                [
                    "leave it out, or keep it as an edge",
                    Setting(header="yes"),
                    Setting(header="no"),
                ],
            )

    def _ends_alone(self, table: Table) -> tuple[Ends, bool] | None:
        """Return the likeliest ends of a table, and whether no other reading is as likely.

        Numbers in columns whose names are not alike, such as users and films, may count two kinds of nodes.
        """
        given = (self.params.source, self.params.target)
        if all(given):
            return (given, True) if {*given} <= {*table.columns} else None
        pairs = [pair for pair in names.end_pairs(table.column_names) if agrees(pair, given)]
        if len(pairs) == 1:
            return pairs[0], True
        columns = table.column_names
        has_two = len(columns) == 2 and not any(
            self.ids.of(table, name).are_fractions for name in columns
        )
        if has_two and not table.has_names:
            return (columns[0], columns[1]), True
        common: dict[Ends, int] = {}
        free = self.readings.free(table)[:COMPARED_COLUMNS]
        candidates = [
            name
            for name in dict.fromkeys([*filter(None, given), *free])
            if not (ids := self.ids.of(table, name)).are_fractions and not ids.are_years
        ]
        for pair in combinations(candidates, 2):
            if {*filter(None, given)} <= {*pair}:
                first, second = (self.ids.of(table, name).distinct for name in pair)
                common[pair] = int((positions_in(first, second) >= 0).sum())
        if not any(common.values()):
            is_pair = len(candidates) == len(table.column_names) == 2 and len(self.tables) == 1
            return ((candidates[0], candidates[1]), False) if is_pair else None
        ends = max(common, key=lambda pair: common[pair])
        least = _MIN_COMMON * common[ends]
        is_only = sum(count >= least for count in common.values()) == 1
        if not table.has_names and ends == (*table.column_names[:2],):
            is_only |= not self._may_be_neighbours(table)
        is_certain = is_only and not may_be_of_two_kinds(table, ends, self.ids)
        return names.in_direction(*ends), is_certain

    def _may_be_neighbours(self, table: Table) -> bool:
        """True if each row may have a node and its neighbours, of which none is the node itself."""
        first, *others = (
            self.ids.of(table, name) for name in table.column_names[:COMPARED_COLUMNS]
        )
        rows = np.stack([first.positions(ids.cells) for ids in others])
        is_own = (rows == np.arange(table.rows)).any()
        return bool(first.is_key and (rows >= 0).mean() >= MIN_COVERAGE and not is_own)


def may_be_of_two_kinds(edges: Table, ends: Ends, ids: IdsOfTables) -> bool:
    """True for numbers in two columns whose names are not alike: user 1 is not film 1."""
    return not names.are_alike(*ends) and all(ids.of(edges, end).are_numbers for end in ends)


def two_kinds_error(edges: Table, ends: Ends) -> DamagedInput:
    """Return the error for numbers of two kinds of nodes; no step is the answer that would merge them."""
    first, second = ends
    return DamagedInput(
        f"{edges.name} may join two kinds of nodes, as {first!r} and {second!r} are numbers with other "
        f"names; {Setting(source=first, target=second)} states that both are ids of the same nodes.",
        steps=f"make the ids of two kinds different, in pandas table[{first!r}] = {first!r} + "
        f"table[{first!r}].astype(str)",
    )


def ask_about_ends(edges: Table, ends: Ends, questions: dict[str, Setting]) -> None:
    """Ask whether two columns are the ends of an edge, and have ids of the same nodes."""
    first, second = ends
    question = (
        f"{edges.name}: are {first!r} and {second!r} the ends of an edge, with ids of the same nodes? "
        f"If they count two kinds of nodes, write different ids first, in pandas table[{first!r}] = "
        f"{first!r} + table[{first!r}].astype(str)"
    )
    questions[question] = Setting(source=first, target=second)
