"""Predictions of one part of a split: in memory, and as a file of numpy arrays or a Parquet table."""

from __future__ import annotations

import importlib.util
import io
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from kmip_data.errors import DamagedInput, OutOfResources, UsageError
from kmip_data.files.changes import write_output
from kmip_data.files.small import first_fault, open_regular
from kmip_data.models.kinds import Section
from kmip_data.models.training.objective.metrics import Kind
from kmip_data.models.training.objective.tasks import Level
from kmip_data.runtime.peak_memory import free_host_memory

ARRAYS = ("logits", "pred", "key", "ptr")
KINDS = {".npz": "numpy arrays", ".parquet": "a Parquet table"}  #: of files, by the end of the name
_ABOUT = "about"
Array = NDArray[Any]


class About(Section):
    """What a file of predictions says of itself."""

    format: Literal["kmip-data predictions"] = "kmip-data predictions"
    version: Literal[1] = 1
    dataset: str
    sample: bool
    complete: bool | None
    build: str
    build_key: str
    split: str
    part: str
    digest: str = Field(description="of the keys in order, as the split of the build has it")
    level: Level
    kind: Kind
    outputs: int = Field(description="columns of logits: classes, labels, targets, or 1 for links")
    class_names: tuple[str, ...] = ()
    run: str
    model: str
    seed: int
    best_epoch: int
    batch_size: int = Field(ge=1, description="graphs per batch, which sums of metrics follow")


@dataclass(frozen=True)
class Predictions:
    """Predictions of the records of a part, in its order."""

    #: (rows, outputs) float32: of classes and labels before softmax and sigmoid, scores of pairs of nodes;
    #: ``None`` for values. A row is a node, a graph, or a pair of nodes: of a graph of n nodes n² of them,
    #: (0, 0), (0, 1) … (n - 1, n - 1)
    logits: Array | None = None
    #: (rows,) int64 classes, (rows, outputs) bool labels, (rows, outputs) float32 values; ``None`` for links
    pred: Array | None = None
    key: Array | None = None  #: keys of the records (G,), or the numbers of the nodes of one graph (rows,)
    #: (G + 1,) int64: record g has the rows ``ptr[g]:ptr[g + 1]``. ``None``: one row for each key
    ptr: Array | None = None
    about: About | None = None  #: where they come from; ``None`` where nobody said

    def __len__(self) -> int:
        return len(next(iter(self.arrays.values())))

    @property
    def arrays(self) -> dict[str, Array]:
        """Those that are there, by name."""
        return {name: value for name in ARRAYS if (value := getattr(self, name)) is not None}

    @classmethod
    def of(cls, **arrays: Any) -> Self:
        """Take whatever numpy makes an array of, tensors too.

        Raises ``UsageError`` where a name is not one of the arrays'.
        """
        if unknown := arrays.keys() - set(ARRAYS):
            raise UsageError(
                "These are not arrays of predictions.",
                expected=", ".join(ARRAYS),
                found=", ".join(sorted(unknown)),
                next="logits, or pred for classes and values",
            )
        given: dict[str, Any] = {name: np.asarray(value) for name, value in arrays.items()}
        return cls(**given)


def check_name(path: Path) -> None:
    """Raise UsageError where predictions cannot be written to or read from a file of that name."""
    if path.suffix not in KINDS:
        raise UsageError(
            f"{path} does not say which kind of file it is.",
            expected=" or ".join(f"a name that ends in {end} ({kind})" for end, kind in KINDS.items()),
            found=path.name,
            next=f"{path.with_suffix('.npz').name}",
        )
    if path.suffix == ".parquet" and importlib.util.find_spec("pyarrow") is None:
        raise UsageError(
            f"{path} is a Parquet table, which needs pyarrow.",
            expected="an installed pyarrow",
            found="no module of that name",
            next="pip install pyarrow, or a name that ends in .npz, which needs nothing",
        )


def write_predictions(path: str | os.PathLike[str], predictions: Predictions) -> None:
    """Write one file, complete or not at all: ``.npz``, or ``.parquet`` where pyarrow is installed.

    The arrays of an ``.npz`` are those of :class:`Predictions`, and ``about``, JSON as text. A Parquet
    table has one line per row, with the record's ``key`` and, where a record has several, its ``node``,
    or ``source`` and ``target``, and ``about`` under the key ``kmip-data`` of its metadata. Raises
    ``UsageError`` where the name ends otherwise, or pyarrow is missing.
    """
    path = Path(path)
    check_name(path)
    write_output(path, _parquet(predictions) if path.suffix == ".parquet" else _npz(predictions))


