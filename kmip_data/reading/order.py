"""Order of the graphs in the batches of an epoch: a pure function of sizes, seed and epoch."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from kmip_data.arrays import I64


@dataclass(frozen=True)
class BatchRule:
    """Rule that cuts an epoch into batches; the arguments are those of ``GraphLoader``."""

    batch_size: int = 1
    shuffle: bool = False
    seed: int = 0
    max_nodes: int | None = None
    bucket: int | None = None
    drop_last: bool = (
        False  #: on every rank; with ``max_nodes`` no batch is full, so always the last one
    )
    even: bool = False
    divide: bool = False  #: True if ``batch_size`` counts the graphs of all ranks together

    def batches(self, nodes: I64, epoch: int, rank: int = 0, world_size: int = 1) -> list[I64]:
        """Return the positions of the graphs, of sizes ``nodes`` (G,), in each batch of ``rank``.

        The batches of all ranks are disjoint and cover all graphs, except for ``drop_last`` and ``even``.
        Batches at the same position have about the same size on all ranks.
        """
        generator = np.random.Generator(np.random.PCG64([self.seed, epoch]))
        order = generator.permutation(len(nodes)) if self.shuffle else np.arange(len(nodes))
        if self.bucket is not None:
            windows = (
                order[start : start + self.bucket] for start in range(0, len(order), self.bucket)
            )
            order = np.concatenate(
                [w[np.argsort(nodes[w], kind="stable")] for w in windows] or [order]
            )
        if self.max_nodes is None:
            groups = self._by_count(order, world_size)
        else:
            groups = self._by_nodes(order, nodes, world_size, self.max_nodes)
        if self.bucket is not None and self.shuffle:
            groups = [groups[i] for i in generator.permutation(len(groups))]
        return [group[rank] for group in groups if len(group[rank])]

    def _by_count(self, order: I64, world_size: int) -> list[list[I64]]:
        """Cut into groups of one batch per rank; the graphs of a group are dealt in turn."""
        step = self.batch_size * (1 if self.divide else world_size)
        groups = [order[start : start + step] for start in range(0, len(order), step)]
        if self.drop_last and groups and len(groups[-1]) < step:
            groups.pop()
        if self.even and groups and len(groups[-1]) < world_size:
            groups[-1] = np.resize(groups[-1], world_size)
        return [[group[rank::world_size] for rank in range(world_size)] for group in groups]

    def _by_nodes(self, order: I64, nodes: I64, world_size: int, most: int) -> list[list[I64]]:
        """Cut greedily by the number of nodes; neighbouring batches go to different ranks."""
        batches = cut_by_nodes(order, nodes, most)
        if self.drop_last:
            batches = batches[: (len(batches) - 1) // world_size * world_size]
        short = -len(batches) % world_size
        nothing = np.empty(0, np.int64)
        batches += [batches[i % len(batches)] if self.even else nothing for i in range(short)]
        return [batches[start : start + world_size] for start in range(0, len(batches), world_size)]


def cut_by_nodes(order: I64, nodes: I64, max_nodes: int) -> list[I64]:
    """Cut ``order`` into the longest runs of at most ``max_nodes`` nodes, at least one graph each."""
    total = np.cumsum(nodes[order])
    bounds = [0]
    while bounds[-1] < len(order):
        used = int(total[bounds[-1] - 1]) if bounds[-1] else 0
        stop = int(np.searchsorted(total, used + max_nodes, side="right"))
        bounds.append(max(stop, bounds[-1] + 1))
    return [order[start:stop] for start, stop in pairwise(bounds)]
