"""Find a finished build by folder, or by name and parameters; build it if it is missing.

A path names the build in a folder; a word the build of a dataset that has the parameters, or else the
build in a folder below ``built/`` (:func:`kmip_data.builds.home.path_or_none`). If several builds match,
your own data mean the newest, and a published dataset is an error.

====================  ====================================  ======================================
function              arguments                             if there is no such build
====================  ====================================  ======================================
``find_or_build``     folder or name, parameters and split  builds a published dataset, adds a split
``find_build``        folder or name, and parameters        error with the command that builds it
``build_of_folder``   folder, or its name below ``built/``  ``None``
``list_builds``       name, or nothing for all builds       empty list
``matching_builds``   builds of a dataset, and parameters   empty list; the newest build is first
====================  ====================================  ======================================

The last three are in :mod:`kmip_data.builds.home`.

Datasets and training runs open builds through this module. Only :mod:`kmip_data.saving` also imports
readers and the engine; commands import what they run.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Unpack

from kmip_data.builds.execution_options import BuildArguments, ExecutionOptions
from kmip_data.builds.home import (
    Build,
    Home,
    added_column_names,
    build_of_folder,
    list_builds,
    newest_match,
    rebuild_command,
    refuse_unreadable_cards,
)
from kmip_data.errors import Command, Setting, Step, UsageError, unknown_name_error
from kmip_data.files.path_errors import path_instead_of_name_error
from kmip_data.format.card import Card
from kmip_data.format.schema import Schema
from kmip_data.graphs.encoding import parse_encoding
from kmip_data.manifest import dataset_names, load_manifest
from kmip_data.text import option_words


def find_build(
    name: str | os.PathLike[str],
    parameters: Mapping[str, object] | None = None,
    *,
    home: str | os.PathLike[str] | Home | None = None,
    root: str | os.PathLike[str] | Home | None = None,
    sample: bool = False,
    dataset: str | None = None,
) -> Build:
    """Return the finished build ``name``; never build or download anything.

    ``name`` is a folder, the name of a folder below ``built/`` in the home, or the name of a
    dataset. The build must have the values in ``parameters``; the other parameters of a shipped
    dataset must have their defaults. ``sample`` requires a sample; a folder may hold one without it.
    ``dataset`` is the dataset that a folder must hold. ``root`` is another name for ``home``.

    Raises ``UsageError`` if no build matches (with the ``build`` command), if several match, or if
    the folder holds a build with other values; ``DamagedInput`` if the card cannot be read.
    """
    home = Home.locate(home, root)
    build = build_of_folder(name, home)
    if build is None:
        return _find_named(os.fspath(name), parameters or {}, home, sample=sample)
    check_card(build.card, build.path, parameters or {}, sample=sample, dataset=dataset)
    return build


def find_or_build(
    name: str | os.PathLike[str],
    parameters: Mapping[str, object] | None = None,
    split_parameters: Mapping[str, object] | None = None,
    *,
    home: str | os.PathLike[str] | Home | None = None,
    root: str | os.PathLike[str] | Home | None = None,
    sample: bool = False,
    build: bool = True,
    dataset: str | None = None,
    **options: Unpack[BuildArguments],
) -> Build:
    """Return the build ``name`` with the given split, building what is missing.

    Anything but the name of a published dataset is looked up by :func:`find_build`, which has the
    same arguments. A missing split is added even if ``build`` is false.
    ``options`` are fields of :class:`~kmip_data.builds.execution_options.ExecutionOptions`.

    Raises ``UsageError`` if a name or value is wrong, if several builds match, or if none matches
    and ``build`` is false.
    """
    dataset_name = os.fspath(name)
    home = Home.locate(home, root)
    ExecutionOptions.from_arguments(dataset_name, options)  # check even if nothing is built
    # Only published datasets are built here.
    if name not in dataset_names():
        existing = find_build(
            name,
            parameters,
            home=home,
            sample=sample,
            dataset=dataset,
        )
    elif build:
        from kmip_data.pipelines.build import build_dataset

        return build_dataset(
            dataset_name,
            parameters=parameters,
            split_parameters=split_parameters,
            home=home,
            sample=sample,
            **options,
        )
    else:
        existing = _find_named(dataset_name, dict(parameters or {}), home, sample=sample)
    ensure_split(existing, split_parameters)
    return existing


def ensure_split(build: Build, split_parameters: Mapping[str, object] | None = None) -> str:
    """Return the name of a split, adding it if it is missing (:mod:`.added_splits`)."""
    from kmip_data.pipelines import added_splits

    return added_splits.ensure_split(build, split_parameters)


def ensure_columns(build: Build, names: Sequence[str], **options: Unpack[BuildArguments]) -> None:
    """Add missing columns, such as ``rwse20``, to the build.

    Raises ``UsageError`` for an unknown encoding or a read-only build folder, and ``DamagedInput``
    for a damaged shard.
    """
    missing = [parse_encoding(name) for name in names if name not in added_column_names(build.path)]
    if missing:
        from kmip_data.pipelines.engine.encode import encode_build

        encode_build(build, missing, **options)


def parameter_names(name: str) -> tuple[set[str], set[str]]:
    """Return the names of a dataset's build parameters and of its split parameters."""
    from kmip_data.pipelines.base import load_pipeline

    pipeline = load_pipeline(load_manifest(name))
    return set(pipeline.Params.model_fields), set(pipeline.SplitParams.model_fields)