def read_predictions(path: str | os.PathLike[str]) -> Predictions:
    """Read such a file, or any ``.npz`` with ``logits`` or ``pred``; nothing in it is executed.

    Raises ``DamagedInput`` where it is not such a file, or its ``about`` is not what
    :func:`write_predictions` writes; ``OutOfResources`` where it unpacks to more than the memory holds;
    ``UsageError`` where the name ends otherwise, or pyarrow is missing.
    """
    path = Path(path)
    check_name(path)
    try:
        with open_regular(path) as file:
            stream = io.BufferedReader(file)
            return _from_parquet(stream) if path.suffix == ".parquet" else _from_npz(stream, path)
    except (OSError, ValueError, LookupError, TypeError, EOFError, zipfile.BadZipFile) as error:
        if isinstance(error, UsageError) or (isinstance(error, OSError) and error.filename):
            raise
        raise DamagedInput(
            f"{path} cannot be read as predictions.",
            expected=f"{KINDS[path.suffix]}: logits or pred, without pickles",
            found=first_fault(error),
            next="kmip-data predict RUN --output FILE writes one; or np.savez(FILE, logits=…)",
        ) from error


def _npz(predictions: Predictions) -> bytes:
    about = {} if predictions.about is None else {_ABOUT: np.array(predictions.about.model_dump_json())}
    stream = io.BytesIO()
    np.savez(stream, allow_pickle=False, **predictions.arrays, **about)
    return stream.getvalue()


def _from_npz(stream: BinaryIO, path: Path) -> Predictions:
    with zipfile.ZipFile(stream) as archive:  # a few bytes may unpack to any number
        size, free = sum(member.file_size for member in archive.infolist()), free_host_memory()
    if size > free:
        raise OutOfResources(
            f"{path} does not fit into memory.",
            expected=f"at most {free:,} bytes, which are free",
            found=f"{size:,} bytes, unpacked",
            next="a machine with more memory",
        )
    stream.seek(0)
    with np.load(stream, allow_pickle=False) as archive:
        about = About.model_validate_json(str(archive[_ABOUT])) if _ABOUT in archive else None
        return Predictions(**{name: archive[name] for name in ARRAYS if name in archive}, about=about)


def _parquet(predictions: Predictions) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns: dict[str, Any] = {}
    if predictions.key is not None:
        key, ptr = predictions.key, predictions.ptr
        columns["key"] = key if ptr is None else np.repeat(key, np.diff(ptr))
        if ptr is not None and predictions.about is not None:
            columns |= _places(ptr, predictions.about.level)
    for name in ("logits", "pred"):
        values = predictions.arrays.get(name)
        if values is not None and values.ndim == 2:
            values = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])
        if values is not None:
            columns[name] = values
    table, about = pa.table(columns), predictions.about
    stream = io.BytesIO()
    if about is not None:
        table = table.replace_schema_metadata({"kmip-data": about.model_dump_json()})
    pq.write_table(table, stream)
    return stream.getvalue()


def _places(ptr: Array, level: Level) -> dict[str, Array]:
    """Return which node of its record, or which pair of nodes, each row is."""
    within = np.arange(ptr[-1]) - np.repeat(ptr[:-1], np.diff(ptr))
    if level != "link":
        return {"node": within}
    nodes = np.repeat(np.sqrt(np.diff(ptr)).astype(np.int64), np.diff(ptr))
    return {"source": within // nodes, "target": within % nodes}


def _from_parquet(stream: BinaryIO) -> Predictions:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(stream)
    text = (table.schema.metadata or {}).get(b"kmip-data")
    found: dict[str, Any] = {}
    for name in ("key", "logits", "pred"):
        if name in table.column_names:
            column = table.column(name).combine_chunks()
            several = pa.types.is_nested(column.type)
            values = (column.flatten() if several else column).to_numpy(zero_copy_only=False)
            found[name] = values.reshape(len(column), -1) if several else values
    if {"node", "source"} & {*table.column_names} and "key" in found:
        first = np.flatnonzero(np.append(True, found["key"][1:] != found["key"][:-1]))
        found["ptr"] = np.append(first, len(found["key"])).astype(np.int64)
        found["key"] = found["key"][first]
    return Predictions(**found, about=None if text is None else About.model_validate_json(text))
