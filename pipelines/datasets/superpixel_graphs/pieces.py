"""Positions of each superpixel graph's arrays in the authors' pickles and the processed mirrors.

Both are far too large to load (the pickle of COCO-SP's train part is about 9 GB) and hold each
array as plain bytes, so one pass notes where, and workers then map the file and take any graph.
Arrays that are not plain bytes in the file (pickle protocols 0 to 2 write bytes as text) are
written next to the index.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from kmip_data.arrays import Array
from kmip_data.errors import DamagedInput
from kmip_data.pipelines.formats.pickles import stream_list
from kmip_data.pipelines.formats.tensors import (
    NUMPY,
    PICKLED_TENSORS,
    PYG,
    PickledData,
    read_torch_file,
)
from kmip_data.pipelines.shared.checks import array_of

FEATURES = 14  #: columns of x
EDGE_FEATURES = 2
#: Offsets below 0: ``-1 - offset`` in the file next to the index.
_ENTRY = np.dtype(
    [
        ("nodes", "<i8"),
        ("edges", "<i8"),
        ("offset", "<i8", (5,)),
        ("dtype", "S3", (5,)),
    ]
)
_AT_ONCE = 4_096  #: entries written at a time


def index_pickle(path: Path, folder: Path, max_nodes: int) -> int:
    """Note where the graphs of a pickle lie, a list of ``(x, edge_attr, edge_index, y)``.

    Returns the number of graphs.

    ``folder`` gets ``<part>.index`` and ``<part>.bytes``.
    """
    with _Index(path, folder, max_nodes) as index:
        for graphs, end in stream_list(index.mapping, {**NUMPY, **PICKLED_TENSORS}, name=path.name):
            for graph in graphs:
                if not isinstance(graph, tuple | list) or len(graph) != 4:
                    raise index.wrong(f"{type(graph).__name__} instead of four arrays")
                index.add(*graph)
            index.forget(end)
        return index.count


def index_torch_file(path: Path, folder: Path, max_nodes: int) -> int:
    """Note where the graphs of a processed file lie, ``(Data, slices)`` of PyTorch Geometric.

    As :func:`index_pickle`; no class but ``Data`` and those of its storage is accepted.
    """
    with _Index(path, folder, max_nodes) as index:
        content = read_torch_file(path, PYG, mapping=index.mapping)
        data: Any = None
        slices: Any = None
        if isinstance(content, tuple) and len(content) in {2, 3}:
            data, slices = content[:2]
        if isinstance(data, PickledData):
            data = data.mapping
        if not isinstance(data, Mapping) or not isinstance(slices, Mapping):
            raise index.wrong(
                f"{type(content).__name__} instead of the joined graphs and where each begins"
            )

        axes = {"x": 2, "edge_attr": 2, "edge_index": 2, "y": 1}
        arrays: dict[str, Any] = {name: data.get(name) for name in axes}
        ends: dict[str, Any] = {name: slices.get(name) for name in axes}
        shape = getattr(ends["x"], "shape", None)
        for name, count in axes.items():
            rows_axis = 1 if name == "edge_index" else 0
            if not _fit(arrays[name], ends[name], count, rows_axis, shape):
                raise index.wrong(
                    f"{name} is no array of all graphs with slices that rise to its end"
                )

        x, edge_attr, edge_index, y = (arrays[name] for name in axes)
        bounds = np.stack([ends[name] for name in axes], axis=1).tolist()
        for (x0, a0, e0, y0), (x1, a1, e1, y1) in itertools.pairwise(bounds):
            # Views of the mapped file: only their addresses are noted.
            index.add(x[x0:x1], edge_attr[a0:a1], edge_index[:, e0:e1], y[y0:y1])
        return index.count


def _fit(
    array: Any,
    end: Any,
    axes: int,
    rows_axis: int,
    shape: Any,
) -> bool:
    """True if each slice begins where the one before ends: from 0 to the number of rows."""
    if not isinstance(array, np.ndarray) or not isinstance(end, np.ndarray):
        return False
    if array.ndim != axes or end.ndim != 1 or end.dtype.kind != "i" or end.shape != shape:
        return False
    if not end.size or end[0] != 0 or end[-1] != array.shape[rows_axis]:
        return False
    return bool((np.diff(end) >= 0).all())


class Piece(NamedTuple):
    """The arrays of one graph as they are in the file.

    They are views of it, which are gone when it is closed.
    """

    x: Array  #: (N, 14) float
    edge_attr: Array  #: (E, 2) float
    source: Array  #: (E,) integer
    target: Array  #: (E,) integer
    y: Array  #: (N,) integer


def read_pieces(path: Path, folder: Path, rows: Sequence[int]) -> Iterator[Piece]:
    """Yield graphs of a file that was indexed into ``folder``."""
    index = np.load(folder / f"{path.stem}.index", mmap_mode="r", allow_pickle=False)
    file = _map(path)
    spilt = _map(folder / f"{path.stem}.bytes")
    for row in rows:
        nodes, edges, offsets, dtypes = index[row].tolist()
        shapes = ((nodes, FEATURES), (edges, EDGE_FEATURES), (edges,), (edges,), (nodes,))
        views = []
        for shape, offset, dtype in zip(shapes, offsets, dtypes, strict=True):
            buffer = file
            if offset < 0:
                buffer = spilt
                offset = -1 - offset  # noqa: PLW2901 -- see _ENTRY
            views.append(np.ndarray(shape, dtype.decode(), buffer, offset))
        yield Piece(*views)


def _map(path: Path) -> mmap.mmap | bytes:
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if path.stat().st_size else b""


class _Index:
    """The index of one file that is being written."""

    def __init__(self, path: Path, folder: Path, max_nodes: int) -> None:
        self.path = path
        self.folder = folder
        self.max_nodes = max_nodes
        self.count = 0
        if not path.stat().st_size:
            raise self.wrong("the file is empty")
        self.mapping: Any = _map(path)
        whole = np.frombuffer(self.mapping, np.uint8)
        self._first = whole.__array_interface__["data"][0]
        self._last = self._first + len(whole)
        self._entries: list[Any] = []
        self._parts: list[Array] = []
        self._spilt = (folder / f"{path.stem}.bytes").open("wb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._spilt.close()
        if kind is None:
            parts = [*self._parts, np.array(self._entries, _ENTRY)]
            with (self.folder / f"{self.path.stem}.index").open("wb") as file:
                np.save(file, np.concatenate(parts), allow_pickle=False)

    def wrong(self, fault: str) -> DamagedInput:
        """Return the error of the graph that is looked at."""
        return DamagedInput(f"{self._where()}: not a graph of superpixels: {fault}.")

    def _where(self) -> str:
        return f"{self.path.name}, graph {self.count}"

    def add(
        self,
        x: Any,
        edge_attr: Any,
        edge_index: Any,
        y: Any,
    ) -> None:
        """Take the next graph: types and shapes are checked here, values by who reads them."""
        graph = {"x": x, "edge_attr": edge_attr, "edge_index": edge_index, "y": y}
        where = self._where()
        nodes = len(array_of(graph, "x", "f", (None, FEATURES), where))
        edges = len(array_of(graph, "edge_attr", "f", (None, EDGE_FEATURES), where))
        array_of(graph, "edge_index", "iu", (2, edges), where)
        array_of(graph, "y", "iu", (nodes,), where)
        if not 1 <= nodes <= self.max_nodes:
            raise self.wrong(f"{nodes} nodes, not 1 to {self.max_nodes}")

        # Sources and targets apart: each is one run of bytes.
        arrays = (x, edge_attr, edge_index[0], edge_index[1], y)
        offsets = [self._offset(array) for array in arrays]
        dtypes = [array.dtype.str for array in arrays]
        self._entries.append((nodes, edges, offsets, dtypes))
        self.count += 1
        if len(self._entries) == _AT_ONCE:
            self._parts.append(np.array(self._entries, _ENTRY))
            self._entries.clear()

    def _offset(self, array: Array) -> int:
        """Return where the bytes of an array lie in the file, or put them next to the index."""
        first = array.__array_interface__["data"][0]
        # A view of the mapped file needs no copy; others, such as numbers in text, do.
        inside = self._first <= first and first + array.nbytes <= self._last
        if inside and array.flags.c_contiguous:
            return int(first - self._first)
        position = self._spilt.tell()
        self._spilt.write(array.tobytes())
        return -1 - position

    def forget(self, end: int) -> None:
        """Take the pages before ``end`` out of memory: they are read once."""
        with contextlib.suppress(AttributeError, OSError):  # not on every system
            self.mapping.madvise(mmap.MADV_DONTNEED, 0, end - end % mmap.PAGESIZE)
