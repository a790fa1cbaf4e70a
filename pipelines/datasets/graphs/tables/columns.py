"""Columns of a table: the role of each one, decided once, and the values that follow from it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Container, Mapping, Sequence

import numpy as np
import pandas as pd

from kmip_data.arrays import F32, I64, Array
from kmip_data.columns.column_roles import ColumnRole, Level, Use
from kmip_data.columns.part_masks import PART_ARRAYS, are_parts, is_index_array, part_code
from kmip_data.errors import Setting
from kmip_data.pipelines import known_names
from kmip_data.pipelines.datasets.graphs.findings import (
    FEATURE_KEYS,
    Attributes,
    Findings,
    Notices,
    register_part_masks,
)
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams
from kmip_data.pipelines.datasets.graphs.tables.cell_values import (
    CellValues,
    TableColumn,
    read_values,
    summarise_cells,
    summarise_values,
    value_texts,
)
from kmip_data.pipelines.datasets.graphs.tables.features import decide_feature_role, read_features
from kmip_data.pipelines.datasets.graphs.tables.labels import find_labels, read_targets
from kmip_data.pipelines.datasets.graphs.tables.table import Table
from kmip_data.pipelines.formats.header_line import UNNAMED_PREFIX

#: Attribute of the groups of a table, whose column may have any name.
GROUP_ATTRIBUTE = "group"
_SAMPLED_ROWS = 100  #: rows sampled to detect a split column
_LISTED_STRINGS = 20  #: unknown parts that an error lists


def read_columns(
    table: Table,
    level: Level,
    id_uses: Mapping[str, Use],
    options: ReadOptions,
    findings: Findings,
    *,
    masks_are_flags: bool = False,
    edges_have_targets: bool = False,
) -> dict[str, Array]:
    """Return the targets, parts and features of a table by key, (R, …) each.

    Skip the columns in ``id_uses``. Record ambiguous columns as questions in ``findings``, along
    with the role of each column. Masks split the nodes unless ``masks_are_flags``.
    ``edges_have_targets`` is True if rows of edges repeat the target of their graph.
    """
    params = options.params
    attributes = findings.attributes
    notices = findings.notices
    described = {} if options.described is None else options.described.columns_of_level(level)
    graph_of_row = ""
    if level != "graph":
        graph_of_row = next((name for name, use in id_uses.items() if use == "graph"), "")
    columns = {
        name: TableColumn(table, name, params, notices, graph_of_row) for name in table.column_names
    }
    in_order = [*described, *(name for name in columns if name not in id_uses), *columns]
    names = [name for name in dict.fromkeys(in_order) if name in columns]

    # 1. Targets, which depend on the names and values of several columns.
    labels: list[str] = []
    ignored = {name: reason for name in names if (reason := _reason_given(name, described, params))}
    may_have_labels = level != "edge" or edges_have_targets or bool(params.label)
    if may_have_labels and "y" not in attributes.component_names:
        without_role = set(names) - id_uses.keys() - ignored.keys() - {params.group}
        available = [name for name in names if name in without_role]
        labels, unusable = find_labels(
            [columns[name] for name in available], level, options, notices
        )
        ignored |= unusable
        # Targets keep the order in which they are given.
        given_labels = iter(labels)
        names = [next(given_labels) if name in labels else name for name in names]

    # 2. The role of each column, and what follows from it.
    targets: list[CellValues] = []
    masks: dict[str, Array] = {}
    parts: dict[str, Array] = {}
    features: list[F32] = []
    roles: list[ColumnRole] = []
    for name in names:
        column = columns[name]
        use = "label" if name in labels else id_uses.get(name)
        if use is None and name == params.group and (level != "edge" or edges_have_targets):
            use = "group"
        role, cells = _decide_role(
            column, level, use, ignored.get(name, ""), described.get(name), options
        )
        if role.use == "label":
            targets.append(cells)
        elif role.features:
            features += read_features(column, cells, role)
        elif role.use == "group":
            parts |= _read_groups(column, level, attributes)
        elif role.use == "part" and _is_mask(name, level):
            masks[name] = table.frame[name].to_numpy()
        elif role.use == "part":
            parts[_part_key(name, level, parts, attributes)] = _read_parts(column)
        elif role.why:
            is_unnamed = name.startswith(UNNAMED_PREFIX)
            shown = f"a column without a name in {table.name}" if is_unnamed else name
            notices.ignored[shown] = role.why
        roles.append(role)

    # 3. Their arrays by key.
    values: dict[str, Array] = {}
    if labels:
        attributes.target_level = "node" if level == "node" else "graph"
        label_columns = [columns[name] for name in labels]
        values[attributes.target_key] = _read_labels(label_columns, targets, options, attributes)
    values |= register_part_masks(
        masks, len(table.frame), table.name, options, findings, masks_are_flags=masks_are_flags
    )
    values |= parts
    attributes.part_keys += parts.keys() - {attributes.group_key}
    if features:
        key = FEATURE_KEYS[level]
        _, _, attribute = key.partition("/")
        values[key] = np.stack(features, axis=1)
        fields = [feature for role in roles for feature in role.features]
        attributes.component_names[attribute] = tuple(fields)
    findings.tables.levels[table.name] = level
    findings.roles.extend(role for role in roles if not role.column.startswith("\0"))
    return values


def _read_labels(
    columns: Sequence[TableColumn],
    values: Sequence[CellValues],
    options: ReadOptions,
    attributes: Attributes,
) -> Array:
    """Return the targets (R, …).

    The classes are those of the description, of the format's own files, or of a dtype.
    """
    attributes.component_names["y"] = tuple(column.name for column in columns)
    if len(columns) == 1 and options.params.task in {None, "classification"}:
        attributes.class_names = attributes.class_names or columns[0].categories
    classes = attributes.class_names
    if options.described is not None:
        classes = options.described.classes
    return read_targets(columns, values, classes, options.params)


def _decide_role(
    column: TableColumn,
    level: Level,
    use: Use | None,
    reason: str,
    described: ColumnRole | None,
    options: ReadOptions,
) -> tuple[ColumnRole, CellValues]:
    """Return the role of a column, and its values if it is a target or a feature.

    In this order: the ``use`` of ids, targets and groups, ``None`` for other columns; a ``reason`` to
    leave the column out; parts; the ``described`` role, whose values are checked when they are read;
    the values. Arrays have their roles from ``add_array_roles``.
    """
    name = column.name
    role = ColumnRole(column=name, level=level, table=column.table.name, use=use or "ignored")
    if use == "label":
        values = read_values(column, is_target=True)
        return role.model_copy(update=summarise_values(column, values)._asdict()), values
    if use is not None:
        return role.model_copy(update=summarise_cells(column)._asdict()), CellValues(None)

    # 1. Columns that are left out by an option, the description or the level.
    if not reason and not _is_mask(name, level) and not _has_parts(column):
        reason = _reason_to_ignore(name, level, options, is_described=described is not None)
    if reason:
        # The examples are written like values of a feature, whose questions are not asked.
        unasked = TableColumn(column.table, name, column.params, Notices())
        summary = summarise_values(unasked, read_values(unasked, is_target=False))
        return role.model_copy(update={"why": reason, **summary._asdict()}), CellValues(None)

    # 2. Parts of a split.
    if _is_mask(name, level) or _has_parts(column):
        summary = summarise_cells(column)
        return role.model_copy(update={"use": "part", **summary._asdict()}), CellValues(None)

    # 3. Features, by their values or as described.
    questions_before = len(column.notices.questions)
    values = read_values(column, is_target=False)
    role = role.model_copy(update=summarise_values(column, values)._asdict())
    if described is None:
        # The next question about the column depends on the answer.
        if len(column.notices.questions) > questions_before:
            return role, values
        return decide_feature_role(column, values, role), values
    categories = described.categories
    if described.use == "category" and not categories:
        categories = tuple(sorted({*value_texts(column, values)} - {""}))
    kept = {
        "use": described.use,
        "categories": categories,
        "nullable": described.nullable,
        "unit": described.unit,
    }
    return role.model_copy(update=kept), values


def _reason_given(name: str, described: Mapping[str, ColumnRole], params: GraphParams) -> str:
    """Return why the user or the description leaves a column out; empty if neither does."""
    if name in params.ignore:
        return "by ignore"
    if name in described and described[name].use == "ignored":
        return described[name].why or "by the description"
    return ""


def _reason_to_ignore(name: str, level: Level, options: ReadOptions, *, is_described: bool) -> str:
    """Return why a column is not a feature; empty if it may be one."""
    features = options.params.feature
    if options.described is not None and not is_described:
        return "not in the description"
    if features and name not in features:
        return "not among the features"
    if level == "graph" and not features and options.described is None:
        return (
            f"a column of graphs; {Setting(feature=name)} makes it a feature of graphs, "
            f"{Setting(label=name)} the target"
        )
    return ""


def _is_mask(name: str, level: Level) -> bool:
    """True for a column of nodes that is named like a mask of a part."""
    return level == "node" and name in PART_ARRAYS and not is_index_array(name)


def _has_parts(column: TableColumn) -> bool:
    """True for a column called ``split``, or with the values of parts."""
    sample = column.cells[:_SAMPLED_ROWS].dropna()
    return column.name == known_names.PART_NAME or are_parts(sample.tolist())


def _read_parts(column: TableColumn) -> Array:
    """Return a column of parts as codes (R,); refuse other strings."""
    cells = column.cells
    strings = cells.map(str).str.strip().where(cells.notna(), "")
    codes = {string: part_code(string) for string in strings.unique()}
    unknown = [string for string, code in codes.items() if code is None]
    if unknown:
        listed = ", ".join(map(repr, unknown[:_LISTED_STRINGS]))
        others = f"; unknown are {listed}" if len(unknown) > 1 else ""
        name = column.name
        raise column.table.error_at(
            strings.isin(unknown).argmax(),
            f"{name!r} is {unknown[0]!r}, not train, val or test{others}",
            [
                "write train, val or test instead, or ignore it if it is not a split",
                Setting(ignore=name),
            ],
        )
    return strings.map(codes).to_numpy(np.uint8)


def _read_groups(column: TableColumn, level: Level, attributes: Attributes) -> dict[str, I64]:
    """Return the number of each row's group (R,) by key, -1 for an empty cell; refuse fractions."""
    cells = column.cells
    if cells.dtype.kind == "f" and (cells.dropna() % 1 != 0).any():
        row = (cells % 1 > 0).argmax()
        raise column.table.error_at(
            row,
            f"{column.name!r} is {cells[row]}, not the text or whole number of a group",
            "name a column of names or ids as group",
        )
    numbers, _ = pd.factorize(cells)
    attributes.group_key = f"{'node' if level == 'node' else 'graph'}/{GROUP_ATTRIBUTE}"
    attributes.component_names[GROUP_ATTRIBUTE] = (column.name,)
    return {attributes.group_key: numbers.astype(np.int64)}


def _part_key(name: str, level: Level, taken: Container[str], attributes: Attributes) -> str:
    """Return the key of a column of parts, which may have any name."""
    attribute = _attribute_name(name)
    while (key := f"{'node' if level == 'node' else 'graph'}/{attribute}") in taken:
        attribute += "_"
    if attribute != name:
        attributes.component_names[attribute] = (name,)
    return key


def _attribute_name(name: str) -> str:
    """Return the name of a column in ASCII letters, digits and underscores, as arrays have them.

    >>> _attribute_name("Größe (1. Fold)"), _attribute_name("2nd split"), _attribute_name("fold_1")
    ('Groe_1_Fold', 'split_2nd_split', 'fold_1')
    """
    ascii_name = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    attribute = re.sub(r"[^A-Za-z0-9_]+", "_", ascii_name).strip("_")
    attribute = attribute if attribute[:1].isalpha() else f"split_{attribute}".rstrip("_")
    return attribute[:90]
