"""What commands print on stdout, as one JSON object or plain tables, and where they may save results."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from kmip_data.errors import UsageError
from kmip_data.wording import without_controls

JSON_PRINTED = "kmip_data.json_printed"  #: key in ``ctx.meta``: the one JSON object is out


#: Beginnings of lines that are coloured on a terminal, and how.
_COLOURS: dict[str, dict[str, Any]] = {
    "Error:": {"fg": "red", "bold": True},
    "  next:": {"fg": "green"},
    "Next:": {"fg": "green"},
    "warning:": {"fg": "yellow"},
}
_RESET = "\x1b[0m"  #: what colorama, which numba brings, writes where Python ends
_HEAD = "\x1e"  #: begins the head of a table; a control character, so no name from outside brings one


class _Filtered:
    """A stream of text for a terminal: names from files and servers cannot move its cursor or retitle it.

    Colours are put in here, after the filter, where the stream is a terminal and ``NO_COLOR`` is not set.
    """

    def __init__(self, stream: Any) -> None:
        self.unfiltered = stream
        self.coloured = (
            stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        )

    def write(self, text: str) -> int:
        if text == _RESET:
            return 0
        lines = text.split("\n")
        shown = (
            _coloured(line) if self.coloured else without_controls(line.removeprefix(_HEAD)) for line in lines
        )
        self.unfiltered.write("\n".join(shown))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        if name == "buffer":  # click would write around the filter where the terminal is ASCII
            raise AttributeError(name)
        return getattr(self.unfiltered, name)


def _coloured(line: str) -> str:
    if line.startswith(_HEAD):
        return click.style(without_controls(line[1:]), bold=True)
    plain = without_controls(line)
    for begin, colour in _COLOURS.items():
        if plain.startswith(begin):
            return click.style(begin, **colour) + plain[len(begin) :]
    return plain


@contextlib.contextmanager
def filtered() -> Iterator[None]:
    """Strip control characters from all that is printed, warnings too, but the bars of progress."""
    with contextlib.ExitStack() as stack:
        if sys.stdout is not None:
            stack.enter_context(contextlib.redirect_stdout(_Filtered(sys.stdout)))
        if sys.stderr is not None:
            stack.enter_context(contextlib.redirect_stderr(_Filtered(sys.stderr)))
        yield


def print_json(value: Mapping[str, Any]) -> None:
    """Print the one JSON object of a command, in ASCII whatever the terminal can show.

    JSON has no word for NaN and infinity: they become ``null``.
    """
    click.echo(json.dumps(_plain(value), indent=2, allow_nan=False))
    context = click.get_current_context(silent=True)
    if context is not None:
        context.meta[JSON_PRINTED] = True


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if not isinstance(value, str | bytes) and hasattr(value, "item"):
        value = value.item()
    if isinstance(value, Path):
        return str(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def table(header: Sequence[str], rows: Iterable[Sequence[object]], *, indent: int = 0) -> str:
    """Columns padded with two spaces between; numbers to the right, text to the left.

    >>> print(table(["part", "graphs"], [["train", 39], ["test", 10]]))
    part   graphs
    train      39
    test       10
    """
    padded = []
    shown = ([_cell(value).replace("\n", "\ufffd") for value in row] for row in rows)
    for head, *cells in zip(header, *shown, strict=True):
        width = max(map(len, (head, *cells)))
        right = bool(cells) and all(_is_number(cell) or cell in {"", "–"} for cell in cells)
        padded.append([cell.rjust(width) if right else cell.ljust(width) for cell in (head, *cells)])
    lines = [(" " * indent + "  ".join(line)).rstrip() for line in zip(*padded, strict=True)]
    head = _HEAD if getattr(sys.stdout, "coloured", False) else ""
    return "\n".join([head + lines[0], *lines[1:]])


def annotated(lines: str, notes: Iterable[Iterable[str | None]]) -> str:
    """Put what is to be said of each row of a :func:`table` below it, indented; empty texts are left out.

    >>> print(annotated(table(["part"], [["train"], ["test"]]), [["shuffled", None], []]))
    part
    train
        shuffled
    test
    """
    head, *rows = lines.split("\n")  # the mark of a head ends a line, too, for splitlines
    found = [head]
    for row, texts in zip(rows, notes, strict=True):
        found += [row, *(f"    {text}" for text in texts if text)]
    return "\n".join(found)


def facts(pairs: Iterable[tuple[str, object]], *, indent: int = 0) -> str:
    """``name  value`` lines with the values aligned; pairs without a value are left out."""
    shown = [(name, _cell(value)) for name, value in pairs if value not in (None, "", [], ())]
    width = max((len(name) for name, _ in shown), default=0)
    gap = "\n" + " " * (indent + width + 2)
    return "\n".join(
        f"{' ' * indent}{name.ljust(width)}  {value.replace(chr(10), gap)}" for name, value in shown
    )


def _is_number(cell: str) -> bool:
    """Whether a cell is a number, with a unit or a range at most; a sentence may begin with one, too."""
    return cell[:1].isdigit() and cell.count(" ") < 3


def _cell(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)


def beside(prefix: Path, suffix: str) -> Path:
    """``prefix`` with a suffix; where it ends as a picture does, pictures end so: ``a.svg`` for ``.png``."""
    from kmip_data.drawing.style import KINDS

    ending = prefix.suffix.lower()
    if ending not in KINDS:
        return prefix.with_name(f"{prefix.name}{suffix}")
    return prefix.with_name(prefix.stem + suffix.replace(".png", ending))


def check_prefix(prefix: Path, option: str = "--save") -> None:
    """Raise UsageError now, not after the work, where files beginning with ``prefix`` cannot be written."""
    if not prefix.name or not prefix.parent.is_dir() or not os.access(prefix.parent, os.W_OK):
        raise UsageError(
            "Results cannot be saved there.",
            expected=f"{option} FOLDER/NAME in a folder that exists and may be written to",
            found=str(prefix),
            next=f"another {option}",
        )


def place_of_page(stem: str, folder: Path, name: str) -> Path:
    """Return where a picture goes unless told: into ``folder``, or the current one if it takes no files."""
    from kmip_data.files.changes import refuse_links

    if os.access(folder, os.W_OK):
        refuse_links(folder)  # what the user named is written where a link leads, this is not
        return folder / name
    click.echo(f"{folder} may not be written to: saving in the current folder.", err=True)
    return Path(f"{stem}-{name}").absolute()
