"""Columns of a table: targets, masks, parts and features by key, and how each column is used."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping

import numpy as np

from kmip_data.arrays import Array
from kmip_data.columns.column_uses import DescribedColumn, Level, Use
from kmip_data.columns.part_masks import PART_ARRAYS, is_index_array
from kmip_data.format.split_files import NO_PART, PART_CODES, part_name
from kmip_data.pipelines.datasets.graphs.findings import Findings, Notices, register_part_masks
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams
from kmip_data.pipelines.datasets.graphs.tables import known_columns
from kmip_data.pipelines.datasets.graphs.tables.cell_values import TableColumn, distinct_values
from kmip_data.pipelines.datasets.graphs.tables.features import NamedFeatures, read_features
from kmip_data.pipelines.datasets.graphs.tables.labels import find_labels, read_target
from kmip_data.pipelines.datasets.graphs.tables.table import Table

_SAMPLED_ROWS = 100  #: rows sampled to detect a split column
_COMMON_PART_NAMES = {"train", "val", "valid", "validation", "test"}
_LISTED_STRINGS = 20  #: unknown parts that an error lists

Uses = dict[str, dict[str, object]]  #: column -> fields of its :class:`DescribedColumn`


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
    with how each column is used. Masks split the nodes unless ``masks_are_flags``.
    ``edges_have_targets`` is True if rows of edges repeat the target of their graph.
    """
    params = options.params
    attributes = findings.attributes
    notices = findings.notices
    described = {} if options.described is None else options.described.columns_of_level(level)
    names = _columns_to_read(table, id_uses, described, params, notices)
    columns = {name: TableColumn(table, name, params, notices) for name in table.column_names}
    uses: Uses = {name: {"use": use} for name, use in id_uses.items()}
    values: dict[str, Array] = {}

    # 1. Targets.
    labels: list[str] = []
    may_have_labels = level != "edge" or edges_have_targets or bool(params.label)
    if may_have_labels and "y" not in attributes.component_names:
        graph_column = next((name for name, use in id_uses.items() if use == "graph"), "")
        labels, ignored = find_labels(
            table, names, level, options, notices, graph_column=graph_column
        )
        names = [name for name in names if name not in ignored]
    if labels:
        attributes.component_names["y"] = tuple(labels)
        attributes.target_level = "node" if level == "node" else "graph"
        is_single = len(labels) == 1 and params.task != "multilabel"
        has_class_names = is_single and params.task != "regression"
        targets = [
            read_target(columns[name], options.described, has_class_names=has_class_names)
            for name in labels
        ]
        values[attributes.target_key] = targets[0] if is_single else np.stack(targets, axis=1)
        uses |= {name: {"use": "label"} for name in labels}

    # 2. Masks of nodes.
    masks = _read_masks(table, names) if level == "node" else {}
    values |= register_part_masks(
        masks, len(table.frame), table.name, options, findings, masks_are_flags=masks_are_flags
    )
    uses |= {name: {"use": "part"} for name in masks}

    # 3. Parts and features.
    features: NamedFeatures = []
    for name in names:
        if name in labels or name in masks:
            continue
        parts = _read_parts(table, name)
        if parts is not None:
            key = f"{'node' if level == 'node' else 'graph'}/{name}"
            values[key] = parts
            attributes.part_keys.append(key)
            uses[name] = {"use": "part"}
            continue
        reason = _reason_to_ignore(name, level, options, is_described=name in described)
        if reason:
            columns[name].ignore(reason)
            continue
        column_features = read_features(columns[name], described.get(name))
        features += column_features
        if column_features:
            uses[name] = _feature_use(name, column_features, described.get(name), notices)
    if features:
        attribute = "x" if level == "node" else "edge_attr"
        values[f"{level}/{attribute}"] = np.stack([array for _, array in features], axis=1)
        attributes.component_names[attribute] = tuple(name for name, _ in features)

    findings.tables.levels[table.name] = level
    for name in dict.fromkeys([*names, *table.column_names]):
        if not name.startswith("\0"):
            description = _describe_column(columns[name], level, uses.get(name, {}))
            findings.tables.columns.append(description)
    return values


