"""Find a finished build by folder, or by name and parameters; build it if it is missing.

Functions that look up builds, from the most general to the most specific. Those after ``find`` are
in :mod:`kmip_data.builds.home`, except ``_matching_build`` (:mod:`kmip_data.pipelines.build`):

===================  ====================================  ======================================
function             arguments                             if there is no such build
===================  ====================================  ======================================
``obtain``           folder or name, parameters and split  builds a shipped dataset, adds a split
``find``             folder or name, and parameters        error with the command that builds it
``require_build``    name and parameters                   the same error
``find_build``       name and parameters                   ``None``
``matching_builds``  name and parameters                   empty list; the newest build is first
``_matching_build``  pipeline and parameters               ``None``, also for an outdated build
``list_builds``      name, or nothing for all builds       empty list
``build_of_folder``  folder, or its name below ``built/``  ``None``
===================  ====================================  ======================================

Pass a user's name or folder to ``find``, or to ``obtain`` if building is allowed; the other functions
list, compare or describe builds. If several builds of a shipped dataset match, the functions that
return a single build raise an error.

Datasets and training runs open builds through this module. Only :mod:`kmip_data.saving` also imports
readers and the engine; commands import what they run.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Unpack

from kmip_data.builds.execution_options import BuildArguments, ExecutionOptions
from kmip_data.builds.home import (
    Build,
    Home,
    added_column_names,
    build_of_folder,
    list_builds,
    require_build,
)
from kmip_data.errors import UsageError
from kmip_data.format.schema import Schema
from kmip_data.graphs.encoding import parse_encoding
from kmip_data.manifest import dataset_names, load_manifest


def find(
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
        return _find_named(
            os.fspath(name),
            parameters or {},
            home,
            sample=sample,
        )
    _check_build(build, parameters or {}, sample=sample, dataset=dataset)
    return build


def obtain(
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

    The name of a shipped dataset takes precedence over a folder; anything else is looked up by
    :func:`find`, which has the same arguments. A missing split is added even if ``build`` is false.
    ``options`` are fields of :class:`~kmip_data.builds.execution_options.ExecutionOptions`.

    Raises ``UsageError`` if a name or value is wrong, if several builds match, or if none matches
    and ``build`` is false.
    """
    dataset_name = os.fspath(name)
    home = Home.locate(home, root)
    ExecutionOptions.from_arguments(dataset_name, options)  # check even if nothing is built
    # Only shipped datasets are built here.
    if dataset_name not in dataset_names():
        existing = find(
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


def complete_parameters(name: str, parameters: Mapping[str, object]) -> dict[str, object]:
    """Return the card's form of all parameters of a dataset, validated and completed by defaults.

    Raises ``UsageError`` if a name is unknown (suggesting the nearest) or a value is out of range.
    """
    from kmip_data.pipelines.base import load_pipeline
    from kmip_data.pipelines.parameters import check_params

    pipeline = load_pipeline(load_manifest(name))
    return check_params(pipeline.Params, parameters, name).model_dump(mode="json")


def shipped_schema(name: str, parameters: Mapping[str, object]) -> Schema:
    """Return the schema of a shipped dataset; raise as :func:`complete_parameters`."""
    from kmip_data.pipelines.base import load_pipeline
    from kmip_data.pipelines.parameters import check_params

    pipeline = load_pipeline(load_manifest(name))
    return pipeline.schema(check_params(pipeline.Params, parameters, name))


def _find_named(
    name: str,
    parameters: Mapping[str, object],
    home: Home,
    *,
    sample: bool,
) -> Build:
    manifest_name = name
    if parameters and name not in dataset_names():
        # Your own dataset has the parameters of its recipe.
        recipes = [build.card.manifest for build in list_builds(home, name)]
        manifest_name = next(iter(recipes), name)
    defaults = {}
    if manifest_name in dataset_names():
        defaults = complete_parameters(manifest_name, {})
    return require_build(
        home,
        name,
        _validated_parameters(manifest_name, parameters),
        defaults=defaults,
        sample=sample,
        any_value=name not in dataset_names(),
    )


def _check_build(
    build: Build,
    parameters: Mapping[str, object],
    *,
    sample: bool,
    dataset: str | None,
) -> None:
    """Raise ``UsageError`` for a build that contradicts the arguments, for example with another k."""
    card = build.card
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
            f"{build.path} has no parameter {unknown[0]!r}.",
            expected=", ".join(card.parameters) or "no parameter",
            next=f"leave out {unknown[0]}",
        )
    if differing == ["sample"] and sample:
        raise UsageError(f"{build.path} is not a sample.", next="leave out --sample")
    if differing:
        raise UsageError(
            f"{build.path} is another build.",
            expected=", ".join(f"{name} = {wanted[name]!r}" for name in differing),
            found=", ".join(f"{name} = {recorded.get(name)!r}" for name in differing),
            next="give the values that were found, or the name of the dataset instead of the folder",
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
    checked = complete_parameters(manifest_name, values)
    return {name: value for name, value in checked.items() if name in values}
