"""Samplers of a loader's own order, for the libraries that divide a ``DataLoader`` by its sampler."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.utils.data import DistributedSampler, Sampler

from kmip_data.arrays import I64
from kmip_data.reading.batch_rule import BatchRule


class EpochSampler(Sampler[int]):
    """Positions of one epoch after the other, by the rule of a loader, which reads its epoch here.

    Iterated by itself it yields the complete epoch, which Fabric, Lightning and accelerate divide
    among their processes. The loader, when it is iterated, divides by :meth:`rank_and_world_size`.

    Parameters
    ----------
    rule
        Rule that cuts an epoch into batches.
    nodes
        Number of nodes of each graph, int64 (G,).
    rank, world_size
        Share of this process; ``None``: from ``torch.distributed`` if it is initialised.
    divided
        Yield the share of this process also when iterated by itself.
    """

    def __init__(
        self,
        rule: BatchRule,
        nodes: I64,
        *,
        rank: int | None = None,
        world_size: int | None = None,
        divided: bool = False,
    ) -> None:
        self.rule = rule
        self._nodes = nodes
        self._share = (rank, world_size)
        self._divided = divided
        self.epoch = 0  #: epoch of the next iteration
        self.position = 0  #: number of its batches to skip
        #: epoch and yielded batches of the latest iteration, until it ends
        self.running: list[int] | None = None

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration; a position loaded for that epoch is kept."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.position = 0
        self.running = None

    def begin_epoch(self) -> list[int]:
        """Begin an epoch: return its number and the batches to skip.

        The next call begins the next one.
        """
        self.running = [self.epoch, self.position]
        self.epoch += 1
        self.position = 0
        return self.running

    def rank_and_world_size(self) -> tuple[int, int]:
        """Return the rank of this process and the number of processes."""
        rank, world_size = self._share
        if rank is not None and world_size is not None:
            return rank, world_size
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return torch.distributed.get_rank(), torch.distributed.get_world_size()
        return 0, 1

    def batches(self, epoch: int) -> list[I64]:
        """Return the positions of each batch of this rank."""
        return self.rule.batches(self._nodes, epoch, *self.rank_and_world_size())

    def batches_for_other_libraries(self, epoch: int) -> list[I64]:
        """Return the batches that other libraries see."""
        if self._divided:
            return self.batches(epoch)
        return self.rule.batches(self._nodes, epoch)

    def __iter__(self) -> Iterator[int]:
        epoch, _ = self.begin_epoch()
        for batch in self.batches_for_other_libraries(epoch):
            yield from batch.tolist()

    def __len__(self) -> int:
        return sum(len(batch) for batch in self.batches_for_other_libraries(self.epoch))


class SharedSampler(EpochSampler, DistributedSampler[int]):
    """The sampler of a loader that divides by itself: Lightning and Fabric leave this type as it is."""


class EpochBatches(Sampler[list[int]]):
    """Batches of an :class:`EpochSampler` that are not equal slices of it (``max_nodes``, ``bucket``)."""

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


def is_from_a_loader(batch_sampler: object) -> bool:
    """True if a ``batch_sampler`` belongs to another loader here, which has applied all its arguments."""
    return isinstance(getattr(batch_sampler, "sampler", None), EpochSampler)
