"""Predictions of one part of a split: in memory, and as an ``.npz`` file of numpy arrays."""

from __future__ import annotations

import io
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from kmip_data.errors import DamagedInput, OutOfResources, UsageError
from kmip_data.files.changes import write_output
from kmip_data.files.reading import first_fault, open_regular
from kmip_data.models.kinds import Section
from kmip_data.models.training.objective.tasks import Kind, Level
from kmip_data.runtime.memory import free_host_memory

ARRAYS = ("logits", "pred", "key", "ptr")
_ABOUT = "about"
Array = NDArray[Any]


class About(Section):
    """Description of a file of predictions."""

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
    if path.suffix != ".npz":
        raise UsageError(
            f"{path} does not end in .npz, a file of numpy arrays.", next=path.with_suffix(".npz").name
        )


def write_predictions(path: str | os.PathLike[str], predictions: Predictions) -> None:
    """Write an ``.npz`` file, complete or not at all.

    Its arrays are those of :class:`Predictions`, and ``about``, JSON as text. Raises ``UsageError`` where the
    name ends otherwise.
    """
    path = Path(path)
    check_name(path)
    about = {} if predictions.about is None else {_ABOUT: np.array(predictions.about.model_dump_json())}
    stream = io.BytesIO()
    np.savez(stream, allow_pickle=False, **predictions.arrays, **about)
    write_output(path, stream.getvalue())


def read_predictions(path: str | os.PathLike[str]) -> Predictions:
    """Read such a file, or any ``.npz`` with ``logits`` or ``pred``; nothing in it is executed.

    Raises ``DamagedInput`` where it is not such a file, or its ``about`` is not what
    :func:`write_predictions` writes; ``OutOfResources`` where it unpacks to more than the memory holds;
    ``UsageError`` where the name ends otherwise.
    """
    path = Path(path)
    check_name(path)
    try:
        with open_regular(path) as file, io.BufferedReader(file) as stream:
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
            with np.load(stream, allow_pickle=False) as arrays:
                about = About.model_validate_json(str(arrays[_ABOUT])) if _ABOUT in arrays else None
                return Predictions(**{name: arrays[name] for name in ARRAYS if name in arrays}, about=about)
    except (OSError, ValueError, LookupError, TypeError, EOFError, zipfile.BadZipFile) as error:
        if isinstance(error, OSError) and error.filename:
            raise
        raise DamagedInput(
            f"{path} cannot be read as predictions.",
            expected="numpy arrays: logits or pred, without pickles",
            found=first_fault(error),
            next="kmip-data predict RUN --output FILE writes one; or np.savez(FILE, logits=…)",
        ) from error
