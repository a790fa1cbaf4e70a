"""Build a dataset by name, or from your own files, unless a finished build exists."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from typing import Any, Unpack

from kmip_data.builds.added_columns import WORK
from kmip_data.builds.execution_options import BuildArguments, ExecutionOptions
from kmip_data.builds.home import Build, Home, find_build, make_build_newest
from kmip_data.errors import DamagedInput, OutOfResources, UsageError
from kmip_data.files.atomic_writes import folder_lock, refuse_links, remove_empty_folder
from kmip_data.files.path_errors import absolute_path, occupied_error
from kmip_data.format.card import INCOMPLETE, Card
from kmip_data.format.schema import FORMAT_VERSION
from kmip_data.manifest import dataset_names, load_manifest, require_dataset, with_build_name
from kmip_data.pipelines.added_splits import add_split, ensure_split
from kmip_data.pipelines.base import (
    AnyPipeline,
    BaseSplitParams,
    BuildParams,
    RawNeededError,
    check_params,
    load_pipeline,
)
from kmip_data.pipelines.engine import unfinished_builds
from kmip_data.pipelines.engine.plan import BuildPlan
from kmip_data.pipelines.engine.run import run_build
from kmip_data.pipelines.raw.copies import is_complete, list_copies, remove_copy
from kmip_data.pipelines.raw.find_or_download import obtain_raw
from kmip_data.pipelines.user_files import MAX_MEMORY
from kmip_data.runtime import signals
from kmip_data.runtime.extras import require_extra
from kmip_data.text import dataset_name_from


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

    A finished build with these parameters is returned at once, without reading raw files (unless
    ``archives`` are given, which decide which build is meant). Works in scripts, interactive
    sessions and any thread.

    ``parameters`` change records (``k``, ``limit`` …), ``split_parameters`` choose a split
    (``test_area`` …), which is added; others are the defaults. A ``sample`` is built from generated
    raw files of size ``limit``. ``options`` say how to build:
    :class:`~kmip_data.builds.execution_options.ExecutionOptions`. ``root`` is another name for ``home``.

    Raises ``UsageError`` if a name or value is wrong, several builds match, or ``output`` holds
    something else; ``SourceUnavailable`` or ``LicenseNotAccepted`` if the raw files are
    unavailable; ``DamagedInput`` if a record cannot be built from them; ``OutOfResources`` if disk
    or memory runs out: the next call resumes.
    """
    chosen = ExecutionOptions.from_arguments(name, options)
    pipeline = load_pipeline(require_dataset(load_manifest(name)))
    params = check_params(pipeline.Params, parameters or {}, name)
    if not sample:
        _check_limit(pipeline, params)
    split_params = check_params(pipeline.SplitParams, split_parameters or {}, name)
    if sample and chosen.archives:
        raise UsageError("A sample is generated: give --sample or --archive, not both.")
    home = Home.locate(home, root)
    with signals.exit_on_signals():
        build = None
        if not chosen.archives:
            build = _matching_build(
                pipeline,
                params,
                home,
                sample=sample,
                options=chosen,
            )
        raw = None
        if build is None:
            require_extra(pipeline.extra, name)
            before = {copy.path for copy in list_copies(home.raw / name)}
            raw = obtain_raw(pipeline, params, home, chosen, sample=sample)
            try:
                params = pipeline.resolve(params, raw)
                build = build_raw(BuildPlan(pipeline, params, raw, home, chosen), split_params)
            except DamagedInput:
                # Later commands must not use an archive that cannot be built from.
                if chosen.archives and raw.path not in before:
                    remove_copy(raw)
                raise
        try:
            add_split(
                build,
                pipeline,
                split_params,
                raw.path if raw else None,
                quiet=chosen.quiet,
            )
        except RawNeededError:
            raw = obtain_raw(pipeline, params, home, chosen, sample=sample)
            if raw.content_digest != build.card.content_digest:
                # Their split would be another.
                raise UsageError(
                    f"{build.path} was not built from the raw files in {raw.path}.",
                    next=f"kmip-data build {name} --archive PATH (the archive it was built from)",
                ) from None
            add_split(
                build,
                pipeline,
                split_params,
                raw.path,
                quiet=chosen.quiet,
            )
    return build


def build_raw(plan: BuildPlan, split_params: BaseSplitParams) -> Build:
    """Build from raw files that are on disk: folder, lock, engine."""
    folder = plan.folder
    options = plan.options
    folder_existed = options.output is not None and folder.exists()
    with signals.exit_on_signals(), folder_lock(folder, quiet=options.quiet):
        # check under the lock: another process may have built there
        unfinished_builds.check_folder(folder, plan.key)
        try:
            # The first split becomes the default of the build.
            default_splits = plan.pipeline.default_splits(plan.params)
            if plan.pipeline.manifest.recipe:
                splits = [split_params, *default_splits]
            else:
                splits = [*default_splits, split_params]
            card = run_build(plan, splits)
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


