"""Home folder, and lookup of the finished builds in it by dataset and parameters."""

from __future__ import annotations

import contextlib
import glob
import itertools
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from kmip_data.errors import SAME_AGAIN, Command, DamagedInput, UsageError
from kmip_data.files.path_errors import absolute_path
from kmip_data.files.small_files import read_small_file
from kmip_data.format.card import CARD_NAME, Card, FileEntry, read_card
from kmip_data.manifest import dataset_names
from kmip_data.runtime.progress import print_status
from kmip_data.text import count_with_noun, dataset_name_from, format_parameters, timestamp

if TYPE_CHECKING:
    from kmip_data.format.reader import Shard

HOME_VARIABLE = "KMIP_DATA_HOME"
COLUMNS_FOLDER = "columns"  #: folder of added columns, next to ``shards``


@dataclass(frozen=True)
class Home:
    """Home folder with ``raw/``, ``built/`` and ``runs/``, each created when first written to."""

    path: Path

    @classmethod
    def locate(
        cls,
        home: str | os.PathLike[str] | Home | None = None,
        root: str | os.PathLike[str] | Home | None = None,
    ) -> Home:
        """Return the home at ``home``, else ``$KMIP_DATA_HOME``, else the user's data folder.

        ``root`` is PyTorch Geometric's name for ``home``. Public functions that return a dataset or
        a build accept both names, functions for runs only ``home``; internal code says ``home``.
        Raises ``UsageError`` if both are given.
        """
        home = home_argument(home, root)
        if isinstance(home, Home):
            return home
        folder = home or os.environ.get(HOME_VARIABLE)
        if not folder:
            import platformdirs

            folder = platformdirs.user_data_dir("kmip-data", appauthor=False)
        return cls(absolute_path(folder, f"home folder ({HOME_VARIABLE})"))

    @property
    def nearest_existing_folder(self) -> Path:
        """The home folder, or its nearest existing parent."""
        return next(folder for folder in (self.path, *self.path.parents) if folder.exists())

    @property
    def raw(self) -> Path:
        """Folder of archives and their extracted members."""
        return self.path / "raw"

    @property
    def built(self) -> Path:
        """Folder of all builds."""
        return self.path / "built"

    @property
    def runs(self) -> Path:
        """Folder of training runs: ``runs/<dataset>/<model>/<name>``."""
        return self.path / "runs"

    def run_folders(self, file: str = "config.toml") -> list[Path]:
        """Return the folders of runs that have a file, sorted."""
        return sorted(path.parent for path in self.runs.glob(f"*/*/*/{file}"))

    def matching_runs(self, name: str, *, suffix: str = "") -> list[Path]:
        """Return the runs whose path ends in ``name``, followed by the regular expression ``suffix``.

        ``./name`` is a path and ends none.
        """
        pattern = re.compile(f"(?:.*/)?{re.escape(name.rstrip('/'))}{suffix}")
        return [folder for folder in self.run_folders() if pattern.fullmatch(folder.as_posix())]

    def runs_below(self, name: str) -> list[Path]:
        """Return the runs of a dataset, or of a model on it as ``DATASET/MODEL``."""
        return [folder for folder in self.run_folders() if self.runs / name in folder.parents[:2]]

    @property
    def cache(self) -> Path:
        """Stamps of checked files, reference answers; can be removed while no process reads."""
        return self.path / "cache"


FolderOrHome = TypeVar("FolderOrHome", bound="str | os.PathLike[str] | Home")


def home_argument(home: FolderOrHome | None, root: FolderOrHome | None) -> FolderOrHome | None:
    """Return ``home`` or ``root``, two names of one argument; raise ``UsageError`` if both are given."""
    if home is not None and root is not None:
        raise UsageError(
            "home and root are both given, and mean the same folder.", steps="one of them"
        )
    return root if home is None else home


