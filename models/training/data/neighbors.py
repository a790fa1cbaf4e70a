"""Batches of sampled neighbourhoods of one large graph, for devices on which the graph does not fit."""

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

    What PyTorch Geometric's ``NeighborLoader`` (``replace=False``, ``subgraph_type="directional"``) draws,
    without the compiled package that it needs; the draw is a function of seed and epoch alone, so that
    a resumed run continues with the same batches. A batch has ``training.batch_size`` of the train nodes and
    at most ``training.neighbors[hop]`` neighbours per node. ``epoch()`` gives the number of finished epochs,
    ``done()`` that of the batches to leave out, which are drawn all the same. ``evaluated``: in the order of
    ``chosen``, at most ``training.eval_neighbors[hop]`` neighbours per node, the same draw every time.

    ``around(seeds, fanouts, generator)`` draws a batch.
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
        # One thread: the draws take their numbers from the generator in turn.
        drawn = ahead(
            groups, lambda seeds: self._around(seeds, self._fanouts, generator), threads=1, depth=2
        )
        for number, batch in enumerate(drawn):
            if number >= done:
                yield batch.pin_memory() if self._pin else batch
