"""Run folders ``runs/<dataset>/<model>/<name>``: names, lock, files and ``metrics.csv``."""

from __future__ import annotations

import contextlib
import csv
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from kmip_data.builds.home import Home, path_or_none
from kmip_data.errors import MAX_LISTED_NAMES, Command, Setting, Step, UsageError
from kmip_data.files.atomic_writes import create_marked_folder, folder_lock, make_folder
from kmip_data.files.folder_marker import MARKER_NAME, unchanged_outputs
from kmip_data.files.path_errors import convert_write_errors
from kmip_data.files.small_files import read_small_file
from kmip_data.manifest import dataset_names
from kmip_data.models.config import dotted_keys
from kmip_data.models.training.config.overrides import read_config
from kmip_data.models.training.config.run_config import RunConfig, SystemConfig
from kmip_data.pipelines.find_builds import parameter_names
from kmip_data.plugins import sources_in_environment
from kmip_data.text import dataset_name_from

if TYPE_CHECKING:
    from kmip_data.models.training.data.run_data import RunData

CONFIG_NAME = "config.toml"
METRICS_NAME = "metrics.csv"
RESULT_NAME = "result.json"
#: Weights from another run that this one starts with.
INITIAL_WEIGHTS = "initial.safetensors"
#: Weights of the best epoch of a finished run.
WEIGHTS_NAME = "model.safetensors"
LAST_CHECKPOINT = "checkpoints/last.ckpt"
PREVIOUS_CHECKPOINT = "checkpoints/previous.ckpt"
#: SHA-256 digests of the initial weights or the latest checkpoints, one per line, newest first.
CHECKPOINT_DIGESTS = "checkpoints/digests"
#: Weights of the best epoch so far.
BEST_WEIGHTS = "checkpoints/best.safetensors"
#: Files of a run; the configuration is last, because it makes the folder a run.
_FILES = (
    BEST_WEIGHTS,
    CHECKPOINT_DIGESTS,
    LAST_CHECKPOINT,
    PREVIOUS_CHECKPOINT,
    INITIAL_WEIGHTS,
    METRICS_NAME,
    WEIGHTS_NAME,
    RESULT_NAME,
    CONFIG_NAME,
)
MAX_METRIC = 1e100  #: largest metric value that is read; sums of larger ones could overflow
RUN_MARKER = "run"  #: marker of a run folder
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def check_run_name(name: str) -> None:
    """Raise ``UsageError`` unless ``name`` can name a run folder."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is not a name for a run.",
            expected="letters, digits, '.', '_' and '-', a letter or digit first",
            steps=Setting(name=dataset_name_from(name) or "mine"),
        )


@contextlib.contextmanager
def new_run(home: Home, dataset: str, model: str, name: str) -> Iterator[Path]:
    """Create a new run folder and hold its lock.

    A folder without a configuration is left over from a run that was killed early, and is reused.
    Raises ``UsageError`` if the name exists or a parent folder is a link; ``OutOfResources`` if the
    disk is full.
    """
    folder = home.runs / dataset / model / name
    with convert_write_errors(folder):
        home.runs.mkdir(parents=True, exist_ok=True)
        make_folder(folder, root=home.runs)
    with folder_lock(folder, wait=False):
        if (folder / CONFIG_NAME).exists():
            raise UsageError(
                f"A run called {folder.name!r} already exists: {folder}",
                steps=Setting(name=_unused_name(folder)),
            )
        create_marked_folder(folder, RUN_MARKER)
        yield folder


def files_of_run(folder: Path) -> list[str]:
    """List a run's existing files, including outputs of commands; the configuration comes last."""
    return [name for name in (*unchanged_outputs(folder), *_FILES) if (folder / name).is_file()]


def is_run_folder(folder: Path) -> bool:
    """True if a folder has anything of a run besides a configuration, whatever its content."""
    names = {Path(name).parts[0] for name in _FILES} - {CONFIG_NAME} | {MARKER_NAME}
    return any(os.path.lexists(folder / name) for name in names)


def home_of_run(run: Path) -> Home:
    """Return the home of a run, or the folder in its place if the run lies elsewhere."""
    return Home(Path(*run.parts[:-4]))


def run_options(run: Path) -> list[str]:
    """Return the words ``--home DIR`` for a run outside the default home, and ``--plugin FILE``.

    Opening a run never imports code, so its commands name the plugins of this process.
    """
    home = home_of_run(run)
    is_default = home == Home.locate() or home.runs not in run.parents
    options = [] if is_default else ["--home", str(home.path)]
    for source in sources_in_environment():
        options += ["--plugin", source]
    return options


