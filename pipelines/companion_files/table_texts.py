"""Texts of the files next to clouds or pictures: files of text, and each sheet or frame as CSV."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import pyarrow as pa
from pyarrow import csv

from kmip_data.errors import OutOfResources
from kmip_data.pipelines.companion_files.legends import LEGEND_SUFFIXES, MAX_BYTES, legend_of_text
from kmip_data.pipelines.datasets.graphs.findings import Notices
from kmip_data.pipelines.datasets.graphs.options import ReadOptions
from kmip_data.pipelines.datasets.graphs.parameters import GraphParams
from kmip_data.pipelines.formats.file_heads import decompressed_head
from kmip_data.pipelines.formats.graph_texts.json_graphs import is_json_table
from kmip_data.pipelines.own.files import READERS, TYPED_SUFFIXES
from kmip_data.pipelines.own.headers import TopRow

COMPANION_SUFFIXES = (".json", *LEGEND_SUFFIXES, *TYPED_SUFFIXES)
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
    suffix = path.suffix.lower()
    is_json = suffix == ".json" and is_json_table(decompressed_head(path))
    if suffix not in TYPED_SUFFIXES and not is_json:
        yield TableText(name, title, path)
        return
    options = ReadOptions(GraphParams(), memory=_MAX_MEMORY)
    try:
        tables = READERS[suffix](path, name, options, Notices())
    except OutOfResources as error:
        error.steps = ["save its columns about the files as a table of their own"]
        raise
    for table in tables:
        named = table.named(has_names=True) if isinstance(table, TopRow) else table
        text = BytesIO()
        csv.write_csv(pa.table(named.columns), text)
        sheet = named.name.removeprefix(name)
        yield TableText(named.name, f"{title} {sheet.lstrip(', ')}", path, text.getvalue())
