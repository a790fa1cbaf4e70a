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

from kmip_data.errors import Command, UsageError
from kmip_data.text import one_line, strip_logins

if TYPE_CHECKING:
    from kmip_data.builds.home import Build
    from kmip_data.cli.shared.completed_steps import TypedLine
    from kmip_data.sharing.push_index import PushedFile, PushIndex

Json = dict[str, Any]  #: a JSON object that a command prints, or one inside it
WANTS_JSON_META_KEY = "kmip_data.wants_json"  #: True if ``--json`` was given
JSON_PRINTED_META_KEY = "kmip_data.json_printed"  #: key in ``ctx.meta``: the JSON object is printed
_ANSI_RESET = "\x1b[0m"  #: written at exit by colorama, which numba imports


class _FilteredStream:
    """A text stream without control characters, which would move the cursor, and without passwords.

    It filters all output, including JSON, as any path or address may contain them.
    """

    def __init__(self, stream: TextIO) -> None:
        self.unfiltered = stream

    def write(self, text: str) -> int:
        if text != _ANSI_RESET:
            self.unfiltered.write(strip_logins("\n".join(map(one_line, text.split("\n")))))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        if name == "buffer":  # click would bypass the filter on an ASCII terminal
            raise AttributeError(name)
        return getattr(self.unfiltered, name)


@contextlib.contextmanager
def filtered_output() -> Iterator[None]:
    """Strip control characters and passwords from stdout and stderr; spare progress bars."""
    # A stream is None if it was closed before the start.
    out = sys.stdout and _FilteredStream(sys.stdout)
    err = sys.stderr and _FilteredStream(sys.stderr)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        yield


def print_json(value: Mapping[str, object]) -> None:
    """Print the JSON object of a command, in ASCII; NaN and infinity become ``null``."""
    from pydantic_core import to_jsonable_python

    # NumPy arrays and scalars become lists and numbers.
    jsonable = to_jsonable_python(value, inf_nan_mode="null", fallback=lambda array: array.tolist())
    click.echo(json.dumps(jsonable, indent=2, allow_nan=False))
    if context := click.get_current_context(silent=True):
        context.meta[JSON_PRINTED_META_KEY] = True


def wants_json() -> bool:
    """True if the running command was given ``--json``."""
    return bool(click.get_current_context().meta.get(WANTS_JSON_META_KEY))


def completed(command: Command) -> Command:
    """Return a command with the options of the typed line that it takes and lacks."""
    line: TypedLine = click.get_current_context().find_root().obj
    return line.with_options(command)


def print_result(result: Mapping[str, object], *lines: str, steps: Sequence[Command] = ()) -> None:
    """Print the result of a command as one JSON object with ``--json``, else ``lines`` of text.

    ``steps`` are the commands that may follow.
    """
    commands = list(map(completed, steps))
    if wants_json():
        print_json({**result, "steps": [command.words for command in commands]})
    elif text := [*lines, *(f"Next: {command}" for command in commands)]:
        click.echo("\n".join(text))


def format_table(
    header: Sequence[str], rows: Iterable[Sequence[object]], *, indent: int = 0
) -> str:
    """Return a table with columns two spaces apart; numbers are aligned right, strings left.

    >>> print(format_table(["part", "graphs"], [["train", 39], ["test", 10]]))
    part   graphs
    train      39
    test       10
    """
    # A row must stay on one line for `add_row_notes`.
    shown = ([one_line(_format_cell(value)) for value in row] for row in rows)

    # Pad the cells of each column to the widest one.
    columns = []
    for head, *cells in zip(header, *shown, strict=True):
        width = max(map(len, (head, *cells)))
        justify = str.rjust if cells and all(map(_is_number, cells)) else str.ljust
        columns.append([justify(cell, width) for cell in (head, *cells)])
    lines = ("  ".join(cells) for cells in zip(*columns, strict=True))
    margin = " " * indent
    return "\n".join(f"{margin}{line}".rstrip() for line in lines)


def _is_number(cell: str) -> bool:
    """True for a number or a range, with or without unit; false for a sentence starting with one."""
    return cell in {"", "–"} or (cell[0].isdigit() and cell.count(" ") < 3)


