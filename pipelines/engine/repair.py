"""Rebuild exactly the broken files of a finished build, to the digests its card gives."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from kmip_data.builds.home import COLUMNS, Build, BuildArguments, BuildOptions, Home
from kmip_data.builds.verify import VerifyReport, verify_build
from kmip_data.errors import CheckFailed, DamagedInput, UsageError
from kmip_data.files import changes as files
from kmip_data.files.changes import build_lock
from kmip_data.files.reading import read_small, sha256_file
from kmip_data.format.build_files import PAGE_NAME, protect, render_card
from kmip_data.format.card import CARD_NAME, Card, ShardEntry, SplitEntry, read_card
from kmip_data.format.reader import Shard
from kmip_data.format.schema import FORMAT_VERSION
from kmip_data.pipelines.base import M, Pipeline, check_params, pipeline_of
from kmip_data.pipelines.engine.encode import repair_columns
from kmip_data.pipelines.engine.finish import BuildPlan, read_records, write_split
from kmip_data.pipelines.engine.journal import remove_work
from kmip_data.pipelines.engine.run import rebuild_units, run_build
from kmip_data.pipelines.raw.obtain import obtain_raw
from kmip_data.pipelines.shared.records import apply_split
from kmip_data.runtime import signals
from kmip_data.runtime.presence import require_extra


def repair_build(
    path: Path,
    *,
    home: Home | None = None,
    **options: Unpack[BuildArguments],
) -> list[str]:
    """Rebuild the shards, splits and added columns that ``verify`` finds broken or missing, and nothing else.

    Needs the raw files the build was made from. Where the card itself was changed the digests on it
    no longer prove anything: then everything is built again, into the same folder and to the same bytes.
    Only files that the card names are replaced; any other file stays.

    Returns the files that were written, relative to ``path``. Raises ``CheckFailed`` where a rebuilt file
    does not have the digest on the card (the versions of the libraries on it are not those installed here),
    or the raw files are others; ``DamagedInput`` where the card cannot be read, or has parameters that no
    build can have (the ``build`` command with the parameters of the build makes it again); ``UsageError``
    where the build was not made by a pipeline, or by another version of it.
    """
    path, chosen = Path(path).absolute(), BuildOptions.of("", options)
    report = verify_build(path)
    columns = sorted({name for problem in report.problems if (name := _column_of(problem.file))})
    written = []
    if any(_column_of(problem.file) is None for problem in report.problems):
        written = _repair_records(path, report, home or Home.locate(), chosen)
    if columns:
        # They need no raw files: they are computed from the shards, which are sound by now.
        written += repair_columns(Build(path, read_card(path)), columns, jobs=chosen.jobs, quiet=chosen.quiet)
    return written


def _column_of(file: str) -> str | None:
    """Return the added column that a file belongs to."""
    parts = file.split("/")
    return parts[1] if parts[0] == COLUMNS and len(parts) == 3 else None


def _repair_records(path: Path, report: VerifyReport, home: Home, options: BuildOptions) -> list[str]:
    """Repair card, shards and splits from the raw files."""
    card = read_card(path)
    pipeline = _pipeline_of(card, path)
    compression = card.parameters.get("compression")
    recorded = {key: value for key, value in card.parameters.items() if key != "compression"}
    params = _recorded_params(pipeline.Params, recorded, path)
    require_extra(pipeline.extra, card.dataset)
    with signals.terminable():
        raw = obtain_raw(pipeline, params, home, options, sample=card.sample)
        options = replace(options, compression=compression, output=path)
        plan = BuildPlan.of(pipeline, params, raw, home, options)
        if plan.key != _stored_key(path, card):
            raise CheckFailed(
                f"{path} was not built from the raw files in {raw.path} with the parameters on its card.",
                next=f"kmip-data verify {path} --repair --archive PATH (the archive it was built from)",
            )
        with build_lock(path, quiet=options.quiet):
            Build(path, card).read_again()
            if _is_card_wrong(path, card, report):
                files.refuse_links(path)
                files.remove_file(path / CARD_NAME)
                names = sorted(card.splits, key=lambda name: (name != card.default_split, name))
                asked = [_split_params(pipeline, card.splits[name], path) for name in names]
                card = run_build(plan, asked)
                return [CARD_NAME, *(shard.file for shard in card.shards)]
            shards = {i: entry for i, entry in enumerate(card.shards) if entry.file in report.broken_shards}
            files.make_folder(path / "shards", root=path)
            results = rebuild_units(plan, shards)
            for i, entry in shards.items():
                _check(path, entry, results[i].sha256, card)
                protect(path / entry.file)
            # By digest, because verify leaves splits out where a shard cannot be read.
            splits = [
                entry
                for entry in card.splits.values()
                if not (path / entry.file).is_file() or sha256_file(path / entry.file)[0] != entry.sha256
            ]
            _repair_splits(pipeline, path, card, splits, raw.path)
            page = render_card(card).encode()
            if not (path / PAGE_NAME).is_file() or (path / PAGE_NAME).read_bytes() != page:
                files.write_file(path / PAGE_NAME, page)
            remove_work(path)
    return [*(entry.file for entry in shards.values()), *(entry.file for entry in splits)]


def _is_card_wrong(path: Path, card: Card, report: VerifyReport) -> bool:
    """True if the card itself was changed; its counts may only seem wrong because a shard was replaced."""
    if read_small(path / CARD_NAME) != card.to_json().encode():
        return True
    wrong = {problem.file for problem in report.problems}
    return CARD_NAME in wrong and wrong.isdisjoint(
        [entry.file for entry in card.shards] + [entry.file for entry in card.splits.values()]
    )


def _repair_splits(
    pipeline: Pipeline[Any, Any], path: Path, card: Card, splits: Sequence[SplitEntry], raw: Path
) -> None:
    if not splits:
        return
    files.make_folder(path / "splits", root=path)
    records = read_records(path, [shard.file for shard in card.shards], card.schema_)
    for entry in splits:
        asked = _split_params(pipeline, entry, path)
        split = apply_split(pipeline, records, asked, raw)
        written, _ = write_split(path, split, records, asked.asked())
        _check(path, entry, written.sha256, card)


def _split_params(pipeline: Pipeline[Any, Any], entry: SplitEntry, path: Path) -> Any:
    fields = pipeline.SplitParams.model_fields
    asked = {key: value for key, value in entry.parameters.items() if key in fields}
    return _recorded_params(pipeline.SplitParams, asked, path)


def _recorded_params(model: type[M], recorded: Mapping[str, Any], path: Path) -> M:
    try:
        return check_params(model, recorded, path.name)
    except UsageError as error:
        raise DamagedInput(
            f"{path / CARD_NAME} has parameters that no build can have.",
            expected=error.parts["expected"],
            found=error.parts["found"],
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
        raise UsageError(
            f"{path} was saved from memory; no pipeline can build it again.",
            next="save it again from its source",
        )
    if (card.pipeline_version, card.format_version) != (pipeline.version, FORMAT_VERSION):
        raise UsageError(
            f"{path} was made by version {card.pipeline_version} of the pipeline and format "
            f"{card.format_version}; today's are {pipeline.version} and {FORMAT_VERSION}.",
            next=f"kmip-data build {card.dataset} (a new build next to it)",
        )
    return pipeline


def _check(path: Path, entry: ShardEntry | SplitEntry, found: str, card: Card) -> None:
    if entry.sha256 != found:
        versions = ", ".join(f"{name} {version}" for name, version in sorted(card.versions.items()))
        raise CheckFailed(
            f"{entry.file} was built again, but not to the digest on the card ({versions}).",
            left="the new file",
            next=f"install those versions, or remove {path / CARD_NAME} and build again",
        )
