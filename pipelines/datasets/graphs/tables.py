"""Parameters of your own graphs, text tables, and the kinds of their columns."""

from __future__ import annotations

import gzip
import re
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, SupportsInt

import numpy as np
import pandas as pd
from pydantic import Field, PrivateAttr

from kmip_data.arrays import F32, Array
from kmip_data.errors import DamagedInput, OutOfResources, UsageError
from kmip_data.format.schema import Column, Schema
from kmip_data.format.splits import NO_PART, NODE_PARTS, PARTS, part_name
from kmip_data.pipelines.shared.checks import in_range
from kmip_data.pipelines.shared.own import OwnParams
from kmip_data.pipelines.shared.records import codes_of_masks
from kmip_data.wording import human_bytes

PART = "split"  #: column of parts
USUAL_LABELS = ("label", "y")
NO_CLASS = -1  #: of a node
_MISSING = ("nan", "NaN", "NA", "null", "None")  #: ids that were missing for who wrote a table
#: Names of arrays that choose the nodes of a part: flags, or positions (``idx``).
MASKS = {
    f"{name}_{kind}": (part_name(name), kind)
    for name in (*PARTS, "valid")
    for kind in ("mask", "masks", "idx")
}
_LARGEST = float(np.finfo(np.float32).max)
#: Least and greatest label of each task.
_BOUNDS = {"classification": (0, 65_535), "multilabel": (0, 1), "regression": (-_LARGEST, _LARGEST)}
_LOOKED_AT = 100  #: first rows, one of which must name a part in any other column of parts
_HEAD = 2**16
UNNAMED = "Unnamed: "  #: beginning of pandas's name for a column without one, such as its index
OTHER_FORMATS = "another format: read it with networkx, and write it with networkx.write_graphml"
_GZIP = b"\x1f\x8b"
_BLOCK = 2**20  #: bytes of text
_BYTES_OF_FIELD = 48  #: memory besides twice the text, which pandas takes
#: Beginnings of integers that would change when parsed: 001, +1, -0.
_ODD = re.compile(rb"[+0-](?<![\w.+-][+0-])(?:(?<=\+)|(?<=0)[0-9]|(?<=-)0(?!\.))")


