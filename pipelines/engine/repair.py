"""Repair a build: rebuild the files that ``verify`` finds broken."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Unpack

from kmip_data.builds.execution_options import BuildArguments, ExecutionOptions
from kmip_data.builds.home import COLUMNS_FOLDER, Build, Home
from kmip_data.builds.verify import verify_build
from kmip_data.errors import (
    CheckFailed,
    Command,
    DamagedInput,
    Setting,
    SourceUnavailable,
    Step,
    UsageError,
)
from kmip_data.files import atomic_writes
from kmip_data.files.atomic_writes import folder_lock
from kmip_data.files.folder_marker import MARKER_NAME
from kmip_data.files.path_errors import convert_write_errors
from kmip_data.format.build_files import write_card
from kmip_data.format.card import CARD_NAME, Card, read_card
from kmip_data.format.schema import FORMAT_VERSION
from kmip_data.graphs.encoding import parse_encoding
from kmip_data.manifest import Manifest
from kmip_data.pipelines.base import AnyPipeline, parse_split_parameters, pipeline_of_card
from kmip_data.pipelines.engine.encode import encode_build
from kmip_data.pipelines.engine.plan import BuildPlan
from kmip_data.pipelines.engine.resumable_build import run_build
from kmip_data.pipelines.engine.unfinished_builds import stored_key
from kmip_data.pipelines.parameters import BuildParams, check_params
from kmip_data.pipelines.raw.find_or_download import obtain_raw
from kmip_data.runtime import signals
from kmip_data.runtime.extras import require_extra
from kmip_data.runtime.progress import print_status
from kmip_data.text import option_words


def repair_build(
    path: Path,
    *,
    home: str | os.PathLike[str] | Home | None = None,
    **options: Unpack[BuildArguments],
) -> list[str]:
    """Rebuild the files that ``verify`` finds broken; return them, relative to ``path``.

    A broken card, shard or split requires a rebuild, which needs the original raw
    files and gives the same bytes. Broken columns are computed from the shards. Other files in the
    place of a build's file are moved aside
    (:func:`~kmip_data.files.atomic_writes.displace_obstacles`). The card is replaced last, so that
    an interrupted repair can resume.

    Raises ``CheckFailed`` if the raw files differ from the original ones; ``DamagedInput`` if the
    card is unreadable or has impossible parameters; ``UsageError`` if another version of a pipeline
    made the build.
    """
    path = Path(path).absolute()
    execution = ExecutionOptions.from_arguments("", options)
    report = verify_build(path)
    problems = [problem.file for problem in report.problems]
    broken = list(dict.fromkeys([*problems, *report.outdated]))
    card = read_card(path)
    if not os.path.lexists(path / MARKER_NAME):  # a damaged marker is ours, too
        atomic_writes.refuse_occupied_folder(path, atomic_writes.build_marker_content(card.key))
    with convert_write_errors(path), folder_lock(path, quiet=execution.quiet):
        # Raises if another build has replaced this one.
        Build(path, card).reread_card()
        atomic_writes.displace_obstacles(path, broken)
        atomic_writes.write_marker(path, atomic_writes.build_marker_content(card.key))
        write_card(path, card)

    columns = sorted(
        {file.split("/")[1] for file in broken if file.startswith(f"{COLUMNS_FOLDER}/")}
    )
    restored = {MARKER_NAME, *report.outdated}  # marker and card are written above
    if any(file not in restored and not file.startswith(f"{COLUMNS_FOLDER}/") for file in problems):
        _rebuild(path, Home.locate(home), execution)
    if columns:
        build = Build(path, read_card(path))
        encodings = [parse_encoding(name) for name in columns]
        encode_build(
            build,
            encodings,
            jobs=execution.jobs,
            quiet=execution.quiet,
            recompute=True,
        )
    return broken


def _rebuild(path: Path, home: Home, options: ExecutionOptions) -> None:
    """Rebuild every shard and split on the card, and then the card."""
    card = read_card(path)

    pipeline = _require_same_pipeline(card, path)
    # No pins are needed: the build key identifies the raw files.
    options = replace(options, output=path, unpinned=True)
    # The default split comes first, as in the original build.
    names = sorted(card.splits, key=lambda name: (name != card.default_split, name))
    try:
        params = check_params(pipeline.Params, card.parameters, path.name)
        splits = [
            parse_split_parameters(pipeline, card.splits[name].parameters, name) for name in names
        ]
    except UsageError as error:
        raise DamagedInput(
            f"{path / CARD_NAME} has parameters that no build can have: {error.found}",
            steps="move that file away, and build again with the parameters it was built with",
        ) from error
    require_extra(pipeline.extra, card.dataset)
    with signals.exit_on_signals():
        try:
            raw = obtain_raw(pipeline, params, home, options, sample=card.sample)
        except SourceUnavailable as error:
            error.steps = _steps_for_raw(pipeline.manifest, params)
            raise
        params = pipeline.resolve(params, raw)
        plan = BuildPlan(pipeline, params, raw, home, options)
        # Other raw files or parameters would give another build.
        if plan.key != (stored_key(path) or card.key):
            raise CheckFailed(
                f"{path} was not built from the raw files in {raw.path} with the parameters on its card.",
                steps=["use the archive that it was built from", Setting(archive="PATH")],
            )
        with folder_lock(path, quiet=options.quiet):
            Build(path, card).reread_card()
            built = run_build(plan, lambda _: splits, rebuild=True)
    if [shard.sha256 for shard in built.shards] != [shard.sha256 for shard in card.shards]:
        versions = ", ".join(f"{name} {version}" for name, version in sorted(card.versions.items()))
        print_status(
            f"the bytes in {path} differ from the original build, which used {versions}",
            quiet=options.quiet,
        )


def _steps_for_raw(manifest: Manifest, params: BuildParams) -> list[Step]:
    """Return the steps that restore the raw files of a build."""
    if manifest.recipe:
        options = option_words(params.model_dump(exclude_defaults=True))
        words = ("kmip-data", "build", manifest.registered_name, "--name", manifest.name)
        command = Command(*words, "--archive", "PATH", *options)
        return [command, "then the same command again"]
    steps: list[Step] = [Setting(archive="PATH")]
    if any(source.mirrors for source in manifest.sources):
        fetch = Command("kmip-data fetch", manifest.name)
        steps = [fetch, "then the same command again", *steps]
    return steps


def _require_same_pipeline(card: Card, path: Path) -> AnyPipeline:
    pipeline = pipeline_of_card(card)
    if pipeline is None:
        raise UsageError(
            f"{path} was saved from memory; no pipeline can rebuild it.",
            steps="save it once more from its source",
        )
    if (card.pipeline_version, card.format_version) != (pipeline.version, FORMAT_VERSION):
        raise UsageError(
            f"{path} was made by version {card.pipeline_version} of the pipeline and format "
            f"{card.format_version}; today's are {pipeline.version} and {FORMAT_VERSION}.",
            steps=Command("kmip-data build", card.dataset),
        )
    return pipeline
