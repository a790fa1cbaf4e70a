"""Column whose use is decided, with all that a rule may look at."""

from __future__ import annotations

from dataclasses import dataclass

from kmip_data.columns.column_roles import ColumnRole, Level, Use
from kmip_data.columns.part_masks import PART_ARRAYS, is_index_array
from kmip_data.errors import Setting
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.own.facts import ColumnFacts
from kmip_data.pipelines.own.table import Table


@dataclass(frozen=True, eq=False)
class Candidate:
    """Column of a table, its facts and what the user says about it."""

    table: Table
    facts: ColumnFacts
    level: Level
    options: ReadOptions
    use: Use | None = None  #: use as an id, target or group
    reason: str = ""  #: reason why a column with the name of a target is none
    described: ColumnRole | None = None
    graphs: ColumnFacts | None = None  #: graph of each row of nodes or edges, if there are many
    has_classes: bool = False  #: True for a target that is no number

    @property
    def name(self) -> str:
        """Name of the column."""
        return self.facts.name

    @property
    def is_mask(self) -> bool:
        """True for a column of nodes that is named like the mask of a part."""
        return self.level == "node" and self.name in PART_ARRAYS and not is_index_array(self.name)

    @property
    def has_categories(self) -> bool:
        """True if the type of the column lists its values."""
        return bool(self.table.categories.get(self.name))

    def locate(self, row: int, value: str) -> str:
        """Return the location and ``value`` of a cell, for messages."""
        return f"{self.table.location(row)}: {self.name!r} is {value}"

    def missing(self, *words: str) -> Setting:
        """Return the answer that some words of the column are missing values."""
        answers = [f"{self.name}:{word}" for word in words]
        return Setting(missing=answers if len(answers) > 1 else answers[0])
