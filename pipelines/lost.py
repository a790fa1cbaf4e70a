"""Build a folder again that lost its card, from what its shards, page and raw files say."""

from __future__ import annotations

import ast
import contextlib
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from kmip_data.builds.home import Build, BuildArguments, BuildOptions, Home
from kmip_data.errors import DamagedInput, UsageError, located, require_extra
from kmip_data.files.reading import read_small
from kmip_data.format.build_files import PAGE_NAME
from kmip_data.format.card import CARD_NAME
from kmip_data.format.reader import Shard
from kmip_data.manifest import Manifest, dataset_names, load_manifest, named
from kmip_data.pipelines.base import (
    AnyPipeline,
    Params,
    RawFolder,
    build_command,
    check_params,
    load_pipeline,
)
from kmip_data.pipelines.build import build_raw, splits_on_disk
from kmip_data.pipelines.engine.finish import BuildPlan
from kmip_data.pipelines.engine.unfinished import stored_key, unfinished_builds
from kmip_data.pipelines.raw.copies import list_copies, problems
from kmip_data.pipelines.raw.obtain import obtain_raw

_PARAMETER = re.compile(r"^\| (\w+) \| `(.*)` \|$", re.MULTILINE)
_DEFAULT_SPLIT = re.compile(r"^\*\*(.+)\*\* \(default\)", re.MULTILINE)
_MAX_PAGE = 2**24  #: bytes


def find_lost(target: str, home: Home) -> Path | None:
    """Return the folder of shards without a card that ``target`` means: a path, or a name at home."""
    folders = [located(target, "build folder"), home.built / target]
    folders += [build.path for build in unfinished_builds(home) if _dataset(build.path) == target]
    for folder in folders:
        if not (folder / CARD_NAME).exists() and stored_key(folder) is not None:
            return folder
    return None


def rebuild_lost(path: Path, home: Home, **options: Unpack[BuildArguments]) -> Build:
    """Build a folder again in place, all shards from the raw files, and write its card.

    Pipeline, parameters and raw files are those that give the build key in the shards; the page
    says which to try. Nothing is downloaded. Files that a build of this key does not write stay.

    Raises ``UsageError``, with the ``build`` command, where none gives that key, or a file is in
    the way.
    """
    page = ""
    with contextlib.suppress(OSError, ValueError):
        page = read_small(path / PAGE_NAME, _MAX_PAGE).decode(errors="replace")
    dataset = _dataset(path)
    key = stored_key(path)
    recorded = _recorded(page)
    chosen = BuildOptions.of(dataset, options)
    chosen = replace(chosen, output=path, unpinned=True)

    commands = []
    for manifest in _manifests(dataset):
        pipeline: Any = load_pipeline(manifest)
        try:
            params = check_params(pipeline.Params, recorded, dataset)
        except UsageError:  # of another recipe
            continue
        commands.append(build_command(manifest, params))
        for raw in _raw_folders(pipeline, params, home, chosen, path, page):
            resolved = params
            with contextlib.suppress(DamagedInput, UsageError):  # of another recipe, too
                resolved = pipeline.resolve(params, raw)
            plan = BuildPlan.of(pipeline, resolved, raw, home, chosen)
            if plan.key != key or (raw.members and problems(raw)):
                continue
            require_extra(pipeline.extra, dataset)
            splits = splits_on_disk(path, pipeline)
            default = _DEFAULT_SPLIT.search(page)
            first = splits.get(default[1] if default else "", next(iter(splits.values()), None))
            if manifest.recipe and first is None:
                break  # the split of its first build is not known
            return build_raw(plan, first or pipeline.SplitParams())

    if len(commands) != 1:
        commands = [f"kmip-data build RECIPE --name {dataset} --archive PATH"]
    if path.parent != home.built:
        commands = [f"{commands[0]} --output {shlex.quote(str(path))}"]
    raise UsageError(
        f"{path} lost its {CARD_NAME}, and the files here do not tell what it was built from.",
        expected=f"raw files and parameters of the build key {key} below {home.raw}",
        next=f"{commands[0]}, with the options and files it was built with: it is built again in place",
    )


def _dataset(path: Path) -> str:
    """Return the dataset that the first readable shard of a folder names; empty if none."""
    for shard in sorted((path / "shards").glob("*.h5")):
        with contextlib.suppress(DamagedInput):
            return Shard(shard).dataset
    return ""


def _recorded(page: str) -> dict[str, Any]:
    """Return the parameters in the table of a page: texts, lists and None."""
    values: dict[str, Any] = {}
    for name, text in _PARAMETER.findall(page):
        values[name] = text
        if text == "None" or text.startswith("["):
            with contextlib.suppress(ValueError, SyntaxError):
                values[name] = ast.literal_eval(text)
    return values


def _manifests(dataset: str) -> list[Manifest]:
    """Return the manifest of a shipped dataset; of another one those of all recipes."""
    if dataset in dataset_names():
        return [load_manifest(dataset)]
    manifests = map(load_manifest, dataset_names())
    return [named(manifest, dataset) for manifest in manifests if manifest.recipe]


def _raw_folders(
    pipeline: AnyPipeline,
    params: Params,
    home: Home,
    options: BuildOptions,
    path: Path,
    page: str,
) -> Iterator[RawFolder]:
    """Yield the raw files that a build may be of: a sample, which is generated, else those at home."""
    dataset = pipeline.manifest.name
    sample = path.name.startswith(f"{dataset}-sample-") or "SAMPLE: " in page
    known = dataset in dataset_names()
    if sample or pipeline.manifest.generated or (known and options.archives):
        yield obtain_raw(pipeline, params, home, options, sample=sample)
    else:
        yield from list_copies(home.raw / dataset)