def add_row_notes(lines: str, notes: Iterable[Iterable[str | None]]) -> str:
    r"""Add indented notes below the rows of a :func:`format_table`; skip empty notes.

    >>> add_row_notes(format_table(["part"], [["train"], ["test"]]), [["shuffled", None], []])
    'part\ntrain\n    shuffled\ntest'
    """
    head, *rows = lines.splitlines()
    result = [head]
    for row, texts in zip(rows, notes, strict=True):
        result.append(row)
        result += [f"    {one_line(text)}" for text in texts if text]
    return "\n".join(result)


def format_facts(pairs: Iterable[tuple[str, object]], *, indent: int = 0) -> str:
    """Return ``name  value`` lines with aligned values, without pairs that have no value."""
    # A list, as names may be empty or repeat.
    shown = [
        (name, _format_cell(value)) for name, value in pairs if value not in (None, "", [], ())
    ]
    width = indent + max((len(name) for name, _ in shown), default=0)
    # Align all lines of a value.
    line_break = "\n" + " " * (width + 2)
    lines = []
    for name, value in shown:
        title = f"{' ' * indent}{name}".ljust(width)
        lines.append(f"{title}  " + value.replace("\n", line_break))
    return "\n".join(lines)


def wrap_to_terminal(text: str, *, piped: int | None = None) -> str:
    """Wrap lines to the width of the terminal; continue them at the start of their last column.

    Without a terminal, the width is ``piped``, or unlimited if None.
    """
    width = piped
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
    if width is None:
        return text
    lines = []
    for line in text.splitlines():
        # Columns are two spaces apart. One that starts in the last third is too narrow to wrap.
        starts = [match.end() for match in re.finditer(r"\s{2,}(?=\S)", line[: 2 * width // 3])]
        indent = " " * max(starts, default=0)
        wrapped = textwrap.wrap(line, width, subsequent_indent=indent, break_on_hyphens=False)
        lines += wrapped if len(line) > width else [line]
    return "\n".join(lines)


def _format_cell(value: object) -> str:
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def build_as_json(build: Build) -> Json:
    """Return the facts about a build for JSON."""
    card = build.card
    fields = ("dataset", "key", "sample", "complete", "pinned", "parameters", "counts")
    return {
        "path": build.path,
        **{name: getattr(card, name) for name in fields},
        "bytes": sum(shard.bytes for shard in card.shards),
        "shards": len(card.shards),
        "splits": sorted(card.splits),
    }


def push_as_json(index: PushIndex, files: Sequence[PushedFile]) -> Json:
    """Return the facts about a push or pull, including its files, for JSON."""
    return {
        "kind": index.kind,
        "name": index.name,
        "digest": index.computed_digest,
        "bytes": sum(entry.bytes for entry in files),
        "files": {entry.file: entry.sha256 for entry in files},
    }


def rows_as_csv(rows: Sequence[Json]) -> bytes:
    """Return rows with the same keys as the content of a CSV file."""
    from kmip_data.files.small_files import csv_bytes

    return csv_bytes([*rows[0]], (row.values() for row in rows))


def check_output_path(path: Path, option: str = "--output", *, force: bool) -> None:
    """Raise UsageError if a file cannot be written, or exists without ``force``."""
    folder = path.parent
    if not path.name or not folder.is_dir() or not os.access(folder, os.W_OK):
        problem = "is not writable" if folder.is_dir() else "does not exist"
        raise UsageError(
            f"{path} cannot be written: the folder {folder} {problem}.",
            steps="use another path",
        )
    if os.path.lexists(path) and not force:
        raise UsageError(f"{path} exists already.", steps="use another path")


def default_output_path(path: Path, *, force: bool) -> Path:
    """Return the default path of a picture or page, after checking that it can be written.

    A file that an earlier command wrote there is replaced. Raises UsageError like
    :func:`check_output_path`, and for a link.
    """
    from kmip_data.files.atomic_writes import refuse_link
    from kmip_data.files.folder_marker import unchanged_outputs

    # Only a path that the user chose may be a link.
    refuse_link(path)
    check_output_path(path, force=force or path.name in unchanged_outputs(path.parent))
    return path
