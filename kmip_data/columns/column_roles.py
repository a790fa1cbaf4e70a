"""Roles of the columns of your own graphs: decided once, written to TOML and read back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

from pydantic import ValidationError

from kmip_data.columns.labels import TaskName
from kmip_data.errors import Command, DamagedInput, UsageError, unknown_name_error
from kmip_data.files.small_files import first_problem, read_toml
from kmip_data.format.schema import FieldKind
from kmip_data.strict_model import StrictModel

_MAX_BYTES = 2**23  #: largest description: 8 MiB, about 50,000 columns
DESCRIPTION_NAME = "columns.toml"  #: file next to the data, read instead of inferring the roles
Level = Literal["node", "edge", "graph"]
Numbering = Literal["none", "rows-from-1"]  #: rows of nodes without ids are numbered from 0 or 1
Use = Literal[
    "source",
    "target",
    "id",
    "graph",
    "group",
    "smiles",
    "direction",
    "number",
    "boolean",
    "category",
    "label",
    "part",
    "array",
    "ignored",
]
FEATURE_USES = {"number", "boolean", "category"}  #: uses of columns that become features
#: level and use of a column -> parameter that names the only column with this use
_PARAMETER_OF_USE: dict[tuple[str, str], str] = {
    ("edge", "source"): "source",
    ("edge", "target"): "target",
    ("node", "id"): "node",
    ("node", "graph"): "graph",
    ("node", "group"): "group",
    ("graph", "group"): "group",
    ("edge", "graph"): "graph",
    ("graph", "graph"): "graph",
    ("graph", "smiles"): "smiles",
}
#: Parameters of the recipe that a description replaces.
DESCRIBED_PARAMETERS = {
    "task",
    "class_name",
    "label",
    "feature",
    "ignore",
    "categories",
    "missing",
    "decimal",
    "rounded",
    "undirected",
    *_PARAMETER_OF_USE.values(),
}
_VALUE_FIELDS = {"values", "distinct", "missing"}  #: written as comments


class ColumnRole(StrictModel):
    """Use of one column, and a summary of its values.

    Features, targets, description, card and explorer read the role; none of them decides it again.
    """

    column: str
    level: Level
    use: Use
    table: str = ""  #: name of its file or table
    why: str = ""  #: reason why it is ignored
    categories: tuple[str, ...] = ()  #: categories in the order of their one-hot features
    #: True if values may be missing: numbers become 0, with a second feature that marks them
    nullable: bool = False
    unit: str = ""  #: unit of each number, as in ``12 %``
    dtype: str = ""  #: dtype of an array on records
    shape: tuple[int, ...] = ()  #: row shape of an array
    values: tuple[str, ...] = ()  #: up to three example values
    distinct: int = 0
    missing: int = 0

    @property
    def features(self) -> dict[str, FieldKind]:
        """Name and kind of each feature that the column becomes, in order."""
        if self.use == "category":
            return {f"{self.column}={category}": "one-hot" for category in self.categories}
        if self.use not in FEATURE_USES:
            return {}
        name = f"{self.column} [{self.unit}]" if self.unit else self.column
        features: dict[str, FieldKind] = {name: "boolean" if self.use == "boolean" else "number"}
        if self.nullable:
            features[f"{self.column} missing"] = "missing"
        return features


class ColumnRoles(StrictModel):
    """Roles of all columns in the order of their features, with the classes and further parameters."""

    #: Titles of the columns of :meth:`table_rows`.
    titles: ClassVar = ("rows", "column", "use", "values", "distinct", "missing", "because")
    task: TaskName | None = None
    classes: tuple[str, ...] = ()  #: label values in the order of the classes
    class_names: tuple[str, ...] = ()  #: names of the classes, if they differ from the label values
    missing: tuple[str, ...] = ()
    decimal: Literal[".", ","] | None = None
    rounded: tuple[str, ...] = ()
    undirected: bool = False
    node: Numbering | None = None  #: numbering of nodes without ids
    columns: tuple[ColumnRole, ...] = ()

    def columns_of_level(self, level: Level) -> dict[str, ColumnRole]:
        """Return the columns of one level by name."""
        return {role.column: role for role in self.columns if role.level == level}

    @property
    def tables(self) -> dict[str, Level]:
        """Level of the rows of each table."""
        return {role.table: role.level for role in self.columns if role.table}

    def parameters(self) -> dict[str, Any]:
        """Return the recipe's parameters that have the same effect as this description."""
        parameters: dict[str, Any] = {
            "undirected": self.undirected,
            "missing": self.missing,
            "decimal": self.decimal,
            "rounded": self.rounded,
            "task": self.task,
            "class_name": self.class_names,
            "node": self.node or "",
        }
        uses: dict[str, list[str]] = {}
        for role in self.columns:
            uses.setdefault(role.use, []).append(role.column)
            if parameter := _PARAMETER_OF_USE.get((role.level, role.use)):
                parameters[parameter] = role.column
        is_table = bool(uses.keys() - {"array", "group", "label", "ignored"})
        labels = uses.get("label", [])
        if is_table or labels not in ([], ["y"]):
            parameters["label"] = tuple(labels) or ("none",)
        if is_table:
            features = [role.column for role in self.columns if role.use in FEATURE_USES]
            parameters["feature"] = tuple(features) or ("none",)
        return parameters

    def with_labels(self, labels: tuple[str, ...]) -> ColumnRoles:
        """Return the description without its labels and classes if other columns are the labels."""
        if not labels or labels == self.parameters().get("label"):
            return self
        columns = [
            role
            for role in self.columns
            if role.use != "label" and role.column not in labels  # whatever its use was
        ]
        no_classes = {"task": None, "classes": (), "class_names": ()}
        return self.model_copy(update={**no_classes, "columns": tuple(columns)})

    def with_use(self, column: str, use: Use, *, level: Level | None = None) -> ColumnRoles:
        """Return a copy of the description with another use of a column.

        Parameters
        ----------
        column
            Name of the column.
        use
            New use, such as ``"category"``, whose categories are then those in the files.
        level
            ``"node"``, ``"edge"`` or ``"graph"``, if columns of several levels have this name.

        Raises
        ------
        UsageError
            If no column has the name, or columns of several levels have it; if there is no such use.
        """
        if use not in get_args(Use):
            raise unknown_name_error("use of a column", use, get_args(Use), command="one of these")
        levels = [role.level for role in self.columns if role.column == column]
        if level is None and len(levels) == 1:
            level = levels[0]
        if level not in levels:
            raise UsageError(
                f"The description has the column {column!r} at {len(levels)} levels.",
                expected=", ".join(f"{role.column} ({role.level})" for role in self.columns),
                steps="with_use(column, use, level='node'), of these columns",
            )
        changes = {"use": use, "why": "", "categories": ()}
        columns = [
            role.model_copy(update=changes)
            if (role.column, role.level) == (column, level)
            else role
            for role in self.columns
        ]
        return self.model_copy(update={"columns": tuple(columns)})

    def _repr_html_(self) -> str:
        """Return the table that a notebook shows."""
        return html_table([self.titles, *self.table_rows()])

    def table_rows(self) -> list[list[object]]:
        """Return a row per column: level, name, use, values, distinct, missing, reason."""
        rows: list[list[object]] = []
        for role in self.columns:
            values = ", ".join(role.values)
            if role.dtype:
                values = f"{role.dtype} {list(role.shape)}"
            row = [role.level, role.column, role.use, values, role.distinct, role.missing]
            rows.append([*row, role.why])
        return rows

    def to_toml(self, command: str = "") -> str:
        """Return the description as TOML, with value counts and examples as comments.

        ``command``, which builds with the edited file, is written into the first comment.
        """
        values = self.model_dump(mode="json", exclude_defaults=True)
        columns = values.pop("columns", [])
        lines = ["# Edit use, classes, categories and nullable."]
        if command:
            lines.append(f"# Then: {command}")
        lines += [f"{key} = {toml_value(value)}" for key, value in values.items()]
        for column in columns:
            lines += ["", "[[columns]]"]
            lines += [
                f"{key} = {toml_value(value)}"
                for key, value in column.items()
                if key not in _VALUE_FIELDS
            ]
            if "values" in column:
                examples = ", ".join(map(toml_value, column["values"]))
                counts = (
                    f"{column.get('distinct', 0):,} values, {column.get('missing', 0):,} missing"
                )
                lines.append(f"# {counts}: {examples}")
        return "\n".join([*lines, ""])


