"""Datasets in the short form: columns and splits in the manifest, and a module that reads the files.

A family's module has ``read(raw) -> {"x": …, "y": …, "edge_index": …}``, arrays of one graph as the
files have them, and, where splits are published as masks, ``masks(raw, fold) -> [train, val,
test]``. It checks nothing that the manifest says: values are compared with the columns of
``[layout]`` before they are cast, and edges get their other direction after that.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, TypeVar, cast

import numpy as np
from pydantic import Field

from kmip_data.arrays import Array
from kmip_data.errors import DamagedInput, KmipDataError, UsageError
from kmip_data.format.schema import Column, Schema
from kmip_data.format.writer import GraphRecord
from kmip_data.manifest import ColumnForm, Manifest
from kmip_data.pipelines.base import Prepared, RawFolder, Records, Split, SplitParams, Unit
from kmip_data.pipelines.formats.npz import NpzFile
from kmip_data.pipelines.shared.checks import check_edges
from kmip_data.pipelines.shared.edges import undirected
from kmip_data.pipelines.shared.records import (
    OneGraphParams,
    OneGraphPipeline,
    class_column,
    codes_of_masks,
)

_FILE = "graph.npz"


class Raw:
    """Raw files of one dataset, by their names below a folder, for its reader."""

    def __init__(self, folder: Path, dataset: str, members: Sequence[str]) -> None:
        self.folder = folder
        self.members = members
        self.place = dataset  #: dataset, then the file that is read now, for messages

    def path(self, end: str) -> Path:
        """Return the member whose name ends with ``end``, and name it in errors from here on."""
        found = [member for member in self.members if member.endswith(end)]
        if len(found) != 1:
            raise UsageError(f"{self.place} has {len(found)} files that end with {end!r}.")
        self.place = found[0]
        return self.folder / found[0]

    def arrays(self, end: str) -> NpzFile:
        """Open an ``.npz`` member."""
        return NpzFile(self.path(end))

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Name the file that is read in errors that do not, and let none of Python's out."""
        try:
            yield
        except KmipDataError:
            raise
        except (
            ArithmeticError,
            AttributeError,
            EOFError,
            LookupError,
            OSError,
            TypeError,
            ValueError,
        ) as error:
            raise DamagedInput(
                f"{self.place} is not laid out as published.",
                found=f"{type(error).__name__}: {str(error)[:200]}",
            ) from error


FP = TypeVar("FP", bound="FoldParams")


class FoldParams(SplitParams):
    """Parameters of the split."""

    split: Literal["upstream", "stratified"] = Field(
        default="upstream",
        description="upstream: the published masks; stratified: drawn anew in parts of the same "
        "sizes, with equal shares of the classes",
    )
    fold: int = Field(
        default=0, ge=0, le=9_999, description="number of the published split, from 0"
    )


