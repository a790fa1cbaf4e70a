"""Read list files of raw data: one name a line."""

from __future__ import annotations

from pathlib import Path

from kmip_data.errors import DamagedInput


def read_lines(path: Path) -> list[str]:
    """Return the lines of an ASCII file; LF and CRLF end a line, and the last line needs neither.

    Raises
    ------
    DamagedInput
        The file is not there, is empty, or is not text.
    """
    try:
        text = path.read_bytes().decode("ascii")
    except FileNotFoundError as error:
        raise DamagedInput(f"{path.name} is not there.", expected=str(path), found="no such file") from error
    except UnicodeDecodeError as error:
        raise DamagedInput(f"{path.name} is not a text file.", expected="ASCII", found=str(error)) from error
    lines = text.replace("\r\n", "\n").split("\n")
    if lines[-1] == "":
        del lines[-1]
    if not lines:
        raise DamagedInput(f"{path.name} is empty.", expected="one name a line", found="no line")
    return lines
