"""Parameters of your own graphs, text tables, and the kinds of their columns."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field, PrivateAttr

from kmip_data.arrays import Array, Bools
from kmip_data.errors import DamagedInput, OutOfResources, UsageError
from kmip_data.format.schema import Column, ItemForm, Schema
from kmip_data.format.split_files import PARTS
from kmip_data.pipelines.datasets.graphs.roles import MASKS
from kmip_data.pipelines.graph_arrays.graph_checks import in_range
from kmip_data.pipelines.units_and_splits import codes_of_masks
from kmip_data.pipelines.user_files import OwnTextParams
from kmip_data.text import human_bytes

NO_CLASS = -1  #: class of a node without a label
_LARGEST = float(np.finfo(np.float32).max)
_MOST_CLASSES = 65_535  #: largest class
OTHER_FORMATS = "another format: read it with networkx, and write it with networkx.write_graphml"
_GZIP = b"\x1f\x8b"


class GraphParams(OwnTextParams):
    """Parameters that change the records."""

    label: tuple[str, ...] = Field(
        default=(),
        description="target column; repeat for several (default: label, y or class); none: no target",
    )
    task: Literal["classification", "multilabel", "regression"] | None = Field(
        default=None, description="meaning of the labels (default: as their values suggest)"
    )
    feature: tuple[str, ...] = Field(
        default=(),
        description="feature column; repeat for several; none: no features (default: all others)",
    )
    ignore: tuple[str, ...] = Field(
        default=(), description="column or attribute to leave out; repeat"
    )
    header: Literal["yes", "no"] | None = Field(
        default=None,
        description="first line of a table: names or data (default: as it looks)",
    )
    categories: int = Field(
        default=64,
        ge=1,
        le=10_000,
        description="most texts of a column that become features, one each",
    )
    missing: tuple[str, ...] = Field(
        default=(),
        description="text that means a missing value, such as NA, in features too; repeat; none: no text does",
    )
    rounded: tuple[str, ...] = Field(
        default=(), description="feature column whose integers float32 may round; repeat"
    )
    source: str = Field(
        default="", description="column of edge sources (default: source, from, src, u, …)"
    )
    target: str = Field(
        default="", description="column of edge targets (default: target, to, dst, v, …)"
    )
    graph: str = Field(
        default="", description="column of graph ids (default: graph, graph_id or mol_id)"
    )
    node: str = Field(
        default="",
        description="column of node ids (default: the one with the ids of all edges); none: nodes are numbered "
        "by row",
    )
    smiles: str = Field(default="smiles", description="column of SMILES")
    undirected: bool = Field(
        default=False, description="add the reverse of each edge that lacks it"
    )
    #: Of the raw files, whose digests are in the build key: columns, texts of classes, graphs,
    #: graphs of a shard, and what the card says of the files.
    _read: tuple[Schema, tuple[str, ...], int, int, dict[str, Any]] = PrivateAttr(
        default=(Schema(columns=()), (), 0, 1, {})
    )


@dataclass
class ColumnFacts:
    """Parameters, and findings of a reader about the columns of all graphs."""

    params: GraphParams
    names: dict[str, tuple[str, ...]] = field(default_factory=dict)  #: attribute -> its columns
    level: str = "graph"  #: level of the targets
    values: int = 0  #: values of a graph's target, where rows of an array alone tell its level
    parts: list[str] = field(default_factory=list)  #: keys of columns of parts
    #: Key of a column of graphs -> its form, where it is not a row with a leading axis of one.
    forms: dict[str, ItemForm] = field(default_factory=dict)
    several: bool = False  #: True if there are several graphs, whose masks divide nothing
    #: Unread array, column or file -> why it is not read, in order.
    ignored: dict[str, str] = field(default_factory=dict)
    edges_have_targets: bool = False  #: True if rows of edges have the target of their graph
    alone: bool = False  #: True if the files are one table
    missing: dict[str, int] = field(default_factory=dict)  #: column -> missing values
    #: What a user has to decide -> the parameters that decide it.
    questions: dict[str, str] = field(default_factory=dict)
    memory: int | None = None  #: memory limit of reading in bytes; ``None``: no limit

    def claim(self, needed: int, purpose: str) -> None:
        """Raise ``OutOfResources`` if reading would exceed the memory limit."""
        if self.memory is not None and needed > self.memory:
            raise OutOfResources(
                f"{purpose} needs at least {human_bytes(needed)} of memory,"
                f" and {human_bytes(self.memory)} are allowed.",
                next=f"--memory {-(-needed // 2**30)}GiB or more, if the machine has as much",
            )

    def ask(self) -> None:
        """Raise one error with all questions and the answers to type, if there are any."""
        if not self.questions:
            return
        what = next(iter(self.questions))
        if len(self.questions) > 1:
            what = f"{len(self.questions)} columns need a decision."
        raise DamagedInput(
            what,
            found="; ".join(self.questions)[:2_000] if len(self.questions) > 1 else None,
            next=" ".join(dict.fromkeys(self.questions.values())),
        )

    def label_of(self, names: Iterable[str], usual: Sequence[str], where: str) -> str:
        """Return the name of the target array; empty if there is none."""
        given = self.params.label
        if len(given) > 1 or self.params.feature:
            raise UsageError(
                f"{where}: one array is the label, and all others are kept.",
                next="at most one --set label=, and no --set feature=",
            )
        for name in given or usual:
            if name in names:
                return name
        if given:
            raise DamagedInput(
                f"{where} has no {given[0]!r}.",
                found=", ".join(names)[:500],
                next="--set label= and one of these",
            )
        return ""

    def labels(self, name: str, y: Array, level: str) -> dict[str, Array]:
        """Return an array of targets (n,) or (n, C), a row for each graph or node, by its key."""
        y = y.copy()  # a view of a file until the next graph
        if self.params.task == "multilabel" or y.shape[1:] not in {(), (1,)}:
            y = y.reshape(len(y), -1)
            self.names["y"] = tuple(f"{name} {column}" for column in range(y.shape[1]))
        else:
            y = y.reshape(-1)
            self.names["y"] = (name,)
        self.level = level
        self.values = y.size if level == "graph" else 0
        return {f"{level}/y": y}

    def masks(self, arrays: Mapping[str, Array], nodes: int, where: str) -> dict[str, Array]:
        """Return the parts of nodes by key, (N,) or (N, folds), from the arrays named in :data:`MASKS`.

        Masks of several graphs are attributes, because their split divides graphs.
        """
        if not arrays:
            return {}
        self.claim(8 * nodes, where)
        by_part: dict[str | None, Array] = {}
        for name, array in arrays.items():
            part, kind = MASKS[name]
            if part in by_part:
                raise DamagedInput(f"{where}: {part} is given twice: {', '.join(arrays)}.")
            if kind == "idx":
                if array.dtype.kind not in "iu" or not in_range(array, nodes):
                    raise DamagedInput(
                        f"{where}: {name} does not hold positions of {nodes:,} nodes."
                    )
                by_part[part] = np.zeros(nodes, bool)
                by_part[part][array] = True
            else:  # as many rows as nodes, or as many columns
                by_part[part] = array.T if array.shape[-1:] == (nodes,) else array
        masks = [by_part.get(part, np.zeros(nodes, bool)) for part in PARTS]
        folds = {mask.shape[1] for mask in masks if mask.ndim == 2} or {1}
        if len(folds) > 1:
            raise DamagedInput(f"{where}: masks of {sorted(folds)} splits.")
        codes = []
        for fold in range(max(folds)):
            columns = [mask[:, fold] if mask.ndim == 2 else mask for mask in masks]
            codes.append(codes_of_masks(columns, nodes, where))
        if self.several:
            return {f"node/{part}_mask": mask.astype(bool) for part, mask in by_part.items()}
        if not any(mask.any() for mask in masks):
            self.ignored |= dict.fromkeys(arrays, "no node is in it")
            return {}
        self.parts.append("node/masks")
        return {"node/masks": codes[0] if len(codes) == 1 else np.stack(codes, axis=1)}

    def target(self, targets: Sequence[Array]) -> tuple[Column, tuple[str, ...]]:
        """Return the column of the targets (n,) or (n, C) of all graphs, and the texts of the classes."""
        names = self.names["y"]
        if len({y.shape[1:] for y in targets}) > 1:
            raise DamagedInput(f"Graphs differ in their number of labels {', '.join(names)}.")
        y = np.concatenate(targets)
        classes: tuple[str, ...] = ()
        if y.dtype == object and y.ndim == 1:
            classes = tuple(sorted({*y.astype(str)} - {""}))
        y = self._classes_of_one_hot(numbers(y, classes))
        known = y[~np.isnan(y)]
        if not known.size:
            raise DamagedInput(
                "All labels are missing.",
                found=", ".join(names),
                next="--set label= and another one",
            )
        task = self._task(known, y.ndim)
        if task != "regression":
            known = known[known != NO_CLASS]
        complete = known.size == y.size
        if not complete:
            self.missing[", ".join(names)] = y.size - known.size
        column = Column(
            key=f"{self.level}/y",
            attribute="y",
            stored="float32",
            presented="float32",
            doc=", ".join(names),
            finite=complete,
        )
        if y.ndim > 1 or task == "multilabel":
            column = replace(column, shape=(len(names),), fields=names)
        if task == "regression":
            if changed_by_float32(known).any():
                column = replace(column, stored="float64", presented="float64")
            return column, ()
        if task == "multilabel":
            stored = "uint8" if complete else "float16"
            return replace(column, stored=stored, low=0, high=1, num_classes=len(names)), ()
        high = int(known.max())
        column = replace(
            column,
            stored="uint16" if complete else "int32",
            presented="int64",
            low=0 if complete else NO_CLASS,
            high=high,
            num_classes=high + 1,
            finite=True,
        )
        return column, classes

    def _task(self, known: Array, axes: int) -> str:
        """Return the task of labels that are not NaN; refuse one that does not fit, and ask for one.

        −1 is a number in a regression, and no class or label elsewhere.
        """
        given = known[known != NO_CLASS]
        low = known.min()
        high = known.max()
        whole = bool((known == np.rint(known)).all())
        # With -1 for one of two classes, the other would be the only one.
        two = given.size == known.size or bool((given != given[:1]).any())
        fitting = []
        if whole and axes == 1 and given.size and low >= NO_CLASS and high <= _MOST_CLASSES and two:
            fitting.append("classification")
        if bool(np.isin(given, (0, 1)).all()) and given.size and two:
            fitting.append("multilabel")
        if max(-low, high) <= _LARGEST:
            fitting.append("regression")

        task = self.params.task
        if task is None and not (whole and low <= NO_CLASS and axes > 1 and high <= 1):
            task = "classification"
            if not whole:
                task = "regression"
            elif axes > 1:
                task = "multilabel" if low >= 0 and high <= 1 else "regression"
        if task in fitting:
            return task
        of_what = (
            f", which does not fit {task}"
            if task
            else ": numbers, or labels of which some are missing"
        )
        names = ", ".join(self.names["y"])
        choices = " or ".join(f"--set task={task}" for task in fitting)
        if not two:
            choices += ", where -1 is a number; write 0 for it, where it is a class"
        raise DamagedInput(
            f"The labels {names} are {low:g} to {high:g}{of_what}.",
            expected="one label, a text or an integer from 0 (-1: none); several of 0 and 1; or numbers",
            next=choices or "correct the labels, or --set label= and other ones",
        )

    def _classes_of_one_hot(self, y: Array) -> Array:
        """Return the position of the only 1 of each row if that is the class; raise if nothing says so."""
        task = self.params.task
        if task in {"multilabel", "regression"} or y.ndim < 2 or y.shape[1] < 2:
            return y
        if not (np.isin(y, (0, 1)).all(axis=1) & (y.sum(axis=1) == 1)).all():
            return y
        if task is None:
            raise DamagedInput(
                f"Each row of the labels {', '.join(self.names['y'])} has a single 1.",
                expected="one class, or several labels",
                next="--set task=classification, where its position is the class; else --set task=multilabel",
            )
        classes: Array = y.argmax(axis=1).astype(np.float64)
        return classes


def changed_by_float32(values: Array) -> Bools:
    """Return which numbers, of any shape, are integers that float32 changes, such as 1700000001."""
    with np.errstate(over="ignore"):
        rounded = values.astype(np.float32).astype(np.float64)
    changed: Bools = (values == np.rint(values)) & (rounded != values) & np.isfinite(rounded)
    return changed


def numbers(targets: Array, classes: Sequence[str]) -> Array:
    """Return targets (n,) or (n, C) as numbers: positions in ``classes`` for texts, NaN if missing."""
    if targets.dtype == object and targets.ndim == 1:
        codes = {name: number for number, name in enumerate(classes)}
        return np.array([codes.get(str(text), np.nan) for text in targets], np.float64)
    try:
        return targets.astype(np.float64)
    except ValueError as error:
        raise DamagedInput(f"Several labels are numbers: {error}.") from error


def texts_of(ids: Array) -> Array:
    """Return ids (n,) as texts, in an object array: fixed-width texts would all be as long as the longest."""
    return ids if ids.dtype == object else ids.astype(str).astype(object)


def head_of(path: Path, most: int = 4_096) -> bytes:
    """Return the first bytes of a file, decompressed; ``DamagedInput`` for a damaged gzip."""
    with path.open("rb") as file:
        head = file.read(most)
    if not head.startswith(_GZIP):
        return head
    try:
        return zlib.decompressobj(wbits=31).decompress(head, most)
    except zlib.error as error:
        raise DamagedInput(f"{path.name} is a damaged gzip: {error}.") from error


def first_member(head: bytes) -> bytes:
    """Return the name of the first file of a zip; empty for other files."""
    if not head.startswith(b"PK\3\4") or len(head) < 30:
        return b""
    (length,) = struct.unpack_from("<H", head, 26)
    return head[30 : 30 + length]


def is_gzip(path: Path) -> bool:
    """True if a file begins as a gzip."""
    with path.open("rb") as file:
        return file.read(2) == _GZIP
