"""From the name of a dataset to a finished build: find it, or get the raw files and build it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack

from kmip_data.builds.home import Build, BuildArguments, BuildOptions, Home, find_build
from kmip_data.errors import DamagedInput, UsageError
from kmip_data.files.changes import refuse_links, remove_empty
from kmip_data.files.errors import left_in, occupied
from kmip_data.files.locking import build_lock
from kmip_data.files.reading import content_digest
from kmip_data.format.build_files import write_card
from kmip_data.format.card import PART, Card, read_card
from kmip_data.format.schema import FORMAT_VERSION
from kmip_data.manifest import load_manifest, no_recipe
from kmip_data.pipelines.base import (
    Params,
    Pipeline,
    RawFolder,
    RawNeededError,
    SplitParams,
    check_params,
    check_sample,
    load_pipeline,
    pipeline_of,
)
from kmip_data.pipelines.engine.folders import (
    JOURNAL,
    WORK,
    check_output,
    finished_card,
    remove_unfinished,
    remove_work,
)
from kmip_data.pipelines.engine.pool import check_options
from kmip_data.pipelines.engine.run import run_build
from kmip_data.pipelines.finishing.finish import read_records, write_split
from kmip_data.pipelines.finishing.identity import BuildPlan, card_parameters, given_folder
from kmip_data.pipelines.raw.copies import list_copies, pin_first, remove_copy
from kmip_data.pipelines.shared.stratified import apply_split
from kmip_data.runtime import signals
from kmip_data.runtime.presence import require_extra


def build_dataset(
    name: str,
    *,
    parameters: Mapping[str, Any] | None = None,
    split_parameters: Mapping[str, Any] | None = None,
    home: Home | None = None,
    sample: bool = False,
    **options: Unpack[BuildArguments],
) -> Build:
    """Return the finished build of a dataset, building what is missing.

    A finished build with these parameters is returned at once, without the raw files (unless
    ``archives`` are given: then they decide which build is meant). Works from a plain script, an
    interactive session and any thread.

    Parameters
    ----------
    name
        A dataset, e.g. ``"s3dis"``.
    parameters
        Parameters that change records (``k``, ``limit`` …); defaults for the others.
    split_parameters
        Parameters of the split (``test_area`` …); the split is there afterwards.
    home
        Where raw files and builds live; the default one unless given.
    sample
        Build from generated raw files; ``limit`` is their size.
    **options
        How to build: ``archives``, ``offline``, ``accept_license``, ``jobs``, ``output``, ``compression``,
        ``engine``, ``scheduler``, ``quiet``: see :class:`~kmip_data.builds.home.BuildOptions`.

    Raises
    ------
    UsageError
        A name or value is wrong, several builds match, or ``output`` holds something else.
    SourceUnavailable, LicenseNotAccepted
        The raw files could not be had.
    DamagedInput
        They are damaged or a record cannot be built.
    OutOfResources
        Disk or memory ran out; the next call resumes.
    """
    chosen = BuildOptions.of(name, options)
    pipeline = load_pipeline(no_recipe(load_manifest(name)))
    params = check_params(pipeline.Params, parameters or {}, name)
    check_sample(params, name, sample=sample)
    split_params = check_params(pipeline.SplitParams, split_parameters or {}, name)
    check_options(chosen)
    if sample and chosen.archives:
        raise UsageError(
            "A sample is generated: no archive goes into it.",
            expected="--sample or --archive",
            found="both",
            next="the same command without one of them",
        )
    home = home or Home.locate()
    with signals.terminable():
        build = None if chosen.archives else _find(pipeline, params, home, sample=sample, options=chosen)
        raw = None
        if build is None:
            from kmip_data.pipelines.raw.obtain import obtain_raw  # not for a build that is there

            require_extra(pipeline.extra, name)
            before = {copy.path for copy in list_copies(home.raw / name)}
            raw = obtain_raw(pipeline, params, home, chosen, sample=sample)
            try:
                build = build_raw(BuildPlan.of(pipeline, params, raw, home, chosen), split_params)
            except DamagedInput as error:
                if chosen.archives and raw.path not in before:
                    # An archive that cannot be built from must not be what later commands take.
                    remove_copy(raw)
                    error.parts["on disk"] = (
                        f"{left_in(raw.path)}; what was unpacked from the archive is removed again"
                    )
                raise
            if build.card.complete:
                pin_first(pipeline.manifest, home.raw / name, raw, quiet=chosen.quiet)
        try:
            _add_split(build, pipeline, split_params, raw.path if raw else None, quiet=chosen.quiet)
        except RawNeededError:
            from kmip_data.pipelines.raw.obtain import obtain_raw

            raw = obtain_raw(pipeline, params, home, chosen, sample=sample)
            _check_raw(build, raw)
            _add_split(build, pipeline, split_params, raw.path, quiet=chosen.quiet)
    return build


def _check_raw(build: Build, raw: RawFolder) -> None:
    """Refuse raw files other than those the build was made from: a split read from them would be another."""
    found = content_digest(raw.members)
    if found != build.card.content_digest:
        raise UsageError(
            f"{build.path} was not built from these raw files.",
            expected=f"members of content digest {build.card.content_digest}",
            found=f"{found}, in {raw.path}",
            left="the build is as it was",
            next=f"kmip-data build {build.card.dataset} --archive PATH (the archive it was built from)",
        )


def build_raw(plan: BuildPlan, split_params: SplitParams) -> Build:
    """Build from raw files that are on disk: folder, lock, engine."""
    folder, options = plan.folder, plan.options
    given = options.output is not None and folder.exists()
    with signals.terminable(), build_lock(folder, quiet=options.quiet):
        if options.output is not None:
            check_output(folder, plan.key)  # only now: another process may have built there
        try:
            card = run_build(plan, [*plan.pipeline.default_splits(), split_params])
        except (DamagedInput, UsageError) as error:
            if not any((folder / "shards").glob("*.h5")) and remove_unfinished(folder, plan.key):
                if any(folder.iterdir()):
                    error.parts["on disk"] = left_in(folder)
                elif not given:
                    remove_empty(folder)
            raise
    return Build(folder, card)


def ensure_split(
    build: Build, split_parameters: Mapping[str, Any] | None = None, *, quiet: bool = False
) -> str:
    """Return the name of the split that the parameters mean, adding it beside the shards if it is missing.

    The card of ``build`` in memory gains the split. Raises ``UsageError`` where a name or value is wrong, or
    the rule needs raw files.
    """
    card = build.card
    pipeline = pipeline_of(card)
    if pipeline is None:
        if not split_parameters:
            return card.default_split
        raise UsageError(
            f"{build.path} has the splits it was saved with; no rule is known for others.",
            expected=f"one of {', '.join(card.splits)}",
            found=str(dict(split_parameters)),
        )
    params = check_params(pipeline.SplitParams, split_parameters or {}, card.dataset)
    return _add_split(build, pipeline, params, None, quiet=quiet)


def _find(
    pipeline: Pipeline[Any, Any], params: Params, home: Home, *, sample: bool, options: BuildOptions
) -> Build | None:
    """Return the finished build that is meant, if the raw files are not needed to tell."""
    wanted = {**card_parameters(params, None), "compression": options.compression}
    name = pipeline.manifest.name
    if options.output is None:
        build = find_build(home, name, wanted, sample=sample)
    else:
        folder = given_folder(options.output)
        card = finished_card(folder)
        if card is None:
            return None
        build = Build(folder, card)
        same = card.dataset == name and card.sample == sample
        if not same or any(card.parameters.get(key) != value for key, value in wanted.items()):
            raise occupied(folder, f"{name} with {wanted}", f"{card.dataset} with {card.parameters}")
    if build is None or not _is_current(build.card, pipeline) or _is_superseded(build.card, pipeline, home):
        return None
    _check_files(build)
    if (build.path / WORK / JOURNAL).exists():  # a crash after the card was written
        with build_lock(build.path):
            refuse_links(build.path)
            build.read_again()
            remove_work(build.path)
    return build


def _check_files(build: Build) -> None:
    """Refuse a finished build whose shards or splits are gone or have another size."""
    sizes = {entry.file: entry.bytes for entry in build.card.shards}
    for file in [*sizes, *(entry.file for entry in build.card.splits.values())]:
        path = build.path / file
        found = path.stat().st_size if path.is_file() else None
        if found is None or found != sizes.get(file, found):
            raise DamagedInput(
                f"{build.path} is no longer whole.",
                expected=f"{file} of {sizes[file]:,} bytes" if file in sizes else file,
                found="no such file" if found is None else f"{found:,} bytes",
                left="the rest is as it was",
                next=f"kmip-data verify {shlex.quote(str(build.path))} --repair",
            )


def _is_superseded(card: Card, pipeline: Pipeline[Any, Any], home: Home) -> bool:
    """True if the build covers only part of the published set and the rest has arrived since."""
    return card.extent == PART and any(
        (copy.is_complete(pipeline.manifest) or copy.downloaded)
        and not copy.sample
        and copy.content_digest != card.content_digest
        for copy in list_copies(home.raw / card.dataset)
    )


def _is_current(card: Card, pipeline: Pipeline[Any, Any]) -> bool:
    made = card.pipeline, card.pipeline_version, card.format_version
    return made == (pipeline.manifest.pipeline, pipeline.version, FORMAT_VERSION)


def _add_split(
    build: Build, pipeline: Pipeline[Any, Any], params: SplitParams, raw: Path | None, *, quiet: bool
) -> str:
    asked = params.asked()
    name = _find_split(build.card, asked)
    if name is not None:
        return name
    with build_lock(build.path, quiet=quiet):
        refuse_links(build.path)
        card = build.read_again()
        name = _find_split(card, asked)
        if name is None:
            records = read_records(build.path, [shard.file for shard in card.shards], card.schema_)
            split = apply_split(pipeline, records, params, raw)
            name = split.name
            if name not in card.splits:
                entry, classes = write_split(build.path, split, records, asked)
                card.splits[name] = entry
                card.statistics.setdefault("classes", {}).setdefault("splits", {})[name] = classes
                write_card(build.path, card)
    build.card.splits.update(card.splits)
    build.card.statistics.update(card.statistics)
    build.card.digest = read_card(build.path).digest
    return name


def _find_split(card: Card, asked: Mapping[str, Any]) -> str | None:
    """Return the split whose parameters are those asked for."""
    return next(
        (name for name, entry in card.splits.items() if asked.items() <= entry.parameters.items()), None
    )
