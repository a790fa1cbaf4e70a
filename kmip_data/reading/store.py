"""The shards of a build as one table of graphs, with the memory address of every row."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from kmip_data.arrays import I64, Array
from kmip_data.builds.added_columns import AddedColumnCard
from kmip_data.builds.home import COLUMNS_FOLDER, Build
from kmip_data.errors import DamagedInput
from kmip_data.format.card import FileEntry, SplitEntry
from kmip_data.format.crc_checks import file_identity
from kmip_data.format.reader import Shard
from kmip_data.format.schema import Schema
from kmip_data.format.split_files import SplitFile, read_split

NODE = 1  #: row of the node level in ``first_row`` and ``row_count``


class RowSource(NamedTuple):
    """A stored column whose rows are copied."""

    key: str  #: HDF5 path
    row_bytes: int
    level: int
    plane: int = 0  #: row 0 (sources) or 1 (targets) of ``edge/index``


def shared_store(build: Build, added: Sequence[AddedColumnCard] = ()) -> ShardStore:
    """Open the shards of a build and its added columns, shared by all open datasets over them."""
    key: list[object] = [build.path]
    key += [(card.name, *(entry.sha256 for entry in card.files)) for card in added]
    for name, digests in build.card.files.items():
        key.append(digests.sha256)
        path = build.path / name
        # The digests of a card are not verified here: file identities reveal a replaced folder.
        if path.exists():
            key.append(file_identity(path.stat()))

    store = _open_stores.get(tuple(key))
    if store is None:
        store = ShardStore(build, added)
        _open_stores[tuple(key)] = store
    return store


class ShardStore:
    """The shards of a finished build and its added columns, checked against the card when opened.

    ``schema`` has the columns of the build, then the added ones; ``shards`` are in the order of the
    card. ``shard_of_graph``, int64 [G], is the index of each graph's shard. ``first_row`` and
    ``row_count``, int64 [3, G], are each graph's first row in its shard and its number of rows on
    the graph, node and edge level. Raises ``DamagedInput`` if a shard is missing, damaged, or
    differs from the card.
    """

    def __init__(self, build: Build, added: Sequence[AddedColumnCard] = ()) -> None:
        self.build = build
        card = build.card
        self.schema = card.schema_
        self.shards = [
            self._open_shard(entry.file, entry, card.key, self.schema) for entry in card.shards
        ]
        # HDF5 path of an added column -> its files, one per shard.
        self._added: dict[str, list[Shard]] = {}
        for column in added:
            self._join_added_column(column)
        self._index_graphs()

    def _join_added_column(self, card: AddedColumnCard) -> None:
        """Open the files of an added column and check that they match the shards."""
        schema = card.schema_
        folder = f"{COLUMNS_FOLDER}/{card.name}"
        files = [
            self._open_shard(f"{folder}/{entry.file}", entry, card.key, schema)
            for entry in card.files
        ]

        # 1. Every graph has the same number of nodes and, for a column of edges, of edges.
        matches = len(files) == len(self.shards)
        for file, shard in zip(files, self.shards, strict=False):
            matches &= np.array_equal(file.node_ptr, shard.node_ptr)
            if schema.edges != "none":
                matches &= np.array_equal(file.edge_ptr, shard.edge_ptr)
        if not matches:
            raise self._damaged_error(
                f"{self.build.path}/{folder} does not match the shards.",
                "graphs with the shards' numbers of nodes and edges",
                "other graphs",
            )

        # 2. Rows are looked up by key: columns with the same key would be read with the wrong width.
        existing_keys = {column.key for column in self.schema.columns}
        for column in schema.columns:
            if column.key in existing_keys:
                raise self._damaged_error(
                    f"{self.build.path}/{folder} has the key of another column.",
                    "unique keys",
                    column.key,
                )
            self._added[column.key] = files
        self.schema = replace(self.schema, columns=self.schema.columns + schema.columns)

    def _open_shard(self, file: str, entry: FileEntry, key: str, schema: Schema) -> Shard:
        shard = self.build.open_shard(file, entry)
        graphs = entry.graphs
        # Rows are read by address, so a shard with another layout must be refused here.
        if shard.build_key == key and shard.schema == schema and shard.graphs == graphs:
            return shard

        contents = f"{shard.graphs} graphs of build {shard.build_key}"
        if shard.schema != schema:
            contents += ", with other columns"
        raise self._damaged_error(
            f"{self.build.path}/{file} is not a shard of this build.",
            f"{graphs} graphs of build {key}",
            contents,
        )

    def _index_graphs(self) -> None:
        graphs_per_shard = [shard.graphs for shard in self.shards]
        self.shard_of_graph: I64 = np.repeat(np.arange(len(self.shards)), graphs_per_shard)

        pointers = []
        for shard in self.shards:
            graph_ptr = np.arange(shard.graphs + 1)
            pointers.append(np.stack([graph_ptr, shard.node_ptr, shard.edge_ptr]))
        self.first_row: I64 = np.concatenate([rows[:, :-1] for rows in pointers], axis=1)
        self.row_count: I64 = np.concatenate(list(map(np.diff, pointers)), axis=1)

        # Addresses are valid only in this process and its forks; a pickled copy remaps the files.
        self._address_tables: dict[tuple[RowSource, ...], I64] = {}

    def __len__(self) -> int:
        return int(self.shard_of_graph.size)

    def __getstate__(self) -> dict[str, object]:
        return {
            "build": self.build,
            "shards": self.shards,
            "schema": self.schema,
            "_added": self._added,
        }

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._index_graphs()

    def keys(self) -> list[str]:
        """Return the upstream key of each graph, in source order."""
        return [key for shard in self.shards for key in shard.keys]

    def read_split(self, entry: SplitEntry) -> SplitFile:
        """Read a split from its file; ``DamagedInput`` if it does not match the card or the shards."""
        path = self.build.path / entry.file
        nodes = int(self.row_count[NODE].sum())
        records = nodes if len(self) == 1 else len(self)

        split = read_split(path, records=records, sha256=entry.sha256, remedy=self.build.remedy)
        expected = "each record in at most one part"
        problem = split.problem(len(self), nodes)
        if problem is None and not split.digests.keys() <= entry.parts.keys():
            expected = f"parts {', '.join(entry.parts)}"
            problem = ", ".join(split.digests)
        if problem is not None:
            raise self._damaged_error(f"{path} does not match the shards.", expected, problem)
        return split

    def _damaged_error(self, problem: str, expected: str, contents: str) -> DamagedInput:
        return DamagedInput(
            problem,
            expected=expected,
            found=contents,
            steps=self.build.remedy,
        )

    def damaged_record_error(self, graph: int, problem: str) -> DamagedInput:
        """Return the error for a record whose values violate the schema."""
        shard = self.build.card.shards[self.shard_of_graph[graph]]
        return DamagedInput(
            f"{self.build.path}/{shard.file} is damaged: {problem} (record {graph}).",
            steps=self.build.remedy,
        )

    def writable_rows(self, key: str, level: int, graph: int) -> Array:
        """Map the rows of a graph's column privately, so that they may be written to."""
        files = self._added.get(key, self.shards)
        column = files[self.shard_of_graph[graph]].private_view(key)
        start = self.first_row[level, graph]
        rows: Array = column[start : start + self.row_count[level, graph]]
        return rows

    def address_table(self, sources: tuple[RowSource, ...]) -> I64:
        """Return the address of every graph's rows, int64 (F, G)."""
        table = self._address_tables.get(sources)
        if table is None:
            table = np.zeros((len(sources), len(self)), np.int64)
            for field, source in enumerate(sources):
                files = self._added.get(source.key, self.shards)
                first_rows = [_first_row_address(source, file) for file in files]
                address = np.array(first_rows, np.int64)[self.shard_of_graph]
                table[field] = address + self.first_row[source.level] * source.row_bytes
            self._address_tables[sources] = table
        return table


def _first_row_address(source: RowSource, shard: Shard) -> int:
    """Return the address of the first row in a mapped file."""
    rows = (shard.graphs, shard.nodes, shard.edges)[source.level]
    if source.row_bytes * rows == 0:
        return 0  # no byte is copied from it
    address: int = shard.mapped_view(source.key).__array_interface__["data"][0]
    return address + source.plane * source.row_bytes * shard.edges


_open_stores: weakref.WeakValueDictionary[tuple[object, ...], ShardStore] = (
    weakref.WeakValueDictionary()
)
