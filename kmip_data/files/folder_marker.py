"""Marker of a folder of ours: what it is for, and the outputs that commands wrote into it."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from kmip_data.files.reading import read_small_file, sha256_file

MARKER = ".kmip-data"  #: file that marks a folder as created by kmip-data, and states its content
PICTURE_NAME = "preview.png"  #: picture that the page of a build begins with
#: Files that commands write into a folder of ours unless another path is given.
_OUTPUTS = frozenset(
    {
        PICTURE_NAME,
        "explore.html",
        "approximation.csv",
        "approximation.png",
        "cumulative-weight.csv",
        "cumulative-weight.png",
    }
)
#: Predictions, with the folder name of other data and the part, if they are not the default.
_PREDICTIONS = re.compile(r"predictions(-[A-Za-z0-9._-]+)?\.npz")


def is_output(name: str) -> bool:
    """True for the name of a file that a command writes into a folder of ours by default."""
    return name in _OUTPUTS or _PREDICTIONS.fullmatch(name) is not None


def read_marker(folder: Path) -> list[str]:
    """Return what a folder is for, then digest and name of each of its :func:`unchanged_outputs`."""
    with contextlib.suppress(OSError, ValueError):
        name, _, content = read_small_file(folder / MARKER, 2**16).decode().partition(": ")
        if name == "kmip-data" and not (folder / MARKER).is_symlink():
            return content.splitlines()
    return []


def unchanged_outputs(folder: Path) -> list[str]:
    """Return the outputs of commands in a folder of ours that nobody has changed since."""
    names = []
    for line in read_marker(folder)[1:]:
        digest, _, name = line.partition("  ")
        path = folder / name
        is_file = is_output(name) and path.is_file() and not path.is_symlink()
        if is_file and sha256_file(path)[0] == digest:
            names.append(name)
    return names
