"""Summary of a build: counts, split, warnings and the next command."""

from __future__ import annotations

import contextlib
import math
import shlex
from typing import TYPE_CHECKING

from kmip_data.cli.shared.output import (
    format_facts,
    format_table,
    join_first_words,
    labelled_values_of_build,
)
from kmip_data.errors import UsageError
from kmip_data.format.card import Repeats
from kmip_data.format.schema import MOLECULE_DOC
from kmip_data.text import count_with_noun, list_names, parameters_as_options

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kmip_data.builds.home import Build
    from kmip_data.cli.shared.dataset_options import DatasetParameters
    from kmip_data.format.card import Card


MOST_REPEATS = 0.01  #: fraction of repeated items above which a build is warned of
_MAX_LISTED = 12  #: lines of ignored columns and files, and of skipped records
#: Column -> label.
_FEATURE_LABELS = {
    "node/x": "node features",
    "edge/attr": "edge features",  # of molecules
    "edge/edge_attr": "edge features",
    "graph/graph_attr": "graph features",
}


def summary_of_build(
    build: Build, split: str, parameters: DatasetParameters, *, is_kept: bool = True
) -> str:
    """Return the counts and the split of a build, and for a kept build its path and the next command.

    ``parameters`` were given on the command line; the next command repeats them if necessary.
    """
    card = build.card
    rows = []
    unassigned = card.counts["nodes"]
    has_empty_part = False
    for part, counts in card.splits[split].ordered_parts():
        has_empty_part |= not counts.nodes and part != "test"
        unassigned -= counts.nodes
        rows.append([part, counts.graphs, counts.nodes, counts.edges, counts.digest[:12]])
    if card.counts["graphs"] == 1 and unassigned:  # a buffer between blocks of the map
        rows.append(["in none", 1, unassigned, None, ""])
    pairs = [
        # The license of a shipped dataset is printed before its files are read.
        *(
            pair
            for pair in labelled_values_of_build(build)
            if pair[0] != "license" or not _is_shipped(card)
        ),
        *_facts_of_own_files(card),
        *_facts_of_skipped_records(card.statistics.get("skipped", ())),
        *(("warning", line) for line in _split_warnings(card, split)),
        ("split", split),
        ("", card.splits[split].note),
        *facts_of_repeats(card, split),
        ("other builds", _note_on_other_builds(build)),
    ]

    parts = format_table(["part", "graphs", "nodes", "edges", "digest"], rows, indent=2)
    if not is_kept:
        return f"{format_facts(pairs[1:], indent=2)}\n\n{parts}"

    selection = _selecting_argument(build, parameters)
    step = f"train {selection}"
    if split != card.default_split:
        step += f" {parameters_as_options(card.splits[split].parameters, 'data.split.')}"
    if not _is_shipped(card) and card.schema_.y_column is None:
        # A build without targets is only for predictions: its split is not shown.
        predict = f"kmip-data predict {_compatible_run_argument(build)} --dataset {selection}"
        return f"""\
{card.dataset}{card.coverage_suffix}
{format_facts(pairs, indent=2)}

Next: kmip-data preview {selection}; to predict: {predict}"""
    if has_empty_part or not _has_targets(build, features=False):
        step = f"preview {selection}"
    elif not _has_targets(build):
        from kmip_data.models.training.config.presets import preset_owner

        # Presets replace missing features themselves.
        if preset_owner(card.dataset, card) is None:
            step += " --set data.features=degree-profile"
    return f"""\
{card.dataset}{card.coverage_suffix}
{format_facts(pairs, indent=2)}

{parts}

Next: kmip-data {step}""".rstrip()


def _compatible_run_argument(build: Build) -> str:
    """Return a run of the same home that can predict a build without targets, or ``RUN``."""
    from kmip_data.builds.home import Home
    from kmip_data.models.training.run.find_runs import find_compatible_run
    from kmip_data.models.training.run.run_folder import short_run_name

    home = Home(build.path.parent.parent)
    if build.path.parent != home.built:  # built by --output
        home = Home.locate()
    run = find_compatible_run(build, home)
    return "RUN" if run is None else shlex.quote(short_run_name(run))


