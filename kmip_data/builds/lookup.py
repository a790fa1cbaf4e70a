"""Look up finished builds by folder, or by name and recorded parameters, without checking or building."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from kmip_data.builds.home import Build, Home, list_builds
from kmip_data.errors import DamagedInput, UsageError
from kmip_data.files.errors import located
from kmip_data.files.small import read_json
from kmip_data.format.card import CARD_NAME, read_card
from kmip_data.manifest import dataset_names, unknown_name
from kmip_data.wording import as_options


def build_in(target: str | os.PathLike[str]) -> Build | None:
    """Return the build in the folder ``target``; ``None`` where that is a name.

    Raises ``DamagedInput`` where the folder has no readable card.
    """
    text = os.fspath(target)
    folder = located(text, "build folder")
    if os.sep not in text and not (folder / CARD_NAME).is_file():
        return None
    return Build(folder, read_card(folder))


def named_build(
    home: Home,
    dataset: str,
    parameters: Mapping[str, Any] | None = None,
    *,
    defaults: Mapping[str, Any] | None = None,
    sample: bool = False,
    otherwise: str = "",
) -> Build:
    """Return what :func:`find_build` finds; that there is none is a UsageError, too.

    ``defaults`` stand for parameters not given, and the error leaves them out; ``otherwise`` is what it says
    beside the command that builds it.
    """
    usual = defaults or {}
    found = find_build(home, dataset, {**usual, **(parameters or {})}, sample=sample)
    if found is not None:
        return found
    builds, names = list_builds(home), dataset_names()
    own = {build.card.dataset for build in builds}
    if dataset not in {*names, *own}:
        raise unknown_name("dataset or build folder", dataset, sorted({*names, *own}))
    asked = {
        name: value for name, value in (parameters or {}).items() if name not in usual or value != usual[name]
    }
    words = " ".join(filter(None, [dataset, as_options(asked), "--sample" if sample else ""]))
    others = [build.path.name for build in builds if build.card.dataset == dataset]
    raise UsageError(
        f"There is no finished build of {words}.",
        expected=f"a build under {home.built}",
        found=f"others: {', '.join(others)}" if others else "none",
        next=f"kmip-data build {words}{otherwise}",
    )


def find_build(
    home: Home, dataset: str, parameters: Mapping[str, Any] | None = None, *, sample: bool = False
) -> Build | None:
    """Return the one finished build that ``dataset`` with ``parameters`` means, or ``None``.

    A build matches when it is of that dataset and has the values in ``parameters``. Samples and builds
    with a ``limit`` match only when asked for. The whole of a published set goes before part of it. Of
    matches by several versions of a pipeline only those of the newest count: it supersedes the others.
    Where ``compression`` is not asked for, an uncompressed build goes before compressed ones. Raises
    ``UsageError``, which lists their folders, where several builds match, or where the only one was written
    by a newer kmip-data.
    """
    wanted = {"limit": None, **(parameters or {})}

    def means(found_dataset: str, found_sample: bool, found: Mapping[str, Any]) -> bool:
        same = found_dataset == dataset and found_sample == sample
        return same and all(found.get(name) == value for name, value in wanted.items())

    matches = [
        build
        for build in list_builds(home)
        if means(build.card.dataset, build.card.sample, build.card.parameters)
    ]
    if not matches:
        _refuse_newer(home, means)
    matches = [build for build in matches if build.card.complete is not False] or matches
    newest = max((build.card.pipeline_version for build in matches), default=0)
    matches = [build for build in matches if build.card.pipeline_version == newest]
    if "compression" not in wanted:
        matches = [build for build in matches if build.card.parameters.get("compression") is None] or matches
    if len(matches) > 1:
        folders = "\n    ".join(str(build.path) for build in matches)
        raise UsageError(
            f"{len(matches)} builds of {dataset!r} match.",
            expected="one build, or a build folder as the target",
            found=f"\n    {folders}",
            next=f"name one, for example: kmip-data info {matches[0].path}",
        )
    return matches[0] if matches else None


def _refuse_newer(home: Home, means: Callable[[str, bool, Mapping[str, Any]], bool]) -> None:
    """Raise the error of a build that is meant and was written by a newer kmip-data."""
    for card_path in sorted(home.built.glob(f"*/{CARD_NAME}")):
        try:
            read_card(card_path.parent)
        except DamagedInput:
            continue
        except UsageError:
            card = read_json(card_path)
            parameters = card.get("parameters")
            found = parameters if isinstance(parameters, dict) else {}
            if means(card.get("dataset", ""), card.get("sample", False), found):
                raise
