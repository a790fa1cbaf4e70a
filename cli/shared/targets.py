"""Names of datasets, builds, sweeps and runs as arguments, checked before heavy imports.

A word names, in this order: a published dataset or sweep; a dataset of the home; a build by its folder in
the home; a sweep of the home; a run by the end of its path. The home is listed only for words that name
nothing published. A path, which has a separator, names a build or a run by its folder.
"""

from __future__ import annotations

import contextlib
import glob
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kmip_data.errors import (
    Command,
    Setting,
    Step,
    UsageError,
    unknown_name_error,
)
from kmip_data.text import RUN_NAME_SUFFIXES, nearest_names

if TYPE_CHECKING:
    from kmip_data.builds.home import Build, Home
    from kmip_data.cli.shared.dataset_options import DatasetParameters


#: Kind -> command that lists the names.
_LIST_COMMANDS = {
    "dataset": Command("kmip-data list --all"),
    "build": Command("kmip-data list"),
    "sweep": Command("kmip-data sweep --help"),
    "run": Command("kmip-data runs"),
}
#: Kind -> file that every folder of this kind has.
_REQUIRED_FILES = {"build": "card.json", "run": "config.toml"}
_GRAPH_SUFFIXES = {".csv", ".tsv", ".graphml", ".gml", ".gexf", ".npz", ".pt", ".mtx"}
_MAX_SAMPLED_FILES = 100  #: files of a folder that are checked for these suffixes
#: Name of an argument type -> how errors call it.
_TYPE_NOUNS = {"build": "dataset or build folder", "run or build": "run, dataset or build folder"}


