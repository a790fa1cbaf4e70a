"""Batches of an epoch: a pure function of graph sizes, seed and epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from kmip_data.arrays import I64

Items = TypeVar("Items", I64, list[I64])
#: Part of an epoch on one number of ranks: this number, and the batches that each rank yielded.
Stretch = tuple[int, int]


@dataclass(frozen=True)
class BatchRule:
    """Rule that cuts an epoch into batches; see ``GraphLoader`` for the fields."""

    batch_size: int = 1
    shuffle: bool = False
    seed: int = 0
    max_nodes: int | None = None
    bucket: int | None = None
    #: applies on every rank; with ``max_nodes``, where no batch counts as full, it drops the last one
    drop_last: bool = False
    even: bool = False
    divide: bool = False  #: True if ``batch_size`` counts the graphs of all ranks together

    def batches(
        self,
        nodes: I64,
        epoch: int,
        rank: int = 0,
        world_size: int = 1,
        earlier: Sequence[Stretch] = (),
    ) -> list[I64]:
        """Return the positions of the graphs in each batch of ``rank``, given their sizes (G,).

        The batches of all ranks are disjoint and cover all graphs, except with ``drop_last`` or
        ``even``. The n-th batches of all ranks have similar sizes. Graphs of ``earlier`` stretches
        of the epoch are left out, so that it is continued on another number of ranks.
        """
        generator = np.random.Generator(np.random.PCG64([self.seed, epoch]))

        # 1. Order all graphs at random, or keep the order of the source.
        order = np.arange(len(nodes))
        if self.shuffle:
            order = generator.permutation(len(nodes))

        # 2. Sort by size within windows, so that the graphs of a batch are of similar size.
        if self.bucket is not None:
            for window in _cut_into_runs(order, self.bucket):
                by_size = np.argsort(nodes[window], kind="stable")
                window[:] = window[by_size]

        # 3. Leave out what earlier stretches yielded, and keep the order of the rest.
        if earlier:
            order = order[~np.isin(order, self._yielded(nodes, epoch, earlier))]

        # 4. Cut into groups of one batch per rank.
        if self.max_nodes is None:
            groups = self._groups_by_count(order, world_size)
        else:
            groups = self._groups_by_nodes(order, nodes, world_size, self.max_nodes)

        # 5. Sorted windows would train on small graphs first: shuffle the groups.
        if self.bucket is not None and self.shuffle:
            groups = [groups[i] for i in generator.permutation(len(groups))]
        return [group[rank] for group in groups if len(group[rank])]

    def _yielded(self, nodes: I64, epoch: int, stretches: Sequence[Stretch]) -> I64:
        """Return the positions of the graphs that all ranks yielded in stretches of an epoch."""
        positions = [np.empty(0, np.int64)]
        for number, (world_size, batches) in enumerate(stretches):
            for rank in range(world_size):
                of_rank = self.batches(nodes, epoch, rank, world_size, stretches[:number])
                positions += of_rank[:batches]
        return np.concatenate(positions)

    def _groups_by_count(self, order: I64, world_size: int) -> list[list[I64]]:
        """Cut into groups of one batch per rank; ranks take turns drawing the graphs of a group."""
        group_size = self.batch_size
        if not self.divide:
            group_size *= world_size
        groups = _cut_into_runs(order, group_size)
        if self.drop_last and groups and len(groups[-1]) < group_size:
            groups.pop()
        if self.even and groups and len(groups[-1]) < world_size:
            groups[-1] = np.resize(groups[-1], world_size)

        ranks = range(world_size)
        return [[group[rank::world_size] for rank in ranks] for group in groups]

    def _groups_by_nodes(
        self,
        order: I64,
        nodes: I64,
        world_size: int,
        max_nodes: int,
    ) -> list[list[I64]]:
        """Cut greedily by the number of nodes; consecutive batches go to different ranks."""
        batches = cut_by_nodes(order, nodes, max_nodes)
        if self.drop_last:
            full_groups = (len(batches) - 1) // world_size
            batches = batches[: full_groups * world_size]
        for position in range(-len(batches) % world_size):
            if self.even:
                batches.append(batches[position])
            else:
                batches.append(np.empty(0, np.int64))
        return _cut_into_runs(batches, world_size)


def _cut_into_runs(items: Items, size: int) -> list[Items]:
    """Cut into runs of ``size``; the last one may be shorter."""
    return [items[start : start + size] for start in range(0, len(items), size)]


def cut_by_nodes(order: I64, nodes: I64, max_nodes: int) -> list[I64]:
    """Cut ``order`` (G,) into maximal runs of at most ``max_nodes`` nodes, or of one larger graph."""
    cumulative_nodes = np.cumsum(nodes[order])
    batches = []
    start = 0
    nodes_before = 0
    while start < len(order):
        stop = int(np.searchsorted(cumulative_nodes, nodes_before + max_nodes, side="right"))
        stop = max(stop, start + 1)
        batches.append(order[start:stop])
        nodes_before = int(cumulative_nodes[stop - 1])
        start = stop
    return batches
