"""Records of a build as numpy arrays, read from its shards without PyTorch."""

from __future__ import annotations

import numpy as np

from kmip_data.arrays import Array
from kmip_data.builds.home import Build
from kmip_data.format.schema import EDGE_INDEX, NEIGHBOR, Column
from kmip_data.reading.store import shared_store

LEVELS = ("graph", "node", "edge")  #: rows of ``first_row`` and ``row_count`` of a store


class Records:
    """The records of a build in source order; items are dictionaries of arrays by attribute.

    It replaces :class:`~kmip_data.reading.dataset.ShardedDataset` where importing PyTorch would
    take too long, such as for drawing. Arrays have the presented dtypes.
    """

    def __init__(self, build: Build) -> None:
        self._store = shared_store(build)
        self.card = build.card
        self.schema = self._store.schema
        self.class_names = list(self.card.class_names)
        self.keys = self._store.keys()
        self.records = np.arange(len(self._store))
        self.nodes = self._store.row_count[1]

    def __len__(self) -> int:
        return len(self._store)

    def __getitem__(self, position: int) -> dict[str, Array]:
        """Return a record; ``DamagedInput`` if its values violate the schema."""
        store = self._store
        shard = store.shards[store.shard_of_graph[position]]
        values: dict[str, Array] = {}

        def read(key: str, level: str) -> Array:
            row = LEVELS.index(level)
            start = store.first_row[row, position]
            rows: Array = shard.read(key, start, start + store.row_count[row, position])
            return rows

        # 1. Read the columns, then slice them for the views.
        stored = {}
        for column in self.schema.columns:
            rows = read(column.key, column.level)
            if problem := column.problem(rows):
                raise store.damaged_record_error(position, f"{column.attribute} {problem}")
            stored[column.key] = values[column.attribute] = rows.astype(column.presented)
        for view in self.schema.views:
            values[view.attribute] = stored[view.source][:, view.start : view.stop]

        # 2. Read the edges: sources and targets, or a table of the sources of each node.
        nodes = int(self.nodes[position])
        if self.schema.edges == "index":
            edges = read(EDGE_INDEX, "edge").astype(np.int64)
        elif self.schema.edges == "neighbor":
            table = read(NEIGHBOR, "node").astype(np.int64)
            edges = np.stack([table, np.indices(table.shape)[0]]).reshape(2, -1)
        else:
            return values
        if edges.max(initial=-1) >= nodes:
            raise store.damaged_record_error(
                position, f"an edge leads out of its graph of {nodes:,} nodes"
            )
        return {**values, "edge_index": edges}

    def graph_column_values(self, column: Column) -> Array:
        """Return a graph column with one row per graph."""
        rows = [shard.read(column.key, 0, shard.graphs) for shard in self._store.shards]
        return np.concatenate(rows).astype(column.presented)
