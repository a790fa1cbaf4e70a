"""Splits of your own data: given in the files, or drawn at random by groups."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, Self

import numpy as np
from numpy.random import PCG64, Generator
from pydantic import Field, model_validator

from kmip_data.arrays import I64, U8, Array, Bools
from kmip_data.columns.labels import NO_CLASS
from kmip_data.errors import Setting, Step, UsageError
from kmip_data.format.schema import GROUP_DOC, PART_DOC, SCAFFOLD_DOC, Column
from kmip_data.format.split_files import NO_PART, PART_CODES, PARTS, part_name
from kmip_data.graphs.split_rules import count_of_fraction, scaffold_split
from kmip_data.pipelines.base import RecordTable, Split
from kmip_data.pipelines.parameters import BaseSplitParams, check_fold, random_split
from kmip_data.text import is_likely_typo, nearest_name

SCAFFOLD_RULE = "scaffold"  #: rule of molecules that are built from SMILES
FOLDER_RULE = "folders"  #: rule that makes each first folder of the files a fold


class OwnSplitParams(BaseSplitParams):
    """Split parameters of a user's own files."""

    random_rules: ClassVar[tuple[str, ...]] = ("given", "random", "stratified", FOLDER_RULE)
    rule_of_part_sizes: ClassVar[str | None] = "random"

    split_rule: str = Field(
        default="given",
        pattern="^(given|random|stratified|folders)$",
        description="given: parts in a table or folders named train, val and test, else random; random: "
        "records drawn at random; stratified: drawn with equal class fractions; folders: test is the "
        "folder that fold numbers",
    )
    fold: int = Field(
        default=0,
        ge=0,
        le=9_999,
        description="with split_rule=folders: number of the test folder in name order, from 0",
    )
    val_fraction: float = Field(
        default=0.1,
        ge=0,
        lt=1,
        description="fraction of records in val",
    )
    test_fraction: float = Field(
        default=0.1,
        ge=0,
        lt=1,
        description="fraction of records in test",
    )

    @model_validator(mode="after")
    def _check_train_is_not_empty(self) -> Self:
        if self.val_fraction + self.test_fraction >= 1:
            raise ValueError("val_fraction and test_fraction leave nothing to train with")
        return self


class GraphSplitParams(OwnSplitParams):
    """Parameters of a split."""

    random_rules: ClassVar[tuple[str, ...]] = ("random", "stratified")
    rule_of_part_sizes: ClassVar[str | None] = None

    split_rule: str = Field(
        default="given",
        description="given: the masks or column of parts, otherwise random; random: graphs, or nodes of a single "
        "graph, divided at random; stratified: drawn with equal class fractions; scaffold: molecules of "
        "SMILES, rare scaffolds in test; or the name of a column of parts",
    )
    fold: int = Field(
        default=0,
        ge=0,
        le=9_999,
        description="index of the split if masks have several columns, from 0",
    )


