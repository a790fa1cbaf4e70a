"""Child process that writes the cells of a workbook as lines of JSON.

A workbook of some kilobytes can describe more cells than any memory holds, and the library that
reads it then ends its process. So it runs in one of its own, with a memory limit, which imports
nothing else of this package:

    python workbook_process.py FILE LIMIT ROWS

An object begins each sheet, and a list of rows, which are lists of cells, follows for every thousand.
``{"error": …}`` ends the lines if the workbook cannot be read.
"""

from __future__ import annotations

import ctypes
import datetime as dt
import itertools
import json
import re
import resource
import signal
import sys
import zipfile
from typing import Any
from xml.etree.ElementTree import fromstring

OUT_OF_MEMORY = 3  #: exit code; a failed allocation of the library is a signal instead
_PR_SET_PDEATHSIG = 1  #: of Linux's prctl.h
_BLOCK_ROWS = 1_000
_MAX_EXACT_FLOAT = 2**53
_FORMULA = re.compile(rb"<(?:\w+:)?f[\s/>]")
#: A cell with a formula and no value. The value of a text may be empty.
_FORMULA_WITHOUT_VALUE = re.compile(
    rb"<(?:\w+:)?c\b(?![^>]*\bt=.str.)(?P<cell>[^>]*)>\s*"
    rb"<(?:\w+:)?f\b(?:[^>]*/>|[^>]*>[^<]*</(?:\w+:)?f>)\s*"
    rb"(?:<(?:\w+:)?v\s*/>|<(?:\w+:)?v>\s*</(?:\w+:)?v>)?\s*</(?:\w+:)?c>"
)
_OPEN_FORMULA_WITHOUT_VALUE = re.compile(
    rb"<table:table-cell\b(?![^>]*office:value-type=)[^>]*table:formula=.(?:of:)?(?P<formula>[^\"'>]*)"
)
_OPEN_TABLE = re.compile(rb"<table:table\b[^>]*table:name=.([^\"'>]*)")
_CELL_NAME = re.compile(rb"\br=.([A-Z]+[0-9]+)")


def main(path: str, limit: int, rows: int) -> None:
    """Write at most so many ``rows`` of each sheet; 0 writes all."""
    import python_calamine

    # Die with the parent, also inside the library, whose calls take minutes for large sheets.
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    soft_limit, hard_limit = resource.getrlimit(resource.RLIMIT_DATA)
    if limit and not 0 <= soft_limit < limit:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, hard_limit))
    try:
        if zipfile.is_zipfile(path) and (cell := _formula_without_value(path)):
            _write({"error": "formula", "cell": cell})
            return
        workbook = python_calamine.load_workbook(path)
        for metadata in workbook.sheets_metadata:
            sheet = workbook.get_sheet_by_name(metadata.name)
            is_hidden = metadata.visible != python_calamine.SheetVisibleEnum.Visible
            if sheet.start is None:
                _write({"sheet": metadata.name, "is_hidden": is_hidden, "merged": []})
                continue
            # Rows begin at the top of the sheet, and their cells at the first column that is used.
            left = sheet.start[1]
            ranges = [
                (a, b - left, c, d - left) for (a, b), (c, d) in sheet.merged_cell_ranges or ()
            ]
            _write({"sheet": metadata.name, "is_hidden": is_hidden, "merged": ranges})
            lines = itertools.islice(sheet.iter_rows(), rows or None)
            while block := list(itertools.islice(lines, _BLOCK_ROWS)):
                _write([list(map(_as_json, row)) for row in block])
    except python_calamine.PasswordError:
        _write({"error": "password"})
    except (python_calamine.CalamineError, OSError, ValueError, zipfile.BadZipFile) as error:
        _write({"error": f"{type(error).__name__}: {error}"})


def _write(value: object) -> None:
    print(json.dumps(value))  # noqa: T201 -- to the parent


def _as_json(cell: Any) -> object:
    """Return a cell: whole numbers are integers, dates and times are texts, and empty cells None."""
    if isinstance(cell, float):
        is_whole = cell.is_integer() and abs(cell) < _MAX_EXACT_FLOAT
        return int(cell) if is_whole else cell
    if isinstance(cell, dt.datetime):
        return cell.isoformat(" ").removesuffix(" 00:00:00")
    if isinstance(cell, dt.date | dt.time | dt.timedelta):
        return str(cell)
    return None if cell == "" else cell


def _formula_without_value(path: str) -> list[str] | None:
    """Return sheet and cell of the first formula whose value is not stored, of Excel or OpenDocument."""
    with zipfile.ZipFile(path) as archive:
        for member in archive.namelist():
            if member == "content.xml":
                content = archive.read(member)
                if match := _OPEN_FORMULA_WITHOUT_VALUE.search(content):
                    names = _OPEN_TABLE.findall(content, 0, match.start())
                    return [name.decode() for name in (*names[-1:], match["formula"])]
            if not re.fullmatch(r"xl/worksheets/[^/]+\.xml", member):
                continue
            cells = archive.read(member)
            # Most sheets have no formula, which a fifth of the time shows.
            match = _FORMULA.search(cells) and _FORMULA_WITHOUT_VALUE.search(cells)
            if match:
                name = _CELL_NAME.search(match["cell"])
                return [_sheet_name(archive, member), name[1].decode() if name else "?"]
    return None


def _sheet_name(archive: zipfile.ZipFile, member: str) -> str:
    """Return the name of the sheet that a member stores."""
    links = fromstring(archive.read("xl/_rels/workbook.xml.rels"))  # noqa: S314
    ids = {link.get("Id") for link in links if member.endswith(link.get("Target", "").lstrip("/"))}
    book = fromstring(archive.read("xl/workbook.xml"))  # noqa: S314
    for element in book.iter():
        if element.tag.endswith("}sheet") and ids.intersection(element.attrib.values()):
            return element.get("name", member)
    return member


if __name__ == "__main__":
    try:
        main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    except MemoryError:
        sys.exit(OUT_OF_MEMORY)
