"""Values of a table by key: features, targets, parts and groups, with the role of each column."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence

import numpy as np

from kmip_data.arrays import F32, I64, U8, Array, Bools
from kmip_data.columns.column_roles import ColumnRole, Level, Use
from kmip_data.columns.labels import NO_CLASS
from kmip_data.columns.part_masks import part_code
from kmip_data.errors import DamagedInput, Setting
from kmip_data.format.split_files import NO_PART
from kmip_data.pipelines.datasets.graphs.findings import (
    FEATURE_KEYS,
    Attributes,
    Findings,
    register_part_masks,
)
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.own.facts import TableFacts, missing_words
from kmip_data.pipelines.own.numbers import number_texts
from kmip_data.pipelines.own.table import Table
from kmip_data.pipelines.own.targets import find_targets
from kmip_data.pipelines.own.uses import Candidate, Vote, decide, question_of_precision
from kmip_data.text import list_names

_SHOWN_VALUES, _SHOWN_CHARACTERS = 3, 40
_SAMPLED_ROWS = 100  #: first rows in which the shown values are looked for


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
    params, attributes, notices = options.params, findings.attributes, findings.notices
    described = {} if options.described is None else options.described.columns_of_level(level)
    _check_described_columns(table, described)
    facts = TableFacts(table, params)
    graph = next((name for name, use in id_uses.items() if use == "graph"), "")
    graphs = facts.of(graph) if graph and level != "graph" else None

    # 1. Targets, which depend on the names and values of several columns. They keep their order.
    others = [name for name in table.column_names if name not in id_uses]
    names = [*dict.fromkeys([*(n for n in described if n in table.columns), *others, *table.columns])]
    labels: list[str] = []
    reasons: dict[str, str] = {}
    has_targets = level != "edge" or edges_have_targets
    if (has_targets or params.label) and "y" not in attributes.component_names:
        taken = {*id_uses, *params.ignore, params.group}
        taken |= {name for name, role in described.items() if role.use == "ignored"}
        free = [name for name in names if name not in taken]
        labels, reasons = find_targets(facts, free, level, graphs, options, notices)
        in_order = iter(labels)
        names = [next(in_order) if name in labels else name for name in names]
    is_single = len(labels) == 1 and params.task != "multilabel"

    # 2. The role of each column, and the values that follow from it.
    values: dict[str, Array] = {}
    masks: dict[str, Array] = {}
    targets: list[Array] = []
    features: list[F32] = []
    roles: list[ColumnRole] = []
    signs: dict[str, list[str]] = {}
    side = "node" if level == "node" else "graph"
    for name in names:
        use = "label" if name in labels else id_uses.get(name)
        if use is None and name == params.group and has_targets:
            use = "group"
        role = described.get(name)
        fixed = role.categories if role else ()
        if use == "label" and options.described:
            fixed = options.described.classes
        column = Candidate(
            table=table,
            facts=facts.of(name, fixed),
            level=level,
            options=options,
            use=use,
            reason=reasons.get(name, ""),
            described=role,
            graphs=graphs,
            has_classes=is_single and params.task != "regression",
        )
        vote = decide(column)
        if vote.answer is not None:
            notices.questions[vote.why] = vote.answer
            vote = Vote(use or "ignored")
        role = _role(column, vote)
        roles.append(role)
        if role.use == "label":
            targets.append(_read_target(column, attributes))
        elif role.features:
            features += _read_features(column, role, findings)
        elif role.use == "group":
            attributes.group_key = f"{side}/group"
            attributes.component_names["group"] = (name,)
            values[attributes.group_key] = _read_groups(column)
        elif role.use == "part" and column.is_mask:
            masks[name] = _read_mask(column)
        elif role.use == "part":
            attribute = _attribute_name(name)
            while f"{side}/{attribute}" in values:
                attribute += "_"
            if attribute != name:
                attributes.component_names[attribute] = (name,)
            values[f"{side}/{attribute}"] = _read_parts(column)
            attributes.part_keys.append(f"{side}/{attribute}")
        elif role.why:
            shown = name
            if name.startswith("unnamed "):
                shown = f"a column without a name in {table.name}"
            notices.ignored[shown] = role.why
        if role.use == "label" or role.features:
            missing = int(column.facts.is_missing.sum())
            if missing:
                notices.missing[name] = missing
            signs.setdefault(column.facts.sign, []).append(name)
        facts.forget(name)
    _ask_about_signs(table, signs, options, findings)

    # 3. Their arrays by key.
    if targets:
        attributes.target_level = side
        attributes.component_names["y"] = tuple(labels)
        values[attributes.target_key] = targets[0] if is_single else np.stack(targets, axis=1)
    values |= register_part_masks(
        masks, table.rows, table.name, options, findings, masks_are_flags=masks_are_flags
    )
    if features:
        key = FEATURE_KEYS[level]
        values[key] = np.stack(features, axis=1)
        attributes.component_names[key.partition("/")[2]] = tuple(
            feature for role in roles for feature in role.features
        )
    findings.tables.levels[table.name] = level
    findings.roles.extend(role for role in roles if not role.column.startswith("\0"))
    return values


def _check_described_columns(table: Table, described: Mapping[str, ColumnRole]) -> None:
    for name, role in described.items():
        if role.features and name not in table.columns:
            raise DamagedInput(
                f"{table.name} has no column {name!r}, which the description has.",
                found=table.column_list,
                steps="add the column: a model needs it",
            )


def _role(column: Candidate, vote: Vote) -> ColumnRole:
    """Return the role of a column, with a summary of its values."""
    facts = column.facts
    head = dict.fromkeys(facts.first_texts(_SAMPLED_ROWS))
    shown = [
        text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
        for text in [*head][:_SHOWN_VALUES]
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
    described = column.described
    if column.use or vote.use not in {"number", "boolean", "category"}:
        return role
    categories: tuple[str, ...] = ()
    if vote.use == "category":
        categories = column.table.categories.get(column.name) or tuple(sorted(facts.texts))
    if described is None:
        nullable = facts.filled < len(facts.cells)
        unit = facts.unit
    else:
        categories = described.categories or categories
        nullable, unit = described.nullable, described.unit
    return role.model_copy(update={"categories": categories, "nullable": nullable, "unit": unit})


def _read_features(column: Candidate, role: ColumnRole, findings: Findings) -> list[F32]:
    """Return the features (R,) of a column, as many as its role has; refuse values that do not fit.

    Missing numbers become 0; a second feature marks them.
    """
    facts = column.facts
    is_missing = facts.is_missing
    if not role.nullable:
        _check(column, is_missing, "")
    if role.use == "category":
        codes = _codes_of(column, role.categories, "one of the categories")
        return [(codes == code).astype(np.float32) for code in range(len(role.categories))]
    numbers = facts.numbers
    if numbers is None:
        _check(column, ~is_missing, "a number")
        numbers = np.full(len(is_missing), np.nan)
    if role.use == "boolean":
        _check(column, ~np.isin(numbers, (0, 1)) & ~is_missing, "true or false")
    if facts.unit != role.unit:
        _check(column, ~is_missing, f"a number with the unit {role.unit or 'none'}")
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = numbers.astype(np.float32)
    if question := question_of_precision(column, rounded):
        findings.notices.questions[question.why] = question.answer
    if not role.nullable:
        return [rounded]
    return [np.where(is_missing, np.float32(0), rounded), is_missing.astype(np.float32)]


def _read_target(column: Candidate, attributes: Attributes) -> Array:
    """Return a target (R,): numbers, NaN if missing; or texts, empty if missing.

    The classes are those of the description, of the format's own files, or of a dtype.
    """
    facts = column.facts
    numbers = facts.numbers
    classes: Sequence[str] = ()
    if column.has_classes:
        attributes.class_names = attributes.class_names or column.table.categories.get(facts.name, ())
        classes = attributes.class_names
        if column.options.described is not None:
            classes = column.options.described.classes
    if classes:
        codes = _codes_of(column, classes, "one of the classes")
        if [*classes] != [str(number) for number in range(len(classes))]:
            return np.array([*classes, ""], object)[codes]
    elif column.has_classes and numbers is not None:
        # -1 is a class here, and no missing label.
        if facts.are_booleans or (facts.smallest == NO_CLASS and column.is_decided):
            return facts.as_texts()
    return facts.as_texts() if numbers is None else numbers


def _codes_of(column: Candidate, typed: Sequence[str], expected: str) -> I64:
    """Return the position of each value (R,) among typed ones, such as 57.0; -1 if it is missing."""
    facts = column.facts
    positions: dict[str, int] = {}
    for position, text in enumerate(typed):
        canonical = _canonical(column, text)
        if canonical in positions:
            raise DamagedInput(
                f"The description of {column.name!r} has the same value twice: "
                f"{typed[positions[canonical]]!r} and {text!r}.",
                steps="keep one of them",
            )
        positions[canonical] = position
    of_texts = [positions.get(_canonical(column, text), -1) for text in facts.texts]
    codes = np.array([*of_texts, -1])[facts.codes]
    _check(column, (codes < 0) & ~facts.is_missing, f"{expected} {list_names(typed, 200)}")
    return codes


def _canonical(column: Candidate, text: str) -> str:
    """Return a typed value as the column has it."""
    if column.facts.are_booleans:
        return text.lower()
    if column.facts.numbers is None or column.facts.unit:
        return text
    try:
        return number_texts([float(text)])[0]
    except ValueError:
        return text


def _check(column: Candidate, is_wrong: Bools, expected: str) -> None:
    """Refuse the first value (R,) that does not fit the description."""
    if not is_wrong.any():
        return
    row = int(is_wrong.argmax())
    cell = column.facts.cells[row].as_py()
    if column.facts.is_missing[row]:
        problem = f"{column.name!r} is empty, and the description has no missing values of it"
        remedy = "fill it in, remove the line, or set nullable = true in the description"
    else:
        problem = f"{column.name!r} is {str(cell)!r}, not {expected}"
        remedy = "correct the value, or remove the line: a model has no input or output for it"
    raise column.table.error_at(row, problem, remedy)


def _read_parts(column: Candidate) -> U8:
    """Return a column of parts as codes (R,); refuse other texts."""
    facts = column.facts
    codes = [part_code(text) for text in facts.texts]
    unknown = [text for text, code in zip(facts.texts, codes, strict=True) if code is None]
    if unknown:
        raise column.table.error_at(
            facts.row_of(unknown[0]),
            f"{column.name!r} is {unknown[0]!r}, not train, val or test; unknown are "
            f"{list_names(unknown, 500)}",
            [
                "write train, val or test instead, or ignore it if it is not a split",
                Setting(ignore=column.name),
            ],
        )
    return np.array([*codes, NO_PART], np.uint8)[facts.codes]


def _read_groups(column: Candidate) -> I64:
    """Return the number of each row's group (R,), -1 for an empty cell; refuse fractions."""
    facts = column.facts
    if facts.numbers is not None and not facts.are_whole:
        row = int((np.nan_to_num(facts.numbers) % 1 > 0).argmax())
        raise column.table.error_at(
            row,
            f"{column.name!r} is {facts.cells[row]}, not the text or whole number of a group",
            "name a column of names or ids as group",
        )
    return facts.codes


