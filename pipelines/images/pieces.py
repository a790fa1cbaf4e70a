"""Positions of each superpixel graph's arrays in the authors' pickles and the processed mirrors.

Both are far too large to load (the pickle of COCO-SP's train part is about 9 GB) and hold each array as plain
bytes, so one pass notes where, and workers then map the file and take any graph. Arrays that are not plain
bytes in the file (pickle protocols 0 to 2 write bytes as text) are written next to the index.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from kmip_data.errors import DamagedInput
from kmip_data.pipelines.formats.pickles import stream_list
from kmip_data.pipelines.formats.tensors import (
    NUMPY,
    PICKLED_TENSORS,
    PYG,
    PickledData,
    read_torch_file,
)

FEATURES: Final = 14  #: columns of x
EDGE_FEATURES: Final = 2
_ENTRY: Final = np.dtype(
    [("nodes", "<i8"), ("edges", "<i8"), ("offset", "<i8", (5,)), ("dtype", "S3", (5,))]
)  # offsets below 0: -1 - offset in the file next to the index
_AT_ONCE: Final = 4_096  #: entries written at a time


def index_pickle(path: Path, folder: Path, max_nodes: int) -> int:
    """Note where the graphs of a pickle lie, a list of ``(x, edge_attr, edge_index, y)``; return how many.

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
        found = read_torch_file(path, PYG, mapping=index.mapping)
        data, slices = (
            found[:2] if isinstance(found, tuple) and len(found) in {2, 3} else (None, None)
        )
        data = data.mapping if isinstance(data, PickledData) else data
        if not isinstance(data, Mapping) or not isinstance(slices, Mapping):
            raise index.wrong(
                f"{type(found).__name__} instead of the joined graphs and where each begins"
            )
        axes = {"x": 2, "edge_attr": 2, "edge_index": 2, "y": 1}
        arrays: list[Any] = [data.get(name) for name in axes]
        ends: list[Any] = [slices.get(name) for name in axes]
        for array, end, (name, count) in zip(
            arrays,
            ends,
            axes.items(),
            strict=True,
        ):
            # Each slice begins where the one before ends: from 0 to the number of rows.
            if not (
                isinstance(array, np.ndarray)
                and isinstance(end, np.ndarray)
                and (array.ndim, end.ndim, end.dtype.kind, end.shape)
                == (count, 1, "i", ends[0].shape)
                and end.size
                and (end[0], end[-1]) == (0, array.shape[name == "edge_index"])
                and (np.diff(end) >= 0).all()
            ):
                raise index.wrong(
                    f"{name} is no array of all graphs with slices that rise to its end"
                )
        x, edge_attr, edge_index, y = arrays
        for (x0, a0, e0, y0), (x1, a1, e1, y1) in itertools.pairwise(
            np.stack(ends, axis=1).tolist()
        ):
            index.add(x[x0:x1], edge_attr[a0:a1], edge_index[:, e0:e1], y[y0:y1])
        return index.count


class Piece(NamedTuple):
    """The arrays of one graph as they are in the file; views of it that are gone when it is closed."""

    x: NDArray[Any]  #: (N, 14) float
    edge_attr: NDArray[Any]  #: (E, 2) float
    source: NDArray[Any]  #: (E,) integer
    target: NDArray[Any]  #: (E,) integer
    y: NDArray[Any]  #: (N,) integer


def read_pieces(path: Path, folder: Path, rows: Sequence[int]) -> Iterator[Piece]:
    """Yield graphs of a file that was indexed into ``folder``."""
    index = np.load(folder / f"{path.stem}.index", mmap_mode="r", allow_pickle=False)
    maps = [_map(path), _map(folder / f"{path.stem}.bytes")]
    for row in rows:
        nodes, edges, offsets, dtypes = index[row].tolist()
        shapes = ((nodes, FEATURES), (edges, EDGE_FEATURES), (edges,), (edges,), (nodes,))
        views = (
            np.ndarray(shape, dtype.decode(), maps[int(offset < 0)], int(max(offset, -1 - offset)))
            for shape, offset, dtype in zip(
                shapes,
                offsets,
                dtypes,
                strict=True,
            )
        )
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
        self._parts: list[NDArray[Any]] = []
        self._spilt = (folder / f"{path.stem}.bytes").open("wb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._spilt.close()
        if kind is None:
            parts = [*self._parts, np.array(self._entries, _ENTRY)]
            with (self.folder / f"{self.path.stem}.index").open("wb") as file:
                np.save(file, np.concatenate(parts), allow_pickle=False)

    def wrong(self, found: str) -> DamagedInput:
        return DamagedInput(
            f"{self.path.name}, graph {self.count}: not a graph of superpixels: {found}."
        )

    def add(
        self,
        x: Any,
        edge_attr: Any,
        edge_index: Any,
        y: Any,
    ) -> None:
        """Take the next graph: types and shapes are checked here, values by who reads them."""
        for name, array, kinds, axes in (
            ("x", x, "f", 2),
            ("edge_attr", edge_attr, "f", 2),
            ("edge_index", edge_index, "iu", 2),
            ("y", y, "iu", 1),
        ):
            if (
                not isinstance(array, np.ndarray)
                or array.dtype.kind not in kinds
                or array.ndim != axes
            ):
                found = (
                    f"{getattr(array, 'dtype', type(array).__name__)} {getattr(array, 'shape', '')}"
                )
                kind = "floats" if kinds == "f" else "whole numbers"
                raise self.wrong(f"{name} is {found}, not {kind} with {axes} axes")
        nodes = len(x)
        edges = edge_index.shape[1]
        shapes = [array.shape for array in (x, edge_attr, edge_index, y)]
        expected = [(nodes, FEATURES), (edges, EDGE_FEATURES), (2, edges), (nodes,)]
        if shapes != expected or not 1 <= nodes <= self.max_nodes:
            most = f"at most {self.max_nodes} nodes"
            raise self.wrong(
                f"x, edge_attr, edge_index, y of shapes {shapes}, not {expected} of {most}"
            )
        arrays = (x, edge_attr, edge_index[0], edge_index[1], y)
        self._entries.append(
            (
                nodes,
                edges,
                [self._place(array) for array in arrays],
                [array.dtype.str for array in arrays],
            )
        )
        self.count += 1
        if len(self._entries) == _AT_ONCE:
            self._parts.append(np.array(self._entries, _ENTRY))
            self._entries.clear()

    def _place(self, array: NDArray[Any]) -> int:
        """Return where the bytes of an array lie in the file, or put them next to the index."""
        address = array.__array_interface__["data"][0]
        if (
            self._first <= address
            and address + array.nbytes <= self._last
            and array.flags.c_contiguous
        ):
            return int(address - self._first)
        at = self._spilt.tell()
        self._spilt.write(array.tobytes())
        return -1 - at

    def forget(self, end: int) -> None:
        """Take the pages before ``end`` out of memory: they are read once."""
        with contextlib.suppress(AttributeError, OSError):  # not on every system
            self.mapping.madvise(mmap.MADV_DONTNEED, 0, end - end % mmap.PAGESIZE)
