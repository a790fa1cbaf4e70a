"""All shards of a build as one table of graphs, with the address of every row."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kmip_data.arrays import I64
from kmip_data.builds.columns import ColumnsCard
from kmip_data.builds.home import COLUMNS, Build
from kmip_data.errors import DamagedInput
from kmip_data.files.reading import read_small
from kmip_data.format.card import SplitEntry
from kmip_data.format.reader import Shard
from kmip_data.format.schema import EDGE_INDEX, Schema
from kmip_data.format.splits import SplitFile, max_split_bytes, read_split

NODE: Final = 1  #: row of the node level in ``start`` and ``count``

#: Kind of rows: HDF5 path, bytes of a row, level of the row, and row 0 or 1 of ``edge/index``.
Rows = tuple[str, int, int, int]


def open_store(build: Build, added: Sequence[ColumnsCard] = ()) -> ShardStore:
    """Open the shards of a build and its added columns, once for all datasets over it that are in use."""
    columns = [(card.name, *(entry.sha256 for entry in card.files)) for card in added]
    # The digests of a card are not verified here: a folder that was replaced shows by its files.
    shards = [build.path / file for file in build.card.files]
    found = [path.stat() for path in shards if not build.waits and path.exists()]
    written = [(status.st_ino, status.st_mtime_ns) for status in found]
    digests = (entry.sha256 for entry in build.card.shards)
    key = (build.path, build.location, *columns, *digests, *written)
    store = _open_stores.get(key)
    if store is None:
        store = _open_stores[key] = ShardStore(build, added)
    return store


class ShardStore:
    """The shards of a finished build and its added columns, checked against the card when opened.

    ``schema`` has the columns of the build, then the added ones; ``shards`` are in the order of the card.
    ``shard`` int64 [G] is the number of the shard of each graph; ``start`` and ``count`` int64 [3, G] are its
    first row there and its number of rows on the graph, node and edge level. Raises ``DamagedInput`` if a
    shard is missing, damaged, or not the one that the card names.
    """

    def __init__(self, build: Build, added: Sequence[ColumnsCard] = ()) -> None:
        self.build = build
        self.schema = schema = build.card.schema_
        card = build.card
        self.shards = [
            self._open(entry.file, entry.graphs, card.key, schema) for entry in card.shards
        ]
        # HDF5 path of an added column -> its files.
        self._added: dict[str, list[Shard]] = {}
        for column in added:
            self._join(column)
        self._index()

    def _join(self, card: ColumnsCard) -> None:
        """Open the files of an added column, each with the graphs of its shard."""
        schema = card.schema_
        folder = f"{COLUMNS}/{card.name}"
        files = [
            self._open(f"{folder}/{entry.file}", entry.graphs, card.key, schema)
            for entry in card.files
        ]
        pairs = list(zip(files, self.shards, strict=False))
        same = all(np.array_equal(file.node_ptr, shard.node_ptr) for file, shard in pairs)
        if schema.edges != "none":  # a column of edges
            same &= all(np.array_equal(file.edge_ptr, shard.edge_ptr) for file, shard in pairs)
        if not same or len(files) != len(self.shards):
            what = f"{self.build.location}/{folder} does not go with the shards."
            raise self._damaged(
                what, "the graphs of each shard, with as many nodes and edges", "others"
            )
        taken = {column.key for column in self.schema.columns}
        if twice := [column.key for column in schema.columns if column.key in taken]:
            # Rows are found by key: two columns of one key would be read with each other's width.
            what = f"{self.build.location}/{folder} has a key that is another column's."
            raise self._damaged(what, "keys of its own", twice[0])
        self._added.update({column.key: files for column in schema.columns})
        self.schema = replace(self.schema, columns=(*self.schema.columns, *schema.columns))

    def _open(self, file: str, graphs: int, key: str, schema: Schema) -> Shard:
        shard = self.build.shard(file)
        # Rows are read by address, so a shard of another layout must be refused here.
        if shard.build_key != key or shard.schema != schema or shard.graphs != graphs:
            other = "" if shard.schema == schema else ", with other columns"
            what = f"{self.build.location}/{file} is not a shard of this build."
            found = f"{shard.graphs} graphs of build {shard.build_key}{other}"
            raise self._damaged(what, f"{graphs} graphs of build {key}", found)
        return shard

    def _index(self) -> None:
        sizes = [shard.graphs for shard in self.shards]
        self.shard: I64 = np.repeat(np.arange(len(sizes)), sizes)
        levels = [np.stack([np.arange(s.graphs + 1), s.node_ptr, s.edge_ptr]) for s in self.shards]
        self.start: I64 = np.concatenate([pointers[:, :-1] for pointers in levels], axis=1)
        self.count: I64 = np.concatenate([np.diff(pointers) for pointers in levels], axis=1)
        # Addresses are valid in this process and its forks; a pickled copy maps the files again.
        self._tables: dict[tuple[Rows, ...], tuple[I64, bool]] = {}

    def __len__(self) -> int:
        return int(self.shard.size)

    def __getstate__(self) -> dict[str, Any]:
        return {name: self.__dict__[name] for name in ("build", "shards", "schema", "_added")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._index()

    def keys(self) -> list[str]:
        """Return the upstream identity of each graph, in source order."""
        return [key for shard in self.shards for key in shard.keys]

    def read_split(self, entry: SplitEntry) -> SplitFile:
        """Read a split; ``DamagedInput`` if it is not the file that the card names, or of other records."""
        path = self.build.path / entry.file
        nodes = int(self.count[NODE].sum())
        records = nodes if len(self) == 1 else len(self)
        try:
            data = read_small(path, max_split_bytes(records))
            digest = hashlib.sha256(data).hexdigest()
        except OSError as error:
            digest = str(error)
        if digest != entry.sha256:
            what = f"{path} is not the split file that the card names."
            raise self._damaged(what, f"SHA-256 {entry.sha256}", digest)
        split = read_split(path, records=records)
        expected = "each record in one part at most"
        found = split.fault(len(self), nodes)
        if found is None and not split.digests.keys() <= entry.parts.keys():
            expected = f"parts {', '.join(entry.parts)}"
            found = ", ".join(split.digests)
        if found is not None:
            raise self._damaged(f"{path} does not fit the shards.", expected, found)
        return split

    def _damaged(self, what: str, expected: str, found: str) -> DamagedInput:
        return DamagedInput(what, expected=expected, found=found, next=self.build.remedy)

    def damaged_record(self, graph: int, what: str, expected: str, found: str) -> DamagedInput:
        """Return the error for values of a record that violate its schema."""
        file = f"{self.build.location}/{self.build.card.shards[self.shard[graph]].file}"
        return self._damaged(f"{file} is damaged: {what} (record {graph}).", expected, found)

    def sources(self, wanted: tuple[Rows, ...], graphs: I64) -> tuple[I64, I64, list[NDArray[Any]]]:
        """Return the addresses of F kinds of rows of B graphs, given by number in source order.

        They are int64 (F, B), of the first row of each graph; then come int64 (3, B), its number of rows on
        each level, and arrays to keep alive until the rows are copied: those that are not mapped.
        """
        table, mapped = self.table(wanted)
        address = table.take(graphs, axis=1)  # C order also for one graph: the kernels compile once
        held: list[NDArray[Any]] = []
        places = [] if mapped else np.argwhere(address == 0).tolist()
        parts = []
        for f, b in places:
            (key, _, level, _), graph = wanted[f], graphs[b]
            start = int(self.start[level, graph])
            count = int(self.count[level, graph])
            parts.append(
                (self._added.get(key, self.shards)[self.shard[graph]], key, start, start + count)
            )
        self.build.bring(parts)
        for (f, b), (shard, key, first, end) in zip(places, parts, strict=True):
            rows = shard.read(key, first, end)
            held.append(np.ascontiguousarray(rows[wanted[f][3]] if key == EDGE_INDEX else rows))
            address[f, b] = held[-1].ctypes.data
        return address, self.count.take(graphs, axis=1), held

    def table(self, wanted: tuple[Rows, ...]) -> tuple[I64, bool]:
        """Return the address of the rows of every graph, int64 (F, G), 0 if not mapped, and if all are."""
        if wanted not in self._tables:
            table = np.zeros((len(wanted), len(self)), np.int64)
            for f, (key, row_bytes, level, _) in enumerate(wanted):
                files = self._added.get(key, self.shards)
                mapped = np.array([_address(wanted[f], file) for file in files], np.int64)[
                    self.shard
                ]
                table[f] = np.where(mapped == 0, 0, mapped + self.start[level] * row_bytes)
            self._tables[wanted] = table, bool(table.all())
        return self._tables[wanted]


def _address(rows: Rows, shard: Shard) -> int:
    """Return the address of the first row in the map of a file; 0 if it is not mapped."""
    key, row_bytes, level, plane = rows
    if row_bytes * (shard.graphs, shard.nodes, shard.edges)[level] == 0:
        return 1  # any address but 0: no byte is copied from it
    view = shard.mapped(key)
    return (
        0
        if view is None
        else int(view.__array_interface__["data"][0]) + plane * row_bytes * shard.edges
    )


_open_stores: weakref.WeakValueDictionary[tuple[object, ...], ShardStore] = (
    weakref.WeakValueDictionary()
)
