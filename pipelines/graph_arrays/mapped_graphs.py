"""Arrays of many graphs on disk, which workers map into memory."""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

import numpy as np

from kmip_data.arrays import I64, Array

_DTYPES_FILE = "layout.json"
_OFFSETS_FILE = "ends"
_STRINGS_PER_BATCH = 1_000


def write_graph_arrays(folder: Path, batches: Iterable[tuple[Mapping[str, Array], I64]]) -> int:
    """Write one file per array, batch after batch; return the number of graphs.

    A batch has the concatenated rows of its graphs, by array, and the number of rows of each graph
    in each array, (graphs, arrays). The first batch decides dtypes and all other axes.
    """
    folder.mkdir(parents=True)
    layout = {}
    counts: list[I64] = []
    with ExitStack() as stack:
        files = {}
        for arrays, rows in batches:
            for name, array in arrays.items():
                if name not in files:
                    files[name] = stack.enter_context((folder / name).open("wb"))
                    layout[name] = (array.dtype.str, array.shape[1:])
                files[name].write(np.ascontiguousarray(array).data)
            counts.append(rows)
    rows = np.concatenate(counts or [np.zeros((0, 0), np.int64)])
    write_array_index(folder, layout, rows)
    return len(rows)


def write_strings(folder: Path, strings: Iterable[str]) -> int:
    """Write ASCII strings as graphs with one array, ``text``; return their number."""
    remaining = iter(strings)

    def batches() -> Iterator[tuple[dict[str, Array], I64]]:
        while batch := list(islice(remaining, _STRINGS_PER_BATCH)):
            text = np.frombuffer("".join(batch).encode("ascii"), np.uint8)
            yield {"text": text}, np.array([[len(string)] for string in batch])

    return write_graph_arrays(folder, batches())


def write_array_index(
    folder: Path,
    layout: Mapping[str, tuple[str, Sequence[int]]],
    rows: I64,
) -> None:
    """Write dtype and trailing axes of each array, and the number of rows per graph, (G, arrays)."""
    (folder / _DTYPES_FILE).write_text(json.dumps(layout), "ascii")
    first = np.zeros((1, rows.shape[1]), np.int64)
    np.cumsum(np.concatenate([first, rows]), axis=0).astype("<i8").tofile(folder / _OFFSETS_FILE)


class MappedGraphs:
    """Graphs written by :func:`write_graph_arrays`; ``graphs[i]`` maps array names to views."""

    def __init__(self, folder: Path) -> None:
        layout = json.loads((folder / _DTYPES_FILE).read_text("ascii"))
        self._offsets = _map_array(folder / _OFFSETS_FILE, "<i8").reshape(-1, len(layout))
        self._arrays: dict[str, Array] = {}
        for column, (name, (dtype, shape)) in enumerate(layout.items()):
            # Map each file once: a unit reads its graphs from the page cache.
            rows = _map_array(folder / name, dtype)
            self._arrays[name] = rows.reshape(self._offsets[-1, column], *shape)

    def __getitem__(self, row: int) -> dict[str, Array]:
        begins, ends = self._offsets[row : row + 2].tolist()
        graph = {}
        for (name, array), begin, end in zip(self._arrays.items(), begins, ends, strict=True):
            graph[name] = array[begin:end]
        return graph

    def join(self, start: int, stop: int) -> tuple[dict[str, Array], dict[str, I64]]:
        """Return the joined rows of graphs ``start`` to ``stop``, and the rows of each, by array."""
        offsets = self._offsets[start : stop + 1]
        joined = {}
        counts = {}
        for column, (name, array) in enumerate(self._arrays.items()):
            begin, end = offsets[[0, -1], column].tolist()
            joined[name] = array[begin:end]
            counts[name] = np.diff(offsets[:, column])
        return joined, counts


def _map_array(path: Path, dtype: str) -> Array:
    """Return the numbers in a file, (n,). ``np.memmap`` takes several times as long to open it."""
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:  # an empty file cannot be mapped
            return np.empty(0, dtype)
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), dtype)
