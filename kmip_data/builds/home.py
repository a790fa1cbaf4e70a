"""Where raw files, builds and runs live, and which build a name means."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kmip_data.errors import DamagedInput, UsageError
from kmip_data.files.small import read_small
from kmip_data.format.card import CARD_NAME, Card, read_card
from kmip_data.wording import as_options

ENVIRONMENT = "KMIP_DATA_HOME"


@dataclass(frozen=True)
class Home:
    """The home folder: ``raw/``, ``built/`` and ``runs/`` (created when first written to)."""

    root: Path

    @classmethod
    def locate(cls, path: str | os.PathLike[str] | None = None) -> Home:
        """``path``, else ``$KMIP_DATA_HOME``, else the platform's user data folder."""
        if path is None:
            path = os.environ.get(ENVIRONMENT) or None
        if path is None:
            import platformdirs

            path = platformdirs.user_data_dir("kmip-data", appauthor=False)
        try:
            return cls(Path(path).expanduser().absolute())
        except (RuntimeError, FileNotFoundError) as error:  # no home folder, or no working folder any more
            raise UsageError(
                f"The folder {path} cannot be located.",
                expected="an absolute path, or a user with a home folder",
                found=str(error),
                left="nothing was changed",
                next=f"give --home DIR, or set {ENVIRONMENT}",
            ) from error

    @property
    def raw(self) -> Path:
        """Archives and their extracted members."""
        return self.root / "raw"

    @property
    def built(self) -> Path:
        """One folder a build."""
        return self.root / "built"

    @property
    def runs(self) -> Path:
        """One folder a training run: ``runs/<dataset>/<model>/<name>``."""
        return self.root / "runs"


@dataclass(frozen=True)
class Build:
    """A finished build on disk."""

    path: Path
    card: Card

    def read_again(self) -> Card:
        """Return the card that is there now, for whoever waited for the lock of the folder.

        Raises
        ------
        UsageError
            The folder holds another build by now, or none.
        """
        card = read_card(self.path)
        if card.key != self.card.key:
            raise UsageError(
                f"{self.path} holds another build than it did: another process has built into it.",
                expected=f"build key {self.card.key}",
                found=f"build key {card.key}",
                left="nothing was changed",
                next="the same command again, for the build that is there now",
            )
        return card


def list_builds(home: Home) -> list[Build]:
    """All finished builds under ``home``, by folder name; folders without a readable card are left out."""
    found = []
    for card_path in sorted(home.built.glob(f"*/{CARD_NAME}")):
        try:
            found.append(Build(card_path.parent, read_card(card_path.parent)))
        except (DamagedInput, UsageError):  # damaged, or of a newer version
            continue
    return found


def find_build(
    home: Home,
    dataset: str,
    parameters: Mapping[str, Any] | None = None,
    *,
    defaults: Mapping[str, Any] | None = None,
    sample: bool = False,
) -> Build | None:
    """Return the one finished build that ``dataset`` with ``parameters`` means, or ``None``.

    A build matches when it is of that dataset, has the values in ``parameters``, and ``defaults``
    for the parameters not given. Samples and builds with a ``limit`` match only when asked for. The
    whole of a published set goes before part of it. Of matches by several versions of a pipeline only
    those of the newest count: it supersedes the others. Where ``compression`` is not asked for, a
    plain build goes before compressed ones.

    Raises
    ------
    UsageError
        Several builds match; their folders are listed. Or the only one was written by a newer kmip-data.
    """
    wanted = {"limit": None, **(defaults or {}), **(parameters or {})}

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
            left="nothing was changed",
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
            card = json.loads(read_small(card_path))
            parameters = card.get("parameters")
            found = parameters if isinstance(parameters, dict) else {}
            if means(card.get("dataset", ""), card.get("sample", False), found):
                raise


def open_target(
    target: str | os.PathLike[str],
    home: Home,
    parameters: Mapping[str, Any] | None = None,
    *,
    defaults: Mapping[str, Any] | None = None,
    sample: bool = False,
    dataset: str | None = None,
) -> Build:
    """Resolve TARGET: a build folder, or the name of a dataset with a finished build.

    Parameters
    ----------
    parameters
        Values that the build must have, also where ``target`` is its folder.
    defaults
        With a name: values for the parameters not given.
    sample
        With a name: look for a sample; with a folder: the build must be one.
    dataset
        With a folder: the dataset that it must be of; then ``sample`` must hold either way.

    Raises
    ------
    UsageError
        No build matches (the ``build`` command is named), or several do; or the folder holds a build
        with other values.
    DamagedInput
        The folder has no readable card.
    """
    text = os.fspath(target)
    path = Path(text).expanduser()
    if os.sep in text or (path / CARD_NAME).is_file():
        build = Build(path.absolute(), read_card(path.absolute()))
        _check_build(build, parameters or {}, sample=sample, dataset=dataset)
        return build
    parameters = _as_recorded(text, parameters or {})
    found = find_build(home, text, parameters, defaults=defaults, sample=sample)
    if found is None:
        from kmip_data.manifest import dataset_names, unknown_name

        names = dataset_names()
        custom = sorted({build.card.dataset for build in list_builds(home)})
        if text not in names and text not in custom:
            raise unknown_name("dataset or build folder", text, sorted({*names, *custom}))
        wanted = as_options(parameters)
        flag = " --sample" if sample else ""
        others = [build.path.name for build in list_builds(home) if build.card.dataset == text]
        raise UsageError(
            f"There is no finished build of {text!r}{' ' + wanted if wanted else ''}{flag}.",
            expected=f"a build under {home.built}",
            found=f"others: {', '.join(others)}" if others else "none",
            left="nothing was changed",
            next=f"kmip-data build {text}{' ' + wanted if wanted else ''}{flag}",
        )
    return found


def _check_build(build: Build, parameters: Mapping[str, Any], *, sample: bool, dataset: str | None) -> None:
    """Refuse a build folder that is not what the other arguments say: never another k unnoticed."""
    card = build.card
    wanted: dict[str, Any] = {}
    if dataset is not None:
        wanted["dataset"] = dataset
    if sample or dataset is not None:
        wanted["sample"] = sample
    wanted.update(_as_recorded(dataset or card.manifest, parameters))
    found = {"dataset": card.dataset, "sample": card.sample, **card.parameters}
    differing = [name for name, value in wanted.items() if found.get(name) != value]
    if differing:
        raise UsageError(
            f"{build.path} is another build.",
            expected=", ".join(f"{name} = {wanted[name]!r}" for name in differing),
            found=", ".join(f"{name} = {found.get(name)!r}" for name in differing),
            left="nothing was changed",
            next="give the values that were found, or the name of the dataset in place of the folder",
        )


def _as_recorded(manifest: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters given, checked and as a card has them; of a saved dataset, as they are."""
    from kmip_data.manifest import dataset_names

    values = {name: list(value) if isinstance(value, tuple) else value for name, value in parameters.items()}
    if manifest in dataset_names():
        from kmip_data.builds.find import record_parameters

        # Compression is none of the pipeline's parameters, but on the card.
        checked = record_parameters(manifest, {n: v for n, v in values.items() if n != "compression"})
        values = {name: checked.get(name, value) for name, value in values.items()}
    return values