def _read_mask(column: Candidate) -> Array:
    """Return a mask as integers if all cells are; else as it is, to be refused."""
    numbers = column.facts.numbers
    if numbers is None:
        return column.facts.as_texts()
    return numbers.astype(np.int64) if column.facts.are_whole and not column.facts.is_missing.any() else numbers


def _ask_about_signs(
    table: Table, signs: Mapping[str, Sequence[str]], options: ReadOptions, findings: Findings
) -> None:
    """Ask about numbers with another decimal sign than the others of a table have."""
    shown = [sign for sign in signs if sign]
    findings.notices.decimal_signs |= {*shown}
    if len(shown) < 2 or options.described is not None:
        return
    main = options.params.decimal or max(shown, key=lambda sign: len(signs[sign]))
    for sign in shown:
        if sign != main:
            answer = Setting(ignore=[*signs[sign]] if len(signs[sign]) > 1 else signs[sign][0])
            question = (
                f"{table.name}: the numbers in {list_names(signs[sign], 200)} have the decimal sign {sign!r}, "
                f"and those in {list_names(signs[main], 200)} have {main!r}: correct one, or leave it out: "
                f"{answer}"
            )
            findings.notices.questions[question] = answer


def _attribute_name(name: str) -> str:
    """Return the name of a column in ASCII letters, digits and underscores, as arrays have them.

    >>> _attribute_name("Größe (1. Fold)"), _attribute_name("2nd split"), _attribute_name("fold_1")
    ('Groe_1_Fold', 'split_2nd_split', 'fold_1')
    """
    ascii_name = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    attribute = re.sub(r"[^A-Za-z0-9_]+", "_", ascii_name).strip("_")
    attribute = attribute if attribute[:1].isalpha() else f"split_{attribute}".rstrip("_")
    return attribute[:90]
