"""Batches of sampled neighbourhoods of one large graph, for devices on which the graph does not fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch_geometric.data import Data

from kmip_data.graphs.sampling import Neighborhoods
from kmip_data.models.training.config.keys import TrainingConfig


class NeighborBatches:
    """A pass over the chosen nodes, each batch with sampled neighbours, neighbours of these, and so on.

    What PyTorch Geometric's ``NeighborLoader`` (``replace=False``, ``subgraph_type="directional"``) draws,
    without the compiled package that it needs; the draw is a function of seed and epoch alone, so that
    a resumed run continues with the same batches. A batch has ``training.batch_size`` of the train nodes and
    at most ``training.neighbors[hop]`` neighbours per node. ``epoch()`` gives the number of finished epochs,
    ``done()`` that of the batches to leave out, which are drawn all the same.
    """

    def __init__(
        self,
        graph: Data,
        training: TrainingConfig,
        epoch: Callable[[], int],
        done: Callable[[], int],
        *,
        pin_memory: bool,
    ) -> None:
        self._graph, self._training, self._epoch, self._done = graph, training, epoch, done
        self._pin = pin_memory
        self._chosen = graph.train_mask.cpu().numpy().nonzero()[0]
        self._neighborhoods = Neighborhoods(graph.edge_index.cpu().numpy(), int(graph.num_nodes or 0))

    def __len__(self) -> int:
        return math.ceil(len(self._chosen) / self._training.batch_size)

    def __iter__(self) -> Iterator[Data]:
        done, size = self._done(), self._training.batch_size
        generator = np.random.Generator(np.random.PCG64([self._training.seed, self._epoch()]))
        order = generator.permutation(self._chosen) if self._training.shuffle else self._chosen
        for number, start in enumerate(range(0, len(order), size)):
            batch = self._around(order[start : start + size], generator)
            if number >= done:
                yield batch.pin_memory() if self._pin else batch

    def _around(self, seeds: NDArray[np.int64], generator: np.random.Generator) -> Data:
        """Return the sampled graph around ``seeds``, which come first and make up its ``train_mask``."""
        sampled = self._neighborhoods.around(seeds, self._training.neighbors, generator)
        graph = self._graph
        rows, columns = torch.from_numpy(sampled.nodes), torch.from_numpy(sampled.edges)
        values: dict[str, Any] = graph.to_dict()  # what encodings add, too
        for name, value in values.items():
            if graph.is_node_attr(name):
                values[name] = value[rows]
            elif graph.is_edge_attr(name) and name != "edge_index":
                values[name] = value[columns]
        values["edge_index"] = torch.from_numpy(np.stack([sampled.source, sampled.target]))
        values["train_mask"] = torch.arange(len(rows)) < len(seeds)
        return Data(**values, n_id=rows)
