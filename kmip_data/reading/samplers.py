"""Samplers in a loader's order, for libraries that shard a ``DataLoader`` by its sampler."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch.utils.data import DistributedSampler, Sampler

from kmip_data.arrays import I64
from kmip_data.reading.batch_rule import BatchRule, Stretch


class EpochSampler(Sampler[int]):
    """Positions of the graphs of each epoch by a loader's rule; also counts the loader's epochs.

    Iterating it yields the complete epoch, which Fabric, Lightning and accelerate shard among
    their processes. The loader itself shards by :meth:`rank_and_world_size`.

    Parameters
    ----------
    rule
        Rule that cuts an epoch into batches.
    nodes
        Number of nodes of each graph, int64 (G,).
    rank, world_size
        Rank of this process and number of processes; ``None``: from ``torch.distributed`` if it is
        initialised.
    yields_shard
        Yield only the graphs of this rank also to other libraries.
    """

    def __init__(
        self,
        rule: BatchRule,
        nodes: I64,
        *,
        rank: int | None = None,
        world_size: int | None = None,
        yields_shard: bool = False,
    ) -> None:
        self.rule = rule
        self._nodes = nodes
        self._rank_and_world_size = (rank, world_size)
        self._yields_shard = yields_shard
        self.epoch = 0  #: epoch of the next iteration
        self.position = 0  #: number of its batches to skip
        #: an epoch, and its stretches on other numbers of ranks, whose graphs are left out
        self.earlier: tuple[int, Sequence[Stretch]] = (0, ())
        #: epoch and number of yielded batches of the latest iteration; ``None`` once it has ended
        self.progress: list[int] | None = None

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration; a position loaded for that epoch is kept."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.position = 0
            self.earlier = (epoch, ())
        self.progress = None

    def begin_epoch(self) -> list[int]:
        """Start an epoch and advance the counter; return its number and the batches to skip."""
        self.progress = [self.epoch, self.position]
        self.epoch += 1
        self.position = 0
        return self.progress

    def rank_and_world_size(self) -> tuple[int, int]:
        """Return the rank of this process and the number of processes."""
        rank, world_size = self._rank_and_world_size
        if rank is not None and world_size is not None:
            return rank, world_size
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return torch.distributed.get_rank(), torch.distributed.get_world_size()
        return 0, 1

    def batches(self, epoch: int) -> list[I64]:
        """Return the positions of the graphs in each batch of this rank."""
        earlier = self.earlier_stretches(epoch)
        return self.rule.batches(self._nodes, epoch, *self.rank_and_world_size(), earlier)

    def earlier_stretches(self, epoch: int) -> Sequence[Stretch]:
        """Return the stretches of an epoch before it was resumed on this number of ranks."""
        return self.earlier[1] if self.earlier[0] == epoch else ()

    def batches_for_other_libraries(self, epoch: int) -> list[I64]:
        """Return the batches that other libraries read and shard."""
        if self._yields_shard:
            return self.batches(epoch)
        return self.rule.batches(self._nodes, epoch)

    def __iter__(self) -> Iterator[int]:
        epoch, _ = self.begin_epoch()
        for batch in self.batches_for_other_libraries(epoch):
            yield from batch.tolist()

    def __len__(self) -> int:
        return sum(len(batch) for batch in self.batches_for_other_libraries(self.epoch))


class SelfShardingSampler(EpochSampler, DistributedSampler[int]):
    """Sampler of a loader that shards by itself: Lightning and Fabric do not replace this type."""


class EpochBatchSampler(Sampler[list[int]]):
    """Batch sampler of an :class:`EpochSampler` whose batches vary in size (``max_nodes``, ``bucket``)."""

    def __init__(self, sampler: EpochSampler) -> None:
        self.sampler = sampler
        rule = sampler.rule
        self.batch_size = rule.batch_size if rule.max_nodes is None else None

    def __iter__(self) -> Iterator[list[int]]:
        epoch, _ = self.sampler.begin_epoch()
        for batch in self.sampler.batches_for_other_libraries(epoch):
            yield batch.tolist()

    def __len__(self) -> int:
        return len(self.sampler.batches_for_other_libraries(self.sampler.epoch))


def is_from_graph_loader(batch_sampler: object) -> bool:
    """True if a ``batch_sampler`` comes from a ``GraphLoader``, which has applied its arguments."""
    return isinstance(getattr(batch_sampler, "sampler", None), EpochSampler)
