"""Find a finished build by folder, or by name and parameters; build it if it is missing.

Look-ups of builds, from the widest to the narrowest; all but the first two are in
:mod:`kmip_data.builds.home`, ``_matching_build`` is in :mod:`kmip_data.pipelines.build`:

===================  ====================================  ======================================
look-up              takes                                 where there is no such build
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

A user's name or folder is for ``find``, or for ``obtain`` where building is allowed; the others
are for code that lists, compares or describes builds. Of several builds of a shipped dataset all that
return one raise an error.

Datasets and trainings open builds by this module. Only :mod:`kmip_data.saving` also imports readers and
the engine; commands import what they run.
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
    """Return the finished build ``name``, its folder or the name of its dataset.

    Nothing is built or downloaded.

    A folder below ``built/`` in the home may be given by its name alone. The build must have the
    values in ``parameters``; with the name of a shipped dataset, its defaults stand for the others.
    ``sample`` looks for a sample; a folder must hold one. ``dataset`` is the required dataset of a
    folder; then ``sample`` must match either way. ``root`` is another name for ``home``.

    Raises ``UsageError`` if no build matches (with the ``build`` command), several do, or the
    folder holds a build with other values; ``DamagedInput`` without a readable card.
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

    The name of a shipped dataset takes precedence over a folder; anything else is found by
    :func:`find`, which has the same arguments, such as ``root`` for ``home``. A missing split is
    added even if ``build`` is false.
    ``options`` say how to build: :class:`~kmip_data.builds.execution_options.ExecutionOptions`. Raises
    ``UsageError`` where a name or value is wrong, several builds match, or none does and ``build``
    is false.
    """
    dataset_name = os.fspath(name)
    home = Home.locate(home, root)
    ExecutionOptions.from_arguments(dataset_name, options)  # checked also where nothing is built
    # A folder, a saved dataset or your own: find it, never build.
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
        # A shipped dataset without permission to build: look for one with these parameters.
        existing = _find_named(dataset_name, dict(parameters or {}), home, sample=sample)
    # Add the split in any case: most rules need no raw files.
    obtain_split(existing, split_parameters)
    return existing


def obtain_split(build: Build, split_parameters: Mapping[str, object] | None = None) -> str:
    """Return the name of a split, adding it if it is missing: ``ensure_split`` of :mod:`.added_splits`."""
    from kmip_data.pipelines.added_splits import ensure_split

    return ensure_split(build, split_parameters)


def obtain_columns(build: Build, names: Sequence[str], **options: Unpack[BuildArguments]) -> None:
    """Add missing columns to the build, by names such as ``rwse20``.

    Raises ``UsageError`` for an unknown encoding, or a read-only build folder; ``DamagedInput`` for
    a damaged shard.
    """
    missing = [parse_encoding(name) for name in names if name not in added_column_names(build.path)]
    if missing:
        from kmip_data.pipelines.engine.encode import encode_build

        encode_build(build, missing, **options)


def parameter_names(name: str) -> tuple[set[str], set[str]]:
    """Return the names of a dataset's parameters: of its records, and of its split."""
    from kmip_data.pipelines.base import load_pipeline

    pipeline = load_pipeline(load_manifest(name))
    return set(pipeline.Params.model_fields), set(pipeline.SplitParams.model_fields)


def parameters_on_card(name: str, parameters: Mapping[str, object]) -> dict[str, object]:
    """Return all parameters of a dataset as on its card: the given ones, validated, and defaults.

    Raises ``UsageError`` where a name is unknown (the nearest is suggested) or a value is out of
    range.
    """
    from kmip_data.pipelines.base import check_params, load_pipeline

    pipeline = load_pipeline(load_manifest(name))
    return check_params(pipeline.Params, parameters, name).model_dump(mode="json")


def shipped_schema(name: str, parameters: Mapping[str, object]) -> Schema:
    """Return the columns of a shipped dataset; errors as of :func:`parameters_on_card`."""
    from kmip_data.pipelines.base import check_params, load_pipeline

    pipeline = load_pipeline(load_manifest(name))
    return pipeline.schema(check_params(pipeline.Params, parameters, name))


def _find_named(
    name: str,
    parameters: Mapping[str, object],
    home: Home,
    *,
    sample: bool,
) -> Build:
    defaults = parameters_on_card(name, {}) if name in dataset_names() else {}
    manifest = name
    if parameters and not defaults:
        # A dataset of your own has the parameters of the recipe that made it.
        recipes = [build.card.manifest for build in list_builds(home, name)]
        manifest = next(iter(recipes), name)
    wanted = _as_recorded(manifest, parameters)
    return require_build(
        home,
        name,
        wanted,
        defaults=defaults,
        sample=sample,
    )


def _check_build(
    build: Build,
    parameters: Mapping[str, object],
    *,
    sample: bool,
    dataset: str | None,
) -> None:
    """Refuse a build folder that contradicts the other arguments, such as another k."""
    card = build.card
    wanted: dict[str, object] = {}
    if dataset is not None:
        wanted["dataset"] = dataset
    if sample or dataset is not None:
        wanted["sample"] = sample
    wanted.update(_as_recorded(dataset or card.manifest, parameters))

    # Compare the given arguments alone: a folder may have any other values.
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
        raise UsageError(f"{build.path} is no sample.", next="leave out --sample")
    if differing:
        raise UsageError(
            f"{build.path} is another build.",
            expected=", ".join(f"{name} = {wanted[name]!r}" for name in differing),
            found=", ".join(f"{name} = {recorded.get(name)!r}" for name in differing),
            next="give the values that were found, or the name of the dataset instead of the folder",
        )


def _as_recorded(manifest: str, parameters: Mapping[str, object]) -> dict[str, object]:
    """Return the given parameters, validated, as on a card.

    Parameters of a saved dataset are returned unchanged.
    """
    values = {}
    # JSON has no tuples: a card has lists.
    for name, value in parameters.items():
        values[name] = list(value) if isinstance(value, tuple) else value
    if manifest not in dataset_names():
        return values
    checked = parameters_on_card(manifest, values)
    return {name: value for name, value in checked.items() if name in values}
