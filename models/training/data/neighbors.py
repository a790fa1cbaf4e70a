"""Batches of sampled neighbourhoods of one graph that is too large for the device."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from torch_geometric.data import Data

from kmip_data.arrays import I64
from kmip_data.models.training.config.keys import TrainingConfig
from kmip_data.runtime.threads import ahead


class NeighborBatches:
    """A pass over the chosen nodes, each batch with sampled neighbours, neighbours of these, and so on.

    Samples like PyTorch Geometric's ``NeighborLoader`` (``replace=False``,
    ``subgraph_type="directional"``), without the compiled package that it needs; a sample is a
    function of seed and epoch alone, so that a resumed run continues with the same batches. A batch
    has ``training.batch_size`` of the train nodes and at most ``training.neighbors[hop]``
    neighbours per node. ``epoch()`` is the number of finished epochs, ``done()`` that of the
    batches to skip, which are sampled nevertheless. ``evaluated``: in the order of ``chosen``, at
    most ``training.eval_neighbors[hop]`` neighbours per node, the same sample every time.

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
        done = self._done()
        size = self._training.batch_size
        generator = np.random.Generator(np.random.PCG64([self._training.seed, self._epoch()]))
        order = generator.permutation(self._chosen) if self._shuffle else self._chosen
        groups = (order[start : start + size] for start in range(0, len(order), size))

        def sample(seeds: I64) -> Data:
            return self._around(seeds, self._fanouts, generator)

        # One thread: samples take their numbers from the generator in turn.
        for number, batch in enumerate(ahead(groups, sample, threads=1, depth=2)):
            if number >= done:
                yield batch.pin_memory() if self._pin else batch
