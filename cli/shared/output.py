"""Output of commands: one JSON object or tables on stdout, and paths for saved results."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from kmip_data.errors import UsageError
from kmip_data.files.path_errors import absolute_path
from kmip_data.text import human_bytes, replace_controls, strip_logins

if TYPE_CHECKING:
    from kmip_data.builds.home import Build
    from kmip_data.sharing.push_files import Share, SharedFile

Json = dict[str, Any]  #: a JSON object that a command prints, or one inside it
WANTS_JSON = "kmip_data.wants_json"  #: key in ``ctx.meta``: True if ``--json`` was given
JSON_PRINTED = "kmip_data.json_printed"  #: key in ``ctx.meta``: the JSON object is printed
_RESET = "\x1b[0m"  #: written at exit by colorama, which numba imports


class _Filtered:
    """A text stream that drops control characters, which would move the cursor, and passwords.

    Whatever path or address a command prints, also in its JSON object, goes through here.
    """

    def __init__(self, stream: TextIO) -> None:
        self.unfiltered = stream

    def write(self, text: str) -> int:
        if text != _RESET:
            self.unfiltered.write(strip_logins(replace_controls(text)))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        if name == "buffer":  # click would write around the filter where the terminal is ASCII
            raise AttributeError(name)
        return getattr(self.unfiltered, name)


@contextlib.contextmanager
def strip_control_characters() -> Iterator[None]:
    """Strip control characters from stdout and stderr, including warnings.

    Progress bars bypass it.
    """
    # A stream is None where it was closed before the start.
    out = sys.stdout and _Filtered(sys.stdout)
    err = sys.stderr and _Filtered(sys.stderr)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        yield


def print_json(value: Mapping[str, object]) -> None:
    """Print the JSON object of a command, in ASCII; NaN and infinity become ``null``."""
    from pydantic_core import to_jsonable_python

    # Arrays, and numbers of numpy's, become lists and numbers.
    plain = to_jsonable_python(value, inf_nan_mode="null", fallback=lambda array: array.tolist())
    click.echo(json.dumps(plain, indent=2, allow_nan=False))
    if context := click.get_current_context(silent=True):
        context.meta[JSON_PRINTED] = True


def wants_json() -> bool:
    """True if the running command has the option ``--json``."""
    return bool(click.get_current_context().meta.get(WANTS_JSON))


def print_result(result: Mapping[str, object], *lines: str) -> None:
    """Print the result of a command: as one JSON object, or as lines, where there are any."""
    if wants_json():
        print_json(result)
    elif lines:
        click.echo("\n".join(lines))


def format_table(
    header: Sequence[str], rows: Iterable[Sequence[object]], *, indent: int = 0
) -> str:
    """Return columns separated by two spaces, numbers to the right, text to the left.

    >>> print(format_table(["part", "graphs"], [["train", 39], ["test", 10]]))
    part   graphs
    train      39
    test       10
    """
    # A cell stays in its line: `add_row_notes` counts lines as rows.
    shown = ([_format_cell(value).replace("\n", "\ufffd") for value in row] for row in rows)

    # Column by column: the widest cell, and numbers to the right where all are numbers.
    columns = []
    for head, *cells in zip(header, *shown, strict=True):
        width = max(map(len, (head, *cells)))
        justify = str.rjust if cells and all(map(_is_number, cells)) else str.ljust
        columns.append([justify(cell, width) for cell in (head, *cells)])
    lines = ("  ".join(cells) for cells in zip(*columns, strict=True))
    margin = " " * indent
    return "\n".join(f"{margin}{line}".rstrip() for line in lines)


def _is_number(cell: str) -> bool:
    """True for a number, with or without a unit, or a range; false for a sentence that starts with one."""
    return cell in {"", "–"} or (cell[0].isdigit() and cell.count(" ") < 3)


def add_row_notes(lines: str, notes: Iterable[Iterable[str | None]]) -> str:
    r"""Add notes below the rows of a :func:`format_table`, indented; empty notes are left out.

    >>> add_row_notes(format_table(["part"], [["train"], ["test"]]), [["shuffled", None], []])
    'part\ntrain\n    shuffled\ntest'
    """
    head, *rows = lines.splitlines()
    result = [head]
    for row, texts in zip(rows, notes, strict=True):
        result.append(row)
        result += [f"    {text}" for text in texts if text]
    return "\n".join(result)


def format_facts(pairs: Iterable[tuple[str, object]], *, indent: int = 0) -> str:
    """Return ``name  value`` lines with aligned values; pairs without a value are left out."""
    # Several pairs may have one name, or none: each is a line.
    shown = [
        (name, _format_cell(value)) for name, value in pairs if value not in (None, "", [], ())
    ]
    width = indent + max((len(name) for name, _ in shown), default=0)
    # Further lines of a value stand below its first.
    gap = "\n" + " " * (width + 2)
    lines = []
    for name, value in shown:
        title = f"{' ' * indent}{name}".ljust(width)
        lines.append(f"{title}  " + value.replace("\n", gap))
    return "\n".join(lines)


def wrap_to_terminal(text: str, *, piped: int | None = None) -> str:
    """Wrap lines that are wider than the terminal, below the beginning of their last column.

    ``piped`` is the width without a terminal, None: unlimited.
    """
    width = piped
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
    if width is None:
        return text
    lines = []
    for line in text.splitlines():
        # Columns are two blanks apart; one that begins in the last third is too narrow to wrap.
        starts = [match.end() for match in re.finditer(r"\s{2,}(?=\S)", line[: 2 * width // 3])]
        indent = " " * max(starts, default=0)
        wrapped = textwrap.wrap(line, width, subsequent_indent=indent, break_on_hyphens=False)
        lines += wrapped if len(line) > width else [line]
    return "\n".join(lines)


def _format_cell(value: object) -> str:
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else str(value)


def join_first_words(words: Sequence[str], most: int = 10) -> str:
    """Return the first words of a list."""
    return ", ".join(words[:most]) + (", …" if len(words) > most else "")


def facts_of_build(build: Build) -> Json:
    """Return the facts about a build, for lists and scripts."""
    card = build.card
    names = ("dataset", "key", "sample", "complete", "pinned", "parameters", "counts")
    return {
        "path": build.path,
        **{name: getattr(card, name) for name in names},
        "bytes": sum(shard.bytes for shard in card.shards),
        "shards": len(card.shards),
        "splits": sorted(card.splits),
    }


def fact_pairs_of_build(build: Build) -> list[tuple[str, object]]:
    """Return the facts about a build as pairs of label and value, for people."""
    card = build.card
    size = human_bytes(facts_of_build(build)["bytes"])
    return [
        ("path", build.path),
        *((name, card.counts.get(name)) for name in ("graphs", "nodes", "edges")),
        ("shards", f"{len(card.shards)} ({size})"),
        ("raw files", card.raw_file_status),
        ("license", card.license.get("notice")),
    ]


def facts_of_share(share: Share, files: Sequence[SharedFile]) -> Json:
    """Return the facts about a push or pull, with its files, for scripts."""
    return {
        "kind": share.kind,
        "name": share.name,
        "digest": share.computed_digest,
        "bytes": sum(entry.bytes for entry in files),
        "files": {entry.file: entry.sha256 for entry in files},
    }


def rows_as_csv(rows: Sequence[Json]) -> bytes:
    """Return rows with the same keys as a CSV file."""
    from kmip_data.files.reading import csv_bytes

    return csv_bytes([*rows[0]], (row.values() for row in rows))


def picture_and_csv_paths(prefix: str, *, force: bool) -> tuple[Path, Path]:
    """Return the paths of picture and CSV file of ``--save``: ``a`` is a.png and a.csv, ``a.svg`` stays.

    Raises UsageError as :func:`check_output_path`.
    """
    from kmip_data.drawing.style import KINDS

    picture = absolute_path(prefix)
    check_output_path(picture, "--save", force=True)  # it needs a name, to add a suffix to
    if picture.suffix.lower() not in KINDS:
        picture = picture.with_name(f"{picture.name}.png")
    csv_file = picture.with_suffix(".csv")
    for path in (picture, csv_file):
        check_output_path(path, "--save", force=force)
    return picture, csv_file


def check_output_path(path: Path, option: str = "--output", *, force: bool) -> None:
    """Raise UsageError before the work if a file cannot be written, or exists and may not be replaced."""
    folder = path.parent
    if not path.name or not folder.is_dir() or not os.access(folder, os.W_OK):
        problem = "is not writable" if folder.is_dir() else "does not exist"
        raise UsageError(
            f"{path} cannot be written: the folder {folder} {problem}.",
            next=f"use another {option}",
        )
    if os.path.lexists(path) and not force:
        raise UsageError(
            f"{path} exists already.", next=f"use another {option}, or add --force to replace it"
        )


def default_output_path(path: Path, *, force: bool) -> Path:
    """Return the default path of a picture or page; an earlier one of ours there is replaced.

    Raise UsageError as :func:`check_output_path`, and if the path is a link.
    """
    from kmip_data.files.atomic_writes import refuse_link
    from kmip_data.files.folder_marker import unchanged_outputs

    # A path given by the user may be a link; this default path may not.
    refuse_link(path)
    check_output_path(path, force=force or path.name in unchanged_outputs(path.parent))
    return path