def _is_shipped(card: Card) -> bool:
    """True if the dataset comes with kmip-data, not from the user's files."""
    return card.dataset == card.manifest


def target_candidates(card: Card) -> list[str]:
    """Return the columns of the user's tables that could be the target: no ids or parts."""
    from kmip_data.columns.column_roles import ColumnRoles, column_roles_on_card

    described = column_roles_on_card(card.statistics) or ColumnRoles()
    return [
        role.column
        for role in described.columns
        if role.level != "edge" and (role.features or role.use == "ignored")
    ]


def _facts_of_own_files(card: Card) -> Iterator[tuple[str, object]]:
    """Yield facts about the user's files as pairs of label and value."""
    if _is_shipped(card):
        return
    yield _target_fact(card)
    if counts := card.statistics["classes"]["total"]:
        yield _class_fact(card, counts)
    files = card.statistics.get("files")
    if files is None:
        return
    for column in card.schema_.columns:
        if column.key in _FEATURE_LABELS:
            number = math.prod(column.shape)
            fields = f" ({join_first_words(column.fields)})" if column.fields else ""
            yield _FEATURE_LABELS[column.key], f"{number:,}{fields}"
    for name, value in files.items():
        if name in {"warnings", "features", "columns", "parameters"}:  # printed elsewhere
            continue
        label = name.replace("_", " ")
        if name == "ignored" and value:
            for line in value[:_MAX_LISTED]:
                yield label, line
                label = ""
            if len(value) > _MAX_LISTED:
                yield label, f"and {len(value) - _MAX_LISTED:,} more, on the card"
            continue
        yield label, list_names(value, 500) or "none" if isinstance(value, list) else value


def _target_fact(card: Card) -> tuple[str, str]:
    from kmip_data.format.targets import target_type_of

    target = card.schema_.y_column
    if target is not None:
        fields = join_first_words(target.fields or (target.doc,))
        return "target", f"{target_type_of(target)} of each {target.level} ({fields})"
    step = ""
    if candidates := target_candidates(card):
        step = f"; to train, build with --set label=COLUMN ({join_first_words(candidates)})"
    return "target", f"none: a trained run can predict it{step}"


def _class_fact(card: Card, counts: Sequence[int]) -> tuple[str, str]:
    """Return the count of each class, or the positives of each label, as label and value."""
    from kmip_data.format.targets import target_type_of

    target = card.schema_.y_column
    is_multilabel = target is not None and target_type_of(target) == "multilabel"
    names: Sequence[str] = card.class_names
    if target is not None and is_multilabel:
        names = target.fields
    if len(names) != len(counts):
        names = [str(number) for number in range(len(counts))]
    # Separate the count from a name that ends in a digit.
    separator = ": " if any(name[-1:].isdecimal() for name in names) else " "
    named = [f"{name}{separator}{count:,}" for name, count in zip(names, counts, strict=True)]
    listed = join_first_words(named)
    return ("positives", listed) if is_multilabel else ("classes", f"{len(counts)} ({listed})")


def facts_of_repeats(card: Card, split: str) -> Iterator[tuple[str, str]]:
    """Yield the numbers of equal items of a split of the user's data, and warnings above 1 %."""
    counts = card.statistics.get("repeats", {}).get(split)
    if counts is None:
        return
    repeats = Repeats.model_validate(counts)
    unit = "graph"
    if card.counts["graphs"] == 1:
        unit = "node"
    elif any(column.doc == MOLECULE_DOC for column in card.schema_.columns):
        unit = "molecule"
    in_train = (
        f"{repeats.test_in_train:,} of {count_with_noun(repeats.test, unit)} of test also in train"
    )
    other_target = f"{repeats.other_target:,} of {repeats.items:,} equal one with another target"
    yield "repeats", f"{in_train}; {other_target}"
    if repeats.test_in_train > MOST_REPEATS * repeats.test:
        grouping = "--split-rule scaffold" if unit == "molecule" else "--set group=COLUMN"
        remedy = f"keep one row of each, or {grouping} keeps them in one part"
        yield "warning", f"{in_train}, so that test flatters the model; {remedy}"
    if repeats.other_target > MOST_REPEATS * repeats.items:
        yield "warning", f"{other_target}, so that no model can be right about all of them"


