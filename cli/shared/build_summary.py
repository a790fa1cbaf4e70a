"""Summary of a build: counts, split, warnings and the next command."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from kmip_data.cli.shared.output import format_facts, format_table
from kmip_data.errors import Command, UsageError
from kmip_data.format.build_facts import BuildFacts
from kmip_data.format.targets import require_trainable, target_column, target_type_of
from kmip_data.text import list_names, option_words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kmip_data.builds.home import Build
    from kmip_data.cli.shared.dataset_options import DatasetParameters
    from kmip_data.format.card import Card


def summary_of_build(build: Build, split: str, *, is_kept: bool = True) -> str:
    """Return the facts and the split of a build, and the path of a kept build."""
    card = build.card
    path, *facts = facts_of_build(build, split)
    facts += [("split", split), ("", card.splits[split].note)]
    header = ["part", "graphs", "nodes", "edges", "digest"]
    parts = f"\n{format_table(header, BuildFacts(card).parts(split), indent=2)}\n"
    if not is_kept:
        return f"{format_facts(facts, indent=2)}\n{parts.rstrip()}"

    if target_column(card.schema_) is None:
        parts = ""  # a build without targets is only for predictions
    facts = [path, *facts, ("other builds", _note_on_other_builds(build))]
    return f"{card.heading}\n{format_facts(facts, indent=2)}\n{parts}"


def facts_of_build(build: Build, split: str) -> list[tuple[str, object]]:
    """Return the path and the facts of a build, and the warnings about one of its splits."""
    card = build.card
    facts: list[tuple[str, object]] = [("path", build.path), *BuildFacts(card).values(split)]
    candidates = target_candidates(card)
    if candidates and target_column(card.schema_) is None:
        facts.append(("to train", f"build with --set label=COLUMN ({list_names(candidates, 150)})"))
    facts += (("warning", line) for line in _split_warnings(card, split))
    return facts


def steps_after_build(build: Build, split: str, parameters: DatasetParameters) -> list[Command]:
    """Return the commands after a build, which repeat the typed ``parameters`` if necessary."""
    card = build.card
    selection = _selecting_words(build, parameters)
    preview = Command("kmip-data preview", *selection)
    if not _is_shipped(card) and card.schema_.y_column is None:
        run = _compatible_run_argument(build)
        return [preview, Command("kmip-data predict {} --dataset {}", run, *selection)]
    has_empty_part = any(
        part != "test" and not counts.nodes for part, counts in card.splits[split].ordered_parts()
    )
    if has_empty_part or not _has_targets(build, features=False):
        return [preview]

    if split != card.default_split:
        selection += option_words(card.splits[split].parameters, "data.split.")
    if not _has_targets(build):
        from kmip_data.models.training.config.presets import preset_owner

        # Presets replace missing features themselves.
        if preset_owner(card.dataset, card) is None:
            selection += ["--set", "data.features=degree-profile"]
    return [Command("kmip-data train", *selection)]


def _compatible_run_argument(build: Build) -> str:
    """Return a run of the same home that can predict a build without targets, or ``RUN``."""
    from kmip_data.builds.home import Home
    from kmip_data.models.training.run.find_runs import find_compatible_run
    from kmip_data.models.training.run.run_folder import short_run_name

    home = Home(build.path.parent.parent)
    if build.path.parent != home.built:  # built by --output
        home = Home.locate()
    run = find_compatible_run(build, home)
    return "RUN" if run is None else short_run_name(run)


def _is_shipped(card: Card) -> bool:
    """True if the dataset comes with kmip-data, not from the user's files."""
    return card.dataset == card.manifest


def target_candidates(card: Card) -> list[str]:
    """Return the columns of the user's tables that could be the target, the likeliest first.

    Ids and parts cannot be. Categories are likelier than numbers, and these than ignored columns.
    """
    from kmip_data.columns.column_roles import ColumnRoles, column_roles_on_card

    described = column_roles_on_card(card.statistics) or ColumnRoles()
    candidates = [
        role
        for role in described.columns
        if role.level != "edge" and (role.features or role.use == "ignored")
    ]
    candidates.sort(key=lambda role: (role.use == "ignored", not role.categories))
    return [role.column for role in candidates]


def _split_warnings(card: Card, split: str) -> Iterator[str]:
    """Yield a warning for each part of a split without records, or without some classes."""
    entry = card.splits.get(split)
    if entry is None or target_column(card.schema_) is None:
        return
    for part, sizes in entry.ordered_parts():
        if not sizes.nodes:
            from kmip_data.pipelines.added_splits import remedy_for_empty_part

            remedy = remedy_for_empty_part(card, split, part)
            yield "; ".join([f"{part} is empty", *map(str, remedy)])

    facts = BuildFacts(card)
    names = facts.class_names
    totals = facts.class_counts
    existing = [name for name, total in zip(names, totals, strict=True) if total]
    y = card.schema_.y_column
    if y is not None and target_type_of(y) == "classification" and len(existing) == 1:
        yield f"every label is {existing[0]}: a network learns nothing from one class"
    for part, counts in facts.class_counts_by_part(split).items():
        rows = zip(names, totals, counts, strict=True)
        missing = {name: total for name, total, count in rows if total and not count}
        if missing and any(counts):
            line = f"{part} has no example of {list_names(missing, 150)}"
            # A split given in the files is intended, and a class with fewer records than parts cannot
            # be in all of them.
            if entry.rule == "random" and min(missing.values()) >= len(entry.parts):
                line += "; try --split-rule stratified"
            yield line


def _has_targets(build: Build, *, features: bool = True) -> bool:
    """True if a build has targets, and the ``features`` that training needs."""
    with contextlib.suppress(UsageError):
        require_trainable(build.card, build.path, needs_features=features)
        return True
    return False


def _note_on_other_builds(build: Build) -> str:
    """Return a line about the user's other builds of this name; empty if there are none."""
    from kmip_data.builds.home import Home, list_builds

    home = Home(build.path.parent.parent)
    if _is_shipped(build.card) or build.path.parent != home.built:
        return ""
    same_name = list_builds(home, build.card.dataset)
    names = ", ".join(other.path.name for other in same_name if other.path != build.path)
    return names and f"{names}; the name {build.card.dataset} means the newest build"


def _selecting_words(build: Build, parameters: DatasetParameters) -> list[str]:
    """Return the words that select a build: its name, or the options of a published dataset."""
    from kmip_data.builds.home import Home

    card = build.card
    options = option_words(parameters.records)
    is_elsewhere = build.path.parent != Home.locate().built
    if is_elsewhere or not _is_shipped(card) or "--set" in options:
        return [build.name_or_path]
    return [card.dataset, *options, *(["--sample"] if card.sample else [])]
