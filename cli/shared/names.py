"""Names that arguments take, checked before anything heavy is imported.

A name that means nothing ends the command in a fraction of a second.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
import shlex
from collections.abc import Collection
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from kmip_data.errors import MAX_SHOWN, UsageError
from kmip_data.text import RUN_NAME_SUFFIXES, dataset_name_from, nearest_names

if TYPE_CHECKING:
    from kmip_data.builds.home import Home


#: Kind of a name -> the command that lists them.
_LISTS = {"dataset": "list --all", "build": "list", "sweep": "sweep --help", "run": "runs"}
#: Kind of a folder -> a file in each of them.
_FILES = {"build": "card.json", "run": "config.toml"}
#: Endings of point clouds.
_CLOUDS = {".las", ".laz", ".ply", ".pcd", ".xyz", ".pts", ".bin"}
_LOOKED_AT = 100  #: files of a folder whose endings say whether it has data
#: Endings of tables and graphs.
_GRAPHS = {".csv", ".tsv", ".graphml", ".gml", ".gexf", ".npz", ".pt", ".mtx"}
_TITLES = {"build": "dataset or build folder", "run or build": "run, dataset or build folder"}


class NameType(click.ParamType):  # type: ignore[type-arg]  # no generic class before click 8.4
    """A name of one of ``kinds``: ``dataset``, ``build``, ``sweep``, ``run``."""

    def __init__(self, *kinds: str) -> None:
        self.kinds = kinds
        self.name = " or ".join(kinds)

    def known_names(self, home: Home) -> list[str]:
        """Return the names that exist: shipped, built (by their cards, read unchecked), or trained."""
        from kmip_data.files.reading import read_json
        from kmip_data.manifest import dataset_names
        from kmip_data.strict_model import shipped_names

        names = set()
        if "dataset" in self.kinds or "build" in self.kinds:
            names.update(dataset_names())
        if "build" in self.kinds:
            for card in home.built.glob("*/card.json"):
                # `list` names a card that cannot be read.
                with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                    names.add(str(read_json(card)["dataset"]))
        if "sweep" in self.kinds:
            names.update(shipped_names("sweeps"))
        if "run" in self.kinds:
            for path in home.runs.glob("*/*/*/config.toml"):
                names.add(path.parent.relative_to(home.runs).as_posix())
            if "sweep" in self.kinds:
                names.add("sweep")  # the runs of sweeps without a plan
                names.update(path.name for path in home.path.glob("sweeps/*/"))
        return sorted(names)

    def convert(
        self,
        value: object,
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> str:
        """Return ``value`` unchanged.

        Raises ``UsageError``, with the nearest name, if it means nothing.
        """
        from kmip_data.builds.home import Home, build_of_folder
        from kmip_data.files.folder_marker import read_marker
        from kmip_data.manifest import dataset_names

        text = str(value)
        home = Home.locate(None if ctx is None else ctx.params.get("home"))
        if {"dataset", "build"} & {*self.kinds}:
            from kmip_data.plugins import import_installed_plugins

            import_installed_plugins(text)

        if self.kinds == ("build",) and (parts := _dataset_and_model(text, home)):
            dataset, model = parts
            step = f"kmip-data train {dataset} --model {model}"
            if dataset in dataset_names():
                step += f"; on other data: kmip-data train NAME --preset {text}"
            raise UsageError(f"{text} is a dataset and a model, not a dataset alone.", next=step)

        if self.kinds == ("build",) and _is_run(text, home):
            run = shlex.quote(text)
            command = f"kmip-data evaluate {run}"
            if ctx is not None and ctx.info_name == "train":
                command = f"kmip-data train --resume {run}"
            elif ctx is not None and ctx.info_name == "preview":
                command = f"kmip-data explore {run}"
            raise UsageError(f"{text} is a run, not a dataset or a build.", next=command)

        # 1. A name that exists, the file of a plan, or the folder of a build.
        known = self.known_names(home)
        meant = text in known or ("sweep" in self.kinds and text.endswith(".toml"))
        if not meant and "build" in self.kinds and not Path(text).expanduser().is_file():
            try:
                meant = build_of_folder(text, home) is not None
            except UsageError:
                # A path to no build: an error of its own only if nothing else could be meant.
                lines = read_marker(Path(text))
                if len(self.kinds) == 1 or (lines and lines[0].strip().startswith("build ")):
                    raise

        # 2. The folder of a run, or the end of its path; `find_run` refuses one that several share.
        if not meant and "run" in self.kinds:
            in_folder = (Path(text).expanduser() / "config.toml").is_file()
            endings = RUN_NAME_SUFFIXES if "sweep" in self.kinds else ""
            of_name = re.compile(f"(?:.*/)?{re.escape(text.strip('/'))}{endings}")
            runs = [name for name in known if name.count("/") == 2]
            meant = in_folder or any(map(of_name.fullmatch, runs))
        if not meant:
            typed = {} if ctx is None else ctx.params
            self._refuse_unknown(
                text, known, home, run=typed.get("run") or "", models=typed.get("models") or ""
            )
        return text

    def _refuse_unknown(
        self, text: str, known: list[str], home: Home, *, run: str, models: str
    ) -> NoReturn:
        """Raise the error for a name that means nothing.

        A dataset of the user's own needs another command, a folder lacks a file, a dataset is no
        run; others have a nearest name. ``run`` and ``models`` were typed before the name, or are
        empty: the run of a prediction, the models of a sweep.
        """
        from kmip_data.builds.home import list_builds, rebuild_command
        from kmip_data.errors import unknown_name_error
        from kmip_data.manifest import dataset_names
        from kmip_data.strict_model import shipped_names

        if text == "pyg" and {"dataset", "build"} & {*self.kinds}:
            raise UsageError(
                "pyg is no dataset: kmip-data build pyg makes one from a dataset class.",
                next="kmip-data build pyg --set class=MODULE:CLASS --name NAME",
            )
        if self.kinds == ("sweep",) and text in shipped_names("models"):
            separated = f"--model {models},{text}" if models else f"--model {text}"
            error = UsageError(f"{text!r} is a model, not a sweep.", next=separated)
            error.correction = (text, separated)
            raise error
        if self.kinds == ("sweep",) and (text in dataset_names() or list_builds(home, text)):
            error = UsageError(f"{text!r} is a dataset, not a sweep.", next=f"--dataset {text}")
            error.correction = (text, f"--dataset {text}")
            raise error
        if self.kinds == ("dataset",) and (builds := list_builds(home, text)):
            raise UsageError(
                f"{text!r} is a dataset of your own.", next=rebuild_command(builds, text)
            )
        if {"dataset", "build"} & {*self.kinds} and _has_data_files(Path(text).expanduser()):
            raise _file_instead_of_name_error(text, home, run)
        if Path(text).expanduser().is_dir():
            files = [_FILES[kind] for kind in self.kinds if kind in _FILES]
            raise UsageError(
                f"The folder {text} is no {' or '.join(self.kinds)}: it has no {' and no '.join(files)}.",
                next="kmip-data list, which names your builds and runs",
            )
        if {"dataset", "build"} & {*self.kinds} and Path(text).expanduser().is_file():
            raise _file_instead_of_name_error(text, home, run)
        unfinished = [] if os.sep in text else home.built.glob(f"{glob.escape(text)}-*/shards")
        if "build" in self.kinds and any(unfinished):
            raise UsageError(
                f"{text} has no finished build: the command that was to build it stopped.",
                next=f"the kmip-data build command with --name {text} again, which says why",
            )
        runs = [name for name in known if name.count("/") == 2 and name.startswith(f"{text}/")]
        if "run" in self.kinds and runs:
            newest = max(runs, key=lambda run: (home.runs / run / "config.toml").stat().st_mtime)
            title = "a dataset and a model" if "/" in text else "a dataset"
            error = UsageError(
                f"{text} is {title}; this command takes a run.",
                expected=f"one of {', '.join(runs[:MAX_SHOWN])}" if len(runs) > 1 else None,
                next=f"its newest run: {newest}",
            )
            error.correction = (text, newest)
            raise error
        if self.kinds == ("run",) and (list_builds(home, text) or text in dataset_names()):
            raise UsageError(
                f"{text} is a dataset without a run; this command takes a run.",
                next=f"kmip-data train {shlex.quote(text)}",
            )
        if os.sep in text:  # a path, or the name of a run
            known = [name for name in known if os.sep in name and text[0] not in "/.~"]
        likely_names = known
        if self.kinds == ("run",):  # most runs are of other data
            likely_names = nearest_names(text, known)
        kind = "run" if "run" in self.kinds else self.kinds[-1]
        shipped = {*dataset_names()}
        if kind == "run" and "sweep" not in self.kinds:
            shipped.update({"sweep"}, shipped_names("sweeps"))
        raise unknown_name_error(
            _TITLES.get(self.name, self.name),
            text,
            known,
            command=f"kmip-data {_LISTS[kind]}",
            listed=[name for name in likely_names if name not in shipped],
        )


def _dataset_and_model(text: str, home: Home) -> tuple[str, str] | None:
    """Return the two names of a text such as ``squirrel/gcn``, the name of a preset."""
    from kmip_data.builds.home import list_builds
    from kmip_data.manifest import dataset_names
    from kmip_data.strict_model import shipped_names

    dataset, slash, model = text.partition("/")
    if not slash or model not in shipped_names("models") or Path(text).expanduser().exists():
        return None
    if dataset in dataset_names() or list_builds(home, dataset):
        return dataset, model
    return None


def _is_run(text: str, home: Home) -> bool:
    """True if a text is the folder of a run, or its path below ``runs/``."""
    folders = (Path(text).expanduser(), home.runs / text)
    return os.sep in text and any((folder / "config.toml").is_file() for folder in folders)


def check_name_among_runs(kind: str, name: str | None, known: Collection[str]) -> None:
    """Raise ``UsageError`` for a "dataset" or "model" that neither runs nor kmip-data know."""
    from kmip_data.errors import unknown_name_error
    from kmip_data.manifest import dataset_names
    from kmip_data.strict_model import shipped_names

    shipped = dataset_names() if kind == "dataset" else shipped_names("models")
    if name is not None and known and name not in known and name not in shipped:
        raise unknown_name_error(
            kind, name, sorted(known), command="kmip-data runs", where="among the runs"
        )


def dataset_name_of_file(path: Path) -> str:
    """Return a name for the dataset of a file, which no published dataset has."""
    from kmip_data.manifest import dataset_names

    name = dataset_name_from(path.name.partition(".")[0].lower()) or "mine"
    return f"my-{name}" if name in dataset_names() else name


def _has_data_files(folder: Path) -> bool:
    """True if a folder has the user's tables or graphs, by the endings of their names."""
    with contextlib.suppress(OSError):  # a file, or a folder that cannot be read
        return any(path.suffix.lower() in _GRAPHS for path in islice(folder.iterdir(), _LOOKED_AT))
    return False


def _file_instead_of_name_error(text: str, home: Home, run: str) -> UsageError:
    """Return the error for a file where a name is expected, with the command that builds from it.

    Data of a ``run`` have the columns and classes that it was trained on.
    """
    path = Path(text)
    recipe = "graphs"
    if path.suffix in _CLOUDS:
        recipe = "points"
    elif path.suffix in {".pbf", ".osm"}:
        recipe = "city"
    name = dataset_name_of_file(path)
    command = ["kmip-data", "build", recipe, "--name", name, "--archive", text]
    kind = "folder with data" if path.expanduser().is_dir() else "file"
    error = UsageError(f"{text} is a {kind}; this command takes the name of a dataset.")
    then = ""
    if run and recipe == "graphs":
        from kmip_data.models.training.run.run_folder import find_run

        command += ["--like", str(find_run(run, home))]
        then = f"; then the same command with --dataset {name}"
    error.next = f"build a dataset from it: {shlex.join(command)}{then}"
    return error


DATASET = NameType("dataset")
BUILD = NameType("build")
SWEEP = NameType("sweep")
RUN = NameType("run")
RUN_OR_BUILD = NameType("run", "build")
SWEEP_OR_RUN = NameType("sweep", "run")
