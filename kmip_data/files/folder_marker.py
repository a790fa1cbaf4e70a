"""Marker file of folders created by kmip-data: their content, and outputs written into them."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from kmip_data.files.small_files import read_small_file, sha256_file

MARKER_NAME = ".kmip-data"  #: name of the marker file
PICTURE_NAME = "preview.png"  #: picture at the top of a build's page
#: Files that commands write into a build or run by default.
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
#: Predictions; the name of other data, or of a part other than the default, is inserted.
_PREDICTIONS = re.compile(r"predictions(-[A-Za-z0-9._-]+)?\.npz")


def is_output(name: str) -> bool:
    """True if commands write a file of this name into a build or run by default."""
    return name in _OUTPUTS or _PREDICTIONS.fullmatch(name) is not None


def read_marker(folder: Path) -> list[str]:
    """Return the lines of a marker: the folder's content, then digest and name of each output."""
    with contextlib.suppress(OSError, ValueError):
        name, _, content = read_small_file(folder / MARKER_NAME, 2**16).decode().partition(": ")
        if name == "kmip-data" and not (folder / MARKER_NAME).is_symlink():
            return content.splitlines()
    return []


def unchanged_outputs(folder: Path) -> list[str]:
    """Return the names of the outputs in a folder that still match the digests in its marker."""
    names = []
    for line in read_marker(folder)[1:]:
        digest, _, name = line.partition("  ")
        path = folder / name
        is_file = is_output(name) and path.is_file() and not path.is_symlink()
        if is_file and sha256_file(path)[0] == digest:
            names.append(name)
    return names