def parameters_with_defaults(name: str, parameters: Mapping[str, object]) -> dict[str, object]:
    """Return all parameters of a dataset as a card records them, validated and with defaults.

    Raises ``UsageError`` if a name is unknown (suggesting the nearest) or a value is out of range.
    """
    from kmip_data.pipelines.base import load_pipeline
    from kmip_data.pipelines.parameters import check_params

    pipeline = load_pipeline(load_manifest(name))
    return check_params(pipeline.Params, parameters, name).requested()


def shipped_schema(name: str, parameters: Mapping[str, object]) -> Schema:
    """Return the schema of a published dataset; raise as :func:`parameters_with_defaults`."""
    from kmip_data.pipelines.base import load_pipeline
    from kmip_data.pipelines.parameters import check_params

    pipeline = load_pipeline(load_manifest(name))
    return pipeline.schema(check_params(pipeline.Params, parameters, name))


def _find_named(name: str, parameters: Mapping[str, object], home: Home, *, sample: bool) -> Build:
    """Return the build of a dataset, or raise ``UsageError`` with the ways to get one."""
    builds = list_builds(home, name)
    is_shipped = name in dataset_names()
    manifest_name = name
    if builds and parameters and not is_shipped:
        manifest_name = builds[0].card.manifest  # your own dataset has parameters of its recipe
    defaults = {}
    if manifest_name in dataset_names():
        defaults = parameters_with_defaults(manifest_name, {})
    values = _validated_parameters(manifest_name, parameters)
    # Parameters of your own data that are not given may have any value.
    requested = {**defaults, **values} if is_shipped else values
    build = newest_match(builds, requested, sample=sample)
    if build is not None:
        return build

    if not builds:
        refuse_unreadable_cards(name, home)

    # 1. The name is unknown.
    if not (builds or is_shipped):
        if os.path.lexists(name):
            raise path_instead_of_name_error(name)
        own_names = {build.card.dataset for build in list_builds(home)}.difference(dataset_names())
        raise unknown_name_error(
            "dataset or build folder",
            name,
            sorted(own_names.union(dataset_names())),
            command=Command("kmip-data list"),
            # List only the user's own names, which are few; `kmip-data list` lists the others.
            listed=sorted(own_names),
        )
    if sample and not is_shipped:
        raise UsageError(
            f"{name} has no sample: samples are generated only for published datasets.",
            steps=Setting(sample=None),
        )

    # 2. The dataset has no such build.
    changed = {key: value for key, value in values.items() if value != defaults.get(key)}
    options = option_words(changed)
    if sample:
        options.append("--sample")
    command = Command("kmip-data build", name) if is_shipped else rebuild_command(builds[0])
    steps: list[Step] = [Command(*command.words, *options)]
    similar = [build.path.name for build in builds if build.card.sample == sample]
    # Suggest existing builds first: building the requested one may download gigabytes.
    if similar:
        steps.insert(0, f"use {' or '.join(map(repr, similar[:3]))} instead, or build this one")
    elif builds and not sample:
        steps.append(Setting(sample=True))
    raise UsageError(
        f"There is no finished build of {' '.join([name, *options])} under {home.built}.",
        found=", ".join(build.path.name for build in builds) or "none",
        steps=steps,
    )


def check_card(
    card: Card,
    location: str | Path,
    parameters: Mapping[str, object],
    *,
    sample: bool,
    dataset: str | None = None,
) -> None:
    """Raise ``UsageError`` for a build that contradicts the arguments, for example with another k.

    ``location`` is its folder or address.
    """
    wanted: dict[str, object] = {}
    if dataset is not None:
        wanted["dataset"] = dataset
    if sample:
        wanted["sample"] = sample
    wanted.update(_validated_parameters(dataset or card.manifest, parameters))

    # Compare only the given arguments: the folder may have any other values.
    recorded = {
        "dataset": card.dataset,
        "sample": card.sample,
        **card.parameters,
    }
    differing = [name for name, value in wanted.items() if recorded.get(name) != value]
    unknown = [name for name in differing if name not in recorded]
    if unknown and "dataset" not in differing:
        raise UsageError(
            f"{location} has no parameter {unknown[0]!r}.",
            expected=", ".join(card.parameters) or "no parameter",
            steps=Setting({unknown[0]: None}),
        )
    if differing == ["sample"] and sample:
        raise UsageError(f"{location} is not a sample.", steps=Setting(sample=None))
    if differing:
        raise UsageError(
            f"{location} is another build.",
            expected=", ".join(f"{name} = {wanted[name]!r}" for name in differing),
            found=", ".join(f"{name} = {recorded.get(name)!r}" for name in differing),
            steps="give the values that were found, or the name of the dataset instead of the folder",
        )


def _validated_parameters(
    manifest_name: str, parameters: Mapping[str, object]
) -> dict[str, object]:
    """Return the card's form of the given parameters, validated unless the dataset was saved."""
    values = {}
    # JSON has no tuples, so cards have lists.
    for name, value in parameters.items():
        values[name] = list(value) if isinstance(value, tuple) else value
    if manifest_name not in dataset_names():
        return values
    checked = parameters_with_defaults(manifest_name, values)
    return {name: value for name, value in checked.items() if name in values}
