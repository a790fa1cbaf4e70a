"""Graphs of one large file as arrays on disk, one file an array, of which workers map any graph."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import numpy as np

from kmip_data.arrays import Array

_LAYOUT: Final = "layout.json"
_ENDS: Final = "ends.npy"


def write_pieces(folder: Path, graphs: Iterable[Mapping[str, Array]]) -> int:
    """Append the arrays of each graph to those of the graphs before; return the number of graphs.

    The first axis of an array counts its rows; dtypes and other axes are those of the first graph.
    One graph is in memory at a time.
    """
    folder.mkdir(parents=True)
    layout: dict[str, Any] = {}
    ends: list[list[int]] = []
    with ExitStack() as stack:
        files = {}
        for graph in graphs:
            if not ends:
                ends.append([0] * len(graph))
                for name, array in graph.items():
                    files[name] = stack.enter_context((folder / name).open("wb"))
                    layout[name] = (array.dtype.str, array.shape[1:])
            for name, array in graph.items():
                files[name].write(array.tobytes())
            rows = map(len, graph.values())
            ends.append([end + count for end, count in zip(ends[-1], rows, strict=True)])
    (folder / _LAYOUT).write_text(json.dumps(layout), "ascii")
    np.save(folder / _ENDS, np.array(ends, np.int64))
    return max(len(ends) - 1, 0)


class Pieces:
    """Graphs that :func:`write_pieces` wrote; ``pieces[row]`` has copies of the arrays of one."""

    def __init__(self, folder: Path) -> None:
        self._ends = np.load(folder / _ENDS, mmap_mode="r", allow_pickle=False)
        self._arrays: dict[str, Array] = {}
        layout = json.loads((folder / _LAYOUT).read_text("ascii"))
        for name, (dtype, shape) in layout.items():
            rows = np.empty(0, dtype)
            if (folder / name).stat().st_size:  # nothing can be mapped of an empty file
                rows = np.memmap(folder / name, dtype, mode="r")
            self._arrays[name] = rows.reshape(-1, *shape)

    def __getitem__(self, row: int) -> dict[str, Array]:
        begins, ends = self._ends[row : row + 2].tolist()
        graph = {}
        for (name, array), begin, end in zip(self._arrays.items(), begins, ends, strict=True):
            graph[name] = np.array(array[begin:end])
        return graph
