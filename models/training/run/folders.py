"""Run folders ``runs/<dataset>/<model>/<name>``: their names, their files, and whose settings count."""

from __future__ import annotations

import contextlib
import csv
import math
import os
import re
import shlex
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from kmip_data.builds.home import Home
from kmip_data.errors import UsageError
from kmip_data.files.changes import refuse_links_below
from kmip_data.files.errors import located, writing
from kmip_data.files.locking import build_lock
from kmip_data.files.reading import read_small
from kmip_data.models.training.config.keys import RunConfig, SystemConfig
from kmip_data.models.training.config.presets import folder_of
from kmip_data.wording import nearest

CONFIG_NAME = "config.toml"
METRICS_NAME = "metrics.csv"
RESULT_NAME = "result.json"
STEPS_NAME = "steps.csv"
CURVES_NAME = "curves.png"
_LEFT = r"^\.lock|\.partial$|^initial\.safetensors$"  #: files of a run folder before its configuration
#: Files that kmip-data writes into a run folder.
_OWN = re.compile(
    r"(config\.toml|metrics\.csv|result\.json|steps\.csv|curves\.png|trace\.json|profile\.txt"
    r"|(initial|model)\.safetensors|map\.(png|html)|explore\.html"
    r"|checkpoints/(last\.ckpt|(best|epoch-\d+)\.safetensors))(\.[^/]*\.partial)?"
)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
SYSTEM = ("logger", "devices", "nodes", "compile")  #: keys that start more than the training itself


def run_name(variant: str, seed: int) -> str:
    """Default name of a run, such as ``20261120-071806-code-seed0``: sorts by time."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{variant}-seed{seed}"


def check_name(name: str) -> None:
    """Raise UsageError for a name that is not a file name."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is not a name for a run.",
            expected="letters, digits, '.', '_' and '-', beginning with a letter or digit",
            found=name,
            next="choose another --name",
        )


@contextlib.contextmanager
def new_run(home: Home, dataset: str, model: str, name: str, *, exact: bool) -> Iterator[Path]:
    """Make a new run folder and hold its lock; unless ``exact``, a name that is taken gets a number.

    A folder without a configuration is not a run: the rest of one that was killed early is reused. Raises
    ``UsageError`` if the name is ``exact`` and taken, or a folder on the way is a link; ``OutOfResources``
    without room for a folder.
    """
    parent = home.runs / dataset / model
    folder, number = parent / name, 1
    with writing(folder):
        refuse_links_below(home.runs, parent)
        parent.mkdir(parents=True, exist_ok=True)
        while not _make(folder) and not exact:
            number += 1
            folder = parent / f"{name}-{number}"
    _refuse_taken(folder)
    with build_lock(folder, wait=False):
        _refuse_taken(folder)  # by a process that had the lock until now
        yield folder


def _make(folder: Path) -> bool:
    with contextlib.suppress(FileExistsError):
        folder.mkdir()
        return True
    return False


def _refuse_taken(folder: Path) -> None:
    own = folder.is_dir() and not folder.is_symlink()
    if not own or any(not re.search(_LEFT, entry.name) for entry in folder.iterdir()):
        raise UsageError(
            f"A run called {folder.name!r} already exists.",
            expected="a new name",
            found=str(folder),
            next=f"kmip-data train --resume {shlex.quote(str(folder))}, or another --name",
        )


def files_of_run(folder: Path) -> list[str]:
    """Names, below its folder, of a run's own files; ``config.toml``, which makes it a run, is last."""
    found = [path for place in (folder, folder / "checkpoints") for path in place.glob("*")]
    names = [path.relative_to(folder).as_posix() for path in found if path.is_file()]
    return sorted(filter(_OWN.fullmatch, names), key=lambda name: name == CONFIG_NAME)


