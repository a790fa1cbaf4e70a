"""Graphs of large files as arrays on disk, of which workers map any graph, and pipelines of them."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar, TypeVar

import numpy as np

from kmip_data.arrays import Array
from kmip_data.format.writer import GraphRecord
from kmip_data.pipelines.base import (
    Params,
    Pipeline,
    Prepared,
    PublishedSplitParams,
    RawFolder,
    Unit,
)
from kmip_data.pipelines.shared.records import units_of_parts

P = TypeVar("P", bound=Params)

_LAYOUT = "layout.json"
_ENDS = "ends.npy"


def write_pieces(folder: Path, graphs: Iterable[Mapping[str, Array]]) -> int:
    """Append the arrays of each graph to those of the graphs before; return the number of graphs.

    The first axis of an array counts its rows; dtypes and other axes are those of the first graph.
    One graph is in memory at a time.
    """
    folder.mkdir(parents=True)
    layout = {}
    ends: list[list[int]] = []
    with ExitStack() as stack:
        files = {}
        # The first graph has the layout; the rows of each array are counted as they come.
        for graph in graphs:
            if not ends:
                ends.append([0] * len(graph))
                for name, array in graph.items():
                    files[name] = stack.enter_context((folder / name).open("wb"))
                    layout[name] = (array.dtype.str, array.shape[1:])
            for name, array in graph.items():
                files[name].write(np.ascontiguousarray(array).data)
            rows = map(len, graph.values())
            ends.append([end + count for end, count in zip(ends[-1], rows, strict=True)])
    (folder / _LAYOUT).write_text(json.dumps(layout), "ascii")
    np.save(folder / _ENDS, np.array(ends, np.int64))
    return max(len(ends) - 1, 0)


class Pieces:
    """Graphs that :func:`write_pieces` wrote; ``pieces[row]`` has views of the arrays of one."""

    def __init__(self, folder: Path) -> None:
        self._ends = np.load(folder / _ENDS, mmap_mode="r", allow_pickle=False)
        self._arrays: dict[str, Array] = {}
        layout = json.loads((folder / _LAYOUT).read_text("ascii"))
        for name, (dtype, shape) in layout.items():
            # Mapped once: a unit reads its graphs from the page cache.
            rows = np.empty(0, dtype)
            if (folder / name).stat().st_size:  # nothing can be mapped of an empty file
                # A slice of an ndarray takes a twelfth of the time of one of a memmap.
                rows = np.asarray(np.memmap(folder / name, dtype, mode="r"))
            self._arrays[name] = rows.reshape(-1, *shape)

    def __getitem__(self, row: int) -> dict[str, Array]:
        begins, ends = self._ends[row : row + 2].tolist()
        graph = {}
        for (name, array), begin, end in zip(self._arrays.items(), begins, ends, strict=True):
            graph[name] = array[begin:end]
        return graph


class PiecesPipeline(Pipeline[P, PublishedSplitParams]):
    """A dataset whose files must be read from end to end: ``prepare`` checks and stores each graph.

    The published parts are the split; a record is called ``PART/NUMBER``.
    """

    version = 1
    records_per_unit: ClassVar[int]
    digits: ClassVar[int] = 6  #: of the number in a key

    @abstractmethod
    def parts(self, raw: RawFolder) -> Iterator[tuple[str, Iterable[Mapping[str, Array]]]]:
        """Yield train, val and test, each with its graphs: arrays as they are stored, checked.

        Raises ``DamagedInput`` where a file or a graph in it is something else.
        """

    @abstractmethod
    def record(self, key: str, graph: Mapping[str, Array]) -> GraphRecord:
        """Return the record of a graph of :meth:`parts`."""

    def prepare(self, raw: RawFolder, params: P, workdir: Path) -> Prepared:
        """Check each graph and write its arrays behind those before, so that workers can seek."""
        sizes = {part: write_pieces(workdir / part, graphs) for part, graphs in self.parts(raw)}
        return Prepared(workdir, {"sizes": sizes})

    def units(self, prepared: Prepared, params: P) -> list[Unit]:
        """Deal the graphs of each part."""
        return units_of_parts(prepared.plan["sizes"], params, self.records_per_unit)

    def records(self, prepared: Prepared, unit: Unit, params: P) -> Iterator[GraphRecord]:
        """Yield the graphs of one unit in the order of the file."""
        part = unit.items["part"]
        pieces = Pieces(prepared.path / part)
        for row in unit.items["rows"]:
            yield self.record(f"{part}/{row:0{self.digits}d}", pieces[row])
