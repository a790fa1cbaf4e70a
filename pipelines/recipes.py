"""Build a dataset of your own files under its own name: ``kmip-data build RECIPE --name NAME``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Unpack

from pydantic import BaseModel

from kmip_data.builds.home import Build, BuildArguments, BuildOptions, Home
from kmip_data.errors import DamagedInput, UsageError
from kmip_data.files.changes import remove_empty
from kmip_data.files.errors import left_in
from kmip_data.files.locking import build_lock
from kmip_data.manifest import dataset_names, load_manifest, named
from kmip_data.pipelines.base import check_params, check_sample, load_pipeline
from kmip_data.pipelines.build import build_raw, ensure_split
from kmip_data.pipelines.engine.folders import remove_unfinished
from kmip_data.pipelines.engine.pool import check_options
from kmip_data.pipelines.finishing.identity import BuildPlan
from kmip_data.pipelines.raw.copies import remove_copy
from kmip_data.runtime import signals
from kmip_data.runtime.presence import require_extra

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


def build_own(
    recipe: str,
    name: str,
    source: Mapping[str, Any],
    *,
    parameters: Mapping[str, Any] | None = None,
    split_parameters: Mapping[str, Any] | None = None,
    home: Home | None = None,
    **options: Unpack[BuildArguments],
) -> Build:
    """Return the finished build of a dataset made by a recipe, building it where it is missing.

    Parameters
    ----------
    recipe
        ``"superpixels"``, ``"points"`` or ``"city"``.
    name
        Name of the dataset that is built; other commands and :func:`kmip_data.open` know it by that.
    source
        What it is built from: the fields of :func:`source_model`.
    parameters, split_parameters, home, **options
        See :func:`kmip_data.pipelines.build.build_dataset`.

    Raises
    ------
    UsageError
        The name is taken or not a name, or an option is wrong: nothing was changed.
    SourceUnavailable, DamagedInput, OutOfResources
        The files cannot be had or built from, or the disk is full: nothing new is left.

    Examples
    --------
    >>> from kmip_data.pipelines.recipes import build_own
    >>> build = build_own("points", "campus", {"path": "scans"}, parameters={"k": 8})  # doctest: +SKIP
    """
    chosen = BuildOptions.of(recipe, options)
    check_name(name, recipe)
    pipeline: Any = load_pipeline(named(load_manifest(recipe), name))
    params = check_params(pipeline.Params, parameters or {}, recipe)
    check_sample(params, recipe, sample=False)
    split_params = check_params(pipeline.SplitParams, split_parameters or {}, recipe)
    given = check_params(source_model(recipe), source, recipe)
    require_extra(pipeline.extra, recipe)
    check_options(chosen)
    home = home or Home.locate()
    with signals.terminable():
        raw, new = pipeline.bring(given, params, home, offline=chosen.offline, quiet=chosen.quiet)
        try:
            params = pipeline.resolve(params, raw)
            build = build_raw(BuildPlan.of(pipeline, params, raw, home, chosen), split_params)
        except (DamagedInput, UsageError) as error:
            if new:
                # What cannot be built from must not stay as if it could.
                remove_copy(raw)
                remove_empty(home.raw / name)
                error.parts["on disk"] = _discard_build(BuildPlan.of(pipeline, params, raw, home, chosen))
            raise
        ensure_split(build, split_params.model_dump(), quiet=chosen.quiet)
    return build


def _discard_build(plan: BuildPlan) -> str:
    """Remove the shards of a build that nothing can complete (its files were not kept); say what is left."""
    folder, left = plan.folder, [left_in(plan.raw.path)]
    if folder.exists() and plan.pipeline.one_unit:  # all work is done: another split goes on from it
        return f"unfinished: {folder}"
    if folder.exists():
        with build_lock(folder, quiet=True):
            left += [left_in(folder)] if remove_unfinished(folder, plan.key) else []
            if plan.options.output is None:
                remove_empty(folder)
    said = "; ".join(text for text in left if text != "nothing") or "nothing of it"
    return f"{said}; your files are as they were"


def source_model(recipe: str) -> type[BaseModel]:
    """Return what a recipe builds from, as a model whose fields are options of ``build``."""
    pipeline: Any = load_pipeline(load_manifest(recipe))
    model: type[BaseModel] = pipeline.Source
    return model


def check_name(name: str, recipe: str) -> None:
    """Refuse a name that another dataset has, or that could not be typed or be a folder."""
    if name.lower() in dataset_names():
        raise UsageError(
            f"{name!r} is the name of a dataset that kmip-data ships.",
            expected="a name of your own",
            found=name,
            next=f"kmip-data build {recipe} --name my-{name.lower()}, or kmip-data build {name.lower()}",
        )
    if _NAME.fullmatch(name) is None:
        raise UsageError(
            f"{name!r} cannot be the name of a dataset.",
            expected="up to 63 letters, digits, '-', '_' and '.', a letter or digit first",
            found=repr(name),
            next=f"kmip-data build {recipe} --name marais …",
        )
