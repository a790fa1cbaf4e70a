"""Build a damaged build again, from its raw files and into its own folder."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from kmip_data.builds.home import COLUMNS, Build, BuildArguments, BuildOptions, Home
from kmip_data.builds.verify import verify_build
from kmip_data.errors import CheckFailed, DamagedInput, UsageError
from kmip_data.files.changes import build_lock
from kmip_data.format.card import CARD_NAME, Card, read_card
from kmip_data.format.reader import Shard
from kmip_data.format.schema import FORMAT_VERSION
from kmip_data.graphs.encoding import parse_encoding
from kmip_data.pipelines.base import M, Pipeline, check_params, pipeline_of
from kmip_data.pipelines.engine.encode import encode_build
from kmip_data.pipelines.engine.finish import BuildPlan
from kmip_data.pipelines.engine.run import run_build
from kmip_data.pipelines.raw.obtain import obtain_raw
from kmip_data.runtime import signals
from kmip_data.runtime.presence import require_extra
from kmip_data.runtime.progress import say


def repair_build(path: Path, *, home: Home | None = None, **options: Unpack[BuildArguments]) -> list[str]:
    """Build again what ``verify`` finds broken: all of the build for a card, shard or split, else the column.

    Needs the raw files the build was made from. They give the same bytes, in the same folder, and only files
    that the build names are replaced. The card is replaced last, so that a repair that was stopped resumes
    with the shards it has finished.

    Returns the files that ``verify`` named, relative to ``path``. Raises ``CheckFailed`` where the raw files
    are others; ``DamagedInput`` where the card cannot be read, or has parameters that no build can have;
    ``UsageError`` where the build was not made by this version of a pipeline.
    """
    path, chosen = Path(path).absolute(), BuildOptions.of("", options)
    broken = list(dict.fromkeys(problem.file for problem in verify_build(path).problems))
    columns = sorted({file.split("/")[1] for file in broken if file.startswith(f"{COLUMNS}/")})
    if any(not file.startswith(f"{COLUMNS}/") for file in broken):
        _build_again(path, home or Home.locate(), chosen)
    if columns:  # they need no raw files: they are computed from the shards, which are sound by now
        build, encodings = Build(path, read_card(path)), [parse_encoding(name) for name in columns]
        encode_build(build, encodings, jobs=chosen.jobs, quiet=chosen.quiet, again=True)
    return broken


def _build_again(path: Path, home: Home, options: BuildOptions) -> None:
    """Build every shard and split on the card, and then the card."""
    card = read_card(path)
    pipeline = _pipeline_of(card, path)
    recorded = dict(card.parameters)
    options = replace(options, compression=recorded.pop("compression", None), output=path)
    params = _recorded_params(pipeline.Params, recorded, path)
    names = sorted(card.splits, key=lambda name: (name != card.default_split, name))
    fields = pipeline.SplitParams.model_fields
    asked = [
        {key: value for key, value in card.splits[name].parameters.items() if key in fields} for name in names
    ]
    splits = [_recorded_params(pipeline.SplitParams, one, path) for one in asked]
    require_extra(pipeline.extra, card.dataset)
    with signals.terminable():
        raw = obtain_raw(pipeline, params, home, options, sample=card.sample)
        params = pipeline.resolve(params, raw)
        plan = BuildPlan.of(pipeline, params, raw, home, options)
        if plan.key != _stored_key(path, card):
            raise CheckFailed(
                f"{path} was not built from the raw files in {raw.path} with the parameters on its card.",
                next=f"kmip-data verify {path} --repair --archive PATH (the archive it was built from)",
            )
        with build_lock(path, quiet=options.quiet):
            Build(path, card).read_again()
            built = run_build(plan, splits, again=True)
    if [shard.sha256 for shard in built.shards] != [shard.sha256 for shard in card.shards]:
        versions = ", ".join(f"{name} {version}" for name, version in sorted(card.versions.items()))
        say(f"{path} has other bytes than before: it was built with {versions}", quiet=options.quiet)


def _recorded_params(model: type[M], recorded: Mapping[str, Any], path: Path) -> M:
    try:
        return check_params(model, recorded, path.name)
    except UsageError as error:
        raise DamagedInput(
            f"{path / CARD_NAME} has parameters that no build can have: {error.parts['found']}",
            next=f"remove {path / CARD_NAME} and build again with the parameters it was built with",
        ) from error


def _stored_key(path: Path, card: Card) -> str:
    """Return the build key that the shards themselves carry; the card's where none can be read."""
    for entry in card.shards:
        with contextlib.suppress(DamagedInput):
            return Shard(path / entry.file).build_key
    return card.key


def _pipeline_of(card: Card, path: Path) -> Pipeline[Any, Any]:
    pipeline = pipeline_of(card)
    if pipeline is None:
        what = f"{path} was saved from memory; no pipeline can build it again."
        raise UsageError(what, next="save it again from its source")
    if (card.pipeline_version, card.format_version) != (pipeline.version, FORMAT_VERSION):
        raise UsageError(
            f"{path} was made by version {card.pipeline_version} of the pipeline and format "
            f"{card.format_version}; today's are {pipeline.version} and {FORMAT_VERSION}.",
            next=f"kmip-data build {card.dataset} (a new build next to it)",
        )
    return pipeline
