"""Marker file of folders created by kmip-data: their content, and outputs written into them."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from kmip_data.errors import Command, UsageError
from kmip_data.files.small_files import open_regular_file, sha256_file

MARKER_NAME = ".kmip-data"  #: name of the marker file
MAX_MARKER_BYTES = 2**24  #: largest marker that is written and read: 100,000 outputs
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
        with open_regular_file(folder / MARKER_NAME, follow=False) as file:
            data = io.BufferedReader(file).read(MAX_MARKER_BYTES + 1)
        if len(data) > MAX_MARKER_BYTES:  # the first line still states the content
            data = data[: data.rindex(b"\n")]
        name, _, content = data.decode().partition(": ")
        if name == "kmip-data":
            return content.splitlines()
    return []


def marker_with_output(folder: Path, name: str, digest: str) -> str:
    """Return the text of a folder's marker with the digest of an output, the newest entry.

    Entries of removed files are left out. Beyond :data:`MAX_MARKER_BYTES`, the oldest are, so these
    files count as the user's.
    """
    content, *entries = read_marker(folder)
    entries = [entry for entry in entries if (folder / entry.partition("  ")[2]).is_file()]
    entries = [entry for entry in entries if not entry.endswith(f"  {name}")]
    entries.append(f"{digest}  {name}")

    def size(lines: Sequence[str]) -> int:
        return sum(len(line.encode()) + 1 for line in lines)

    first = f"kmip-data: {content}"
    excess = size([first, *entries]) - MAX_MARKER_BYTES
    while excess > 0:
        excess -= size([entries.pop(0)])
    return "\n".join([first, *entries, ""])


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


def foreign_files_error(folder: Path, names: Iterable[str]) -> UsageError:
    """Return the error for a folder with files that this package did not create."""
    return UsageError(
        f"{folder} is not empty, and was not created by kmip-data.",
        expected=f"a new or empty folder, or one with {MARKER_NAME}",
        found=", ".join(names),
        steps=[
            "use another folder; or, if it is a sound build or run, add the marker",
            Command("kmip-data verify", folder),
        ],
    )
