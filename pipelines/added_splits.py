"""Find a split of a finished build, or add it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from kmip_data.arrays import U8
from kmip_data.builds.home import Build
from kmip_data.columns.column_roles import ColumnRoles, column_roles_on_card
from kmip_data.columns.part_masks import PART_ARRAYS
from kmip_data.errors import Command, Setting, Step, UsageError
from kmip_data.files.atomic_writes import (
    build_marker_content,
    folder_lock,
    refuse_links,
    refuse_occupied_folder,
)
from kmip_data.format.build_files import write_card
from kmip_data.format.card import Card, read_card
from kmip_data.format.split_files import PART_CODES, PARTS, read_split
from kmip_data.format.targets import target_column
from kmip_data.pipelines.base import AnyPipeline, RawNeededError, pipeline_of_card
from kmip_data.pipelines.engine.finish import read_record_table, write_split
from kmip_data.pipelines.engine.repeated_items import RepeatCounter
from kmip_data.pipelines.parameters import BaseSplitParams, check_params
from kmip_data.pipelines.units_and_splits import apply_split
from kmip_data.text import option_words


def ensure_split(
    build: Build,
    split_parameters: Mapping[str, object] | None = None,
    *,
    quiet: bool = False,
) -> str:
    """Return the name of the split with these parameters, adding it if it is missing.

    The rule defaults to the dataset's default rule or, for your own data, to the rule of the build's
    default split. ``build.card`` is updated in place. Raises ``UsageError`` if a name or value is
    wrong, or if the rule needs raw files.
    """
    card = build.card
    requested = dict(split_parameters or {})
    pipeline = pipeline_of_card(card)
    is_own_data = pipeline is None or pipeline.manifest.recipe
    if is_own_data and not requested:
        return card.default_split
    if pipeline is None:
        if name := _find_split(card, requested):
            return name
        saved = ", ".join(card.splits)
        raise UsageError(f"{build.path} has only the splits it was saved with ({saved}).")
    if is_own_data and card.default_split:
        default = card.splits[card.default_split].parameters
        requested = {key: default[key] for key in ("split_rule",) if key in default} | requested
    params = check_params(pipeline.SplitParams, requested, card.dataset)
    try:
        return add_split(build, pipeline, params, None, quiet=quiet)
    except RawNeededError as error:
        error.steps = [_command_with_raw(build, pipeline, params)]
        raise


def _command_with_raw(build: Build, pipeline: AnyPipeline, split: BaseSplitParams) -> Command:
    """Return the command that obtains the raw files of a build, and adds a split to it."""
    params = check_params(pipeline.Params, build.card.parameters, build.card.dataset)
    values = {**params.model_dump(exclude_defaults=True), **split.model_dump(exclude_defaults=True)}
    options = option_words(values)
    if build.card.sample:
        options = ["--sample", *options]
    name = pipeline.manifest.name
    return Command("kmip-data build {} --output", name, build.path, *options)


def add_split(
    build: Build,
    pipeline: AnyPipeline,
    params: BaseSplitParams,
    raw_folder: Path | None,
    *,
    quiet: bool,
) -> str:
    """Return the name of the split with these parameters, writing it if it is missing."""
    wanted = params.identity()
    name = _find_split(build.card, wanted)
    if name is not None:
        return name
    with folder_lock(build.path, quiet=quiet):
        refuse_links(build.path)
        card = build.reread_card()
        refuse_occupied_folder(build.path, build_marker_content(card.key), build.remedy)
        records = read_record_table(build.path, card.shards, card.schema_)
        records = replace(records, given_parts=read_given_parts(build))
        split = apply_split(pipeline, records, params, raw_folder)
        name = split.name
        if name not in card.splits:  # another process may have added it
            entry, classes = write_split(build.path, split, records, wanted)
            card.splits[name] = entry
            card.statistics.setdefault("classes", {}).setdefault("splits", {})[name] = classes
            if repeats := RepeatCounter(pipeline, records, card.schema_).count(split):
                card.statistics.setdefault("repeats", {})[name] = repeats
            write_card(build.path, card)
    build.card.splits.update(card.splits)
    build.card.statistics.update(card.statistics)
    build.card.digest = read_card(build.path).digest
    return name


def remedy_for_empty_part(card: Card, split: str, part: str) -> list[Step]:
    """Return how to fill the empty ``part`` of ``split``; empty if no remedy is known."""
    is_own_data = card.manifest not in {"", card.dataset}
    target = target_column(card.schema_)
    unit = "graphs"
    if card.counts["graphs"] == 1 and target is not None and target.level == "node":
        unit = "nodes"
    records = card.counts[unit]
    if is_own_data and records < len(PARTS):
        return [f"add {unit} to the files: a split needs {len(PARTS)}"]
    if card.parameters.get("limit"):
        return ["use more records, or all", Setting(limit=None)]
    if is_own_data and card.splits[split].rule == "given":
        donor = "" if part == "train" else "train "
        remedy = f"put some {donor}{unit} into {part} in the files"
        if column := _part_column(card):
            remedy = f"write {part} into some {donor}rows of the column {column!r}"
        return [f"{remedy} and build again, or redraw all parts", Setting(split_rule="random")]
    return []


def _part_column(card: Card) -> str:
    """Return the name of your own tables' column with the part of each row, or an empty string."""
    described = column_roles_on_card(card.statistics) or ColumnRoles()
    for role in described.columns:
        if role.use == "part" and role.column not in PART_ARRAYS:
            return role.column
    return ""


def read_given_parts(build: Build) -> dict[str, U8]:
    """Return the parts of nodes given by the files of a build, (N,) or (N, folds), by name."""
    nodes = build.card.counts["nodes"]
    codes: dict[str, dict[int, U8]] = {}
    for name, entry in build.card.splits.items():
        if entry.rule != "given":
            continue
        stored = read_split(build.path / entry.file, records=nodes, sha256=entry.sha256)
        if stored.part_codes is not None:
            rule, fold_codes = name.partition("-fold")[0], stored.part_codes
            if "val_fraction" in entry.parameters:  # val was drawn from the given train
                rule = rule.partition("-val")[0]
                fold_codes[fold_codes == PART_CODES["val"]] = PART_CODES["train"]
            fold = int(str(entry.parameters.get("fold", 0)))
            codes.setdefault(rule, {})[fold] = fold_codes
    parts = {}
    for name, folds in codes.items():
        columns = [folds[fold] for fold in sorted(folds)]
        parts[name] = columns[0] if len(columns) == 1 else np.stack(columns, axis=1)
    return parts


def _find_split(card: Card, wanted: Mapping[str, object]) -> str | None:
    """Return the name of the split with the given parameters, if there is one."""
    for name, entry in card.splits.items():
        if wanted.items() <= entry.parameters.items():
            return name
    return None
