"""Run folders: ``runs/<dataset>/<model>/<name>``."""

from __future__ import annotations

import difflib
import os
import re
from datetime import UTC, datetime
from pathlib import Path

from kmip_data.errors import UsageError
from kmip_data.home import Home

CONFIG_NAME = "config.toml"
METRICS_NAME = "metrics.csv"
CURVES_NAME = "curves.png"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def run_name(variant: str, seed: int, now: datetime | None = None) -> str:
    """Name of a run that was given none, e.g. ``20261120-071806-code-seed0``: sorts by time."""
    now = now or datetime.now(UTC)
    return f"{now:%Y%m%d-%H%M%S}-{variant}-seed{seed}"


def make_run_folder(home: Home, dataset: str, model: str, name: str, *, exact: bool) -> Path:
    """Make a new folder of that name; unless ``exact``, a name that is taken gets a number.

    Raises
    ------
    UsageError
        The name is not a plain file name, or ``exact`` and taken.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is not a name for a run.",
            expected="letters, digits, '.', '_' and '-', beginning with a letter or digit",
            found=name,
            left="nothing was changed",
            next="choose another --name",
        )
    parent = home.runs / dataset / model
    parent.mkdir(parents=True, exist_ok=True)
    folder, number = parent / name, 1
    while True:
        try:
            folder.mkdir()
        except FileExistsError as error:
            if exact:
                raise UsageError(
                    f"There is a run called {name!r} already.",
                    expected="a new name",
                    found=str(folder),
                    left="nothing was changed",
                    next=f"kmip-data train --resume {folder}, or another --name",
                ) from error
            number += 1
            folder = parent / f"{name}-{number}"
        else:
            return folder


def find_run(run: str | os.PathLike[str], home: Home) -> Path:
    """Resolve RUN: a run folder, or its path below ``runs/`` (the last parts are enough if unique).

    Raises
    ------
    UsageError
        No run is meant, or several are.
    """
    text = os.fspath(run)
    path = Path(text).expanduser()
    if (path / CONFIG_NAME).is_file():
        return path.absolute()
    runs = sorted(entry.parent for entry in home.runs.glob(f"*/*/*/{CONFIG_NAME}"))
    wanted = Path(text).parts
    matches = [folder for folder in runs if wanted and folder.parts[-len(wanted) :] == wanted]
    if len(matches) == 1:
        return matches[0]
    names = [str(folder.relative_to(home.runs)) for folder in runs]
    close = difflib.get_close_matches(text, names, n=1, cutoff=0.4)
    several = "\n    ".join(str(folder) for folder in matches)
    newest = "\n    ".join(names[-5:])
    raise UsageError(
        f"{len(matches)} runs are called {text!r}."
        if matches
        else f"There is no run {text!r}.{f' Did you mean {close[0]!r}?' if close else ''}",
        expected="a run folder (kmip-data train prints it)",
        found=f"\n    {several}" if matches else f"\n    {newest}" if names else f"no runs under {home.runs}",
        left="nothing was changed",
        next="name one by its path" if matches or names else "kmip-data train --dataset NAME",
    )