@dataclass(frozen=True)
class Build:
    """Finished build on disk: its folder and card."""

    path: Path
    card: Card

    def __repr__(self) -> str:
        return f"Build({self.card.dataset!r}, path={str(self.path)!r})"

    @property
    def name_or_path(self) -> str:
        """Name of the build in commands: an unambiguous user-chosen name, its folder's, or the path."""
        dataset = self.card.dataset
        paths_of_name = [other.path for other in list_builds(Home.locate(), dataset)]
        if paths_of_name == [self.path] and dataset != self.card.manifest:
            return dataset
        is_in_home = self.path in paths_of_name and self.path.name != dataset
        return self.path.name if is_in_home else str(self.path)

    @property
    def remedy(self) -> Command:
        """Command that repairs a damaged file of the build."""
        return Command("kmip-data verify {} --repair", self.path)

    def open_shard(self, file: str, entry: FileEntry) -> Shard:
        """Open a shard, or a file of an added column, by its path in the build.

        Raises ``DamagedInput`` if the file does not match its ``entry`` on the card.
        """
        from kmip_data.format.reader import Shard

        folder = self.path.parent
        stamps = None
        if folder.name == "built":
            stamps = Home(folder.parent).cache / "checked"
        return Shard(self.path / file, entry=entry, stamps=stamps)

    def reread_card(self) -> Card:
        """Return the card as it is now; call it after waiting for the lock of the folder.

        Raises ``UsageError`` if the folder no longer holds this build.
        """
        card = read_card(self.path)
        if card.key != self.card.key:
            raise UsageError(
                f"{self.path} no longer holds the build {self.card.key}: "
                "another process has built into it.",
                steps=SAME_AGAIN,
            )
        return card


def list_builds(home: Home, dataset: str | None = None) -> list[Build]:
    """Return the finished builds under ``home``, optionally of one dataset, sorted by folder.

    Builds whose card cannot be read are left out.
    """
    # Search the card as text first: parsing it takes 5 ms.
    dataset_entry = f'"dataset": {json.dumps(dataset, ensure_ascii=False)}'.encode(
        "utf-8", "surrogatepass"
    )
    builds = []
    for card_path in sorted(home.built.glob(f"*/{CARD_NAME}")):
        # Skip a card that is damaged or has a newer version.
        with contextlib.suppress(DamagedInput, UsageError, OSError):
            if dataset is None or dataset_entry in read_small_file(card_path):
                builds.append(Build(card_path.parent, read_card(card_path.parent)))
    return [build for build in builds if dataset in {None, build.card.dataset}]


def is_dataset(name: str, home: Home) -> bool:
    """True if a published dataset, or a build of the home or its folder, has this name."""
    return (
        name in dataset_names()
        or bool(list_builds(home, name))
        or (home.built / name / CARD_NAME).is_file()
    )


def path_or_none(name: str | os.PathLike[str], home: Home | None = None) -> Path | None:
    """Return the absolute path that ``name`` is, or ``None`` for a word, which names something.

    A path has a separator, or is a ``Path``. Where files are read too, pass the ``home``: a word
    with a suffix, such as ``a.csv``, is a path unless it names data of the home. What exists in the
    working directory decides nothing: ``cora`` is the dataset, and ``./cora`` the folder.
    """
    is_path = not isinstance(name, str) or os.sep in name or name in {".", ".."}
    if home is not None and not is_path:
        is_path = bool(Path(name).suffix) and not is_dataset(os.fspath(name), home)
    return absolute_path(name) if is_path else None


def build_of_folder(name: str | os.PathLike[str], home: Home | None = None) -> Build | None:
    """Return the build in a folder given by its path or its name below ``home``.

    Returns ``None`` if ``name`` is a word that may be a dataset. Raises ``DamagedInput`` if the card
    cannot be read.
    """
    folder = path_or_none(name)
    if folder is None:
        text = os.fspath(name)
        # A dataset takes precedence over a folder with the same name.
        if home is None or text in dataset_names() or list_builds(home, text):
            return None
        folder = home.built / text
        if not (folder / CARD_NAME).is_file():
            return None
    return Build(folder, read_card(folder))


def refuse_unreadable_cards(dataset: str, home: Home) -> None:
    """Raise the error of a card in a folder ``DATASET-…`` that cannot be read."""
    for card_path in sorted(home.built.glob(f"{glob.escape(dataset)}-*/{CARD_NAME}")):
        read_card(card_path.parent)


def rebuild_command(build: Build) -> Command:
    """Return the command that builds a dataset of your own from its source."""
    dataset = build.card.dataset
    manifest = build.card.manifest
    if manifest == dataset:
        return Command("kmip-data build {} --plugin FILE", dataset)  # a plugin's dataset
    if manifest:
        return Command("kmip-data build {} --name {} --archive PATH", manifest, dataset)
    return Command("kmip-data info", dataset)


def unused_name(text: str, home: Home) -> str:
    """Return a valid name like ``text`` that neither a published dataset nor a build of the home has."""
    name = dataset_name_from(text) or "mine"
    if name.lower() in dataset_names():
        name = f"my-{name}"
    candidate = name
    number = 2
    while list_builds(home, candidate):
        candidate = f"{name}-{number}"
        number += 1
    return candidate


def added_column_names(folder: Path) -> list[str]:
    """Return the sorted names of the finished added columns of a build."""
    # A card that is a link to nothing is damaged, not missing.
    columns = (folder / COLUMNS_FOLDER).glob("*")
    return sorted(path.name for path in columns if os.path.lexists(path / CARD_NAME))