def _facts_of_skipped_records(skipped: Sequence[tuple[str, str]]) -> Iterator[tuple[str, object]]:
    """Yield the number of skipped records, and the first reasons."""
    if not skipped:
        return
    yield "skipped", count_with_noun(len(skipped), "record")
    for key, reason in skipped[:_MAX_LISTED]:
        yield "", f"{key}: {reason}"
    if len(skipped) > _MAX_LISTED:
        yield "", f"and {len(skipped) - _MAX_LISTED:,} more, on the card"


def _split_warnings(card: Card, split: str) -> Iterator[str]:
    """Yield a warning for each part of a split without records, or without some classes."""
    from kmip_data.format.targets import target_column, target_type_of
    from kmip_data.pipelines.added_splits import remedy_for_empty_part

    entry = card.splits[split]
    if target_column(card.schema_) is None:
        return
    for part, sizes in entry.ordered_parts():
        if not sizes.nodes:
            yield "; ".join(
                filter(None, [f"{part} is empty", remedy_for_empty_part(card, split, part)])
            )

    counts = card.statistics["classes"]
    total = counts["total"]
    if (
        card.schema_.y_column is not None
        and target_type_of(card.schema_.y_column) == "classification"
    ):
        existing = [number for number, count in enumerate(total) if count]
        if len(existing) == 1:
            name = card.class_name(existing[0])
            yield f"every label is {name}: a network learns nothing from one class"
    for part, numbers in counts.get("splits", {}).get(split, {}).items():
        missing = []
        has_enough_records = True
        for label, number in enumerate(numbers):
            if total[label] and not number:
                missing.append(card.class_name(label))
                has_enough_records &= total[label] >= len(entry.parts)
        if missing and any(numbers):
            line = f"{part} has no example of {join_first_words(missing)}"
            # A split given in the files is intended, and a class with fewer records than parts cannot
            # be in all of them.
            if entry.rule == "random" and has_enough_records:
                line += "; try --split-rule stratified"
            yield line


def _has_targets(build: Build, *, features: bool = True) -> bool:
    """True if a build has targets, and the ``features`` that training needs."""
    from kmip_data.format.targets import require_trainable

    with contextlib.suppress(UsageError):
        require_trainable(build.card, build.path, needs_features=features)
        return True
    return False


def _other_builds(build: Build) -> list[Build]:
    """Return the other builds of the user's dataset, which share its name."""
    from kmip_data.builds.home import Home, list_builds

    home = Home(build.path.parent.parent)
    if _is_shipped(build.card) or build.path.parent != home.built:
        return []
    same_name = list_builds(home, build.card.dataset)
    return [other for other in same_name if other.path != build.path]


def _note_on_other_builds(build: Build) -> str:
    """Return a line about the other builds of this name, and the one that it selects; may be empty."""
    from kmip_data.builds.home import matching_builds

    if not (others := _other_builds(build)):
        return ""
    card = build.card
    dataset = card.dataset
    matches = matching_builds([build, *others], {})
    selected = "this one" if matches[:1] == [build] else "not this one"
    names = []
    for other in others:
        has_same_files = _file_digests(other.card) == _file_digests(card)
        names.append(other.path.name if has_same_files else f"{other.path.name} (from other files)")
    return f"{', '.join(names)}; the name {dataset} means the newest build, {selected}"


def _file_digests(card: Card) -> set[str]:
    """Return the digests of the user's files, without the description that ``--like`` adds."""
    return {receipt.sha256 for receipt in card.receipts} or {card.content_digest}


def _selecting_argument(build: Build, parameters: DatasetParameters) -> str:
    """Return the argument that selects a build: its dataset and options if unambiguous, else its folder."""
    from kmip_data.builds.home import Home

    card = build.card
    options = parameters_as_options(parameters.records)
    if build.path.parent != Home.locate().built:
        return shlex.quote(str(build.path))
    is_shipped = _is_shipped(card)
    if _other_builds(build) or ("--set" in options and is_shipped):
        return build.path.name
    words = [card.dataset]
    if is_shipped:
        words.append(options)
    if card.sample:
        words.append("--sample")
    return " ".join(filter(None, words))