def find_run(run: str | os.PathLike[str], home: Home) -> Path:
    """Resolve RUN: a run folder, or its path below ``runs/`` (the last parts are enough if unique).

    Raises ``UsageError`` where no run is meant, or several are.
    """
    text = os.fspath(run)
    path = located(text, "run")
    if (path / CONFIG_NAME).is_file():
        return path
    runs = sorted(entry.parent for entry in home.runs.glob(f"*/*/*/{CONFIG_NAME}"))
    wanted = Path(text).parts
    matches = [folder for folder in runs if wanted and folder.parts[-len(wanted) :] == wanted]
    if len(matches) == 1:
        return matches[0]
    for folder in () if matches else home.runs.glob("*/*/*"):
        if wanted and folder.parts[-len(wanted) :] == wanted and folder.is_dir():
            raise UsageError(
                f"{folder} has no {CONFIG_NAME}: the run was stopped before it began.",
                next="the command that began it, once more",
            )
    names = [str(folder.relative_to(home.runs)) for folder in runs]
    # Of a path, or of its end alone: a name is much shorter than its path.
    ends = {"/".join(folder.parts[-len(wanted) :]): name for folder, name in zip(runs, names, strict=True)}
    close = ends.get(nearest(text, ends) or "") or nearest(text, names)
    several = "\n    ".join(str(folder) for folder in matches)
    newest = "\n    ".join(names[-5:])
    raise UsageError(
        f"{len(matches)} runs are called {text!r}."
        if matches
        else f"There is no run {text!r}.{f' Did you mean {close!r}?' if close else ''}",
        expected="a run folder (kmip-data train prints it)",
        found=f"\n    {several}" if matches else f"\n    {newest}" if names else f"no runs under {home.runs}",
        next="name one by its path" if matches or names else "kmip-data train --dataset NAME",
    )


def metrics_columns(run: Path) -> dict[str, list[tuple[int, float]]]:
    """Return the columns of ``metrics.csv``: epochs, from 1, with their finite values.

    Cells that cannot be read are left out.
    """
    found: dict[str, list[tuple[int, float]]] = {}
    try:
        rows = list(csv.DictReader(read_small(run / METRICS_NAME).decode().splitlines()))
    except (OSError, ValueError, csv.Error):
        return found
    for name in rows[0] if rows else ():
        with contextlib.suppress(ValueError, TypeError):
            points = [(epoch, float(row[name])) for epoch, row in enumerate(rows, start=1) if row.get(name)]
            found[name] = [(epoch, value) for epoch, value in points if math.isfinite(value)]
    return found


def own_choices(config: RunConfig, folder: Path, home: Home, tell: Callable[[str], None]) -> RunConfig:
    """Return the configuration of a run, without the settings of a stranger that start other things.

    A run below ``home.runs`` is the user's own. Any other run starts no logger and no further process, and
    opens no build but those next to it and those of the home. Raises ``UsageError`` where the
    run names another folder as its data.
    """
    folder = folder.resolve()
    if folder.is_relative_to(home.runs.resolve()):
        return config
    target = config.data.dataset
    beside = [folder.parents[3]] if len(folder.parents) > 3 and folder.parents[2].name == "runs" else []
    if os.sep in target or folder_of(target):
        # Not of the roots themselves: a link in them could lead anywhere.
        builds = [root.resolve() / "built" for root in (home.root, *beside)]
        if not any(Path(os.path.realpath(target)).is_relative_to(root) for root in builds):
            where = f"give --home {beside[0]}, or move" if beside else "move"
            raise UsageError(
                f"{folder} is not a run of this home and names a folder as its data.",
                expected=" or ".join(f"a build below {root}" for root in builds),
                found=target,
                next=f"if you trust it: {where} the run below {home.runs}; or evaluate it with --dataset",
            )
    usual = {name: SystemConfig.model_fields[name].default for name in SYSTEM}
    changed = [name for name in SYSTEM if getattr(config.system, name) != usual[name]]
    if changed:
        keys = ", ".join(f"system.{name}" for name in changed)
        tell(f"{folder} is not a run of {home.root}: {keys} of its {CONFIG_NAME} left out.")
    return config.model_copy(update={"system": config.system.model_copy(update=usual)})
