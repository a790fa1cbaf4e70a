"""Batches of sampled neighbourhoods of one large graph, for devices on which the graph does not fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch_geometric.data import Data

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
        target = graph.edge_index[1].cpu().numpy()
        # Compressed rows: the incoming edges of node i are _edges[_start[i]:_start[i + 1]].
        self._edges = np.argsort(target, kind="stable")
        self._start = np.concatenate([[0], np.cumsum(np.bincount(target, minlength=graph.num_nodes))])
        self._source = graph.edge_index[0].cpu().numpy()

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
        place = np.full(self._graph.num_nodes, -1, np.int64)
        place[seeds] = np.arange(len(seeds))
        nodes, edges, frontier = [seeds], [np.empty(0, np.int64)], seeds
        count = len(seeds)
        for fanout in self._training.neighbors:
            sampled = self._sample(frontier, fanout, generator)
            edges.append(sampled)
            sources = self._source[sampled]
            # In the order in which they are met, each once.
            met, first = np.unique(sources[place[sources] < 0], return_index=True)
            frontier = met[np.argsort(first)]
            place[frontier] = count + np.arange(len(frontier))
            count += len(frontier)
            nodes.append(frontier)
        return self._cut(np.concatenate(nodes), np.concatenate(edges), place, len(seeds))

    def _sample(
        self, nodes: NDArray[np.int64], fanout: int, generator: np.random.Generator
    ) -> NDArray[np.int64]:
        """Incoming edges of ``nodes``, at most ``fanout`` of each, drawn without replacement."""
        degree = self._start[nodes + 1] - self._start[nodes]
        owner = np.repeat(np.arange(len(nodes)), degree)
        first = np.concatenate([[0], np.cumsum(degree)[:-1]]) if len(degree) else degree
        within = np.arange(len(owner)) - first[owner]
        # A random order inside each node's edges; its first ones are taken.
        order = np.lexsort((generator.random(len(owner)), owner))
        taken = order[within < fanout]
        found: NDArray[np.int64] = self._edges[self._start[nodes][owner[taken]] + within[taken]]
        return found

    def _cut(
        self, nodes: NDArray[np.int64], edges: NDArray[np.int64], place: NDArray[np.int64], seeds: int
    ) -> Data:
        graph = self._graph
        rows, columns = torch.from_numpy(nodes), torch.from_numpy(edges)
        values: dict[str, Any] = graph.to_dict()  # what encodings add, too
        for name, value in values.items():
            if graph.is_node_attr(name):
                values[name] = value[rows]
            elif graph.is_edge_attr(name) and name != "edge_index":
                values[name] = value[columns]
        values["edge_index"] = torch.from_numpy(place)[graph.edge_index[:, columns]]
        values["train_mask"] = torch.arange(len(nodes)) < seeds
        return Data(**values, n_id=rows)
