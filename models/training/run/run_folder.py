"""Run folders ``runs/<dataset>/<model>/<name>``: names, lock, files and ``metrics.csv``."""

from __future__ import annotations

import contextlib
import csv
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from kmip_data.builds.home import Home, build_of_folder, list_builds
from kmip_data.errors import MAX_SHOWN, UsageError, unknown_name_error
from kmip_data.files.atomic_writes import begin_folder, build_lock, make_folder
from kmip_data.files.folder_marker import unchanged_outputs
from kmip_data.files.path_errors import absolute_path, write_errors
from kmip_data.files.reading import read_small_file
from kmip_data.manifest import dataset_names, load_manifest
from kmip_data.models.config import dotted_keys
from kmip_data.models.training.config.keys import RunConfig, SystemConfig
from kmip_data.models.training.config.overrides import read_config
from kmip_data.models.training.config.presets import build_folder_or_none
from kmip_data.pipelines.find import parameter_names, parameters_on_card
from kmip_data.text import RUN_NAME_SUFFIXES, dataset_name_from, parameters_as_options

CONFIG_NAME = "config.toml"
METRICS_NAME = "metrics.csv"
RESULT_NAME = "result.json"
#: Weights from another run at the start of this one.
INITIAL = "initial.safetensors"
#: Weights of the best epoch of a finished run.
WEIGHTS = "model.safetensors"
#: Everything that resuming needs.
LAST = "checkpoints/last.ckpt"
#: The checkpoint before the last one.
PREVIOUS = "checkpoints/previous.ckpt"
#: SHA-256 of initial weights and latest checkpoints, one per line, newest first.
DIGESTS = "checkpoints/digests"
#: Weights of the best epoch so far.
BEST = "checkpoints/best.safetensors"
#: The configuration comes last.
_FILES = (BEST, DIGESTS, LAST, PREVIOUS, INITIAL, METRICS_NAME, WEIGHTS, RESULT_NAME, CONFIG_NAME)
MAX_VALUE = 1e100  #: largest metric that is read; sums of larger ones could overflow
RUN = "run"  #: marker of a run folder
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def check_name(name: str) -> None:
    """Raise ``UsageError`` unless ``name`` is a file name."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is not a name for a run.",
            expected="letters, digits, '.', '_' and '-', a letter or digit first",
            next=f"another name: --name {dataset_name_from(name) or 'mine'}",
        )


@contextlib.contextmanager
def new_run(home: Home, dataset: str, model: str, name: str) -> Iterator[Path]:
    """Make a new run folder and hold its lock.

    A folder without a configuration is the rest of a run that was killed early, and is reused.
    Raises ``UsageError`` if the name exists, or a parent folder is a link; ``OutOfResources``
    without disk space.
    """
    folder = home.runs / dataset / model / name
    with write_errors(folder):
        home.runs.mkdir(parents=True, exist_ok=True)
        make_folder(folder, root=home.runs)
    with build_lock(folder, wait=False):
        if (folder / CONFIG_NAME).exists():
            raise UsageError(
                f"A run called {folder.name!r} already exists: {folder}",
                next=f"kmip-data train --resume {shlex.quote(str(folder))}, or another --name",
            )
        begin_folder(folder, RUN)
        yield folder


def files_of_run(folder: Path) -> list[str]:
    """Return the file names of a run in its folder, with outputs of commands, the configuration last."""
    return [name for name in (*unchanged_outputs(folder), *_FILES) if (folder / name).is_file()]


def home_option(run: Path) -> str:
    """Return the option `` --home DIR`` for a run outside the default home."""
    name = Path(*run.parts[-3:])  # dataset, model, run
    home = Home(Path(*run.parts[:-4]))
    if run != home.runs / name or home == Home.locate():
        return ""
    return f" --home {shlex.quote(str(home.root))}"


def short_run(run: Path) -> str:
    """Return RUN for a command line: DATASET/MODEL/NAME of a run in a home, else the path."""
    short = "/".join(run.parts[-3:])
    return short if run == Home(Path(*run.parts[:-4])).runs / short else str(run)


def resume_command(run: Path) -> str:
    """Return the command that continues a run."""
    return f"kmip-data train --resume {shlex.quote(str(run))}{home_option(run)}"


def check_settings(folder: Path, config: RunConfig) -> None:
    """Raise ``UsageError``, which names the differences, unless a run has these settings."""
    stored = read_config(folder / CONFIG_NAME)
    if stored == config:
        return
    existing = dict(dotted_keys(stored.model_dump(mode="json")))
    wanted = dict(dotted_keys(config.model_dump(mode="json")))
    keys = [key for key in {**existing, **wanted} if existing.get(key) != wanted.get(key)]
    step = resume_command(folder)
    epochs = config.training.epochs
    longer = (folder / RESULT_NAME).is_file() and epochs > existing["training.epochs"]
    if longer and set(keys) <= {"training.epochs", "schedule.warmup_epochs"}:
        step += f" --epochs {epochs}"
    elif (folder / RESULT_NAME).is_file():
        step = ""  # a finished run has nothing to resume
    lines = [
        f"{key}: {_text_or_none(existing.get(key))}, not {_text_or_none(wanted.get(key))}"
        for key in keys
    ]
    if len(lines) > MAX_SHOWN:
        lines[MAX_SHOWN:] = [f"and {len(lines) - MAX_SHOWN} more"]
    raise UsageError(
        f"A run called {folder.name!r} already exists, with other settings: {folder}",
        found="\n         ".join(lines),
        next=f"{step and f'{step}; '}a new run: --name {_free_name(folder)}",
    )


def _free_name(folder: Path) -> str:
    """Return the name of the run with the first number that no run has."""
    number = 2
    while (free := folder.with_name(f"{folder.name}-{number}")).exists():
        number += 1
    return free.name


def _text_or_none(value: object) -> str:
    return "none" if value in {None, ""} else str(value)


def runs_of_name(run: str | os.PathLike[str], home: Home) -> list[Path]:
    """Return the runs that one command trained under a name: of all its seeds and folds.

    Errors as of :func:`find_run`, whose run is returned alone for any other name.
    """
    matches = _matching_runs(Path(run), home, endings=RUN_NAME_SUFFIXES)
    exact = any(folder.name == Path(run).name for folder in matches)
    one_folder = len({folder.parent for folder in matches}) == 1
    if not exact and one_folder:
        return matches
    return [find_run(run, home)]


def _matching_runs(run: Path, home: Home, *, endings: str = "") -> list[Path]:
    """Return the runs whose path ends in these parts, and in one of the ``endings``, a pattern."""
    of_name = re.compile(f"{re.escape(run.name)}{endings}")
    matches = []
    for config in sorted(home.runs.glob(f"*/*/*/{CONFIG_NAME}")):
        folder = config.parent
        *parents, name = folder.parts[-len(run.parts) :]
        if run.parts and parents == [*run.parts[:-1]] and of_name.fullmatch(name):
            matches.append(folder)
    return matches


def find_run(run: str | os.PathLike[str], home: Home) -> Path:
    """Resolve RUN: a run folder, or its path below ``runs/``.

    The last parts suffice, if they are unique. Raises ``UsageError`` if no run matches, or several
    do.
    """
    text = os.fspath(run)
    path = absolute_path(text, "run")
    if (path / CONFIG_NAME).is_file():
        return path
    matches = _matching_runs(Path(text), home)
    if len(matches) == 1:
        return matches[0]
    if matches:
        several = "".join(f"\n    {folder}" for folder in matches)
        newest = max(matches, key=lambda folder: (folder / CONFIG_NAME).stat().st_mtime)
        error = UsageError(
            f"{len(matches)} runs match {text!r}.",
            found=several,
            next=f"its path, such as {newest}",
        )
        error.correction = (text, str(newest))
        raise error
    runs = sorted(entry.parent for entry in home.runs.glob(f"*/*/*/{CONFIG_NAME}"))
    names = [str(folder.relative_to(home.runs)) for folder in runs]
    raise unknown_name_error("run", text, names, command="kmip-data runs")


def metrics_columns(run: Path) -> dict[str, list[tuple[int, float]]]:
    """Return the columns of ``metrics.csv``: epochs, from 1, with their finite values.

    Cells that cannot be read are omitted.
    """
    columns: dict[str, list[tuple[int, float]]] = {}
    with contextlib.suppress(OSError, ValueError, csv.Error):
        lines = read_small_file(run / METRICS_NAME).decode().splitlines()
        for epoch, row in enumerate(csv.DictReader(lines), start=1):
            for name, cell in row.items():
                with contextlib.suppress(ValueError, TypeError):
                    value = float(cell)
                    if abs(value) <= MAX_VALUE:  # never true of NaN
                        columns.setdefault(name, []).append((epoch, value))
    return columns


def config_on_own_build(config: RunConfig, key: Callable[[], str | None], home: Home) -> RunConfig:
    """Return the configuration of a run with the folder of the build it was trained on as its data.

    The name of your own data means their newest build. ``key`` returns the run's, and is called if
    the home has several builds of that name. Raises ``UsageError`` if the home has none.
    """
    name = config.data.dataset
    if name in dataset_names() or build_of_folder(name, home) is not None:
        return config
    builds = list_builds(home, name)
    if not builds:
        raise UsageError(
            f"The build of {name} that the run was trained on is gone.",
            next=_command_that_builds(name, config.data.parameters),
        )
    if len(builds) == 1:
        return config
    trained_on = key()
    for build in builds:
        if build.card.key == trained_on:
            return config.with_values("data", dataset=str(build.path))
    return config


def _command_that_builds(name: str, parameters: Mapping[str, object]) -> str:
    """Return the command that makes a build of your own data with all its ``parameters`` again.

    A run does not record the recipe or the files: the recipe is the one with these parameters.
    """
    for recipe in dataset_names():
        if not load_manifest(recipe).recipe or not {*parameters} <= parameter_names(recipe)[0]:
            continue
        defaults = parameters_on_card(recipe, {})
        unusual = {key: value for key, value in parameters.items() if value != defaults[key]}
        options = parameters_as_options(unusual)
        command = f"kmip-data build {recipe} --name {shlex.quote(name)} --archive FILE {options}"
        return f"{command.strip()}, where FILE is what it was built from"
    return f"save or pull {name} again; kmip-data list shows your builds"


def config_without_foreign_system(config: RunConfig, folder: Path, home: Home) -> RunConfig:
    """Return the configuration of a run; one from another home may not run commands or open folders.

    Raises ``UsageError`` if such a run has a folder as its data.
    """
    if folder.resolve().is_relative_to(home.runs.resolve()):
        return config
    if os.sep in config.data.dataset or build_folder_or_none(config.data.dataset):
        raise UsageError(
            f"{folder} is not a run of this home and names a folder as its data: {config.data.dataset}",
            next=f"if you trust it, move the run below {home.runs}; or evaluate it with --dataset",
        )
    return config.model_copy(update={"system": SystemConfig()})
