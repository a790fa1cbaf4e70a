"""Open the data of a run, in a subclass of ``RunData`` for many graphs or for a single graph."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Unpack

import numpy as np
import torch
from torch_geometric.data import Data

from kmip_data.arrays import I64
from kmip_data.builds.added_columns import require_added_columns
from kmip_data.builds.execution_options import BuildArguments
from kmip_data.builds.home import Build, Home
from kmip_data.errors import Command, Setting, UsageError
from kmip_data.format.split_files import PARTS, read_split
from kmip_data.graphs.city_columns import dataset_family
from kmip_data.graphs.neighbor_sampling import Neighborhoods
from kmip_data.models.layers.batch import HOPS, BatchSize, Hops
from kmip_data.models.training.config.run_config import RunConfig
from kmip_data.models.training.data.neighbor_batches import NeighborBatches
from kmip_data.models.training.data.run_data import (
    ALL_RECORDS,
    RECORDS_PER_READ,
    EvaluationPass,
    RunData,
    check_target_column,
    stored_batches,
    uses_page_locked_memory,
)
from kmip_data.models.training.tasks import Task
from kmip_data.pipelines.find_builds import ensure_columns, ensure_split, find_or_build
from kmip_data.reading.dataset import ShardedDataset
from kmip_data.reading.loader import GraphLoader
from kmip_data.text import count_with_noun

ROWS_PER_READ = 2**18  #: nodes or edges whose features are read at a time


@dataclass(frozen=True)
class TrainBatches:
    """Train batches of an epoch, in an order that depends only on seed and epoch."""

    loader: GraphLoader
    epoch: int
    skip: int  #: batches to skip
    has_node_targets: bool

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Data]:
        loader = self.loader
        state = loader.state_dict()
        loader.load_state_dict({**state, "epoch": self.epoch, "position": self.skip})
        # The last batch may have fewer graphs than there are processes, and none for this one.
        size = loader.rule.batch_size
        last_size = len(loader.dataset) % size or size
        rank, _processes = loader.rank_and_world_size()
        for number, batch in enumerate(loader, self.skip + 1):
            if rank >= last_size and number == len(self):
                # This process takes part with another process's graph, whose rows are masked out.
                rows = batch.num_nodes if self.has_node_targets else batch.num_graphs
                batch.train_mask = torch.zeros(rows, dtype=torch.bool)
            yield batch


class ManyGraphsData(RunData):
    """A build of many graphs."""

    part_members = "graphs"

    def _open(self, config: RunConfig) -> None:
        if config.training.neighbors or config.training.eval_neighbors:
            raise UsageError(
                f"{self.build.card.dataset} has many graphs; neighbours can be sampled only in a single one.",
                steps=Setting(neighbor_sampling=None),
            )
        if config.training.batch_size < config.processes:
            graphs = count_with_noun(config.training.batch_size, "graph")
            raise UsageError(
                f"A batch of {graphs} cannot be divided among {config.processes} processes.",
                steps=Setting({"training.batch_size": config.processes}),
            )
        self._feature_source = self._open_records(config)
        self._datasets = {ALL_RECORDS: self._feature_source}
        stored = self.split.parts if self.split_name else {}
        for part in PARTS:
            counts = stored.get(part)
            # Skip an empty part, possible with `--limit`; `check_part` raises an error for it.
            if counts is not None and counts.graphs:
                self._datasets[part] = self._open_records(config, part)

    def _part_size(self, part: str) -> int:
        return len(self._datasets.get(part, ()))

    @property
    def largest_batch(self) -> BatchSize:
        """Upper bound on a process's train batch, from the largest graphs."""
        dataset = self._datasets["train"]
        count = -(-self.config.training.batch_size // self.config.processes)
        nodes = sorted(dataset.nodes.tolist())[-count:]
        edges = sorted(dataset.edges.tolist())[-count:]
        node_pairs = sum(n * n for n in nodes)
        is_table = dataset.schema.edges == "neighbor"
        return BatchSize(len(nodes), sum(nodes), sum(edges), node_pairs, is_table)

    @property
    def is_ragged(self) -> bool:
        """True if graphs differ in size."""
        dataset = self._datasets["train"]
        return any(sizes.min() < sizes.max() for sizes in (dataset.nodes, dataset.edges))

    @cached_property
    def example_batch(self) -> Data:
        """The first train graph as a batch."""
        return self.record_batch("train", 0)

    def record_batch(self, part: str, position: int) -> Data:
        """One graph of a part as a batch."""
        dataset = self._datasets[part][position : position + 1]
        return next(iter(self._make_loader(dataset, 1, prefetch=0, rank=0, world_size=1)))

    def stored_train_rows(self, attributes: Sequence[str]) -> Iterator[Data]:
        """Yield the stored rows of the train graphs."""
        dataset = ShardedDataset(
            self.build,
            "train",
            split_name=self.split_name,
            columns=attributes,
            views=self.inputs.views,
        )
        largest = max(int(dataset.nodes.max()), int(dataset.edges.max()), 1)
        yield from stored_batches(dataset, min(RECORDS_PER_READ, -(-ROWS_PER_READ // largest)))

    @cached_property
    def _train_loader(self) -> GraphLoader:
        """Loader of train batches, in equal number for every process of a run."""
        training = self.config.training
        return self._make_loader(
            self._datasets["train"],
            training.batch_size,
            even=True,
            divide=True,
            shuffle=training.shuffle,
            seed=training.seed,
        )

    def train_batches(self, epoch: int, skip: int = 0) -> TrainBatches:
        """Return the train batches of an epoch, from 0, without the first ``skip``."""
        return TrainBatches(self._train_loader, epoch, skip, self.task.level == "node")

    def evaluation_passes(self, parts: Sequence[str]) -> list[EvaluationPass]:
        """Return each part in its own batches, in stored order; processes take batches in turn."""
        size = self.config.training.batch_size
        passes = list[EvaluationPass]()
        for part in parts:
            dataset = self._datasets[part]
            loader = self._make_loader(dataset, size)
            rank, processes = loader.rank_and_world_size()
            # A loss may depend on the batching, so make the batches of a single process.
            if processes > 1:
                numbers = np.arange(len(dataset))
                own_numbers = numbers[numbers // size % processes == rank].tolist()
                loader = self._make_loader(dataset[own_numbers], size, rank=0, world_size=1)
            passes.append(((part,), loader))
        return passes

    def _make_loader(self, dataset: ShardedDataset, batch_size: int, **options: Any) -> GraphLoader:
        compact = dataset.schema.edges == "neighbor"
        pinned = uses_page_locked_memory(self.config.system.device)
        return GraphLoader(dataset, batch_size, compact=compact, pin_memory=pinned, **options)


class OneGraphData(RunData):
    """A build of a single graph; the parts of its split are node masks."""

    part_members = "nodes"

    def _open(self, config: RunConfig) -> None:
        self._dataset = self._open_records(config)
        self._sampled = bool(config.training.neighbors)
        # A degree profile needs the neighbours; all other transforms work row by row.
        reads_rows = self._sampled and self.inputs.attributes
        self._mapped = self._dataset.mapped_edges(0) if reads_rows else None
        self._feature_source = self.example_batch

    def _check_task(self) -> None:
        if self.task.level != "node":
            raise UsageError(
                f"{self.build.card.dataset} is one graph with one target, which is too little to train on.",
                steps=Command("kmip-data info", self.build.path),
            )
        training = self.config.training
        is_sampled = training.neighbors or training.eval_neighbors
        encodings = self.config.model.encodings
        if is_sampled and any(encoding.has_node_numbers for encoding in encodings):
            raise UsageError(
                "A sampled part of a graph has no expander, as its edges reach across the whole graph.",
                steps=[
                    Setting(neighbor_sampling=None),
                    Setting({"model.attention.expander": 0}),
                ],
            )

    @cached_property
    def graph(self) -> Data:
        """The only graph of the dataset, loaded once."""
        return self._dataset[0]

    @cached_property
    def _neighborhoods(self) -> Neighborhoods:
        edges = self.graph.edge_index.numpy() if self._mapped is None else self._mapped
        return Neighborhoods(edges, int(self._dataset.nodes[0]))

    def _sample_around(
        self,
        part: str,
        seeds: I64,
        fanouts: Sequence[int],
        generator: np.random.Generator,
    ) -> Data:
        """Sample around ``seeds``, which come first and are in the part's mask.

        Until the graph is loaded, rows are read from the memory map, with the same bits.
        """
        sampled = self._neighborhoods.sample_around(seeds, fanouts, generator)
        rows = torch.from_numpy(sampled.nodes)
        columns = torch.from_numpy(sampled.edges)
        values: dict[str, Any]
        if self._mapped is not None and "graph" not in self.__dict__:
            values = self._dataset.select_rows(0, sampled.nodes, sampled.edges).to_dict()
        else:
            values = self.graph.to_dict()  # with columns of encodings
            for name in self._dataset.masks:
                del values[name]
            for name, value in values.items():
                if self.graph.is_node_attr(name):
                    values[name] = value[rows]
                elif self.graph.is_edge_attr(name) and name != "edge_index":
                    values[name] = value[columns]
        values["edge_index"] = torch.from_numpy(np.stack([sampled.source, sampled.target]))
        values[f"{part}_mask"] = torch.arange(len(rows)) < len(seeds)
        values[HOPS] = Hops(sampled.hop_nodes, sampled.hop_edges)
        return Data(**values, n_id=rows)

    def _part_size(self, part: str) -> int:
        mask = self._dataset.masks.get(f"{part}_mask")
        return 0 if mask is None else int(mask.sum())

    @property
    def largest_batch(self) -> BatchSize:
        """Size of the graph; with sampling, an upper bound on the size of a batch."""
        if self._sampled:
            training = self.config.training
            nodes, edges = self._neighborhoods.upper_bounds(training.batch_size, training.neighbors)
        else:
            nodes = int(self.graph.num_nodes)
            edges = int(self.graph.num_edges)
        return BatchSize(1, nodes, edges, nodes**2)

    @property
    def is_ragged(self) -> bool:
        """True if neighbourhoods are sampled."""
        return self._sampled

    @property
    def example_batch(self) -> Data:
        """The graph; with sampling, the neighbourhood of some of its nodes."""
        if not self._sampled:
            return self.graph
        seeds = np.arange(min(512, int(self._dataset.nodes[0])))
        return self._sample_around("train", seeds, [10], np.random.default_rng(0))

    def record_batch(self, part: str, position: int) -> Data:
        """Return the graph, for any part."""
        return self.graph

    def train_batches(self, epoch: int, skip: int = 0) -> Iterable[Data]:
        """Return the graph, once per epoch; with sampling, the train nodes and their neighbourhoods."""
        if not self._sampled:
            return [self.graph]
        if not self.config.training.eval_neighbors:
            # Load the graph, as an evaluation needs it anyway: sampling in memory takes only two
            # thirds of the time.
            _ = self.graph
        return self._neighbor_batches("train", epoch=epoch, skip=skip)

    def stored_train_rows(self, attributes: Sequence[str]) -> Iterator[Data]:
        """Yield the stored rows of the train nodes, and of all edges, which belong to no part."""
        dataset = ShardedDataset(
            self.build, split_name=self.split_name, columns=attributes, views=self.inputs.views
        )
        nodes = dataset.masks["train_mask"].numpy().nonzero()[0]
        edges = np.arange(int(dataset.edges[0]))
        for start in range(0, max(len(nodes), len(edges)), ROWS_PER_READ):
            rows = slice(start, start + ROWS_PER_READ)
            yield dataset.select_rows(0, nodes[rows], edges[rows])

    def _neighbor_batches(self, part: str, **options: Any) -> NeighborBatches:
        _ = self._neighborhoods  # compute once, before threads use it
        nodes = np.arange(int(self._dataset.nodes[0]))
        if part != ALL_RECORDS:
            nodes = self._dataset.masks[f"{part}_mask"].numpy().nonzero()[0]
        pinned = uses_page_locked_memory(self.config.system.device)
        sample_around = partial(self._sample_around, part)
        return NeighborBatches(sample_around, nodes, self.config.training, pinned, **options)

    def evaluation_passes(self, parts: Sequence[str]) -> list[EvaluationPass]:
        """Return all parts in one pass; with sampled evaluations, each part in its own batches."""
        if self.config.training.eval_neighbors:
            return [((part,), self._neighbor_batches(part, for_evaluation=True)) for part in parts]
        # Moving a graph to a GPU modifies the object, so keep the sampled graph on the CPU.
        graph = copy.copy(self.graph) if self._sampled else self.graph
        return [(tuple(parts), [graph])] if parts else []

    @property
    def evaluated_parts(self) -> tuple[str, ...]:
        """All parts; with sampled evaluations only val, which selects the best epoch."""
        return ("val",) if self.config.training.eval_neighbors else self.parts


def _check_processes(config: RunConfig) -> None:
    """Raise ``UsageError`` if several processes would share one graph."""
    if config.processes > 1:
        raise UsageError(
            f"{config.data.dataset} is one graph, which {config.processes} processes cannot share.",
            steps=Setting(devices=None),
        )


def open_build_and_split(
    config: RunConfig,
    *,
    home: Home,
    build: bool = True,
    split_name: str | None = None,
    **build_options: Unpack[BuildArguments],
) -> tuple[Build, str]:
    """Return the build of ``config.data`` and the name of its split; see :func:`open_data`."""
    data = config.data
    # A city is a single graph: raise before building it.
    if dataset_family(data.dataset) == "city":
        _check_processes(config)
    opened = find_or_build(
        data.dataset,
        data.parameters,
        data.split,
        home=home,
        sample=data.sample,
        build=build,
        **build_options,
    )
    if split_name in opened.card.splits:
        return opened, split_name
    return opened, ensure_split(opened, data.split)


def open_data(
    config: RunConfig,
    *,
    home: Home,
    required: tuple[str, ...] = ("train", "val"),
    build: bool = True,
    split_name: str | None = None,
    task: Task | None = None,
    **build_options: Unpack[BuildArguments],
) -> RunData:
    """Open the build that ``config.data`` names, building it first if it is missing.

    Missing encodings are added, but refused if ``build=False``. ``required`` parts must not be empty;
    without any, the build needs no split.
    ``split_name`` names a split of the build to use instead of ``config.data.split``. With the ``task``
    of a finished run, the build needs no targets. Other arguments as for
    :func:`kmip_data.pipelines.find_builds.find_or_build`. Raises ``UsageError`` for an unknown dataset, split or
    view, an empty part, or data that cannot be trained on.
    """
    opened, name = open_build_and_split(
        config, home=home, build=build, split_name=split_name, **build_options
    )
    card = opened.card
    check_target_column(opened, config, task, needs_split=bool(required))
    # Data to predict may have no split, so the task decides.
    has_node_masks = task is not None and task.level == "node" and card.counts["graphs"] == 1
    if name:
        entry = card.splits[name]
        parts = read_split(
            opened.path / entry.file,
            records=card.split_records,
            sha256=entry.sha256,
            remedy=opened.remedy,
        )
        has_node_masks = parts.part_codes is not None
    graphs_class = OneGraphData if has_node_masks else ManyGraphsData
    if has_node_masks:
        _check_processes(config)
    encodings = [encoding.name for encoding in config.model.encodings]
    if build:
        ensure_columns(opened, encodings, **build_options)
    else:
        require_added_columns(opened, encodings)
    return graphs_class(opened, name, config, required, task)
