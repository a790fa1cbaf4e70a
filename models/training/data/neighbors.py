"""Batches of sampled neighbourhoods of a graph too large for the device."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from torch_geometric.data import Data

from kmip_data.arrays import I64
from kmip_data.models.training.config.keys import TrainingConfig
from kmip_data.runtime.memory import keep_what_is_used
from kmip_data.runtime.threads import ahead, num_threads


class NeighborBatches:
    """A pass over the chosen nodes; batches include sampled neighbours, their neighbours, and so on.

    Samples like PyTorch Geometric's ``NeighborLoader`` (``replace=False``,
    ``subgraph_type="directional"``), without the compiled package it needs. A sample depends on
    seed, epoch and position alone, so a resumed run continues with the same batches. A batch has
    ``training.batch_size`` of the train nodes and at most ``training.neighbors[hop]`` neighbours
    per node. ``epoch()`` is the number of finished epochs, ``done()`` that of the batches to skip.
    ``evaluated``: in the order of ``chosen``, at most ``training.eval_neighbors[hop]`` neighbours
    per node, the same sample every time.

    ``around(seeds, fanouts, generator)`` samples a batch.
    """

    def __init__(
        self,
        around: Callable[[I64, Sequence[int], np.random.Generator], Data],
        chosen: I64,
        training: TrainingConfig,
        *,
        epoch: Callable[[], int] = lambda: 0,
        done: Callable[[], int] = lambda: 0,
        evaluated: bool = False,
        pin_memory: bool,
    ) -> None:
        self._around = around
        self._chosen = chosen
        self._training = training
        self._epoch = epoch
        self._done = done
        self._pin = pin_memory
        self._shuffle = training.shuffle and not evaluated
        self._fanouts = training.eval_neighbors if evaluated else training.neighbors

    def __len__(self) -> int:
        return math.ceil(len(self._chosen) / self._training.batch_size)

    def __iter__(self) -> Iterator[Data]:
        size = self._training.batch_size
        seeds = [self._training.seed, self._epoch()]
        order = self._chosen
        if self._shuffle:
            order = np.random.Generator(np.random.PCG64(seeds)).permutation(order)

        def sample(start: int) -> Data:
            # Each batch has its own generator: batches are drawn in threads, and skipped ones not
            # at all.
            generator = np.random.Generator(np.random.PCG64([*seeds, start + 1]))
            return self._around(order[start : start + size], self._fanouts, generator)

        starts = range(self._done() * size, len(order), size)
        threads = min(2, num_threads())
        for batch in ahead(starts, sample, threads=threads, depth=2):
            keep_what_is_used()
            yield batch.pin_memory() if self._pin else batch
