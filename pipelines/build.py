"""Build a dataset by name, or from your own files, unless a finished build exists."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import partial
from typing import Any, Unpack

from kmip_data.builds.execution_options import BuildArguments, ExecutionOptions
from kmip_data.builds.files_of_build import WORK_FOLDER
from kmip_data.builds.home import (
    Build,
    Home,
    list_builds,
    make_build_newest,
    newest_match,
    unused_name,
)
from kmip_data.errors import DamagedInput, OutOfResources, Setting, UsageError
from kmip_data.files.atomic_writes import folder_lock, refuse_links, remove_empty_folder
from kmip_data.files.path_errors import absolute_path, occupied_error
from kmip_data.format.card import INCOMPLETE, Card
from kmip_data.format.schema import FORMAT_VERSION
from kmip_data.manifest import dataset_names, load_manifest, require_dataset, with_build_name
from kmip_data.pipelines.added_splits import add_split, ensure_split
from kmip_data.pipelines.base import AnyPipeline, Pipeline, RawNeededError, load_pipeline
from kmip_data.pipelines.engine import unfinished_builds
from kmip_data.pipelines.engine.plan import BuildPlan
from kmip_data.pipelines.engine.resumable_build import run_build
from kmip_data.pipelines.own_pipeline import DEFAULT_MEMORY, OwnPipeline
from kmip_data.pipelines.parameters import BaseSplitParams, BuildParams, check_params
from kmip_data.pipelines.raw.copies import has_published_members, list_copies, remove_copy
from kmip_data.pipelines.raw.find_or_download import obtain_raw
from kmip_data.runtime import signals
from kmip_data.runtime.extras import require_extra


def build_dataset(
    name: str,
    *,
    parameters: Mapping[str, object] | None = None,
    split_parameters: Mapping[str, object] | None = None,
    home: str | os.PathLike[str] | Home | None = None,
    root: str | os.PathLike[str] | Home | None = None,
    sample: bool = False,
    **options: Unpack[BuildArguments],
) -> Build:
    """Return the finished build of a dataset, building what is missing.

    A finished build with these parameters is returned at once, without reading raw files, unless
    ``archives`` are given: their content decides which build is meant. Works in scripts,
    interactive sessions and any thread.

    ``parameters`` (``k``, ``limit`` …) change records; ``split_parameters`` (``test_area`` …)
    choose a split, which is added if it is missing. Parameters not given have their defaults. A
    ``sample`` is built from generated raw files of size ``limit``. ``options`` are fields of
    :class:`~kmip_data.builds.execution_options.ExecutionOptions`. ``root`` is another name for
    ``home``.

    Raises ``UsageError`` if a name or value is wrong, several builds match, or ``output`` holds
    another build; ``SourceUnavailable`` or ``LicenseNotAccepted`` if the raw files are unavailable;
    ``DamagedInput`` if a record cannot be built from them; ``OutOfResources`` if disk or memory
    runs out, in which case the next call resumes.
    """
    execution = ExecutionOptions.from_arguments(name, options)
    pipeline = load_pipeline(require_dataset(load_manifest(name)))
    params = check_params(pipeline.Params, parameters or {}, name)
    if not sample:
        _check_limit(pipeline, params)
    split_params = check_params(pipeline.SplitParams, split_parameters or {}, name)
    if sample and execution.archives:
        raise UsageError("A sample is generated: give a sample or archives, not both.")
    home = Home.locate(home, root)

    with signals.exit_on_signals():
        # 1. Look for a finished build.
        build = None
        if not execution.archives:
            build = _matching_build(
                pipeline,
                params,
                home,
                sample=sample,
                options=execution,
            )

        # 2. Otherwise obtain the raw files and build them.
        raw = None
        if build is None:
            require_extra(pipeline.extra, name)
            existing_copies = {copy.path for copy in list_copies(home.raw / name)}
            raw = obtain_raw(pipeline, params, home, execution, sample=sample)
            try:
                params = pipeline.resolve(params, raw)
                build = build_from_raw(
                    BuildPlan(pipeline, params, raw, home, execution), split_params
                )
                _check_schema(build, pipeline, params)
            except DamagedInput:
                # Later commands must not find the copy of an unusable archive.
                if execution.archives and raw.path not in existing_copies:
                    remove_copy(raw)
                raise

        # 3. Add the split, which may need raw files that a finished build does not.
        try:
            add_split(
                build,
                pipeline,
                split_params,
                raw.path if raw else None,
                quiet=execution.quiet,
            )
        except RawNeededError:
            raw = obtain_raw(pipeline, params, home, execution, sample=sample)
            if raw.content_digest != build.card.content_digest:
                raise UsageError(
                    f"{build.path} was not built from the raw files in {raw.path}.",
                    steps=["use the archive that it was built from", Setting(archive="PATH")],
                ) from None
            add_split(
                build,
                pipeline,
                split_params,
                raw.path,
                quiet=execution.quiet,
            )
    return build


def build_from_raw(plan: BuildPlan, split_params: BaseSplitParams) -> Build:
    """Build from raw files on disk, under the lock of the build folder."""
    folder = plan.folder
    options = plan.options
    folder_existed = options.output is not None and folder.exists()
    with signals.exit_on_signals(), folder_lock(folder, quiet=options.quiet):
        # Check under the lock, as another process may have built there.
        unfinished_builds.check_folder(folder, plan.key)
        try:
            card = run_build(plan, partial(_splits_to_write, plan.pipeline, split_params))
        except (DamagedInput, UsageError):
            has_shards = any((folder / "shards").glob("*.h5"))
            if (
                not has_shards
                and unfinished_builds.remove_unfinished(folder, plan.key)
                and not folder_existed
            ):
                remove_empty_folder(folder)
            raise
    return Build(folder, card)


def _splits_to_write(
    pipeline: AnyPipeline, split_params: BaseSplitParams, params: BuildParams
) -> list[BaseSplitParams]:
    """Return the splits of a new build; the first becomes its default."""
    default_splits = pipeline.default_splits(params)
    if pipeline.manifest.recipe:
        # Files that give folds make them the default rule.
        if default_splits and "split_rule" not in split_params.model_fields_set:
            rule = default_splits[0].split_rule
            split_params = split_params.model_copy(update={"split_rule": rule})
        return [split_params, *default_splits]
    return [*default_splits, split_params]


def _check_schema(build: Build, pipeline: AnyPipeline, params: BuildParams) -> None:
    """Refuse a finished build whose pipeline has other columns now, at the same version."""
    if not _has_current_columns(build.card, pipeline, params):
        raise UsageError(
            f"{build.path} has the same build key as its pipeline gives now, but other columns.",
            steps=f"raise `version` of {type(pipeline).__name__}, now {pipeline.version}",
        )


def _has_current_columns(card: Card, pipeline: AnyPipeline, params: BuildParams) -> bool:
    """True if a finished build has the columns that its pipeline gives now.

    A pipeline with inferred parameters takes columns from the files. Only its card has them,
    because a finished build is found without reading the files.
    """
    infers_columns = type(pipeline).with_inferred is not Pipeline.with_inferred
    return infers_columns or card.schema_ == pipeline.schema(params)


def _matching_build(
    pipeline: AnyPipeline,
    params: BuildParams,
    home: Home,
    *,
    sample: bool,
    options: ExecutionOptions,
) -> Build | None:
    """Return the finished build with these parameters; ``None`` if there is none or it is outdated."""
    requested = params.requested()
    name = pipeline.manifest.name
    if options.output is None:
        build = newest_match(list_builds(home, name), requested, sample=sample)
    else:
        folder = absolute_path(options.output, "output folder")
        card = unfinished_builds.finished_card(folder)
        if card is None:
            return None
        build = Build(folder, card)
        is_same_dataset = card.dataset == name and card.sample == sample
        if not is_same_dataset or not card.has_parameters(requested):
            raise occupied_error(
                folder,
                f"{name} with {requested}",
                f"{card.dataset} with {card.parameters}",
            )

    # An outdated build is built anew.
    if build is None or _is_superseded(build.card, pipeline, home):
        return None
    versions_on_card = build.card.pipeline_version, build.card.format_version
    has_current_versions = versions_on_card == (pipeline.version, FORMAT_VERSION)
    if not has_current_versions or not _has_current_columns(build.card, pipeline, params):
        return None

    _check_files(build)
    if (build.path / WORK_FOLDER).exists():  # left by a crash after the card was written
        with folder_lock(build.path):
            refuse_links(build.path)
            build.reread_card()
            unfinished_builds.remove_work(build.path)
    return build


def _check_files(build: Build) -> None:
    """Refuse a finished build with missing shards or splits."""
    files = [split.file for split in build.card.splits.values()]
    for shard in build.card.shards:
        files += shard.files
    for file in files:
        if not (build.path / file).is_file():
            raise DamagedInput(
                f"{build.path} is no longer complete: {file} is gone.",
                steps=build.remedy,
            )


def _is_superseded(card: Card, pipeline: AnyPipeline, home: Home) -> bool:
    """True if the build covers part of the published set, and complete raw files exist now."""
    if card.coverage != INCOMPLETE:
        return False
    for copy in list_copies(home.raw / card.dataset):
        is_complete_copy = has_published_members(copy, pipeline.manifest) or copy.downloaded
        if is_complete_copy and copy.content_digest != card.content_digest:
            return True
    return False


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


def build_own(
    recipe: str,
    name: str,
    source: Mapping[str, object] | str | os.PathLike[str],
    *,
    parameters: Mapping[str, object] | None = None,
    split_parameters: Mapping[str, object] | None = None,
    home: str | os.PathLike[str] | Home | None = None,
    root: str | os.PathLike[str] | Home | None = None,
    **options: Unpack[BuildArguments],
) -> Build:
    """Return the finished build of your own data, building it with a recipe if it is missing.

    ``recipe`` is ``"graphs"``, ``"superpixels"``, ``"points"`` or ``"city"``, ``name`` the name of
    the dataset, and ``source`` is a path, or has the fields of the pipeline's ``Source``. Other arguments and
    errors are the same as for :func:`build_dataset`. An error leaves nothing behind.

    >>> from kmip_data.pipelines.build import build_own
    >>> build = build_own("points", "campus", {"path": "scans"}, parameters={"k": 8})  # doctest: +SKIP
    """
    execution = ExecutionOptions.from_arguments(recipe, options)
    home = Home.locate(home, root)
    _check_name(name, home)
    pipeline: Any = load_pipeline(with_build_name(load_manifest(recipe), name))
    if isinstance(source, str | os.PathLike):
        source = {"path": source}
    checked_source = check_params(pipeline.Source, source, recipe)
    if isinstance(pipeline, OwnPipeline):  # a city is like no other
        parameters = pipeline.parameters_like(checked_source, parameters or {}, home)
    params = check_params(pipeline.Params, parameters or {}, recipe)
    _check_limit(pipeline, params)
    split_params = check_params(pipeline.SplitParams, split_parameters or {}, recipe)
    require_extra(pipeline.extra, recipe)

    pipeline.memory_limit = int(execution.memory or DEFAULT_MEMORY)

    with signals.exit_on_signals():
        # 1. Copy the files into the home.
        raw, is_new_copy = pipeline.store_raw_files(
            checked_source,
            params,
            home,
            offline=execution.offline,
            quiet=execution.quiet,
        )

        # 2. Build the copy. An error removes it, unless the build can resume.
        try:
            params = pipeline.resolve(params, raw)
            build = build_from_raw(BuildPlan(pipeline, params, raw, home, execution), split_params)
        except (DamagedInput, UsageError, OutOfResources) as error:
            plan = BuildPlan(pipeline, params, raw, home, execution)
            is_started = plan.folder.exists()
            # A build that ran out of memory or disk can resume, so it keeps its copy, unless it
            # stopped before it had anything to resume from. A city may have been downloaded.
            has_progress = pipeline.one_unit or unfinished_builds.has_finished_steps(plan.folder)
            can_resume = is_started and has_progress and isinstance(error, OutOfResources)
            if is_new_copy and not can_resume:
                remove_copy(raw)
                remove_empty_folder(home.raw / name)
                if is_started and not pipeline.one_unit:
                    _discard_build(plan)
                elif is_started:
                    # Only the split failed: building another split resumes here.
                    error.left = f"unfinished: {plan.folder}"
            raise
        ensure_split(build, split_params.model_dump(exclude_unset=True), quiet=execution.quiet)

    # A repeated command makes the name refer to its build again, if that is still complete.
    _check_files(build)
    make_build_newest(build, home)
    return build


def _check_limit(pipeline: AnyPipeline, params: BuildParams) -> None:
    """Refuse a limit for a single graph that is not a sample: it would only change the name."""
    if pipeline.one_unit and params.limit is not None:
        raise UsageError(
            f"{pipeline.manifest.name} is a single graph: limit={params.limit} only sets the size of a sample.",
            steps=[Setting(sample=True), Setting(limit=None)],
        )


def _discard_build(plan: BuildPlan) -> None:
    """Remove the unfinished build of a plan whose raw files were removed."""
    folder = plan.folder
    with folder_lock(folder, quiet=True):
        unfinished_builds.remove_unfinished(folder, plan.key)
        if plan.options.output is None:
            remove_empty_folder(folder)


def _check_name(name: str, home: Home) -> None:
    """Refuse the name of a published dataset, and names that cannot be a folder."""
    if name.lower() in dataset_names():
        raise UsageError(
            f"{name!r} is the name of a dataset that kmip-data ships.",
            steps=Setting(name=unused_name(name.lower(), home)),
        )
    if _NAME.fullmatch(name) is None:
        raise UsageError(
            f"{name!r} cannot be the name of a dataset.",
            expected="up to 63 letters, digits, '-', '_' and '.', a letter or digit first",
            steps=Setting(name=unused_name(name, home)),
        )
