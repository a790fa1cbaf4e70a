"""Sizes and class counts of the parts of a split, counted from the shards of a finished build."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kmip_data.graphs.statistics import count_classes
from kmip_data.schema import Column, Schema
from kmip_data.shards.reader import Shard
from kmip_data.shards.splits import NODE_PARTS, read_split

if TYPE_CHECKING:
    from kmip_data.home import Build


@dataclass(frozen=True)
class PartStatistics:
    """One part of a split (or ``all`` records).

    Attributes
    ----------
    smallest, largest
        Nodes of the smallest and the largest graph; 0 without graphs.
    classes
        How often each class occurs, empty without classes.
    """

    split: str
    part: str
    graphs: int
    nodes: int
    edges: int
    smallest: int
    largest: int
    classes: list[int]


def part_statistics(build: Build) -> list[PartStatistics]:
    """Count all records, then each part of each split of ``build``.

    One pass over the label column; memory is one row of counts a graph.

    Raises
    ------
    DamagedInput
        A shard or a split file is damaged.
    """
    sizes, classes, labels = _count(build)
    found = [_part("", "all", sizes, classes)]
    for name, entry in build.card.splits.items():
        split = read_split(build.path / entry.file)
        if split.parts is not None:
            found += [_part(name, part, sizes[rows], classes[rows]) for part, rows in split.parts.items()]
        elif split.node_code is not None:
            found += _node_parts(name, split.node_code, labels, build)
    return found


def _count(build: Build) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[Any] | None]:
    """Nodes and edges ``(G, 2)``, classes ``(G, C)``, and the node labels of a build of one graph."""
    schema = build.card.schema_
    column = schema.labels if schema.labels is not None and schema.labels.num_classes else None
    sizes, classes = [], []
    labels: NDArray[Any] | None = None
    for entry in build.card.shards:
        shard = Shard(build.path / entry.file)
        sizes.append(np.stack([np.diff(shard.node_ptr), np.diff(shard.edge_ptr)], axis=1))
        if column is not None:
            rows = {"node": shard.node_ptr, "edge": shard.edge_ptr}.get(
                column.level, np.arange(shard.graphs + 1)
            )
            labels = shard.read(column.key, 0, int(rows[-1]))
            classes.append(_classes_of_graphs(labels, rows, column))
    if not sizes:
        return np.zeros((0, 2), np.int64), np.zeros((0, _width(schema)), np.int64), None
    counts = np.concatenate(classes) if classes else np.zeros((sum(map(len, sizes)), 0), np.int64)
    return np.concatenate(sizes), counts, labels


def _width(schema: Schema) -> int:
    return schema.labels.num_classes or 0 if schema.labels is not None else 0


def _classes_of_graphs(labels: NDArray[Any], rows: NDArray[np.int64], column: Column) -> NDArray[np.int64]:
    counts = np.zeros((len(rows) - 1, column.num_classes or 0), dtype=np.int64)
    for graph in range(len(counts)):
        counts[graph] = count_classes(labels[rows[graph] : rows[graph + 1]], column)
    return counts


def _part(split: str, part: str, sizes: NDArray[np.int64], classes: NDArray[np.int64]) -> PartStatistics:
    nodes, edges = (int(total) for total in sizes.sum(axis=0))
    smallest = int(sizes[:, 0].min()) if len(sizes) else 0
    largest = int(sizes[:, 0].max(initial=0))
    return PartStatistics(
        split, part, len(sizes), nodes, edges, smallest, largest, classes.sum(axis=0).tolist()
    )


def _node_parts(
    name: str, code: NDArray[np.uint8], labels: NDArray[Any] | None, build: Build
) -> list[PartStatistics]:
    """Parts of a split of nodes: their one graph is counted once in each, its edges in none."""
    column = build.card.schema_.labels
    found = []
    for part, value in NODE_PARTS.items():
        chosen = code == value
        nodes = int(np.count_nonzero(chosen))
        classes = (
            count_classes(labels[chosen], column).tolist()
            if labels is not None and column is not None
            else []
        )
        found.append(PartStatistics(name, part, 1, nodes, 0, nodes, nodes, classes))
    return found