def _columns_to_read(
    table: Table,
    id_uses: Mapping[str, Use],
    described: Mapping[str, DescribedColumn],
    params: GraphParams,
    notices: Notices,
) -> list[str]:
    """Return the columns without ids and ignored ones, in the order of the description."""
    columns = dict.fromkeys(name for name in table.column_names if name not in id_uses)
    names = list(dict.fromkeys([*(name for name in described if name in columns), *columns]))
    for name in [name for name in names if name in params.ignore]:
        notices.ignored[name] = "by --set ignore="
        names.remove(name)
    for name, column in described.items():
        if column.use == "ignored" and name in names:
            notices.ignored[name] = column.why or "by the description"
            names.remove(name)
    return names


def _reason_to_ignore(name: str, level: Level, options: ReadOptions, *, is_described: bool) -> str:
    """Return why a column is not a feature; empty if it may be one."""
    features = options.params.feature
    if options.described is not None and not is_described:
        return "not in the description"
    if features and name not in features:
        return "not among --set feature="
    if level == "graph":
        return (
            "columns of graphs are not features of nodes; "
            f"--set label={shlex.quote(name)} makes it the target"
        )
    return ""


def _feature_use(
    name: str, features: NamedFeatures, described: DescribedColumn | None, notices: Notices
) -> dict[str, object]:
    """Return the use of a column that became ``features``."""
    feature = features[0][0]
    unit = feature.removeprefix(name).removeprefix(" [").removesuffix("]")
    is_number = feature in {name, f"{name} [{unit}]"}
    categories = [feature.removeprefix(f"{name}=") for feature, _ in features]
    return {
        "use": "number" if is_number else "category",
        "categories": () if is_number else tuple(categories),
        "unit": unit if is_number else "",
        "nullable": name in notices.missing or bool(described and described.nullable),
    }


def _read_masks(table: Table, names: Iterable[str]) -> dict[str, Array]:
    """Return the masks (N,) of parts among the columns of a table of nodes."""
    masks = [name for name in names if name in PART_ARRAYS and not is_index_array(name)]
    return {name: table.frame[name].to_numpy() for name in masks}


def _describe_column(
    column: TableColumn, level: Level, use: Mapping[str, object]
) -> DescribedColumn:
    """Describe a column by its use, and a summary of its values."""
    notices = column.notices
    described = DescribedColumn(
        name=column.name, rows=level, use="ignored", why=notices.ignored.get(column.name, "")
    )
    described = described.model_copy(update=use)
    distinct = distinct_values(column, described.use)
    missing = notices.missing.get(column.name, int(column.cells.isna().sum()))
    summary = {
        "values": tuple(map(_format_value, distinct[:3])),
        "distinct": len(distinct),
        "missing": missing,
    }
    return described.model_copy(update=summary)


def _format_value(value: object) -> str:
    """Format a value for display; booleans are spelled like their class names."""
    if isinstance(value, bool | np.bool_):
        return str(value).lower()
    return str(value)[:40]


def _read_parts(table: Table, name: str) -> Array | None:
    """Return a column of parts as codes (R,); ``None`` for other columns.

    A column has parts if it is called ``split``, if it has a common name of a part, or if it has
    only names of parts, of more than one part: ``te`` among other strings is a language.
    """
    column = table.frame[name]
    sample = {str(value).strip().lower() for value in column[:_SAMPLED_ROWS].dropna()} - {""}
    sampled_codes = {_part_code(string) for string in sample}
    has_common_name = not sample.isdisjoint(_COMMON_PART_NAMES)
    has_only_parts = len(sampled_codes) > 1 and None not in sampled_codes
    if name != known_columns.PART_NAME and not has_common_name and not has_only_parts:
        return None
    strings = column.map(str).str.strip().where(column.notna(), "")
    codes = {string: _part_code(string) for string in strings.unique()}
    unknown = [string for string, code in codes.items() if code is None]
    if unknown:
        listed = ", ".join(map(repr, unknown[:_LISTED_STRINGS]))
        others = f"; unknown are {listed}" if len(unknown) > 1 else ""
        raise table.error_at(
            strings.isin(unknown).argmax(),
            f"{name!r} is {unknown[0]!r}, not train, val or test{others}",
            f"write train, val or test instead; --set ignore={shlex.quote(name)} if it is not a split",
        )
    return strings.map(codes).to_numpy(np.uint8)


def _part_code(string: str) -> int | None:
    """Return the code of a part by its name; ``None`` if it is unknown."""
    return PART_CODES.get(part_name(string) or "") if string else NO_PART