def newest_match(
    builds: Sequence[Build], parameters: Mapping[str, object], *, sample: bool = False
) -> Build | None:
    """Return the build of a dataset that matches, or ``None``; see :func:`matching_builds`.

    Among several builds of the user's own data, the newest is used, and announced once on stderr.
    Several builds of a published dataset raise ``UsageError`` with their folders.
    """
    matches = matching_builds(builds, parameters, sample=sample)
    if not matches:
        return None
    newest = matches[0]
    dataset = newest.card.dataset
    if len(matches) > 1 and dataset in dataset_names():
        raise _several_builds_error(dataset, matches)
    if len(matches) > 1 and newest.path not in _announced:
        _announced.add(newest.path)
        print_status(_newest_build_notice(dataset, matches))
    return newest


def matching_builds(
    builds: Sequence[Build], parameters: Mapping[str, object], *, sample: bool = False
) -> list[Build]:
    """Return the builds of a dataset with ``parameters``, the newest first.

    Samples and builds with a ``limit`` match only if requested. Complete builds take precedence over
    partial ones, and builds of pinned files over others. Only builds of the newest matching pipeline
    version are returned.
    """
    requested = {"limit": None, **parameters}
    matches = [
        build
        for build in builds
        if build.card.sample == sample and build.card.has_parameters(requested)
    ]

    matches = [build for build in matches if build.card.complete is not False] or matches
    matches = [build for build in matches if build.card.pinned] or matches
    newest = max((build.card.pipeline_version for build in matches), default=0)
    matches = [build for build in matches if build.card.pipeline_version == newest]

    return sorted(matches, key=_build_time, reverse=True)


def make_build_newest(build: Build, home: Home) -> None:
    """Give a build in ``home`` the current date, so that its dataset's name refers to it."""
    if build.path.parent != home.built:
        return
    card = build.card
    matches = matching_builds(list_builds(home, card.dataset), {}, sample=card.sample)
    if matches and matches[0].path != build.path:
        with contextlib.suppress(OSError):  # a read-only folder
            os.utime(build.path / next(iter(build.card.files)))


#: Builds that this process has announced as the newest of their dataset.
_announced = set[Path]()


def _newest_build_notice(dataset: str, builds: Sequence[Build]) -> str:
    """Return the notice that the newest, and first, of several builds is used."""
    newest, *others = builds
    notice = f"{dataset} has {len(builds)} builds: uses the newest, {newest.path.name} of {date_of_build(newest)}"
    names = " or ".join(build.path.name for build in others[:3])
    return f"{notice}; name {names} to use another."


def _several_builds_error(dataset: str, builds: Sequence[Build]) -> UsageError:
    """Return the error for several builds of a published dataset, the newest first."""
    lines = []
    # A folder named like the dataset needs its full path.
    names = [str(b.path) if b.path.name == dataset else b.path.name for b in builds]
    for name, build, difference in zip(names, builds, differences_of_builds(builds), strict=True):
        age = " (the newest)" if build is builds[0] else ""
        facts = [difference, build.card.sources, f"built {date_of_build(build)}{age}"]
        lines.append(f"{name}: {', '.join(filter(None, facts))}")
    error = UsageError(
        f"{len(builds)} builds of {dataset!r} match.",
        found=lines,
        steps=f"use one of these names in place of {dataset}",
    )
    error.correction = (dataset, names[0])
    return error


def date_of_build(build: Build) -> str:
    """Return the date and time (UTC) of a build, to the minute."""
    return timestamp(_build_time(build))[:16].replace("T", " ")


def _build_time(build: Build) -> float:
    """Return the modification time of a build's first shard, in seconds since 1970."""
    # The card is no measure: it is rewritten when a split is added.
    shard = build.path / next(iter(build.card.files))
    file = shard if shard.is_file() else build.path / CARD_NAME
    return file.stat().st_mtime


def differences_of_builds(builds: Sequence[Build]) -> list[str]:
    """Describe each build by the counts and parameters in which the builds differ."""
    names = dict.fromkeys(name for build in builds for name in build.card.parameters)
    rows = []
    for build in builds:
        card = build.card
        counts = [
            count_with_noun(card.counts[f"{noun}s"], noun) for noun in ("graph", "node", "edge")
        ]
        values = [format_parameters({name: card.parameters.get(name)}) for name in names]
        rows.append([*counts, *values])
    differs = [len(set(column)) > 1 for column in zip(*rows, strict=True)]
    return [", ".join(filter(None, itertools.compress(row, differs))) for row in rows]
