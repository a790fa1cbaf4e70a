"""Home folder, the finished builds in it and their look-ups, which ``pipelines/find.py`` compares."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeVar

from kmip_data.errors import DamagedInput, UsageError, unknown_name_error
from kmip_data.files.path_errors import absolute_path
from kmip_data.files.reading import read_small_file
from kmip_data.format.card import CARD_NAME, Card, FileEntry, read_card
from kmip_data.manifest import dataset_names
from kmip_data.runtime.progress import print_status
from kmip_data.text import count_with_noun, format_parameters, parameters_as_options, timestamp

if TYPE_CHECKING:
    from kmip_data.format.reader import Shard

ENVIRONMENT = "KMIP_DATA_HOME"
UNITS = ("graphs", "nodes", "edges")  #: counts of a card
COLUMNS = "columns"  #: folder of added columns, next to ``shards``


@dataclass(frozen=True)
class Home:
    """The home folder: ``raw/``, ``built/`` and ``runs/`` (created when first written to)."""

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
        folder = home or os.environ.get(ENVIRONMENT)
        if not folder:
            import platformdirs

            folder = platformdirs.user_data_dir("kmip-data", appauthor=False)
        return cls(absolute_path(folder, f"home folder (--home DIR, {ENVIRONMENT})"))

    @property
    def nearest_existing_folder(self) -> Path:
        """The home folder, or its nearest parent that exists."""
        return next(folder for folder in (self.path, *self.path.parents) if folder.exists())

    @property
    def raw(self) -> Path:
        """Archives and their extracted members."""
        return self.path / "raw"

    @property
    def built(self) -> Path:
        """Return the folder that holds one folder per build."""
        return self.path / "built"

    @property
    def runs(self) -> Path:
        """One folder per training run: ``runs/<dataset>/<model>/<name>``."""
        return self.path / "runs"

    @property
    def cache(self) -> Path:
        """Cache of remote builds; may be removed while nothing reads."""
        return self.path / "cache"


FolderOrHome = TypeVar("FolderOrHome", bound="str | os.PathLike[str] | Home")


def home_argument(home: FolderOrHome | None, root: FolderOrHome | None) -> FolderOrHome | None:
    """Return ``home`` or ``root``, two names of one argument; ``UsageError`` if both are given."""
    if home is not None and root is not None:
        raise UsageError(
            "home and root are both given, and mean the same folder.", next="one of them"
        )
    return root if home is None else home


@dataclass(frozen=True)
class Build:
    """A finished build on disk."""

    path: Path
    card: Card
    #: True if rows are read over a network, so that several batches are fetched in parallel
    is_remote: ClassVar[bool] = False

    def __repr__(self) -> str:
        return f"Build({self.card.dataset!r}, path={str(self.path)!r})"

    @property
    def location(self) -> str:
        """Folder or address of its files, for messages."""
        return str(self.path)

    @property
    def remedy(self) -> str:
        """Command that repairs a damaged file of the build."""
        return f"kmip-data verify {shlex.quote(str(self.path))} --repair"

    def open_shard(self, file: str, entry: FileEntry) -> Shard:
        """Open one of its shards, or a file next to one, by its name in the folder.

        Raises ``DamagedInput`` where it is not the file of that ``entry`` on a card.
        """
        from kmip_data.format.reader import Shard

        folder = self.path.parent
        receipts = None
        if folder.name == "built":
            receipts = Home(folder.parent).cache / "checked"
        return Shard(self.path / file, entry=entry, receipts=receipts)

    def fetch_rows(self, rows: Sequence[tuple[Shard, str, int, int]]) -> None:
        """Fetch these rows (shard, key, first, end) in one go."""

    def reread_card(self) -> Card:
        """Return the current card, after waiting for the lock of the folder.

        Raises ``UsageError`` where the folder holds another build by now, or none.
        """
        card = read_card(self.path)
        if card.key != self.card.key:
            raise UsageError(
                f"{self.path} holds another build than {self.card.key}: "
                "another process has built into it.",
                next="run the same command again, for the build that is there now",
            )
        return card


def list_builds(home: Home, dataset: str | None = None) -> list[Build]:
    """Return the finished builds under ``home``, or of one dataset in it, by folder name.

    Builds whose card cannot be read are left out.
    """
    # Check only cards that may belong to the dataset: each check delays a command by 5 ms.
    line = f'"dataset": {json.dumps(dataset, ensure_ascii=False)}'.encode("utf-8", "surrogatepass")
    builds = []
    for card in sorted(home.built.glob(f"*/{CARD_NAME}")):
        # The card is damaged, or has a newer version.
        with contextlib.suppress(DamagedInput, UsageError, OSError):
            if dataset is None or line in read_small_file(card):
                builds.append(Build(card.parent, read_card(card.parent)))
    return [build for build in builds if dataset in {None, build.card.dataset}]


def build_of_folder(name: str | os.PathLike[str], home: Home | None = None) -> Build | None:
    """Return the build in the folder ``name``, or of that name below ``home``.

    Returns ``None`` for the name of a dataset.

    Raises ``DamagedInput`` where the folder has no readable card.
    """
    text = os.fspath(name)
    folder = absolute_path(text, "build folder")
    if os.sep not in text and not (folder / CARD_NAME).is_file():
        if home is None or not (home.built / text / CARD_NAME).is_file():
            return None
        # A dataset takes precedence over a folder of its name.
        if text in _known_datasets(list_builds(home)):
            return None
        folder = home.built / text
    return Build(folder, read_card(folder))


def _known_datasets(builds: Sequence[Build]) -> set[str]:
    return {*dataset_names(), *(build.card.dataset for build in builds)}


def require_build(
    home: Home,
    dataset: str,
    parameters: Mapping[str, object],
    *,
    defaults: Mapping[str, object],
    sample: bool,
) -> Build:
    """Return what :func:`find_build` finds; raise UsageError if it finds nothing.

    ``defaults`` stand for parameters not given, and the error leaves them out.
    """
    build = find_build(home, dataset, {**defaults, **parameters}, sample=sample)
    if build is not None:
        return build

    builds = list_builds(home)
    known = _known_datasets(builds)
    if dataset not in known:
        # The user's own names are few, and `kmip-data list` also says how to list all others.
        user_names = sorted(known.difference(dataset_names()))
        raise unknown_name_error(
            "dataset or build folder",
            dataset,
            sorted(known),
            command="kmip-data list",
            listed=user_names,
        )

    if sample and dataset not in dataset_names():
        raise UsageError(
            f"{dataset} has no sample: samples are generated for published datasets alone.",
            next="leave out --sample",
        )
    unusual = {name: value for name, value in parameters.items() if value != defaults.get(name)}
    options = (
        f"{parameters_as_options(unusual)} --sample" if sample else parameters_as_options(unusual)
    )
    options = options.strip()

    command = rebuild_command(builds, dataset)
    if dataset in dataset_names():
        command = f"kmip-data build {dataset}"
    step = f"{command} {options}".strip()
    others = [build for build in builds if build.card.dataset == dataset]
    similar = [build.path.name for build in others if build.card.sample == sample]
    # The user often means an existing build; building the requested one may download gigabytes.
    if similar:
        step = f"use {' or '.join(similar[:3])} instead, or {step}"
    elif others and not sample:
        step += ", or --sample for the generated one"
    chosen_options = f" ({options})" if options else ""
    raise UsageError(
        f"There is no finished build of {dataset}{chosen_options} under {home.built}.",
        found=", ".join(build.path.name for build in others) or "none",
        next=step,
    )


def rebuild_command(builds: Sequence[Build], dataset: str) -> str:
    """Return the command that rebuilds a dataset of your own from its source."""
    manifests = [build.card.manifest for build in builds if build.card.dataset == dataset]
    manifest = manifests[0] if manifests else ""
    if manifest == dataset:
        return f"kmip-data build {dataset} --plugin FILE"  # its plugin is not loaded
    if manifest:
        return f"kmip-data build {manifest} --name {dataset} --archive PATH"
    return f"kmip-data info {dataset}"


def added_column_names(folder: Path) -> list[str]:
    """Return the names of the finished added columns of a build folder, sorted."""
    return sorted(path.parent.name for path in (folder / COLUMNS).glob(f"*/{CARD_NAME}"))


def find_build(
    home: Home,
    dataset: str,
    parameters: Mapping[str, object],
    *,
    sample: bool = False,
) -> Build | None:
    """Return the first of :func:`matching_builds`, or ``None``.

    Of several builds of the user's own data that is the newest, which a line on stderr says once;
    of a shipped dataset ``UsageError`` lists their folders.
    """
    matches = matching_builds(home, dataset, parameters, sample=sample)
    if len(matches) > 1 and dataset in dataset_names():
        raise _several_error(dataset, matches)
    if len(matches) > 1 and matches[0].path not in _announced:
        _announced.add(matches[0].path)
        print_status(_newest_line(dataset, matches))
    return matches[0] if matches else None


def matching_builds(
    home: Home,
    dataset: str,
    parameters: Mapping[str, object],
    *,
    sample: bool = False,
) -> list[Build]:
    """Return the finished builds of ``dataset`` with ``parameters``, the newest first.

    A build matches when it is of that dataset and has the values in ``parameters``. Samples and
    builds with a ``limit`` match only when asked for. A complete build goes before part of the
    published set. If several versions of a pipeline match, only the builds of the newest count: it
    supersedes the others.
    """
    wanted = {"limit": None, **parameters}
    matches = []
    for build in list_builds(home, dataset):
        card = build.card
        same = card.sample == sample
        if same and all(card.parameters.get(key) == value for key, value in wanted.items()):
            matches.append(build)

    # Complete builds, builds of the published files, builds of the newest pipeline.
    matches = [build for build in matches if build.card.complete is not False] or matches
    matches = [build for build in matches if build.card.pinned] or matches
    newest = max((build.card.pipeline_version for build in matches), default=0)
    matches = [build for build in matches if build.card.pipeline_version == newest]

    return sorted(matches, key=_build_time, reverse=True)


def make_build_newest(build: Build, home: Home) -> None:
    """Make a build of the home the one that its name means, as if it had been built just now."""
    if build.path.parent != home.built:
        return
    matches = matching_builds(home, build.card.dataset, {}, sample=build.card.sample)
    if matches and matches[0].path != build.path:
        with contextlib.suppress(OSError):  # a folder that cannot be written to
            os.utime(build.path / next(iter(build.card.files)))


#: Builds that this process has announced as the newest of their name.
_announced = set[Path]()


def _newest_line(dataset: str, builds: Sequence[Build]) -> str:
    """Return the line that says which of several builds a name means, the newest first."""
    newest, *others = builds
    line = f"{dataset} has {len(builds)} builds: uses the newest, {newest.path.name} of {date_of_build(newest)}"
    names = " or ".join(build.path.name for build in others[:3])
    return f"{line}; name {names} to use another."


def _several_error(dataset: str, builds: Sequence[Build]) -> UsageError:
    """Return the error for several builds of a shipped dataset, the newest first."""
    lines = []
    for build, difference in zip(builds, differences_of_builds(builds), strict=True):
        age = " (the newest)" if build is builds[0] else ""
        facts = [difference, build.card.sources, f"built {date_of_build(build)}{age}"]
        # The name of a dataset precedes a folder of that name.
        name = build.path if build.path.name == dataset else build.path.name
        lines.append(f"\n    {name}: {', '.join(filter(None, facts))}")
    error = UsageError(
        f"{len(builds)} builds of {dataset!r} match.",
        found="".join(lines),
        next=f"one of these names in place of {dataset}; kmip-data remove NAME removes one",
    )
    latest = builds[0].path
    error.correction = (dataset, latest.name if latest.name != dataset else str(latest))
    return error


def date_of_build(build: Build) -> str:
    """Return when the first shard of a build was written (UTC), to the minute."""
    return timestamp(_build_time(build))[:16].replace("T", " ")


def _build_time(build: Build) -> float:
    """Return when the first shard was written, in seconds since 1970.

    A card is written again with every split that is added.
    """
    shard = build.path / next(iter(build.card.files))
    written = shard if shard.is_file() else build.path / CARD_NAME
    return written.stat().st_mtime


def differences_of_builds(builds: Sequence[Build]) -> list[str]:
    """Return the counts and parameters of each build in which builds of one name differ.

    Parameters that are unset are left out. The texts are empty for a single build.
    """
    names = dict.fromkeys(name for build in builds for name in build.card.parameters)
    rows = []
    for build in builds:
        card = build.card
        counts = [count_with_noun(card.counts[unit], unit.removesuffix("s")) for unit in UNITS]
        values = [format_parameters({name: card.parameters.get(name)}) for name in names]
        rows.append([*counts, *values])
    differing = [len(set(column)) > 1 for column in zip(*rows, strict=True)]
    return [", ".join(filter(None, itertools.compress(row, differing))) for row in rows]