def run_option_text(run: Path) -> str:
    """Return the options of a run's commands, to append to a text."""
    return "".join(f" {shlex.quote(word)}" for word in run_options(run))


def short_run_name(run: Path) -> str:
    """Return the RUN argument for a run: DATASET/MODEL/NAME if it lies in a home, else its path."""
    short = "/".join(run.parts[-3:])
    return short if run == home_of_run(run).runs / short else str(run)


def resume_command(run: Path, *options: object) -> Command:
    """Return the command that resumes a run."""
    return Command("kmip-data train --resume", run, *run_options(run), *options)


def config_command(run: Path, *options: object) -> Command:
    """Return the command that trains a new run with the configuration of another."""
    config = run / CONFIG_NAME
    return Command("kmip-data train --config", config, *run_options(run), *options)


def shorter_run_commands(run: Path, config: RunConfig, data: RunData, share: float) -> list[str]:
    """Return at least one command of a run like ``run`` that takes about a ``share`` of its time."""
    command = config_command(run)
    commands = [f"{command} --epochs {max(1, int(config.training.last_epoch * share))}"]
    graphs = data.build.card.counts["graphs"]
    dataset = config.data.dataset
    if graphs > 1 and dataset in dataset_names() and "limit" in parameter_names(dataset)[0]:
        commands.append(f"{command} --limit {max(len(data.parts), int(graphs * share))}")
    if data.part_members == "nodes" and not config.training.neighbors:
        commands.append(f"{command} --neighbor-sampling 10,10")
    return commands


def require_same_settings(folder: Path, config: RunConfig) -> None:
    """Raise ``UsageError`` with the differing keys unless a run has the settings of ``config``."""
    stored = read_config(folder / CONFIG_NAME)
    if stored == config:
        return
    existing = dict(dotted_keys(stored.model_dump(mode="json")))
    requested = dict(dotted_keys(config.model_dump(mode="json")))
    keys = [key for key in {**existing, **requested} if existing.get(key) != requested.get(key)]

    steps: list[Step] = [Setting(name=_unused_name(folder))]
    if not (folder / RESULT_NAME).is_file():
        steps.insert(0, resume_command(folder))

    lines = [
        f"{key}: {_format_value(existing.get(key))}, not {_format_value(requested.get(key))}"
        for key in keys
    ]
    if len(lines) > MAX_LISTED_NAMES:
        lines[MAX_LISTED_NAMES:] = [f"and {len(lines) - MAX_LISTED_NAMES} more"]
    raise UsageError(
        f"A run called {folder.name!r} already exists, with other settings: {folder}",
        found=lines,
        steps=steps,
    )


def _unused_name(folder: Path) -> str:
    """Append the first number for which no run exists to the name of ``folder``."""
    number = 2
    while (candidate := folder.with_name(f"{folder.name}-{number}")).exists():
        number += 1
    return candidate.name


def _format_value(value: object) -> str:
    return "none" if value in {None, ""} else str(value)


def metrics_columns(run: Path) -> dict[str, list[tuple[int, float]]]:
    """Read the columns of ``metrics.csv`` as pairs of epoch, from 1, and finite value.

    Unreadable cells are omitted.
    """
    columns: dict[str, list[tuple[int, float]]] = {}
    with contextlib.suppress(OSError, ValueError, csv.Error):
        lines = read_small_file(run / METRICS_NAME).decode().splitlines()
        for epoch, row in enumerate(csv.DictReader(lines), start=1):
            for name, cell in row.items():
                with contextlib.suppress(ValueError, TypeError):
                    value = float(cell)
                    if abs(value) <= MAX_METRIC:  # False for NaN
                        columns.setdefault(name, []).append((epoch, value))
    return columns


def restrict_foreign_config(config: RunConfig, folder: Path, home: Home) -> RunConfig:
    """Reset the system settings of a run from outside the home, which must not run commands.

    Raises ``UsageError`` if such a run names a folder as its data.
    """
    if folder.resolve().is_relative_to(home.runs.resolve()):
        return config
    if path_or_none(config.data.dataset):
        raise UsageError(
            f"{folder} is not a run of this home and names a folder as its data: {config.data.dataset}",
            steps=f"if you trust it, move the run below {home.runs}; or name its data yourself",
        )
    return config.model_copy(update={"system": SystemConfig()})
