"""Data of one graph whose nodes are split: a step is a pass over all of it, and so is an evaluation."""

from __future__ import annotations

import copy
from collections import UserList
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch_geometric.data import Data

from kmip_data.builds.home import Build
from kmip_data.errors import UsageError
from kmip_data.models.training.config.keys import RunConfig
from kmip_data.models.training.data.neighbors import NeighborBatches
from kmip_data.models.training.data.on_card import page_locked
from kmip_data.models.training.data.run_data import BatchSize, Pass, RunData


class OneGraph(RunData):
    """A build of one graph; the parts of its split are masks of nodes."""

    unit = "nodes"

    def __init__(self, build: Build, split_name: str, config: RunConfig, required: Sequence[str]) -> None:
        super().__init__(build, split_name, config, required)
        if self.task.level != "node":
            raise UsageError(
                f"{build.card.dataset} is one graph with one target: there is nothing to learn from.",
                expected="a target for each node, or many graphs",
                found="one target",
                left="nothing was started",
                next=f"kmip-data info {build.path}",
            )
        if config.training.neighbors and any(encoding.names_nodes for encoding in config.model.encodings):
            raise UsageError(
                "A sampled part of a graph has no expander: its edges reach across the whole graph.",
                expected="the whole graph in each step",
                found="--neighbor-sampling",
                left="nothing was started",
                next="leave out --neighbor-sampling, or --set model.attention.expander=0",
            )
        if config.processes > 1:
            raise UsageError(
                "One graph cannot be split among processes.",
                expected="one device: each step is a pass over the whole graph",
                found=f"{config.processes} processes",
                left="nothing was started",
                next="leave out --devices; where memory is short, --neighbor-sampling 10,10",
            )

    def _open(self, config: RunConfig) -> None:
        records = self._records(config)
        self.graph: Data = records[0]
        self._key = records.keys[0]
        self._whole = self.graph

    def _size(self, part: str) -> int:
        return int(self.graph[f"{part}_mask"].sum())

    @property
    def largest_batch(self) -> BatchSize:
        """The graph; with sampling, as much of it as a batch may reach."""
        nodes = int(self.graph.num_nodes)
        size = BatchSize(1, nodes, int(self.graph.num_edges), nodes**2)
        training = self.config.training
        if not training.neighbors:
            return size
        reached, edges, nodes = training.batch_size, 0, training.batch_size
        for fanout in training.neighbors:
            reached = min(reached * fanout, size.edges)
            edges, nodes = edges + reached, nodes + reached
        nodes = min(nodes, size.nodes)
        return BatchSize(1, nodes, min(edges, size.edges), nodes**2)

    @property
    def ragged(self) -> bool:
        """True if neighbourhoods are sampled."""
        return bool(self.config.training.neighbors)

    @property
    def example(self) -> Any:
        """The graph."""
        return self.graph

    def record(self, part: str, position: int) -> Any:
        """The graph, whichever part."""
        return self.graph

    def batches(self, epoch: Callable[[], int], done: Callable[[], int] = lambda: 0) -> Iterable[Any]:
        """The graph, once per epoch; with sampling, the train nodes and what is around them."""
        if self.config.training.neighbors:
            return self._sampled(epoch, done)
        return UserList([self.graph])  # Lightning takes a list for several loaders

    def _sampled(self, epoch: Callable[[], int], done: Callable[[], int] = lambda: 0) -> NeighborBatches:
        training = self.config.training
        return NeighborBatches(
            self.graph,
            self.graph.train_mask,
            fanouts=training.neighbors,
            batch_size=training.batch_size,
            shuffle=training.shuffle,
            seed=training.seed,
            epoch=epoch,
            done=done,
            pin_memory=page_locked(self.config.system.device),
        )

    def names(self, epoch: int, batch: int) -> list[str]:
        """Key of the graph; with sampling, the nodes whose neighbourhoods make up the batch."""
        if not self.config.training.neighbors:
            return [self._key]
        return [f"node {node} of {self._key}" for node in self._sampled(lambda: epoch).nodes(batch)]

    def passes(self, parts: Sequence[str]) -> list[Pass]:
        """All parts in one pass."""
        # To move it to a GPU changes the object: what is sampled from stays where it is.
        graph = copy.copy(self.graph) if self.config.training.neighbors else self.graph
        return [(tuple(parts), [graph])] if parts else []

    @property
    def evaluated(self) -> tuple[str, ...]:
        """All parts: one pass gives them."""
        return self.parts
