"""Data of one graph whose nodes are split: a step is a pass over all of it, and so is an evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch_geometric.data import Data

from kmip_data.builds.home import Build
from kmip_data.datasets.city_columns import city_inputs, input_names, is_city
from kmip_data.errors import UsageError
from kmip_data.format.parts import PARTS
from kmip_data.format.schema import Column
from kmip_data.models.training.config.keys import RunConfig
from kmip_data.models.training.data.neighbors import NeighborBatches
from kmip_data.models.training.data.run_data import Batches, Pass, RunData, columns_read
from kmip_data.models.training.memory.machine import Size
from kmip_data.reading.dataset import ShardedDataset

MASKS = {part: f"{part}_mask" for part in PARTS}  #: part -> attribute of a batch


class OneGraph(RunData):
    """A build of one graph; the parts of its split are masks of nodes."""

    unit = "nodes"

    def __init__(self, build: Build, split_name: str, config: RunConfig, required: Sequence[str]) -> None:
        city = is_city(build.card)
        columns = columns_read(build, config) + ["coordinate_encoding"] * city
        self._dataset = ShardedDataset(build, split_name=split_name, columns=columns)
        self.graph: Data = self._dataset[0]
        if city:
            encoding = self.graph.coordinate_encoding.numpy()
            x = city_inputs(self.graph.x.numpy(), encoding, build.card, config.data.coordinates)
            self.graph.x = torch.from_numpy(x)
            del self.graph.coordinate_encoding
        super().__init__(build, split_name, config, required)
        if self.task.level != "node":
            raise UsageError(
                f"{build.card.dataset} is one graph with one target: there is nothing to learn from.",
                expected="a target for each node, or many graphs",
                found="one target",
                left="nothing was started",
                next=f"kmip-data info {build.path}",
            )
        if config.system.devices * config.system.nodes > 1:
            raise UsageError(
                "One graph cannot be shared out among processes.",
                expected="one device: each step is a pass over the whole graph",
                found=f"{config.system.devices * config.system.nodes} processes",
                left="nothing was started",
                next="leave out --devices; where memory is short, --neighbor-sampling 10,10",
            )

    def _size(self, part: str, config: RunConfig) -> int:
        return int(self.graph[MASKS[part]].sum())

    def _num_classes(self, column: Column) -> int:
        return int(self._dataset.num_classes)

    @property
    def in_channels(self) -> int:
        """Columns of ``x``."""
        return int(self.graph.x.shape[1])

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of ``x``; empty where the build does not name them."""
        card = self.build.card
        if is_city(card):
            return input_names(card, self.config.data.coordinates)
        return next(column.fields for column in card.schema_.columns if column.attribute == "x")

    @property
    def edge_channels(self) -> int | None:
        """Columns of ``edge_attr``, ``None`` without."""
        attr = self.graph.edge_attr
        return None if attr is None else int(attr.shape[1]) if attr.ndim > 1 else 1

    @property
    def largest_batch(self) -> Size:
        """The graph; with sampling, as much of it as a batch may reach."""
        size = Size(1, int(self.graph.num_nodes), int(self.graph.num_edges))
        training = self.config.training
        if not training.neighbors:
            return size
        reached, edges, nodes = training.batch_size, 0, training.batch_size
        for fanout in training.neighbors:
            reached = min(reached * fanout, size.edges)
            edges, nodes = edges + reached, nodes + reached
        return Size(1, min(nodes, size.nodes), min(edges, size.edges))

    @property
    def example(self) -> Any:
        """The graph."""
        return self.graph

    def batches(self, epoch: Callable[[], int]) -> Batches:
        """The graph, once an epoch; with sampling, the train nodes and what is around them."""
        training = self.config.training
        if training.neighbors:
            return NeighborBatches(
                self.graph,
                self.graph.train_mask,
                fanouts=training.neighbors,
                batch_size=training.batch_size,
                shuffle=training.shuffle,
                seed=training.seed,
                epoch=epoch,
            )
        return _Whole(self.graph)

    def passes(self, parts: Sequence[str]) -> list[Pass]:
        """All parts in one pass."""
        return [(tuple(parts), _Whole(self.graph))] if parts else []

    @property
    def evaluated(self) -> tuple[str, ...]:
        """All parts: one pass gives them."""
        return self.parts


class _Whole:
    """The graph as the only batch."""

    def __init__(self, graph: Data) -> None:
        self._graph = graph

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[Any]:
        yield self._graph
