"""Descriptions of columns: next to the files, on the card of an earlier build, or from findings."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kmip_data.builds.home import Home, path_or_none
from kmip_data.columns.column_roles import (
    DESCRIPTION_NAME,
    FEATURE_USES,
    ColumnRoles,
    column_roles_on_card,
    read_column_roles,
)
from kmip_data.columns.labels import InferredTarget
from kmip_data.errors import UsageError
from kmip_data.format.schema import Column, FieldKind
from kmip_data.format.targets import target_type_of
from kmip_data.pipelines.datasets.graphs.findings import FEATURE_KEYS, Findings
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.find_builds import find_build


def description_in_folder(
    folder: Path, members: Iterable[str], labels: tuple[str, ...]
) -> ColumnRoles | None:
    """Return the description next to the files, for these labels; ``None`` if there is none."""
    if DESCRIPTION_NAME not in members:
        return None
    return read_column_roles(folder / DESCRIPTION_NAME).with_labels(labels)


def description_for_like(like: str | ColumnRoles, home: Home) -> ColumnRoles:
    """Return the description that ``--like`` names: a file, or an earlier build or run."""
    if isinstance(like, ColumnRoles):
        return like
    path = path_or_none(like, home)
    if path and path.is_file():
        return read_column_roles(path)
    build = find_build(like, home=home)
    described = column_roles_on_card(build.card.statistics)
    if described is None:
        raise UsageError(
            f"{build.card.dataset} has no description of its columns.",
            steps="use a build of your own graphs",
        )
    return described


def description_from_findings(
    findings: Findings, target: InferredTarget | None, options: ReadOptions
) -> ColumnRoles:
    """Describe the columns of tables and the arrays by their roles."""
    params = options.params
    task = None
    classes: tuple[str, ...] = ()
    class_names = params.class_name or findings.attributes.class_names
    if target is not None:
        task = target_type_of(target.column)
        if task == "classification":
            classes = target.class_names or tuple(map(str, range(target.column.num_classes or 0)))
    elif options.described is not None:
        task = options.described.task
        classes = options.described.classes
    decimal = params.decimal
    if len(findings.notices.decimal_signs) == 1:
        (decimal,) = findings.notices.decimal_signs
    return ColumnRoles(
        task=task,
        classes=classes,
        class_names=() if class_names == classes else class_names,
        missing=params.missing,
        decimal=decimal,
        rounded=params.rounded,
        undirected=params.undirected,
        node=findings.tables.numbering,
        columns=tuple(findings.roles),
    )


def describes_arrays(description: ColumnRoles, column: Column) -> bool:
    """True if a description has arrays, and no table columns, at the level of ``column``."""
    uses = {role.use for role in description.columns if role.level == column.level}
    return bool(uses & {"array", "label"}) and not uses & FEATURE_USES


def kinds_of_features(description: ColumnRoles) -> dict[str, list[FieldKind]]:
    """Return the kind of each feature that comes from a table, by key of its column."""
    kinds_by_key: dict[str, list[FieldKind]] = {}
    for level, key in FEATURE_KEYS.items():
        roles = [role for role in description.columns if role.level == level]
        kinds = [kind for role in roles for kind in role.features.values()]
        if kinds:
            kinds_by_key[key] = kinds
    return kinds_by_key