class ShortPipeline(OneGraphPipeline[OneGraphParams, FP]):
    """Pipeline of a dataset of one graph whose manifest has a ``[layout]``."""

    version = 1
    Params = OneGraphParams
    SplitParams = FoldParams

    def __init__(self, manifest: Manifest) -> None:
        super().__init__(manifest)
        self.sample_arguments = {"manifest": manifest}

    @property
    def _reader(self) -> ModuleType:
        return importlib.import_module(type(self).__module__)

    def schema(self, params: OneGraphParams) -> Schema:
        """The columns of the layout."""
        layout = self.manifest.layout
        return Schema(
            columns=tuple(column_of(key, form) for key, form in layout.columns.items()),
            edges="index",
            max_nodes=self.manifest.max_nodes,
            directed=not layout.undirected,
        )

    def prepare(self, raw: RawFolder, params: OneGraphParams, workdir: Path) -> Prepared:
        """Read and check the graph, and the masks of all splits."""
        files = self._files(raw.path)
        with files.guarded():
            graph = self._reader.read(files)
            arrays = fitted(graph, self.schema(params), files.place)
        for fold in range(self.manifest.layout.folds):
            self._codes(raw.path, fold, len(arrays["node/y"]))
        np.savez(workdir / _FILE, **arrays)  # type: ignore[arg-type]
        return Prepared(workdir)

    def records(
        self, prepared: Prepared, unit: Unit, params: OneGraphParams
    ) -> Iterator[GraphRecord]:
        """Yield the graph."""
        with np.load(prepared.path / _FILE, allow_pickle=False) as stored:
            columns = {key: stored[key] for key in self.manifest.layout.columns}
            yield GraphRecord(
                key=unit.name,
                num_nodes=len(columns["node/y"]),
                columns=columns,
                edge_index=stored["edge/index"],
            )

    def split(self, records: Records, params: FP, raw: Path | None) -> Split:
        """Read the published masks of a fold."""
        folds = self.manifest.layout.folds
        if params.fold >= folds:
            raise UsageError(
                f"{self.manifest.name} has {folds} published splits: there is no fold {params.fold}.",
                next=f"--set fold=0 to {folds - 1}",
            )
        codes = self._codes(self.raw_lists(raw), params.fold, int(records.nodes[0]))
        return Split(
            f"upstream-fold{params.fold}",
            "upstream",
            {"fold": params.fold},
            note=self.manifest.layout.split_note,
            node_code=codes,
        )

    def default_splits(self) -> list[FP]:
        """All published splits."""
        folds = range(self.manifest.layout.folds)
        return [cast("FP", self.SplitParams(fold=fold)) for fold in folds]

    def _files(self, folder: Path) -> Raw:
        members = [member.pattern for member in self.manifest.content.members]
        return Raw(folder, self.manifest.name, members)

    def _codes(self, folder: Path, fold: int, nodes: int) -> Array:
        raw = self._files(folder)
        with raw.guarded():
            masks = self._reader.masks(raw, fold)
            return codes_of_masks(masks, nodes, f"{raw.place}, fold {fold}")


def column_of(key: str, form: ColumnForm) -> Column:
    """Return the column of a key of the layout; one with classes is the label."""
    if form.classes is not None:
        return class_column(key, form.classes, form.doc)
    _, _, name = key.partition("/")
    values = form.model_dump(exclude={"classes"})
    return Column(key=key, attribute="edge_attr" if name == "attr" else name, **values)


def fitted(graph: Mapping[str, Any], schema: Schema, where: str) -> dict[str, Array]:
    """Return the arrays of a graph by key in the dtypes that are stored, checked before the cast.

    Raises ``DamagedInput`` where a column is missing, has another shape, a value beyond its bounds,
    one that is not finite or that its dtype does not hold, and where an edge leads out of the graph.
    """
    nodes = len(graph["y"])
    edges = np.asarray(graph["edge_index"])
    if edges.ndim != 2 or len(edges) != 2 or edges.dtype.kind not in "iu":
        raise DamagedInput(f"{where}: edges are {edges.dtype} {edges.shape}, not numbers (2, E).")
    check_edges(edges, nodes, where)
    if not schema.directed:
        edges = undirected(edges.T, nodes)

    rows = {"node": nodes, "edge": edges.shape[1], "graph": 1}
    arrays = {"edge/index": edges.astype(schema.index_dtype)}
    for column in schema.columns:
        shape = (rows[column.level], *column.shape)
        arrays[column.key] = fitted_column(
            np.asarray(graph[column.attribute]), column, shape, where
        )
    return arrays


def fitted_column(
    values: Array,
    column: Column,
    shape: tuple[int, ...],
    where: str,
) -> Array:
    """Return one column in the dtype that is stored; errors as of :func:`fitted`."""
    name = f"{where}: {column.attribute}"
    if values.shape != shape or values.dtype.kind not in "biuf":
        raise DamagedInput(f"{name} is {values.dtype} {values.shape}, not numbers {shape}.")
    if not values.size:
        return values.astype(column.stored)
    least = values.min()
    most = values.max()
    if column.finite and not (np.isfinite(least) and np.isfinite(most)):
        raise DamagedInput(f"{name} has values that are not finite.")
    beyond = column.most is not None and most > column.most
    if beyond or (column.low is not None and least < column.low):
        raise DamagedInput(f"{name} is {least} to {most}, not {column.low} to {column.most}.")

    stored = values.astype(column.stored)
    if not np.array_equal(stored, values, equal_nan=values.dtype.kind == "f"):
        raise DamagedInput(f"{name} has values that {column.stored} does not hold, up to {most}.")
    return stored