def read_column_roles(path: Path) -> ColumnRoles:
    """Read a description from TOML; raise ``DamagedInput`` with the first invalid key."""
    try:
        return ColumnRoles.model_validate(read_toml(path, _MAX_BYTES))
    except (OSError, ValueError) as error:
        raise DamagedInput(
            f"{path.name} is not a valid description of columns: {first_problem(error)}.",
            steps=[
                "write one",
                Command("kmip-data build graphs --archive PATH --dry-run --describe FILE"),
            ],
        ) from error


def column_roles_on_card(statistics: Mapping[str, Any]) -> ColumnRoles | None:
    """Return the description in the statistics of a card, or ``None`` if it has none.

    Raises ``DamagedInput`` for a description that is none.
    """
    fields = statistics.get("files", {}).get("columns")
    try:
        return None if fields is None else ColumnRoles.model_validate(fields)
    except ValidationError as error:
        raise DamagedInput(
            f"The card's description of columns is not valid: {first_problem(error)}.",
            steps="build it again from the same files",
        ) from error


def html_table(rows: Sequence[Sequence[object]]) -> str:
    """Return rows of cells as a table of HTML."""
    cells = ["".join(f"<td>{escape(str(cell))}</td>" for cell in row) for row in rows]
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"


def toml_value(value: object) -> str:
    """Format a string, number, boolean or list as TOML, which has the escapes of JSON except for DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