def _matching_build(
    pipeline: AnyPipeline,
    params: BuildParams,
    home: Home,
    *,
    sample: bool,
    options: ExecutionOptions,
) -> Build | None:
    """Return the matching finished build, if it can be identified without raw files."""
    wanted = params.model_dump(mode="json")
    name = pipeline.manifest.name
    if options.output is None:
        build = find_build(home, name, wanted, sample=sample)
    else:
        folder = absolute_path(options.output, "output folder")
        card = unfinished_builds.finished_card(folder)
        if card is None:
            return None
        build = Build(folder, card)
        same = card.dataset == name and card.sample == sample
        if not same or any(card.parameters.get(key) != value for key, value in wanted.items()):
            raise occupied_error(
                folder,
                f"{name} with {wanted}",
                f"{card.dataset} with {card.parameters}",
            )
    if build is None or _is_superseded(build.card, pipeline, home):
        return None
    made = build.card.pipeline_version, build.card.format_version, build.card.schema_
    if made != (pipeline.version, FORMAT_VERSION, pipeline.schema(params)):
        return None
    _check_files(build)
    if (build.path / WORK).exists():  # after a crash once the card was written
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
                next=f"kmip-data verify {shlex.quote(str(build.path))} --repair",
            )


def _is_superseded(card: Card, pipeline: AnyPipeline, home: Home) -> bool:
    """True if the build covers part of the published set and the rest has arrived since."""
    if card.coverage != INCOMPLETE:
        return False
    for copy in list_copies(home.raw / card.dataset):
        is_complete_copy = is_complete(copy, pipeline.manifest) or copy.downloaded
        if is_complete_copy and copy.content_digest != card.content_digest:
            return True
    return False


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


def build_own(
    recipe: str,
    name: str,
    source: Mapping[str, object],
    *,
    parameters: Mapping[str, object] | None = None,
    split_parameters: Mapping[str, object] | None = None,
    home: str | os.PathLike[str] | Home | None = None,
    root: str | os.PathLike[str] | Home | None = None,
    **options: Unpack[BuildArguments],
) -> Build:
    """Return the finished build of your own dataset, building it by a recipe if it is missing.

    ``recipe`` is ``"graphs"``, ``"superpixels"``, ``"points"`` or ``"city"``, ``name`` the
    dataset's name, ``source`` the fields of the pipeline's ``Source``,
    ``root`` another name for ``home``. Other arguments and errors
    as for :func:`build_dataset`; an error leaves nothing behind.

    >>> from kmip_data.pipelines.build import build_own
    >>> build = build_own("points", "campus", {"path": "scans"}, parameters={"k": 8})  # doctest: +SKIP
    """
    chosen = ExecutionOptions.from_arguments(recipe, options)
    _check_name(name)
    pipeline: Any = load_pipeline(with_build_name(load_manifest(recipe), name))
    params = check_params(pipeline.Params, parameters or {}, recipe)
    _check_limit(pipeline, params)
    split_params = check_params(pipeline.SplitParams, split_parameters or {}, recipe)
    checked_source = check_params(pipeline.Source, source, recipe)
    require_extra(pipeline.extra, recipe)
    pipeline.memory = int(chosen.memory or MAX_MEMORY)
    home = Home.locate(home, root)
    with signals.exit_on_signals():
        raw, new = pipeline.import_files(
            checked_source,
            params,
            home,
            offline=chosen.offline,
            quiet=chosen.quiet,
        )
        try:
            params = pipeline.resolve(params, raw)
            build = build_raw(BuildPlan(pipeline, params, raw, home, chosen), split_params)
        except (DamagedInput, UsageError, OutOfResources) as error:
            plan = BuildPlan(pipeline, params, raw, home, chosen)
            begun = plan.folder.exists()
            # A build that ran out of memory or disk resumes; other raw files cannot be built from.
            if new and not (begun and isinstance(error, OutOfResources)):
                remove_copy(raw)
                remove_empty_folder(home.raw / name)
                if begun and not pipeline.one_unit:
                    _discard_build(plan)
                elif begun:
                    # All work is done: building another split resumes from it.
                    error.left = f"unfinished: {plan.folder}"
            raise
        ensure_split(build, split_params.model_dump(), quiet=chosen.quiet)
    # A command that is repeated gives its build the name again.
    make_build_newest(build, home)
    return build


def _check_limit(pipeline: AnyPipeline, params: BuildParams) -> None:
    """Refuse a limit of a single graph that is no sample: it would change the name and nothing else."""
    if pipeline.one_unit and params.limit is not None:
        raise UsageError(
            f"{pipeline.manifest.name} is built whole: --limit {params.limit} is the size of a sample.",
            next="--sample with it, or without --limit",
        )


def _discard_build(plan: BuildPlan) -> None:
    """Remove the shards of a build that cannot be completed, as its files were not kept."""
    folder = plan.folder
    with folder_lock(folder, quiet=True):
        unfinished_builds.remove_unfinished(folder, plan.key)
        if plan.options.output is None:
            remove_empty_folder(folder)


def _check_name(name: str) -> None:
    """Refuse a name of another dataset, or one that cannot be typed or be a folder."""
    if name.lower() in dataset_names():
        raise UsageError(
            f"{name!r} is the name of a dataset that kmip-data ships.",
            next=f"another name: --name my-{name.lower()}",
        )
    if _NAME.fullmatch(name) is None:
        raise UsageError(
            f"{name!r} cannot be the name of a dataset.",
            expected="up to 63 letters, digits, '-', '_' and '.', a letter or digit first",
            next=f"another name: --name {_name_like(name)}",
        )


def _name_like(name: str) -> str:
    """Return a possible name of a dataset that resembles ``name``."""
    like = dataset_name_from(name)
    return like if like and like.lower() not in dataset_names() else f"my-{like or 'data'}"
