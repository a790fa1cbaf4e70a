"""Values of a table by key: features, targets, parts and groups, with the role of each column."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from kmip_data.arrays import F32, Array
from kmip_data.columns.column_roles import FEATURE_USES, ColumnRole, Level, Use
from kmip_data.errors import Setting
from kmip_data.pipelines.datasets.graphs.findings import (
    FEATURE_KEYS,
    Attributes,
    Findings,
    Notices,
    register_part_masks,
)
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.own.columns.facts import TableFacts
from kmip_data.pipelines.own.columns.features import read_features
from kmip_data.pipelines.own.columns.numbers import SIGNS, DecimalSign
from kmip_data.pipelines.own.columns.parts import attribute_name, read_groups, read_mask, read_parts
from kmip_data.pipelines.own.columns.questions import question_about
from kmip_data.pipelines.own.columns.targets import find_targets, read_target
from kmip_data.pipelines.own.columns.uses import Candidate, Vote, decide
from kmip_data.pipelines.own.table import Table
from kmip_data.text import list_names

_SHOWN_VALUES, _SHOWN_CHARACTERS = 3, 40
_SAMPLED_ROWS = 100  #: first rows in which the shown values are looked for


@dataclass
class _Values:
    """Values of the columns read so far."""

    side: str  #: level of targets, parts and groups: ``node`` or ``graph``
    by_key: dict[str, Array] = field(default_factory=dict)
    masks: dict[str, Array] = field(default_factory=dict)
    targets: list[Array] = field(default_factory=list)
    features: list[F32] = field(default_factory=list)
    roles: list[ColumnRole] = field(default_factory=list)
    #: decimal sign -> columns that show it
    signs: dict[DecimalSign, list[str]] = field(default_factory=dict)


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
    described = {} if options.described is None else options.described.columns_of_level(level)
    fixed = {name: role.categories for name, role in described.items()}
    if options.described is not None:
        fixed |= dict.fromkeys(params.label, options.described.classes)
    facts = TableFacts(table, params, fixed)
    graph = next((name for name, use in id_uses.items() if use == "graph"), "")
    graphs = facts.of(graph) if graph and level != "graph" else None
    others = [name for name in table.column_names if name not in id_uses]
    names = [
        name for name in dict.fromkeys([*described, *others, *id_uses]) if name in table.columns
    ]

    # 1. Targets, which depend on the names and values of several columns. They keep their order.
    has_targets = level != "edge" or edges_have_targets
    labels: list[str] = []
    reasons: dict[str, str] = {}
    if (has_targets or params.label) and "y" not in attributes.component_names:
        taken = {*id_uses, *params.ignore, params.group}
        taken |= {name for name, role in described.items() if role.use == "ignored"}
        free = [name for name in names if name not in taken]
        labels, reasons = find_targets(facts, free, level, graphs, options, findings.notices)
        in_order = iter(labels)
        names = [next(in_order) if name in labels else name for name in names]
    is_single = len(labels) == 1 and params.task != "multilabel"
    uses: dict[str, Use] = {params.group: "group"} if has_targets else {}
    uses |= {**dict.fromkeys(labels, "label"), **id_uses}

    # 2. The role of each column, and the values that follow from it.
    values = _Values("node" if level == "node" else "graph")
    for name in names:
        is_target = uses.get(name) == "label"
        column = Candidate(
            table=table,
            facts=facts.of(name).of_target() if is_target else facts.of(name),
            level=level,
            options=options,
            use=uses.get(name),
            reason=reasons.get(name, ""),
            described=described.get(name),
            graphs=graphs,
            has_classes=is_single and params.task != "regression",
        )
        _read_column(column, values, findings)
        facts.forget(name)
    _ask_about_signs(table, values, options, findings.notices)

    # 3. Their arrays by key.
    if labels:
        attributes.target_level = values.side
        attributes.component_names["y"] = tuple(labels)
        targets = values.targets
        values.by_key[attributes.target_key] = (
            targets[0] if is_single else np.stack(targets, axis=1)
        )
    values.by_key |= register_part_masks(
        values.masks, table.rows, table.name, options, findings, masks_are_flags=masks_are_flags
    )
    if values.features:
        key = FEATURE_KEYS[level]
        values.by_key[key] = np.stack(values.features, axis=1)
        fields = [feature for role in values.roles for feature in role.features]
        attributes.component_names[key.partition("/")[2]] = tuple(fields)
    findings.tables.levels[table.name] = level
    findings.roles.extend(role for role in values.roles if not role.column.startswith("\0"))
    return values.by_key


def _read_column(column: Candidate, values: _Values, findings: Findings) -> None:
    """Add the role of a column and its values, or the question about it."""
    name = column.name
    notices, attributes = findings.notices, findings.attributes
    vote = decide(column)
    if question := question_about(column, vote.use):
        notices.questions[question.text] = question.answer
        vote = Vote(column.use or "ignored")
    role = _role(column, vote)
    values.roles.append(role)
    if role.use == "label":
        values.targets.append(read_target(column, attributes))
    elif role.features:
        values.features += read_features(column, role)
    elif role.use == "part" and column.is_mask:
        values.masks[name] = read_mask(column)
    elif role.use == "part":
        key = _key(name, attribute_name(name), values, attributes)
        values.by_key[key] = read_parts(column)
        attributes.part_keys.append(key)
    elif role.use == "group":
        attributes.group_key = _key(name, "group", values, attributes)
        values.by_key[attributes.group_key] = read_groups(column)
    elif role.why:
        is_unnamed = name.startswith("unnamed ")
        shown = f"a column without a name in {column.table.name}" if is_unnamed else name
        notices.ignored[shown] = role.why
    if role.use == "label" or role.features:
        if role.missing:
            notices.missing[name] = role.missing
        if column.facts.sign:
            values.signs.setdefault(column.facts.sign, []).append(name)


def _key(name: str, attribute: str, values: _Values, attributes: Attributes) -> str:
    """Return a free key of a column, which may have any name, and record the name."""
    while f"{values.side}/{attribute}" in values.by_key:
        attribute += "_"
    if attribute != name:
        attributes.component_names[attribute] = (name,)
    return f"{values.side}/{attribute}"


def _role(column: Candidate, vote: Vote) -> ColumnRole:
    """Return the role of a column, with a summary of its values."""
    facts = column.facts
    shown = [
        text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
        for text in facts.first_texts(_SAMPLED_ROWS)[:_SHOWN_VALUES]
    ]
    role = ColumnRole(
        column=column.name,
        level=column.level,
        table=column.table.name,
        use=vote.use,
        why=vote.why,
        values=tuple(shown),
        distinct=facts.distinct,
        missing=len(facts.cells) - facts.filled,
    )
    if vote.use not in FEATURE_USES:
        return role
    described = column.described
    categories = () if described is None else described.categories
    if vote.use == "category" and not categories:
        categories = column.table.categories.get(column.name) or tuple(sorted(facts.texts))
    nullable, unit = role.missing > 0, facts.unit
    if described is not None:
        nullable, unit = described.nullable, described.unit
    return role.model_copy(update={"categories": categories, "nullable": nullable, "unit": unit})


def _ask_about_signs(table: Table, values: _Values, options: ReadOptions, notices: Notices) -> None:
    """Ask about numbers with another decimal sign than is given, or than most columns of a table have."""
    signs = values.signs
    notices.decimal_signs |= signs.keys()
    most_common = max(SIGNS, key=lambda sign: len(signs.get(sign, ())))
    main = options.params.decimal or most_common
    for sign in signs.keys() - {main}:
        if options.described is not None and not options.params.decimal:
            continue
        columns = signs[sign]
        answer = Setting(decimal=sign)
        if main in signs:
            answer = Setting(ignore=columns if len(columns) > 1 else columns[0])
        question = (
            f"{table.name}: the decimal sign of {list_names(columns, 200)} is {sign!r}, not {main!r}: "
            f"correct one, or {answer}"
        )
        notices.questions[question] = answer
