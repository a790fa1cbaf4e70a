"""Tables in Parquet and JSON lines, whose columns have names and types."""

from __future__ import annotations

import contextlib
import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from kmip_data.errors import DamagedInput
from kmip_data.files.small_files import first_problem
from kmip_data.pipelines.formats.file_heads import decompressed_head, is_gzip
from kmip_data.runtime.extras import require_extra

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

_JSON_LINES = (".jsonl", ".ndjson")
PARQUET = ".parquet"
#: Peak memory of parsing, measured with 200,000 edges of two numbers; six columns take 10.
_BYTES_PER_JSON_BYTE = 16
_DTYPE_OF_KIND: dict[str, Any] = {"i": "int64", "u": "uint64", "f": "float64", "b": "bool"}


def is_frame_file(name: str) -> bool:
    """True for the name of a file of Parquet or JSON lines."""
    lowered = name.lower()
    return lowered.endswith(PARQUET) or lowered.removesuffix(".gz").endswith(_JSON_LINES)


def read_frame(
    path: Path, check_memory: Callable[[int, str], None]
) -> tuple[pd.DataFrame, list[int]]:
    """Return the table of a file, and the numbers of blank lines.

    ``check_memory`` takes the bytes that reading needs and the file's name. Raises ``DamagedInput``
    with the line if the file is damaged, ``MissingExtra`` without pyarrow.
    """
    blank_lines: list[int] = []
    if path.name.lower().endswith(PARQUET):
        return with_file_dtypes(_read_parquet(path, check_memory)), blank_lines
    rows = list(_json_objects(path, blank_lines, check_memory))
    if not rows:
        raise DamagedInput(f"{path.name} is empty.", next="write an object into each line")
    return with_file_dtypes(pd.DataFrame(rows)), blank_lines


def _json_objects(
    path: Path, blank_lines: list[int], check_memory: Callable[[int, str], None]
) -> Iterator[dict[str, Any]]:
    """Yield the object of each line; append the numbers of blank lines to ``blank_lines``."""
    number = 0
    size = 0
    try:
        with gzip.open(path) if is_gzip(path) else path.open("rb") as file:
            for number, line in enumerate(file, 1):
                size += len(line)
                check_memory(_BYTES_PER_JSON_BYTE * size, path.name)
                if not line.strip():
                    blank_lines.append(number)
                    continue
                row = json.loads(line)
                if not isinstance(row, dict):
                    raise TypeError(f"a {type(row).__name__}")  # noqa: TRY301 -- with its line
                yield row
    except (OSError, EOFError, TypeError, ValueError, RecursionError) as error:
        raise DamagedInput(
            f"{path.name}, line {number}: not an object of JSON.",
            expected='an object in each line, such as {"source": 0, "target": 1}',
            found=first_problem(error),
            next=f"write it with pandas: frame.to_json({path.name!r}, orient='records', lines=True)",
        ) from error


def head_of_table(path: Path) -> bytes:
    """Return the first bytes of a file, decompressed; of Parquet, the names of its columns."""
    if not path.name.lower().endswith(PARQUET):
        return decompressed_head(path)
    with _parquet_file(path) as file:
        return ",".join(file.schema_arrow.names).encode()


def _read_parquet(path: Path, check_memory: Callable[[int, str], None]) -> pd.DataFrame:
    with _parquet_file(path) as file:
        groups = map(file.metadata.row_group, range(file.num_row_groups))
        check_memory(2 * sum(group.total_byte_size for group in groups), path.name)
        frame: pd.DataFrame = file.read().to_pandas()
    return frame


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
            next=f"write it with pandas: frame.to_parquet({path.name!r})",
        ) from error


def with_file_dtypes(frame: pd.DataFrame) -> pd.DataFrame:
    """Convert a table to the dtypes that tables read from text have."""
    columns = {}
    for name, values in frame.items():
        converted = values
        if isinstance(values.dtype, pd.CategoricalDtype):
            converted = values.astype(object)
        elif values.dtype.kind in "mM":
            converted = values.astype(str).where(values.notna())
        elif values.dtype.kind in "iufb" and not isinstance(values.dtype, np.dtype):
            # pandas' extension dtypes support missing values.
            dtype: Any = "float64" if values.hasnans else _DTYPE_OF_KIND[values.dtype.kind]
            converted = values.astype(dtype)
        elif values.dtype == object:
            converted = values.map(array_as_list)
        columns[str(name)] = converted
    return pd.DataFrame(columns).reset_index(drop=True)


def array_as_list(value: object) -> object:
    """Convert an array to a list, whose ``repr`` has all values."""
    return value.tolist() if isinstance(value, np.ndarray) else value
