"""Use of every column of your own graphs: found in the files, written as TOML, and read back."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from kmip_data.columns.target_inference import TaskName
from kmip_data.errors import DamagedInput
from kmip_data.files.reading import first_problem, read_small_file
from kmip_data.strict_model import Strict

DESCRIPTION_NAME = "columns.toml"  #: the description next to the files that it describes
Level = Literal["node", "edge", "graph"]
Use = Literal[
    "source",
    "target",
    "id",
    "graph",
    "smiles",
    "direction",
    "number",
    "category",
    "label",
    "part",
    "array",
    "ignored",
]
#: Use of a column -> the parameter that names the only column of this use.
_NAMED: dict[tuple[str, str], str] = {
    ("edge", "source"): "source",
    ("edge", "target"): "target",
    ("node", "id"): "node",
    ("node", "graph"): "graph",
    ("edge", "graph"): "graph",
    ("graph", "graph"): "graph",
    ("graph", "smiles"): "smiles",
}
#: Parameters of the recipe that a description replaces.
DESCRIBED = {"task", "label", "feature", "ignore", "categories", "missing", "decimal", "rounded"}
DESCRIBED |= {"undirected", *_NAMED.values()}
_SEEN = {"values", "distinct", "missing"}  #: fields that describe the values of one file


class DescribedColumn(Strict):
    """Use of one column, and the values seen in it."""

    name: str
    rows: Level
    use: Use
    why: str = ""  #: reason to ignore it
    categories: tuple[str, ...] = ()  #: texts in the order of their features
    #: True if values may be missing: numbers become 0 and are marked by a second feature.
    nullable: bool = False
    dtype: str = ""  #: dtype in which an array is presented
    shape: tuple[int, ...] = ()  #: shape of a row of an array
    values: tuple[str, ...] = ()  #: at most three example values
    distinct: int = 0
    missing: int = 0


class Description(Strict):
    """Uses of all columns in the order of their features, classes, and parameters that go with them."""

    task: TaskName | None = None
    classes: tuple[str, ...] = ()  #: values of the label in the order of the classes
    missing: tuple[str, ...] = ()
    decimal: Literal[".", ","] | None = None
    rounded: tuple[str, ...] = ()
    undirected: bool = False
    files: dict[str, Level] = Field(default_factory=dict)  #: table -> level of its rows
    columns: tuple[DescribedColumn, ...] = ()

    def columns_of_level(self, rows: Level) -> dict[str, DescribedColumn]:
        """Return the columns of one level by name."""
        return {column.name: column for column in self.columns if column.rows == rows}

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of the recipe that the uses mean."""
        chosen: dict[str, Any] = {
            "undirected": self.undirected,
            "missing": self.missing,
            "decimal": self.decimal,
            "rounded": self.rounded,
            "task": self.task,
        }
        uses: dict[str, list[str]] = {}
        for column in self.columns:
            uses.setdefault(column.use, []).append(column.name)
            if parameter := _NAMED.get((column.rows, column.use)):
                chosen[parameter] = column.name
        is_table = bool(uses.keys() - {"array", "label", "ignored"})
        labels = uses.get("label", [])
        if is_table or labels not in ([], ["y"]):
            chosen["label"] = tuple(labels) or ("none",)
        if is_table:
            features = [*uses.get("number", ()), *uses.get("category", ())]
            chosen["feature"] = tuple(features) or ("none",)
        return chosen

    def table_rows(self) -> list[list[object]]:
        """Return level, name, use, values, counts and reason of each column, for a table."""
        rows: list[list[object]] = []
        for column in self.columns:
            shown = ", ".join(column.values)
            if column.dtype:
                shown = f"{column.dtype} {list(column.shape)}"
            row = [column.rows, column.name, column.use, shown, column.distinct, column.missing]
            rows.append([*row, column.why])
        return rows

    def to_toml(self, command: str = "") -> str:
        """Return the description as a TOML file, with the values seen as comments.

        ``command`` builds with the edited file.
        """
        values = self.model_dump(mode="json", exclude_defaults=True)
        files = values.pop("files", {})
        columns = values.pop("columns", [])
        lines = ["# Edit use, classes, categories and nullable."]
        if command:
            lines.append(f"# Then: {command}")
        lines += [f"{key} = {_toml_value(value)}" for key, value in values.items()]
        if files:
            lines += ["", "[files]"]
            lines += [f"{_toml_value(name)} = {_toml_value(rows)}" for name, rows in files.items()]
        for column in columns:
            lines += ["", "[[columns]]"]
            lines += [
                f"{key} = {_toml_value(value)}" for key, value in column.items() if key not in _SEEN
            ]
            if "values" in column:
                seen = ", ".join(map(_toml_value, column["values"]))
                counts = (
                    f"{column.get('distinct', 0):,} values, {column.get('missing', 0):,} missing"
                )
                lines.append(f"# {counts}: {seen}")
        return "\n".join([*lines, ""])


def read_description(path: Path) -> Description:
    """Read a TOML file; raise ``DamagedInput`` with the first key that is wrong."""
    try:
        return Description.model_validate(tomllib.loads(read_small_file(path).decode("utf-8-sig")))
    except (OSError, ValueError) as error:
        raise DamagedInput(
            f"{path.name} is no description of columns: {first_problem(error)}.",
            next="write one: kmip-data build graphs --archive PATH --dry-run --describe FILE",
        ) from error


def description_on_card(statistics: Mapping[str, Any]) -> Description | None:
    """Return the description on the card of a build; ``None`` if it has none."""
    described = statistics.get("files", {}).get("columns")
    return None if described is None else Description.model_validate(described)


def _toml_value(value: object) -> str:
    """Return a text, number, boolean or list of them in TOML, which escapes as JSON does."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