class GraphParams(OwnParams):
    """Parameters that change the records."""

    label: tuple[str, ...] = Field(
        default=(),
        description="target column; repeat for several (default: label or y)",
    )
    task: Literal["classification", "multilabel", "regression"] | None = Field(
        default=None, description="meaning of the labels (default: as their values suggest)"
    )
    feature: tuple[str, ...] = Field(
        default=(),
        description="feature column; repeat for several; none: no features (default: all others)",
    )
    source: str = Field(default="source", description="column of edge sources")
    target: str = Field(default="target", description="column of edge targets")
    graph: str = Field(default="graph", description="column of graph ids")
    node: str = Field(
        default="node",
        description="column of node ids; none: nodes are numbered by row",
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
    level: str = "graph"  #: of the targets
    values: int = 0  #: of a graph's target, where rows of an array alone tell its level
    parts: list[str] = field(default_factory=list)  #: keys of columns of parts
    #: Unread array, column or file -> why it is not read, in order.
    ignored: dict[str, str] = field(default_factory=dict)
    memory: int | None = None  #: memory limit of reading in bytes; ``None``: no limit

    def claim(self, needed: int, purpose: str) -> None:
        """Raise ``OutOfResources`` if reading would exceed the memory limit."""
        if self.memory is not None and needed > self.memory:
            raise OutOfResources(
                f"{purpose} needs at least {human_bytes(needed)} of memory,"
                f" and {human_bytes(self.memory)} are allowed.",
                next=f"--memory {-(-needed // 2**30)}GiB or more, if the machine has as much",
            )

    def require(self, tables: Sequence[Table]) -> None:
        """Refuse column names in parameters that no table has."""
        for name in (*self.params.label, *self.params.feature):
            if name == "none" or any(name in table.names for table in tables):
                continue
            columns = [f"{table.name}: {', '.join(table.names) or 'none'}" for table in tables]
            raise DamagedInput(
                f"No table has a column {name!r}.",
                found="; ".join(columns)[:1_000],
                next="--set label= or --set feature=, and one of these columns",
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
        """Return an array of targets, one row for each graph or node, by its key."""
        y = y.copy()  # a view of a file until the next graph
        if level == "node" and y.dtype.kind == "i":
            y = np.where(y == NO_CLASS, np.nan, y)
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
        """Return the parts of nodes by key, (N,) or (N, folds), from the arrays named in :data:`MASKS`."""
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
        if not any(mask.any() for mask in masks):
            return {}
        folds = {mask.shape[1] for mask in masks if mask.ndim == 2} or {1}
        if len(folds) > 1:
            raise DamagedInput(f"{where}: masks of {sorted(folds)} splits.")
        codes = []
        for fold in range(max(folds)):
            columns = [mask[:, fold] if mask.ndim == 2 else mask for mask in masks]
            codes.append(codes_of_masks(columns, nodes, where))
        self.parts.append("node/masks")
        return {"node/masks": codes[0] if len(codes) == 1 else np.stack(codes, axis=1)}

    def target(self, targets: Sequence[Array]) -> tuple[Column, tuple[str, ...]]:
        """Return the target column of all graphs, and the texts of the classes."""
        names = self.names["y"]
        if len({y.shape[1:] for y in targets}) > 1:
            raise DamagedInput(f"Graphs differ in their number of labels {', '.join(names)}.")
        y = np.concatenate(targets)
        classes: tuple[str, ...] = ()
        if y.dtype == object and y.ndim == 1:
            classes = tuple(sorted({*y.astype(str)} - {""}))
        y = self._classes_of_one_hot(numbers(y, classes))
        known = y[~np.isnan(y)]
        low = known.min(initial=np.inf)
        high = known.max(initial=-np.inf)
        whole = bool((known == np.rint(known)).all())
        complete = known.size == y.size
        if not known.size:
            raise DamagedInput("All labels are missing.", found=", ".join(names))
        task = self.params.task or ("classification" if whole else "regression")
        if self.params.task is None and y.ndim > 1:
            task = "multilabel" if whole and low >= 0 and high <= 1 else "regression"
        least, most = _BOUNDS[task]
        if low < least or high > most or (task != "regression" and not whole):
            raise DamagedInput(
                f"The labels {', '.join(names)} are {low:g} to {high:g}, which does not fit {task}.",
                expected="one label, a text or an integer from 0; several of 0 and 1; or numbers",
                next="--set task=classification, multilabel or regression",
            )
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
            return column, ()
        if task == "multilabel":
            stored = "uint8" if complete else "float16"
            return replace(column, stored=stored, low=0, high=1, num_classes=len(names)), ()

        # Nodes of a single graph may lack a class: they are in no part.
        if y.ndim > 1 or (not complete and (self.level, len(targets)) != ("node", 1)):
            row = int(np.isnan(y).argmax())
            raise DamagedInput(
                f"The {self.level} {row} (from 0) has no label, and needs a class.",
                next="leave it out, or --set task=multilabel, whose labels may be missing",
            )
        column = replace(
            column,
            stored="uint16" if complete else "int32",
            presented="int64",
            low=0 if complete else NO_CLASS,
            high=int(high),
            num_classes=int(high) + 1,
            finite=True,
        )
        return column, classes

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


def numbers(targets: Array, classes: Sequence[str]) -> Array:
    """Return targets as numbers, by position in ``classes`` for texts, NaN if missing."""
    if targets.dtype == object and targets.ndim == 1:
        codes = {name: number for number, name in enumerate(classes)}
        return np.array([codes.get(str(text), np.nan) for text in targets], np.float64)
    try:
        return targets.astype(np.float64)
    except ValueError as error:
        raise DamagedInput(f"Several labels are numbers: {error}.") from error


@dataclass(frozen=True)
class Table:
    """Table of a file."""

    name: str
    frame: pd.DataFrame
    first: int = 0  #: line of the first row
    row: str = "line"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(map(str, self.frame))

    def fault(self, row: SupportsInt, problem: str, hint: str | None = None) -> DamagedInput:
        """Return the error for one row."""
        return DamagedInput(
            f"{self.name}, {self.row} {self.first + int(row)}: {problem}.", next=hint
        )

    def ids(self, name: str) -> Array:
        """Return a column of names or numbers without empty cells."""
        if name not in self.names:
            raise DamagedInput(
                f"{self.name} has no column {name!r}.",
                found=", ".join(self.names)[:500],
                next="--set source=, target=, graph=, label=, feature= or smiles= and one of these columns",
            )
        hint = "fill in the id, or remove the line"
        values = self.frame[name]
        empty = values.isna()
        if empty.any():
            raise self.fault(empty.argmax(), f"{name!r} is empty", hint)
        words = values.isin(_MISSING)
        if words.any() and values[~words].str.fullmatch("-?[0-9]+").all():
            row = words.argmax()
            raise self.fault(row, f"{name!r} is {values[row]!r} among integers", hint)
        return self.column(name)

    def column(self, name: str) -> Array:
        """Return a column: numbers, or texts as objects, empty if missing."""
        values: pd.Series = self.frame[name]
        if values.dtype.kind in "iufb":
            return values.to_numpy()
        return values.fillna("").to_numpy(object)

    def features(self, names: Sequence[str]) -> F32:
        """Return columns of finite numbers, (R, F)."""
        columns = [np.empty((len(self.frame), 0), np.float32)]
        for name in names:
            values = pd.to_numeric(self.frame[name], errors="coerce").to_numpy(np.float64)
            with np.errstate(over="ignore"):
                column = values.astype(np.float32)
            unfinished = ~np.isfinite(column)
            if unfinished.any():
                row = unfinished.argmax()
                fault = f"the feature {name!r} is {self.frame[name][row]}, not a finite number"
                raise self.fault(row, fault, "--set feature=COLUMN of numbers; repeat, or none")
            columns.append(column[:, None])
        return np.concatenate(columns, axis=1)

    def columns(self, level: str, ids: set[str], facts: ColumnFacts) -> dict[str, Array]:
        """Return targets, parts and features by key, (R, …) each; remaining columns are features."""
        values = {}
        labels = [name for name in facts.params.label or USUAL_LABELS if name in self.names]
        if "y" not in facts.names and labels:
            labels = labels if facts.params.label else labels[:1]
            facts.names["y"] = tuple(labels)
            facts.level = "node" if level == "node" else "graph"
            targets = [self.column(name) for name in labels]
            flat = len(labels) == 1 and facts.params.task != "multilabel"
            values[f"{facts.level}/y"] = targets[0] if flat else np.stack(targets, axis=1)

        masks = {}
        if level == "node":
            names = [name for name in self.names if MASKS.get(name, ("", "idx"))[1] != "idx"]
            masks = {name: self.column(name) for name in names}
            values |= facts.masks(masks, len(self.frame), self.name)
        features = []
        for name in self.names:
            if name in ids or name in masks or name in facts.names.get("y", ()):
                continue
            if name.startswith(UNNAMED) and name not in facts.params.feature:
                facts.ignored[f"a column without a name in {self.name}"] = "the index of pandas"
                continue
            codes = self._parts(name)
            if codes is not None:
                key = f"{'node' if level == 'node' else 'graph'}/{name}"
                values[key] = codes
                facts.parts.append(key)
            elif level != "graph" and (not facts.params.feature or name in facts.params.feature):
                features.append(name)
            else:
                facts.ignored[name] = "not among --set feature="
        if features:
            attribute = "x" if level == "node" else "edge_attr"
            values[f"{level}/{attribute}"] = self.features(features)
            facts.names[attribute] = tuple(features)
        return values

    def _parts(self, name: str) -> Array | None:
        """Return the codes of a column of parts, ``None`` for other columns."""
        texts = self.column(name)
        codes = [_code(text) for text in texts[:_LOOKED_AT]]
        if name != PART and not set(codes) & set(NODE_PARTS.values()):
            return None
        codes += [_code(text) for text in texts[_LOOKED_AT:]]
        if None in codes:
            row = codes.index(None)
            raise self.fault(row, f"{name!r} is {texts[row]!r}, not train, val or test")
        return np.array(codes, np.uint8)


def texts_of(ids: Array) -> Array:
    """Return ids as texts, in an object array: fixed-width texts would all be as long as the longest."""
    return ids if ids.dtype == object else ids.astype(str).astype(object)


def _code(text: object) -> int | None:
    return NO_PART if text == "" else NODE_PARTS.get(part_name(str(text).lower()) or "")


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


def _is_gzip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == _GZIP


def is_odd(path: Path, mark: str, facts: ColumnFacts) -> bool:
    """True if a text may contain integers such as 001, which are names; reserves its memory."""
    opened = gzip.open if _is_gzip(path) else open
    size = 0
    fields = 0
    odd = False
    end = b"\n"
    with opened(path, "rb") as file:
        while block := file.read(_BLOCK):
            size += len(block)
            fields += block.count(mark.encode()) + block.count(b"\n")
            facts.claim(2 * size + _BYTES_OF_FIELD * fields, path.name)
            # Include the previous character: a piece may begin inside 100.
            odd = odd or _ODD.search(end + block, 1) is not None
            end = block[-4:]
    return odd


def _as_written(texts: pd.Series) -> pd.Series:
    """Return ids as integers if all are written canonically, else as texts."""
    texts = texts.str.strip()
    try:
        whole = texts.astype("int64")
    except (ValueError, TypeError, OverflowError):
        return texts
    return whole if (whole.astype(str) == texts).all() else texts


def read_table(path: Path, facts: ColumnFacts, *, names: bool = True) -> Table:
    """Return a table; columns without names are 0, 1 and so on.

    Ids are int64 if all are written canonically, else texts: 001 is not 1, and 2⁶³ is not 2⁶³ + 1.
    A table without ``names`` has no ids. Raises ``DamagedInput`` for a truncated file, or a row
    with too many fields; ``OutOfResources`` if the memory limit does not suffice.
    """
    params = facts.params
    ids = {params.source, params.target, params.graph, params.node} if names else set()
    try:
        lines = head_of(path, _HEAD).decode("utf-8-sig", "replace").split("\n")
        comments = 0
        while lines[comments].startswith(("#", "%")) and comments < len(lines) - 1:
            comments += 1
        line = lines[comments]
        mark = next((mark for mark in "\t,; " if mark in line), ",")
        if names and all(pd.notna(pd.to_numeric(line.split(mark), errors="coerce"))):
            names = False
            ids = {"0", "1"}
        odd = is_odd(path, mark, facts)
        layout: dict[str, Any] = {
            "sep": mark,
            "header": 0 if names else None,
            "skiprows": comments,
            "compression": "gzip" if _is_gzip(path) else None,
            "encoding": "utf-8-sig",
            "keep_default_na": False,
            "na_values": [""],
            "skipinitialspace": True,
            "low_memory": False,
        }
        frame = pd.read_csv(path, **layout)
        if not isinstance(frame.index, pd.RangeIndex):
            raise ValueError("more fields than in the first line")  # noqa: TRY004, TRY301
        texts = [name for name in frame if str(name).strip() in ids]
        if not odd:
            texts = [name for name in texts if frame[name].dtype != np.int64]
        if texts:
            again = pd.read_csv(path, usecols=texts, dtype=str, **layout)
            for name in texts:
                frame[name] = _as_written(again[name])
        frame.columns = [str(name).strip() for name in frame]
        return Table(path.name, frame, comments + names + 1)
    except (OSError, ValueError, EOFError, zlib.error) as error:
        if "out of memory" in str(error):  # pandas reports it as a parser error
            raise MemoryError(f"{path.name}: {error}") from error
        raise DamagedInput(
            f"{path.name} cannot be read as a table.",
            expected="UTF-8 text, or gzip of it, with as many fields in each line",
            found=" ".join(str(error).split())[:300],
            next=OTHER_FORMATS,
        ) from error
