"""Texts of the files next to clouds or pictures: files of text, and each sheet or frame as CSV."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kmip_data.errors import OutOfResources
from kmip_data.pipelines.companion_files.legends import LEGEND_SUFFIXES, MAX_BYTES, legend_of_text
from kmip_data.pipelines.formats.file_heads import WORKBOOK_SUFFIXES, decompressed_head, is_gzip
from kmip_data.pipelines.formats.typed_tables import SHEET_MARK
from kmip_data.pipelines.formats.typed_tables.arrow_tables import ARROW_SUFFIXES
from kmip_data.pipelines.formats.typed_tables.frames import is_frame_file, read_frames
from kmip_data.text import human_bytes

COMPANION_SUFFIXES = (".json", *LEGEND_SUFFIXES, *WORKBOOK_SUFFIXES, *ARROW_SUFFIXES)
_LOCK_PREFIX = "~$"  #: begins the name of a file that Excel writes next to an open workbook
_MAX_MEMORY = 2**32  #: for reading a workbook or a frame


@dataclass(frozen=True)
class TableText:
    """Text that may be a table: of a file, or of a sheet."""

    name: str  #: name of the file, and of the sheet
    title: str  #: name of the file without ending, and of the sheet
    path: Path
    csv: bytes | None = None  #: text of a sheet or frame

    @property
    def has_typed_columns(self) -> bool:
        """True if the columns have names and types in the file."""
        return self.csv is not None

    @property
    def is_json(self) -> bool:
        """True for the content of a JSON file that is no table."""
        return self.csv is None and self.path.suffix.lower() == ".json"

    def read(self, size: int = -1) -> bytes:
        """Return the first bytes, by default all."""
        if self.csv is not None:
            return self.csv if size < 0 else self.csv[:size]
        with self.path.open("rb") as file:
            return file.read(size)

    def legend(self, encoding: str = "") -> dict[int, str] | None:
        """Return the name of each code; ``None`` if it is no legend."""
        if self.is_json or self.path.stat().st_size > MAX_BYTES:
            return None
        name = f"{self.name}.csv" if self.has_typed_columns else self.path.name
        return legend_of_text(self.read(), name, encoding)


def texts_of_file(path: Path, name: str) -> Iterator[TableText]:
    """Yield the text of a file called ``name``, or of each sheet of a workbook.

    A sheet or a frame is the text that it would be saved as, so that it is read by the same rules.
    """
    if path.name.startswith(_LOCK_PREFIX):
        return
    title = path.name.partition(".")[0]
    if is_gzip(path) or not is_frame_file(path.name, decompressed_head(path)):
        yield TableText(name, title, path)
        return
    for frame in read_frames(path, _MAX_MEMORY, _check_memory):
        _, mark, sheet = frame.name.partition(SHEET_MARK)
        csv = frame.frame.to_csv(index=False).encode()
        yield TableText(name + mark + sheet, f"{title} {sheet}", path, csv)


def _check_memory(needed: int, name: str) -> None:
    """Raise ``OutOfResources`` for a table that is too large to describe items."""
    if needed > _MAX_MEMORY:
        raise OutOfResources(
            f"{name} needs at least {human_bytes(needed)} of memory, and {human_bytes(_MAX_MEMORY)} are "
            "allowed.",
            steps="save its columns about the files as a table of their own",
        )
