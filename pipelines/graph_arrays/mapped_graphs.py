"""Arrays of many graphs on disk, memory-mapped by workers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

import numpy as np

from kmip_data.arrays import I64, Array

_LAYOUT = "layout.json"
_ENDS = "ends.npy"
_BATCH = 1_000  #: texts written at a time


def write_pieces(folder: Path, batches: Iterable[tuple[Mapping[str, Array], I64]]) -> int:
    """Append the arrays of each batch of graphs to those before; return the number of graphs.

    A batch has the rows of its graphs one after the other, and how many rows of each array a graph
    has, (graphs, arrays). Dtypes and other axes are the first batch's.
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
    finish_pieces(folder, layout, rows)
    return len(rows)


def write_texts(folder: Path, texts: Iterable[str]) -> int:
    """Write ASCII texts as pieces of one array, ``text``; return how many."""
    rest = iter(texts)

    def batches() -> Iterator[tuple[dict[str, Array], I64]]:
        while batch := list(islice(rest, _BATCH)):
            text = np.frombuffer("".join(batch).encode("ascii"), np.uint8)
            yield {"text": text}, np.array([[len(row)] for row in batch])

    return write_pieces(folder, batches())


def finish_pieces(
    folder: Path,
    layout: Mapping[str, tuple[str, Sequence[int]]],
    rows: I64,
) -> None:
    """Write the dtype and other axes of each array, and the number of its rows by graph: (G, arrays)."""
    (folder / _LAYOUT).write_text(json.dumps(layout), "ascii")
    first = np.zeros((1, rows.shape[1]), np.int64)
    np.save(folder / _ENDS, np.cumsum(np.concatenate([first, rows]), axis=0))


class Pieces:
    """Graphs that :func:`write_pieces` wrote; ``pieces[row]`` has views of the arrays of one."""

    def __init__(self, folder: Path) -> None:
        # A slice of an ndarray takes a twelfth of the time of one of a memmap.
        self._ends = np.asarray(np.load(folder / _ENDS, mmap_mode="r", allow_pickle=False))
        self._arrays: dict[str, Array] = {}
        layout = json.loads((folder / _LAYOUT).read_text("ascii"))
        for name, (dtype, shape) in layout.items():
            # Mapped once: a unit reads its graphs from the page cache.
            rows = np.empty(0, dtype)
            if (folder / name).stat().st_size:  # nothing can be mapped of an empty file
                rows = np.asarray(np.memmap(folder / name, dtype, mode="r"))
            self._arrays[name] = rows.reshape(-1, *shape)

    def __getitem__(self, row: int) -> dict[str, Array]:
        begins, ends = self._ends[row : row + 2].tolist()
        graph = {}
        for (name, array), begin, end in zip(self._arrays.items(), begins, ends, strict=True):
            graph[name] = array[begin:end]
        return graph