def own_split(
    records: RecordTable,
    params: OwnSplitParams,
    groups: Sequence[str],
    dataset: str,
    *,
    divides_nodes: bool,
) -> Split:
    """Divide the records, or the nodes of a single graph, as given in the files or at random.

    The files give parts by masks, by a column or by the names of their folders. Records without a
    label are in no part. Records of one group are in one part of a random split; ``groups`` has the
    group of each, unless the files have a column of groups.
    """
    # 1. Parts in the files: a code for each record or node, if any.
    rule, level, codes = _given_parts(records, params)
    folds = codes.shape[1] if codes is not None and codes.ndim > 1 else 1
    fold = params.fold
    if rule != FOLDER_RULE:
        check_fold(dataset, fold, folds, drawn=codes is None)
    label_level = records.label_column.level if records.label_column else level
    divides_nodes = divides_nodes and label_level == "node"
    is_labelled = _labelled_mask(records, divides_nodes=divides_nodes)
    group_column = _group_column(records, divides_nodes=divides_nodes)
    if codes is not None:
        if group_column is not None:
            raise _given_parts_error(group_column, f"the parts {rule!r}")
        if divides_nodes == (level == "graph"):
            raise UsageError(
                f"{rule!r} divides {level}s, but {'nodes' if divides_nodes else 'graphs'} are to be "
                "divided.",
                steps=["use a column of parts of them", Setting(split_rule="random")],
            )
        name = rule
        if folds > 1:
            codes = codes.T[fold]
            name += f"-fold{fold}"
        codes = np.where(is_labelled, codes, np.uint8(NO_PART))
        given = Split(name, "given", {"fold": fold} if divides_nodes else {})
        given = _with_drawn_val(given, codes, None if divides_nodes else groups, params)
        return _split_from_codes(given, codes, divides_nodes=divides_nodes)

    # 2. Folders that are folds, or named after parts.
    split = _split_of_folders(records.keys, groups, params, dataset)
    if split is not None:
        if group_column is not None:
            raise _given_parts_error(group_column, "folders as parts")
        return split

    # 3. Parts drawn among the labelled items, by whole groups.
    drawn_items = np.flatnonzero(is_labelled)
    options = params.model_dump(exclude={"split_rule", "fold"})
    drawn = Split(_random_split_name(params), "random", options)
    codes = np.full(len(is_labelled), NO_PART, np.uint8)
    if rule == SCAFFOLD_RULE:
        if group_column is not None:
            raise _given_parts_error(group_column, "parts by scaffold")
        codes[drawn_items] = _draw_scaffolds(records, drawn_items, params)
        del options["split_seed"]
        note = "molecules of one scaffold are kept together; rare scaffolds are in test"
        drawn = Split(
            f"{SCAFFOLD_RULE}{_fractions_in_name(params)}", SCAFFOLD_RULE, options, note=note
        )
        return _split_from_codes(drawn, codes, divides_nodes=divides_nodes)

    item_groups = None
    if group_column is not None:
        item_groups = _groups_in_column(records, group_column)[drawn_items]
        _check_group_count(item_groups, group_column, params)
        note = f"items with the same {_group_name(group_column)} are kept together"
    elif not divides_nodes:
        _, numbers = np.unique(np.asarray(groups), return_inverse=True)
        item_groups = numbers[drawn_items]
        note = "records of the same file are kept together"
    fractions = {"val": params.val_fraction, "test": params.test_fraction}
    codes[drawn_items] = draw_parts(len(drawn_items), fractions, params.split_seed, item_groups)
    if item_groups is not None and 1 < len(np.unique(item_groups)) < len(item_groups):
        kept_together = np.full(len(codes), -1)
        kept_together[drawn_items] = item_groups
        drawn = replace(drawn, note=note, groups=kept_together)
    return _split_from_codes(drawn, codes, divides_nodes=divides_nodes)


def _column_with_doc(records: RecordTable, doc: str) -> Column | None:
    """Return the column of the records that has a doc, such as :data:`GROUP_DOC`, if any."""
    return next((column for column in records.columns if column.doc == doc), None)


def _group_name(column: Column) -> str:
    """Return the name of a column of groups in the files."""
    return column.fields[0] if column.fields else column.attribute


def _group_column(records: RecordTable, *, divides_nodes: bool) -> Column | None:
    """Return the column of groups, if any; refuse one of another level than the parts."""
    column = _column_with_doc(records, GROUP_DOC)
    level = "node" if divides_nodes else "graph"
    if column is not None and column.level != level:
        raise UsageError(
            f"{_group_name(column)!r} groups {column.level}s, but a split divides {level}s.",
            steps=[
                f"build again with a column of {level}s as group, or without one",
                Setting(group=None),
            ],
        )
    return column


def _given_parts_error(column: Column, parts: str) -> UsageError:
    """Return the error for groups of files that give their parts."""
    group = _group_name(column)
    return UsageError(
        f"{Setting(group=group)} is for a random split, but the files have {parts}.",
        steps=[Setting(split_rule="random"), Setting(group=None)],
    )


def _groups_in_column(records: RecordTable, column: Column) -> I64:
    """Return the number of each item's group (n,); an item without a group has its own."""
    rows: Array = records.read_column(column.key)
    rows = rows.reshape(len(rows), math.prod(rows.shape[1:]))
    _, numbers = np.unique(rows, axis=0, return_inverse=True)
    numbers = numbers.reshape(-1).astype(np.int64)
    without_group = (rows < 0).any(axis=1) if column.form != "text" else ~rows.any(axis=1)
    numbers[without_group] = len(numbers) + np.flatnonzero(without_group)
    return numbers


def _check_group_count(groups: I64, column: Column, params: OwnSplitParams) -> None:
    """Refuse fewer groups than parts."""
    parts = 1 + (params.val_fraction > 0) + (params.test_fraction > 0)
    count = len(np.unique(groups))
    if count < parts:
        values = "value" if count == 1 else "values"
        raise UsageError(
            f"The labelled items have {count} different {values} of {_group_name(column)!r} for {parts} "
            "parts.",
            steps=[
                Setting(val_fraction=0),
                Setting(test_fraction=0),
                Setting(group=None),
            ],
        )


