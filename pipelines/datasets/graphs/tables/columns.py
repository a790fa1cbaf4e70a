"""Features, targets and parts of a table: numbers, categories, missing values, and what is ignored or asked."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from kmip_data.arrays import F32, F64, Array, Bools
from kmip_data.columns.column_uses import DescribedColumn, Level, Use
from kmip_data.columns.part_masks import PART_ARRAYS, is_index_array
from kmip_data.format.split_files import NO_PART, NODE_PARTS, part_name
from kmip_data.pipelines.datasets.graphs.findings import Findings, Notices, divide_by_masks
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams
from kmip_data.pipelines.datasets.graphs.tables import roles
from kmip_data.pipelines.datasets.graphs.tables.cell_values import (
    MISSING,
    are_truth_values,
    distinct_values,
    values_of_column,
)
from kmip_data.pipelines.datasets.graphs.tables.table import UNNAMED, Table, counts_from_zero

_SHARE_OF_IDENTIFIERS = 0.9  #: share of rows with a text of their own from which texts are names
_LOOKED_AT = 100  #: first rows, which tell whether a column has parts
_USUAL_PARTS = {"train", "val", "valid", "validation", "test"}
_SHOWN_WORDS = 20  #: unknown parts that an error lists
#: Largest absolute value of a feature that needs no scaling, such as an age.
_LARGE = 120
_DATE = re.compile(
    r"(?:\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4})(?:[T ]+[\d:.,+Zz -]*)?"
    # Wed Oct 10 20:19:24 +0000 2018; Wed, 10 Oct 2018 20:19:24 GMT; 10 October 2018
    r"|(?:(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*,? )?(?:\d{1,2}[. ]+)?"
    r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.? [\d:., +-]*\d{4}"
    r"(?: [\d:.+ -]*(?:gmt|utc)?)?",
    re.IGNORECASE,
)


def columns_of(
    table: Table,
    level: Level,
    used: Mapping[str, Use],
    options: ReadOptions,
    findings: Findings,
    *,
    several: bool = False,
    edges_have_targets: bool = False,
) -> dict[str, Array]:
    """Return targets, parts and features by key, (R, …) each; remaining columns are features.

    Columns in ``used`` are ids. What a column leaves open becomes a question of ``findings``, which
    keep the use of each column. Masks divide the nodes unless there are ``several`` graphs;
    ``edges_have_targets`` is True if rows of edges have the target of their graph.
    """
    params = options.params
    attributes = findings.attributes
    notices = findings.notices
    free = dict.fromkeys(name for name in table.names if name not in used)
    described = {} if options.described is None else options.described.columns_of_level(level)
    # Features are in the order of the description.
    names = list(dict.fromkeys([*(name for name in described if name in free), *free]))
    uses: dict[str, dict[str, object]] = {name: {"use": use} for name, use in used.items()}
    for name in [name for name in names if name in params.ignore]:
        notices.ignored[name] = "by --set ignore="
        names.remove(name)
    for name, column in described.items():
        if column.use == "ignored" and name in names:
            notices.ignored[name] = column.why or "by the description"
            names.remove(name)

    values: dict[str, Array] = {}
    labels: list[str] = []
    may_have_labels = level != "edge" or edges_have_targets or bool(params.label)
    if may_have_labels and "y" not in attributes.component_names:
        labels, unused = _labels_of(table, names, level, options, notices)
        names = [name for name in names if name not in unused]
    if labels:
        attributes.component_names["y"] = tuple(labels)
        attributes.target_level = "node" if level == "node" else "graph"
        flat = len(labels) == 1 and params.task != "multilabel"
        named = flat and params.task != "regression"
        targets = [target_values(table, name, options, notices, named=named) for name in labels]
        values[attributes.target_key] = targets[0] if flat else np.stack(targets, axis=1)

    masks = _masks_of(table, names) if level == "node" else {}
    values |= divide_by_masks(
        masks, len(table.frame), table.name, options, findings, several=several
    )

    features: list[tuple[str, F32]] = []
    for name in names:
        if name in labels or name in masks:
            continue
        given = described.get(name)
        parts = _part_codes(table, name)
        if parts is not None:
            key = f"{'node' if level == 'node' else 'graph'}/{name}"
            values[key] = parts
            attributes.part_keys.append(key)
            uses[name] = {"use": "part"}
        elif options.described is not None and given is None:
            notices.ignored[name] = "not in the description"
        elif params.feature and name not in params.feature:
            notices.ignored[name] = "not among --set feature="
        elif level == "graph":
            notices.ignored[name] = (
                "a column of graphs is no feature of their nodes; "
                f"--set label={shlex.quote(name)} would make it the target"
            )
        else:
            made = features_of_column(table, name, params, notices, given)
            features += made
            if made:
                categories = [text.removeprefix(f"{name}=") for text, _ in made]
                is_number = made[0][0] == name
                uses[name] = {
                    "use": "number" if is_number else "category",
                    "categories": () if is_number else tuple(categories),
                    "nullable": name in notices.missing or bool(given and given.nullable),
                }
    if features:
        attribute = "x" if level == "node" else "edge_attr"
        values[f"{level}/{attribute}"] = np.stack([array for _, array in features], axis=1)
        attributes.component_names[attribute] = tuple(name for name, _ in features)

    uses |= {name: {"use": "label"} for name in labels}
    uses |= {name: {"use": "part"} for name in masks}
    findings.tables.levels[table.name] = level
    findings.tables.columns += _described_columns(
        table, level, dict.fromkeys([*names, *table.names]), uses, params, notices
    )
    return values


def _masks_of(table: Table, names: Iterable[str]) -> dict[str, Array]:
    """Return the flags of a part, (N,) each, among the columns of a table of nodes."""
    masks = [name for name in names if name in PART_ARRAYS and not is_index_array(name)]
    return {name: table.frame[name].to_numpy() for name in masks}


def _described_columns(
    table: Table,
    level: Level,
    names: Iterable[str],
    uses: Mapping[str, Mapping[str, object]],
    params: GraphParams,
    notices: Notices,
) -> Iterator[DescribedColumn]:
    """Yield the columns of a table that a file has, with their uses and the values seen; others are ignored."""
    for name in names:
        if name.startswith("\0"):
            continue
        why = notices.ignored.get(name, "")
        column = DescribedColumn(name=name, rows=level, use="ignored", why=why)
        column = column.model_copy(update=uses.get(name, {}))
        seen = _value_summary(table, name, column.use, params, notices)
        yield column.model_copy(update=seen)


def _value_summary(
    table: Table, name: str, use: object, params: GraphParams, notices: Notices
) -> dict[str, object]:
    """Return three values of a column, and its numbers of distinct and of missing values."""
    values = table.frame[name]
    distinct = distinct_values(values, use, params)
    return {
        "values": tuple(_shown_value(value) for value in distinct[:3]),
        "distinct": len(distinct),
        "missing": notices.missing.get(name, int(values.isna().sum())),
    }


def _shown_value(value: object) -> str:
    """Return a value as a short text, a truth value as its class is called."""
    if isinstance(value, bool | np.bool_):
        return str(value).lower()
    return str(value)[:40]


def _labels_of(
    table: Table, names: Sequence[str], level: Level, options: ReadOptions, notices: Notices
) -> tuple[list[str], set[str]]:
    """Return the target columns of a table, and the columns that could be one but are ignored.

    Texts that differ in nearly every row are names.
    """
    params = options.params
    if params.label:
        labels = [name for name in params.label if name in names]
        if options.described is not None and table.frame[labels].isna().all(axis=None):
            notices.ignored |= dict.fromkeys(labels, "empty")
            return [], set(labels)
        return labels, set()
    usual = roles.matching_names(names, roles.LABELS)
    has_label = "label" in map(roles.normalized_name, usual)
    unused = set()
    for name in list(usual):
        if table.frame[name].isna().all():
            notices.ignored[name] = "empty"
            unused.add(name)
            usual.remove(name)
        elif level == "node" and _are_identifiers(
            table.frame[name], roles.normalized_name(name) == "label"
        ):
            notices.ignored[name] = (
                f"names, one for nearly every node; a target by --set label={shlex.quote(name)}"
            )
            unused.add(name)
            usual.remove(name)

    # Next to x, y is a coordinate if there is a label, and else may be one.
    remaining = [name for name in names if name not in unused]
    y = next(iter(roles.matching_names(remaining, ["y"])), "")
    x = next(iter(roles.matching_names(remaining, ["x"])), "")
    if y and x and (has_label or len(usual) > 1):
        usual.remove(y)
    elif y and x and table.frame[y].dtype.kind == "f" and table.frame[x].dtype.kind == "f":
        question = f"{table.name}: {y!r} next to {x!r} may be a coordinate or the target"
        notices.questions[f"{question}: --set label={shlex.quote(y)} or --set label=none"] = (
            "--set label=none"
        )
        return [], unused
    if len(usual) > 1:
        question = f"{table.name}: the target may be one of {', '.join(usual)}"
        notices.questions[question] = f"--set label={shlex.quote(usual[0])}"
        return [], unused
    return usual, unused


def _are_identifiers(values: pd.Series, of_integers: bool = False) -> bool:
    """True if texts, or also integers, differ in nearly every row."""
    if values.dtype.kind in "fb" or (values.dtype.kind in "iu" and not of_integers):
        return False
    filled = values.dropna()
    if values.dtype.kind not in "iu":
        # A column of numbers with missing values has texts, too.
        words = filled.map(str).str.strip()
        numbers = pd.to_numeric(words[~words.isin(MISSING)], errors="coerce")
        if numbers.notna().all() and not (of_integers and (numbers % 1 == 0).all()):
            return False
    return len(values) > 1 and filled.nunique() > _SHARE_OF_IDENTIFIERS * len(filled)


def target_values(
    table: Table,
    name: str,
    options: ReadOptions,
    notices: Notices,
    *,
    named: bool = False,
) -> Array:
    """Return a target column: numbers, NaN if missing; or texts, empty if missing.

    Truth values are the texts ``false`` and ``true`` where classes are ``named``, unless the
    description has numbers for them.
    """
    numbers, texts = values_of_column(table, name, options.params, notices, missing=True)
    if options.described is not None and options.described.classes:
        named &= not {"false", "true"}.isdisjoint(options.described.classes)
    if named and numbers is not None and are_truth_values(table.frame[name], options.params):
        texts = np.array(["false", "true", ""], object)[np.nan_to_num(numbers, nan=2).astype(int)]
        numbers = None
    values: Array = texts if numbers is None else numbers
    is_missing = texts == "" if numbers is None else np.isnan(numbers)
    count = int(is_missing.sum())
    if count:
        notices.missing[name] = count
    described = options.described
    if described is not None and described.classes:
        given = _as_texts(values, is_missing)
        classes = [*described.classes, ""]
        expected = f"one of the classes {', '.join(described.classes)[:200]}"
        _check_described_values(table, name, ~np.isin(given, classes), given, expected)
        if described.classes != tuple(map(str, range(len(described.classes)))):
            return given
    if numbers is not None and table.frame[name].dtype.kind in "iub" and not count:
        return table.frame[name].to_numpy()
    return values


def _as_texts(values: Array, is_missing: Bools) -> Array:
    """Return texts, or numbers as they are written, (n,); empty if missing."""
    if values.dtype != object:
        values = np.array([f"{value:.17g}" for value in values.tolist()], object)
    values[is_missing] = ""
    return values


def _check_described_values(
    table: Table, name: str, is_wrong: Bools, values: Array, expected: str
) -> None:
    """Refuse the first of the texts (n,) that the description of the columns does not know."""
    if not is_wrong.any():
        return
    row = int(is_wrong.argmax())
    if values[row]:
        problem = f"{name!r} is {values[row]!r}, not {expected}"
        remedy = "correct the value, or remove the line: a model has no input or output for it"
    else:
        problem = f"{name!r} is empty, and the description has no missing values of it"
        remedy = "fill it in, or remove the line; in a description of your own: nullable = true"
    raise table.error_at(row, problem, remedy)


def features_of_column(
    table: Table,
    name: str,
    params: GraphParams,
    notices: Notices,
    given: DescribedColumn | None = None,
) -> list[tuple[str, F32]]:
    """Return the features that a column becomes, with their names, as ``given`` if it is.

    Numbers are one feature, and with missing ones, which become 0, a second one that marks them.
    Texts are one feature for each. Names, dates and the numbers of rows are ignored.
    """
    asked_before = len(notices.questions)
    numbers, texts = values_of_column(table, name, params, notices, missing=False)
    # The next question of the column depends on the answer.
    if given is None and len(notices.questions) > asked_before:
        return []
    if given is not None and given.use in {"number", "category"}:
        values = texts if numbers is None else numbers
        is_missing = texts == "" if numbers is None else np.isnan(numbers)
        as_texts = _as_texts(values.copy(), is_missing)
        if not given.nullable:
            _check_described_values(table, name, is_missing, as_texts, "")
        if given.use == "category":
            known = given.categories or tuple(sorted({*as_texts} - {""}))
            expected = f"one of the categories {', '.join(known)[:200]}"
            _check_described_values(
                table, name, ~np.isin(as_texts, [*known, ""]), as_texts, expected
            )
            return [(f"{name}={word}", (as_texts == word).astype(np.float32)) for word in known]
        if numbers is None:
            numbers = pd.to_numeric(pd.Series(as_texts), errors="coerce").to_numpy(np.float64)
            _check_described_values(
                table, name, np.isnan(numbers) & ~is_missing, as_texts, "a number"
            )
    if numbers is not None:
        return _number_features(
            table, name, numbers, params, notices, nullable=bool(given and given.nullable)
        )
    words, counts = np.unique(texts[texts != ""].astype(str), return_counts=True)
    asked = name in params.feature
    where = f"{table.name}: {name!r}"
    if not len(words):
        notices.ignored[name] = "empty"
        return []
    if not asked and all(map(_DATE.fullmatch, words)):
        notices.ignored[name] = f"dates, such as {words[0]}"
        return []
    if not asked and (_are_identifiers(table.frame[name]) or _is_prose(words)):
        notices.ignored[name] = f"names or free text, such as {words[0][:40]!r}"
        return []
    doubtful = [str(word) for word in words if word in MISSING]
    if doubtful and not params.missing:
        count = int(counts[np.isin(words, doubtful)].sum())
        notices.questions[
            f"{where} has {doubtful[0]!r} in {count:,} rows, a text or a missing value: "
            f"--set missing=none or --set missing={doubtful[0]}"
        ] = "--set missing=none"
        return []
    if len(words) > params.categories:
        notices.questions[
            f"{where} has {len(words):,} texts ({', '.join(words[:3])}, …): leave it out, or "
            f"--set categories={len(words)}"
        ] = f"--set ignore={shlex.quote(name)}"
        return []
    if (texts == "").any():
        notices.missing[name] = int((texts == "").sum())
    return [(f"{name}={word}", (texts == word).astype(np.float32)) for word in words]


def _is_prose(words: Array) -> bool:
    """True if the texts are sentences, lists or objects rather than categories."""
    are_long = np.mean([len(word) for word in words]) > 60 or any("\n" in word for word in words)
    return bool(are_long) or all(word[0] in "[{(" for word in words)


def _number_features(
    table: Table,
    name: str,
    numbers: F64,
    params: GraphParams,
    notices: Notices,
    *,
    nullable: bool,
) -> list[tuple[str, F32]]:
    """Return a column of numbers as a feature, and a second one if some are or may be missing."""
    is_missing = np.isnan(numbers)
    named = name in params.feature
    if is_missing.all() and not nullable:
        notices.ignored[name] = "empty"
        return []
    counts_rows = name.startswith(UNNAMED) or roles.normalized_name(name) == "index"
    if not named and counts_rows and counts_from_zero(table.frame[name]):
        shown = f"a column without a name in {table.name}" if name.startswith(UNNAMED) else name
        notices.ignored[shown] = "the numbers of its rows"
        return []
    is_id = (
        roles.normalized_name(name) in {*roles.NODE_IDS, "label", "key"}
        and pd.Series(numbers).is_unique
    )
    with np.errstate(over="ignore", invalid="ignore"):
        values = numbers.astype(np.float32)
        has_fractions = bool(np.nan_to_num(numbers % 1).any())
    if not named and is_id and not has_fractions:
        notices.ignored[name] = "ids or names of the rows"
        return []
    infinite = ~np.isfinite(values) & ~is_missing
    if infinite.any():
        row = int(infinite.argmax())
        question = f"{table.location(row)}: {name!r} is {numbers[row]:g}, not a finite float32"
        notices.questions[question] = f"--set ignore={shlex.quote(name)}"
        return []
    changed = _changed_integers(table.frame[name].to_numpy(), numbers, values)
    changed |= _moved_by_float32(numbers, values)
    if changed.any() and name not in params.rounded:
        row = int(changed.argmax())
        notices.questions[
            f"{table.location(row)}: {name!r} is {numbers[row]:.15g}, and {values[row]:.15g} as float32: "
            f"leave it out, or --set rounded={shlex.quote(name)}"
        ] = f"--set ignore={shlex.quote(name)}"
        return []
    largest = float(np.nanmax(np.abs(values), initial=0))
    if largest > _LARGE:
        notices.large_features[name] = largest
    if not is_missing.any() and not nullable:
        return [(name, values)]
    if is_missing.any():
        notices.missing[name] = int(is_missing.sum())
    return [
        (name, np.where(is_missing, np.float32(0), values)),
        (f"{name} missing", is_missing.astype(np.float32)),
    ]


def _changed_integers(raw: Array, numbers: F64, values: F32) -> Array:
    """Return True for integers that float32 changes; fractions are rounded without a question."""
    changed: Array = (numbers == np.rint(numbers)) & (values != numbers)
    if raw.dtype.kind in "iu":  # beyond float64
        for row in np.flatnonzero(np.abs(numbers) > 2**53):
            changed[row] = int(values[row]) != int(raw[row])
    return changed


def _moved_by_float32(numbers: F64, values: F32) -> Bools:
    """Return True for numbers that float32 moves by over a thousandth of their range: seconds since 1970."""
    moved = np.abs(values.astype(np.float64) - numbers)
    known = numbers[~np.isnan(numbers)]
    spread = np.ptp(known) if known.size else 0.0
    merged: Bools = (moved > spread / 1_000) & (spread > 0)
    return merged


def _part_codes(table: Table, name: str) -> Array | None:
    """Return the codes of a column of parts, ``None`` for other columns.

    Parts are in a column called ``split``, and in one that has a part by its usual name, or names of
    parts alone: ``te`` among other texts is a language.
    """
    column = table.frame[name]
    first = {str(text).strip().lower() for text in column[:_LOOKED_AT].dropna()} - {""}
    codes = {text: _part_code(text) for text in first}
    has_usual = not first.isdisjoint(_USUAL_PARTS)
    has_parts_alone = len({*codes.values()}) > 1 and None not in codes.values()
    if name != roles.PART and not has_usual and not has_parts_alone:
        return None
    texts = column.map(str).str.strip().where(column.notna(), "")
    codes = {text: _part_code(text) for text in texts.unique()}
    unknown = [text for text, code in codes.items() if code is None]
    if unknown:
        shown = ", ".join(map(repr, unknown[:_SHOWN_WORDS]))
        others = f"; unknown are {shown}" if len(unknown) > 1 else ""
        raise table.error_at(
            texts.isin(unknown).argmax(),
            f"{name!r} is {unknown[0]!r}, not train, val or test{others}",
            f"write train, val or test instead; --set ignore={shlex.quote(name)} for a column that is no split",
        )
    return texts.map(codes).to_numpy(np.uint8)


def _part_code(text: str) -> int | None:
    return NODE_PARTS.get(part_name(text) or "") if text else NO_PART
