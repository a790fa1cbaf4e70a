"""Tables of Arrow: Parquet and Feather files, and frames of other libraries."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from kmip_data.errors import DamagedInput
from kmip_data.files.small_files import first_problem
from kmip_data.runtime.extras import require_extra

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

_PARQUET = (".parquet", ".pq")
ARROW_SUFFIXES = (*_PARQUET, ".arrow", ".feather", ".ipc")
_ARROW_MAGIC = b"ARROW1"  #: begins a file, and not a stream
#: Name that pandas writes for an index without one.
_UNNAMED_INDEX = re.compile(r"__index_level_\d+__")
CheckMemory = Callable[[int, str], None]  #: takes the bytes that reading needs, and the file's name


def is_arrow_file(name: str) -> bool:
    """True for the name of a file of Parquet or Arrow."""
    return name.lower().endswith(ARROW_SUFFIXES)


def names_in_arrow_file(path: Path) -> list[str]:
    """Return the names of the columns of a file."""
    if path.name.lower().endswith(_PARQUET):
        with _parquet_file(path) as file:
            return list(file.schema_arrow.names)
    with _arrow_batches(path) as reader:
        return list(reader.schema.names)


def read_arrow_file(path: Path, check_memory: CheckMemory) -> pd.DataFrame:
    """Return the table of a file.

    Raises ``DamagedInput`` if it is damaged, ``MissingExtra`` without pyarrow.
    """
    is_parquet = path.name.lower().endswith(_PARQUET)
    return (_read_parquet if is_parquet else _read_arrow)(path, check_memory)


def _read_parquet(path: Path, check_memory: CheckMemory) -> pd.DataFrame:
    with _parquet_file(path) as file:
        groups = map(file.metadata.row_group, range(file.num_row_groups))
        check_memory(2 * sum(group.total_byte_size for group in groups), path.name)
        return _frame_of_arrow(file.read())


@contextlib.contextmanager
def _parquet_file(path: Path) -> Iterator[ParquetFile]:
    """Open a Parquet file; convert the errors of reading it."""
    require_extra("parquet", path.name)
    from pyarrow import ArrowException, parquet

    try:
        with parquet.ParquetFile(path) as file:
            yield file
    except (OSError, ValueError, ArrowException) as error:
        raise DamagedInput(
            f"{path.name} cannot be read as Parquet.",
            found=first_problem(error),
            steps=f"write it with pandas: frame.to_parquet({path.name!r})",
        ) from error


def _read_arrow(path: Path, check_memory: CheckMemory) -> pd.DataFrame:
    from pyarrow import Table

    size = 0
    batches = []
    with _arrow_batches(path) as reader:
        for batch in _batches_of(reader):
            size += batch.nbytes
            check_memory(2 * size, path.name)
            batches.append(batch)
        return _frame_of_arrow(Table.from_batches(batches, reader.schema))


def _batches_of(reader: Any) -> Iterator[Any]:
    """Yield the record batches of a file or of a stream."""
    if hasattr(reader, "num_record_batches"):
        return map(reader.get_batch, range(reader.num_record_batches))
    return iter(reader)


@contextlib.contextmanager
def _arrow_batches(path: Path) -> Iterator[Any]:
    """Open a file or a stream of Arrow, such as Feather; convert the errors of reading it."""
    require_extra("parquet", path.name)
    from pyarrow import ArrowException, ipc, memory_map

    try:
        with memory_map(str(path)) as file:
            is_file = file.read(len(_ARROW_MAGIC)) == _ARROW_MAGIC
            file.seek(0)
            with ipc.open_file(file) if is_file else ipc.open_stream(file) as reader:
                yield reader
    except (OSError, ValueError, ArrowException) as error:
        raise DamagedInput(
            f"{path.name} cannot be read as Arrow.",
            expected="Arrow's IPC format, as a file (Feather) or a stream",
            found=first_problem(error),
            steps=f"write it with pandas: frame.to_feather({path.name!r})",
        ) from error


def _frame_of_arrow(table: Any) -> pd.DataFrame:
    """Return a table of pyarrow with all its columns, and an index of pandas with a name or texts."""
    frame: pd.DataFrame = table.to_pandas(ignore_metadata=True)
    unnamed = [name for name in frame if _UNNAMED_INDEX.fullmatch(str(name))]
    numbers = [name for name in unnamed if frame[name].dtype.kind in "iu"]
    frame = frame.drop(columns=numbers)
    return frame.set_axis(["index" if name in unnamed[:1] else name for name in frame], axis=1)