class NameType(click.ParamType):  # type: ignore[type-arg]  # no generic class before click 8.4
    """A name of one of ``kinds``: ``dataset``, ``build``, ``sweep``, ``run``."""

    def __init__(self, *kinds: str) -> None:
        self.kinds = kinds
        self.name = " or ".join(kinds)
        self.noun = _TYPE_NOUNS.get(self.name, self.name)  #: in errors
        #: True if a dataset or a build may be named
        self.accepts_data = not {"dataset", "build"}.isdisjoint(kinds)

    def convert(
        self,
        value: object,
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> str:
        """Return ``value`` unchanged.

        Raises ``UsageError``, with the nearest name, if it names nothing.
        """
        from kmip_data.builds.home import Home, path_or_none, refuse_unreadable_cards
        from kmip_data.runtime.progress import print_status

        name = str(value)
        params = {} if ctx is None else ctx.params
        home = Home.locate(params.get("home"))
        if self.accepts_data:
            from kmip_data.plugins import import_installed_plugins

            import_installed_plugins(name)
        if name in self._published_names() or self._exists(name, home):
            if path_or_none(name) is None and Path(name, _REQUIRED_FILES["build"]).is_file():
                print_status(f"{name} is taken as a name; the folder is ./{name}")
            return name
        if "build" in self.kinds and os.sep not in name:
            refuse_unreadable_cards(name, home)

        runs = [folder.relative_to(home.runs).as_posix() for folder in home.run_folders()]
        command = "" if ctx is None else str(ctx.info_name)
        for noun, steps, meant in self._other_kinds(name, runs, home, params, command):
            error = UsageError(f"{name} is {noun}; this command takes a {self.noun}.", steps=steps)
            if meant:
                error.correction = (name, meant)
            raise error
        raise self._unknown_name_error(name, runs, home)

    def _published_names(self) -> set[str]:
        """Return the names of these kinds that are shipped."""
        from kmip_data.manifest import dataset_names
        from kmip_data.strict_model import shipped_names

        names = set[str]()
        if self.accepts_data:
            names.update(dataset_names())
        if "sweep" in self.kinds:
            names.update(shipped_names("sweeps"))
            if "run" in self.kinds:
                names.add("sweep")  # runs of sweeps without a plan
        return names

    def _exists(self, name: str, home: Home) -> bool:
        """True if a plan's file, a build or its dataset, a sweep or a run has this name.

        Raises the error of a build that is unfinished or has a damaged card.
        """
        from kmip_data.builds.home import is_dataset, path_or_none
        from kmip_data.files.folder_marker import read_marker
        from kmip_data.format.card import read_card

        path = path_or_none(name)
        if "sweep" in self.kinds and name.endswith(".toml"):
            return True
        if "build" in self.kinds and path is None and is_dataset(name, home):
            return True
        if "build" in self.kinds and path is not None:
            marker = read_marker(path) or [""]
            has_card = os.path.lexists(path / _REQUIRED_FILES["build"])
            if has_card or marker[0].startswith("build "):
                read_card(path)
                return True
        if "run" not in self.kinds:
            return False
        if path is not None and _has_run(path):
            return True
        suffix = ""
        if "sweep" in self.kinds:
            suffix = RUN_NAME_SUFFIXES
            is_sweep = os.sep not in name and (home.path / "sweeps" / name).is_dir()
            if is_sweep or home.runs_below(name):
                return True
        return bool(home.matching_runs(name, suffix=suffix))

    def _other_kinds(
        self,
        name: str,
        runs: Sequence[str],
        home: Home,
        params: Mapping[str, Any],
        command: str,
    ) -> Iterator[tuple[str, Step | Sequence[Step], str | Setting]]:
        """Yield what ``name`` is, the steps that lead on, and the word to type instead, or ``""``.

        ``runs`` are the names of all runs. ``params`` of the ``command`` were typed before the name,
        such as the run of a prediction, or the models of a sweep.
        """
        from kmip_data.builds.home import is_dataset, list_builds, rebuild_command
        from kmip_data.manifest import dataset_names
        from kmip_data.strict_model import shipped_names

        path = Path(name).expanduser()
        models = shipped_names("models")
        dataset, _, model = name.partition("/")
        builds = list_builds(home, name)
        is_data = name in dataset_names() or builds

        # 1. A word of another option.
        if name == "pyg" and self.accepts_data:
            command_line = "kmip-data build pyg --set class=MODULE:CLASS --name NAME"
            yield "a recipe for dataset classes", Command(command_line), ""
        if self.kinds == ("sweep",) and name in models:
            meant = Setting(model=",".join(filter(None, [params.get("model"), name])))
            yield "a model", meant, meant
        if self.kinds == ("sweep",) and is_data:
            meant = Setting(dataset=name)
            yield "a dataset", meant, meant
        if self.kinds == ("dataset",) and builds:
            yield "a dataset of your own", rebuild_command(builds[0]), ""

        # 2. A preset or a run instead of a build.
        if self.kinds == ("build",) and model in models and is_dataset(dataset, home):
            steps: list[Step] = [Command("kmip-data train {} --model", dataset, model)]
            if dataset in dataset_names():
                steps += ["on other data", Command("kmip-data train NAME --preset", name)]
            yield "a dataset and a model", steps, ""
        if self.kinds == ("build",) and (_has_run(path) or name in runs):
            run_commands = {
                "train": Command("kmip-data train --resume", name),
                "preview": Command("kmip-data explore", name),
            }
            yield "a run", run_commands.get(command, Command("kmip-data evaluate", name)), ""

        # 3. A file or folder.
        if self.accepts_data and path.is_file():
            yield "a file", _steps_for_file(name, home, params.get("run")), ""
        if self.accepts_data and _has_data_files(path):
            yield "a folder with data", _steps_for_file(name, home, params.get("run")), ""
        if path.is_dir() and os.sep in name:
            files = [_REQUIRED_FILES[kind] for kind in self.kinds if kind in _REQUIRED_FILES]
            yield f"a folder without {' and '.join(files)}", _LIST_COMMANDS["build"], ""
        shards = [] if os.sep in name else home.built.glob(f"{glob.escape(name)}-*/shards")
        card_name = _REQUIRED_FILES["build"]
        if "build" in self.kinds and any(not (path.parent / card_name).exists() for path in shards):
            yield "an unfinished build", f"build {name!r} again: the command says what is wrong", ""

        # 4. A dataset instead of a run.
        matches = [run for run in runs if run.startswith(f"{name}/")]
        if "run" in self.kinds and matches:
            newest = max(matches, key=lambda run: (home.runs / run / "config.toml").stat().st_mtime)
            noun = "a dataset and a model" if "/" in name else "a dataset"
            yield noun, f"its newest run is {newest!r}", newest
        if self.kinds == ("run",) and is_data:
            yield "a dataset without a run", Command("kmip-data train", name), ""

    def _unknown_name_error(self, name: str, runs: Sequence[str], home: Home) -> UsageError:
        """Return the error for a name that nothing has, with similar names or the user's names."""
        from kmip_data.builds.home import list_builds
        from kmip_data.files.path_errors import path_instead_of_name_error
        from kmip_data.manifest import dataset_names

        if any(Path(name, file).is_file() for file in _REQUIRED_FILES.values()):
            return path_instead_of_name_error(name)
        names = self._published_names()
        if "run" in self.kinds:
            names.update(runs)
        if "build" in self.kinds:
            names.update(build.card.dataset for build in list_builds(home))
        if "sweep" in self.kinds and "run" in self.kinds:
            names.update(path.name for path in home.path.glob("sweeps/*/"))
        known = sorted(names)
        if os.sep in name:  # a path, or the name of a run
            known = [other for other in known if os.sep in other and name[0] not in "/.~"]
        listed = known
        if self.kinds == ("run",):  # list only similar runs: most are on other data
            listed = nearest_names(name, known)
        kind = "run" if "run" in self.kinds else self.kinds[-1]
        return unknown_name_error(
            self.noun,
            name,
            known,
            command=_LIST_COMMANDS[kind],
            listed=[other for other in listed if other not in dataset_names()],
        )


def _has_run(folder: Path) -> bool:
    """True for the folder of a run, also of one whose configuration ``verify`` has to restore."""
    return any((folder / file).is_file() for file in ("config.toml", "result.json"))


def find_selected_build(
    name: str, home: Home, parameters: DatasetParameters, *, sample: bool
) -> Build:
    """Find the finished build that a name and the options select."""
    from kmip_data.pipelines.find_builds import find_build

    return find_build(name, parameters.records, home=home, sample=sample)


def find_build_or_run(
    name: str, home: Home, parameters: DatasetParameters, *, sample: bool
) -> Build | Path:
    """Return the selected build, or the folder of the run if no build has this name.

    A run given by its folder may lack its configuration.
    """
    from kmip_data.builds.home import is_dataset, path_or_none

    if home.matching_runs(name) and not is_dataset(name, home):
        from kmip_data.models.training.run.find_runs import find_run

        return find_run(name, home)
    folder = path_or_none(name)
    if folder is not None and _has_run(folder):
        return folder
    return find_selected_build(name, home, parameters, sample=sample)


def dataset_name_of_file(path: Path, home: Home) -> str:
    """Return a name for the dataset of a file, which no published dataset and no build has."""
    from kmip_data.builds.home import unused_name

    return unused_name(path.name.partition(".")[0].lower(), home)


def _has_data_files(folder: Path) -> bool:
    """True if a folder of the user's has tables or graphs, by the suffixes of its first files."""
    from kmip_data.files.folder_marker import read_marker

    if read_marker(folder):
        return False
    with contextlib.suppress(OSError, ValueError):  # no folder, or one that cannot be read
        files = islice(folder.iterdir(), _MAX_SAMPLED_FILES)
        return any(path.suffix.lower() in _GRAPH_SUFFIXES for path in files)
    return False


def _steps_for_file(file: str, home: Home, run: str | None) -> list[Step]:
    """Return the steps that build a dataset from a file or folder of data.

    The dataset gets the columns and classes of the ``run`` that will predict it, if any.
    """
    from kmip_data.pipelines.datasets.points.files import CLOUD_SUFFIXES

    path = Path(file)
    recipe = "graphs"
    suffix = path.suffix.lower()
    if suffix in {*CLOUD_SUFFIXES} - {*_GRAPH_SUFFIXES, ".npy", ".txt"}:
        recipe = "points"
    elif suffix in {".pbf", ".osm"}:
        recipe = "city"
    name = dataset_name_of_file(path, home)
    options = []
    steps: list[Step] = ["build a dataset from it"]
    if run and recipe == "graphs":
        from kmip_data.models.training.run.find_runs import find_run

        options = ["--like", find_run(run, home)]
        steps.append(f"then the same command with the dataset {name!r}")
    command = Command("kmip-data build {} --name {} --archive {}", recipe, name, file, *options)
    return [*steps, command]


DATASET = NameType("dataset")
BUILD = NameType("build")
SWEEP = NameType("sweep")
RUN = NameType("run")
RUN_OR_BUILD = NameType("run", "build")
SWEEP_OR_RUN = NameType("sweep", "run")