def _draw_scaffolds(records: RecordTable, molecules: I64, params: OwnSplitParams) -> U8:
    """Return the code of the part of each of these molecules (n,)."""
    column = _column_with_doc(records, SCAFFOLD_DOC)
    assert column is not None, "the rule was checked"
    scaffolds = records.read_column(column.key)[molecules]
    train = 1 - params.val_fraction - params.test_fraction
    codes = np.empty(len(scaffolds), np.uint8)
    for part, rows in scaffold_split(scaffolds, train=train, val=params.val_fraction).items():
        codes[rows] = PART_CODES[part]
    return codes


def draw_parts(total: int, fractions: Mapping[str, float], seed: int, groups: Array | None) -> U8:
    """Draw the part of each of ``total`` items; return codes (total,).

    Items of a group are in one part, unless there is a single group, or one for each item. Train is
    not empty; nor is another part with a fraction if there are as many groups as parts.
    """
    # 1. Sizes: test first, so val is a fraction of the remaining items.
    test_fraction = fractions.get("test", 0)
    test = count_of_fraction(total, test_fraction) if test_fraction else 0
    val_fraction = fractions["val"] / (1 - test_fraction)
    val = count_of_fraction(total - test, val_fraction) if val_fraction else 0

    # 2. Single items.
    codes = np.full(total, PART_CODES["train"], np.uint8)
    if groups is None or len(np.unique(groups)) in {0, 1, total}:
        order = Generator(PCG64(seed)).permutation(total)
        codes[order[:test]] = PART_CODES["test"]
        codes[order[test : test + val]] = PART_CODES["val"]
        return codes

    # 3. Whole groups: test, then val of the rest.
    _, group_of_item = np.unique(groups, return_inverse=True)
    sizes = np.bincount(group_of_item)
    rest = Generator(PCG64(seed)).permutation(len(sizes)).tolist()
    code_of_group = np.full(len(sizes), PART_CODES["train"], np.uint8)
    for part, size, later_parts in (("test", test, 1 + (val > 0)), ("val", val, 1)):
        part_groups = _groups_of_part(rest, sizes, size, later_parts) if size else []
        code_of_group[part_groups] = PART_CODES[part]
        rest = [group for group in rest if code_of_group[group] == PART_CODES["train"]]
    return code_of_group[group_of_item]


def _groups_of_part(
    drawn_order: Sequence[int], sizes: I64, part_size: int, later_parts: int
) -> list[int]:
    """Return the groups, in drawn order, that each bring a part nearer to ``part_size`` items.

    If none does, return the smallest group. A group remains for each of ``later_parts``, if there
    are enough, and always for train. The closest sum of sizes would need a search over all sums,
    which takes seconds for 10,000 groups.
    """
    if len(drawn_order) < 2:
        return []
    most = max(len(drawn_order) - later_parts, 1)
    total = 0
    groups: list[int] = []
    for group in drawn_order:
        new_total = total + int(sizes[group])
        if len(groups) < most and abs(new_total - part_size) < abs(total - part_size):
            groups.append(group)
            total = new_total
    return groups or [min(drawn_order, key=sizes.__getitem__)]


def _split_from_codes(split: Split, codes: U8, *, divides_nodes: bool) -> Split:
    """Return a split of nodes by their codes, or of records by their positions."""
    if divides_nodes:
        return replace(split, part_codes=codes)
    parts = {part: np.flatnonzero(codes == code).tolist() for part, code in PART_CODES.items()}
    return replace(split, parts=parts)


def _split_of_folders(
    keys: Sequence[str], groups: Sequence[str], params: OwnSplitParams, dataset: str
) -> Split | None:
    """Return the split by folders that are folds or parts."""
    if params.split_rule == FOLDER_RULE:
        return _split_by_fold(keys, groups, params, dataset)
    codes = codes_by_folder(keys) if params.split_rule == "given" else None
    if codes is None:
        return None
    split = Split("folders", "given", {}, note="by the folders of the files")
    split = _with_drawn_val(split, codes, groups, params)
    return _split_from_codes(split, codes, divides_nodes=False)


def _with_drawn_val(
    split: Split, codes: U8, groups: Sequence[str] | None, params: OwnSplitParams
) -> Split:
    """Draw val from train by whole groups, into ``codes``, if train and test are the only parts."""
    train = np.flatnonzero(codes == PART_CODES["train"])
    parts = {*codes.tolist()} - {NO_PART}
    if (
        len(train) < 2
        or parts != {PART_CODES["train"], PART_CODES["test"]}
        or not params.val_fraction
    ):
        return split
    train_groups = None if groups is None else np.array(groups)[train]
    fractions = {"val": params.val_fraction}
    codes[train] = draw_parts(len(train), fractions, params.split_seed, train_groups)
    note = f"val is {params.val_fraction:.0%} of train, at random"
    return replace(
        split,
        name=f"{split.name}-val{params.val_fraction:g}-seed{params.split_seed}",
        parameters={
            **split.parameters,
            **params.model_dump(include={"split_seed", "val_fraction"}),
        },
        note="; ".join(filter(None, (split.note, note))),
    )


