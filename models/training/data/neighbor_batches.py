"""Batches of sampled neighbourhoods in a graph that is too large for the device."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from torch_geometric.data import Data

from kmip_data.arrays import I64
from kmip_data.models.training.config.run_config import TrainingConfig
from kmip_data.runtime.parallel import num_threads, prepare_ahead
from kmip_data.runtime.reused_buffers import keep_used_buffers


@dataclass(frozen=True)
class NeighborBatches:
    """One pass over nodes, in batches with sampled neighbours, their neighbours, and so on.

    Sampling is like PyTorch Geometric's ``NeighborLoader`` (``replace=False``,
    ``subgraph_type="directional"``), without the compiled package it needs. A batch has
    ``training.batch_size`` of the nodes and at most ``training.neighbors[hop]`` neighbours per node.
    It depends only on seed, epoch and position, so a resumed run continues with the same batches.
    """

    sample_around: Callable[[I64, Sequence[int], np.random.Generator], Data]  #: samples a batch
    nodes: I64
    training: TrainingConfig
    pin_memory: bool
    epoch: int = 0
    skip: int = 0  #: batches to skip
    #: True to keep the order of ``nodes``, sample at most ``training.eval_neighbors[hop]`` neighbours
    #: per node, and repeat the same sample in every pass
    for_evaluation: bool = False

    def __len__(self) -> int:
        return math.ceil(len(self.nodes) / self.training.batch_size)

    def __iter__(self) -> Iterator[Data]:
        training = self.training
        size = training.batch_size
        seeds = [training.seed, self.epoch]
        order = self.nodes
        fanouts = training.neighbors
        if self.for_evaluation:
            fanouts = training.eval_neighbors
        elif training.shuffle:
            order = np.random.Generator(np.random.PCG64(seeds)).permutation(order)

        def sample(start: int) -> Data:
            # Each batch has its own generator, because threads sample batches in parallel, and
            # skipped batches are not sampled.
            generator = np.random.Generator(np.random.PCG64([*seeds, start + 1]))
            return self.sample_around(order[start : start + size], fanouts, generator)

        starts = range(self.skip * size, len(order), size)
        threads = min(2, num_threads())
        for batch in prepare_ahead(starts, sample, threads=threads, depth=2):
            keep_used_buffers()
            yield batch.pin_memory() if self.pin_memory else batch
