"""Rebuild exactly the broken files of a finished build, to the digests its card gives."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kmip_data.card import Card, ShardEntry, read_card
from kmip_data.card_page import PAGE_NAME, render_card
from kmip_data.errors import CheckFailed, UsageError
from kmip_data.home import Home
from kmip_data.manifest import dataset_names, load_manifest
from kmip_data.pipelines import engine, signals
from kmip_data.pipelines.base import Params, Pipeline, RawFolder, load_pipeline
from kmip_data.pipelines.finish import protect, read_records, write_split
from kmip_data.pipelines.identity import content_digest
from kmip_data.pipelines.locking import build_lock
from kmip_data.schema import FORMAT_VERSION


def repair_build(
    path: Path,
    *,
    home: Home | None = None,
    archives: Sequence[Path] = (),
    offline: bool = False,
    accept_license: bool | None = None,
    jobs: int | None = None,
    quiet: bool = False,
) -> list[str]:
    """Rebuild the shards and splits that ``verify`` finds broken or missing, and nothing else.

    Needs the same raw files and a readable card; a build whose card is lost is built again by the
    ``build`` command, into the same folder and to the same bytes.

    Returns
    -------
    list of str
        The files that were written, relative to ``path``.

    Raises
    ------
    CheckFailed
        A rebuilt file does not have the digest on the card: the card itself is damaged, or the
        versions of the libraries on it are not those installed here.
    UsageError
        The build was not made by a pipeline, or by another version of it.
    """
    from kmip_data.pipelines.raw import obtain_raw
    from kmip_data.shards.verify import verify_build

    path = Path(path).absolute()
    card = read_card(path)
    report = verify_build(path)
    if report.ok:
        return []
    shards = [shard for shard in card.shards if shard.file in set(report.broken_shards)]
    splits = {problem.file for problem in report.problems if problem.file.startswith("splits/")}
    names = [name for name, entry in card.splits.items() if entry.file in splits]
    pipeline = _pipeline_of(card, path)
    recorded = {key: value for key, value in card.parameters.items() if key != "compression"}
    params: Params = pipeline.Params.model_validate(recorded)
    with signals.terminable():
        raw = obtain_raw(
            pipeline.manifest,
            pipeline,
            home or Home.locate(),
            archives=archives,
            offline=offline,
            accept_license=accept_license,
            sample=card.sample,
            sample_limit=params.limit if card.sample else None,
            quiet=quiet,
        )
        if content_digest(raw.members) != card.content_digest:
            raise CheckFailed(
                f"{path} was built from other raw files.",
                expected=f"content {card.content_digest}",
                found=f"content {content_digest(raw.members)} in {raw.path}",
                left="nothing was changed",
                next=f"kmip-data verify {path} --repair --archive PATH (the archive it was built from)",
            )
        with build_lock(path, quiet=quiet):
            return repair_files(pipeline, params, raw, path, card, shards, names, jobs=jobs, quiet=quiet)


def repair_files(
    pipeline: Pipeline[Any, Any],
    params: Params,
    raw: RawFolder,
    path: Path,
    card: Card,
    shards: Sequence[ShardEntry],
    splits: Sequence[str],
    *,
    jobs: int | None,
    quiet: bool,
) -> list[str]:
    """Rebuild the given shards, then the given splits, then the README; the caller holds the lock."""
    for shard in shards:
        # The build may be used meanwhile: a broken shard is replaced, never taken away first.
        (path / shard.file).parent.mkdir(exist_ok=True)
    results = engine.rebuild_units(
        pipeline,
        params,
        raw,
        path,
        {card.shards.index(shard) for shard in shards},
        key=card.key,
        jobs=jobs,
        compression=card.parameters.get("compression"),
        quiet=quiet,
    )
    for shard in shards:
        result = results[card.shards.index(shard)]
        _check(path, shard.file, shard.sha256, result.sha256, card)
        protect(path / shard.file)
    if splits:
        (path / "splits").mkdir(exist_ok=True)
        records = read_records(path, [shard.file for shard in card.shards], card.schema_)
        for name in splits:
            entry = card.splits[name]
            fields = pipeline.SplitParams.model_fields
            asked = {key: value for key, value in entry.parameters.items() if key in fields}
            split = pipeline.split(records.keys, pipeline.SplitParams.model_validate(asked), raw.path)
            written, _ = write_split(path, split, records, asked)
            _check(path, entry.file, entry.sha256, written.sha256, card)
    page = render_card(card).encode()
    if not (path / PAGE_NAME).is_file() or (path / PAGE_NAME).read_bytes() != page:
        from kmip_data.shards.writer import write_file

        write_file(path / PAGE_NAME, page)
    engine.remove_work(path)
    return [*(shard.file for shard in shards), *(card.splits[name].file for name in splits)]


def _pipeline_of(card: Card, path: Path) -> Pipeline[Any, Any]:
    pipeline = load_pipeline(load_manifest(card.dataset)) if card.dataset in dataset_names() else None
    if pipeline is None:
        raise UsageError(
            f"{path} was saved from memory; no pipeline can build it again.",
            expected=f"one of {', '.join(dataset_names())}",
            found=card.dataset,
            left="nothing was changed",
            next="save it again from its source",
        )
    if (card.pipeline_version, card.format_version) != (pipeline.version, FORMAT_VERSION):
        raise UsageError(
            f"{path} was made by another version.",
            expected=f"pipeline version {pipeline.version}, format version {FORMAT_VERSION}",
            found=f"pipeline version {card.pipeline_version}, format version {card.format_version}",
            left="nothing was changed",
            next=f"kmip-data build {card.dataset} (a new build beside it)",
        )
    return pipeline


def _check(path: Path, file: str, expected: str, found: str, card: Card) -> None:
    if expected != found:
        versions = ", ".join(f"{name} {version}" for name, version in sorted(card.versions.items()))
        raise CheckFailed(
            f"{file} was rebuilt, but not as the card of {path} says.",
            expected=f"SHA-256 {expected}, with {versions}",
            found=f"SHA-256 {found}",
            left="the rebuilt file",
            next=f"install those versions, or remove {path / 'card.json'} and build again",
        )