def _split_by_fold(
    keys: Sequence[str], groups: Sequence[str], params: OwnSplitParams, dataset: str
) -> Split:
    """Return the split whose test part is one of the first folders."""
    folders = [key.partition("/")[0] if "/" in key else "" for key in keys]
    names = sorted({*folders})
    if len(names) < 2:
        raise UsageError(
            f"{dataset} has no folds: its files are not in several folders.",
            steps=random_split(),
        )
    check_fold(dataset, params.fold, len(names))
    test = names[params.fold]
    is_test = np.array(folders) == test
    codes = np.where(is_test, PART_CODES["test"], PART_CODES["train"]).astype(np.uint8)
    split = Split(
        f"{FOLDER_RULE}-fold{params.fold}",
        FOLDER_RULE,
        {"fold": params.fold},
        note=f"test is the folder {test}",
    )
    split = _with_drawn_val(split, codes, groups, params)
    return _split_from_codes(split, codes, divides_nodes=False)


def _given_parts(records: RecordTable, params: OwnSplitParams) -> tuple[str, str, U8 | None]:
    """Return the rule, and the level and codes of the parts it names; no codes if it is random."""
    # Only a single graph can be divided by parts of nodes.
    columns = {}
    for column in records.columns:
        if column.doc == PART_DOC and (len(records.keys) == 1 or column.level == "graph"):
            columns[column.attribute] = column
    names = [*records.given_parts, *columns]
    rule = params.split_rule
    if rule == "given":
        rule = next(iter(names), "random")
    if rule in records.given_parts:
        return rule, "node", records.given_parts[rule]
    if rule in columns:
        return rule, columns[rule].level, records.read_column(columns[rule].key)
    if rule == FOLDER_RULE:
        return rule, "graph", None
    has_scaffolds = _column_with_doc(records, SCAFFOLD_DOC) is not None
    if rule == SCAFFOLD_RULE and has_scaffolds:
        return rule, "graph", None
    if rule != "random":
        rules = [*names, "random", "stratified", *([SCAFFOLD_RULE] if has_scaffolds else [])]
        close = nearest_name(rule, rules)
        step: Step = "one of these rules, or the parts in a column split of the files"
        # Another rule is another experiment: suggest it only for a likely typo.
        if close and is_likely_typo(rule, close):
            step = Setting(split_rule=close)
        raise UsageError(
            f"There is no rule or column of parts {rule!r}.",
            expected=", ".join(rules),
            steps=step,
        )
    return rule, "graph", None


def _labelled_mask(records: RecordTable, *, divides_nodes: bool) -> Bools:
    """Return the mask of labelled nodes (N,) of a single graph, or of labelled graphs (G,)."""
    label = records.label_column
    if label is None or label.level != ("node" if divides_nodes else "graph"):
        return np.ones(records.node_counts[0] if divides_nodes else len(records.keys), bool)
    y: Array = records.read_column(label.key)
    y = y.reshape(len(y), -1)
    is_labelled: Bools = ~np.isnan(y)
    if label.low == NO_CLASS:
        is_labelled &= y != NO_CLASS
    return np.asarray(is_labelled.any(axis=1))


def codes_by_folder(keys: Sequence[str]) -> U8 | None:
    """Return the code of each record's part if folders named after parts hold all of them.

    There must be a folder for train, and one more.
    """
    folders = [key.partition("/")[0] if "/" in key else "" for key in keys]
    parts = [part_name(folder) or "" for folder in folders]
    if len({*parts}) < 2 or not {"train"} <= {*parts} <= {*PARTS}:
        return None
    return np.array([PART_CODES[part] for part in parts], np.uint8)


def _random_split_name(params: OwnSplitParams) -> str:
    """Return the name of a random split."""
    return f"random-seed{params.split_seed}{_fractions_in_name(params)}"


def _fractions_in_name(params: OwnSplitParams) -> str:
    """Return the end of a split's name for fractions that are not the default."""
    if (params.val_fraction, params.test_fraction) != (0.1, 0.1):
        return f"-val{params.val_fraction:g}-test{params.test_fraction:g}"
    return ""
