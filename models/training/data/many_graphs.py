"""Data of many graphs: batches of whole graphs, each part in batches of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import torch

from kmip_data.errors import UsageError
from kmip_data.format.splits import PARTS
from kmip_data.models.training.config.keys import RunConfig
from kmip_data.models.training.data.on_card import page_locked
from kmip_data.models.training.data.run_data import BatchSize, Pass, RunData
from kmip_data.reading.dataset import ShardedDataset
from kmip_data.reading.loader import GraphLoader
from kmip_data.wording import counted


class EpochBatches:
    """The train batches of the current epoch, in an order that depends on the seed and that epoch alone.

    Lightning counts the epochs of a loader by how often it was iterated, resumed or not, and would
    keep its position too, which is ahead of the step; here ``epoch()``, the number of finished ones, and
    ``done()``, the batches of this one that were trained on before, decide and nothing else.
    """

    def __init__(
        self, loader: GraphLoader, epoch: Callable[[], int], done: Callable[[], int], *, of_nodes: bool
    ) -> None:
        self._loader, self._epoch, self._done, self._of_nodes = loader, epoch, done, of_nodes

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        at = {"epoch": self._epoch(), "position": self._done()}
        self._loader.load_state_dict(self._loader.state_dict() | at)
        batches = iter(self._loader)
        batch = next(batches, None)
        while batch is not None:
            # One ahead, so that the loader has ended before Lightning, which counts, drops it: a Ctrl-C
            # that met its threads' end while it is being dropped would be lost.
            following = next(batches, None)
            if following is None and self._repeats():
                # Its graph is another process's: this one joins in, and learns nothing from it.
                batch.train_mask = torch.zeros(
                    batch.num_nodes if self._of_nodes else batch.num_graphs, dtype=torch.bool
                )
            yield batch
            batch = following

    def _repeats(self) -> bool:
        """True if the last batch has fewer graphs than processes, and none for this one."""
        graphs, size = len(self._loader.dataset), self._loader.batch_size
        return self._loader.ranks()[0] >= (graphs % size or size)


class ManyGraphs(RunData):
    """A build of many graphs."""

    unit = "graphs"

    def _open(self, config: RunConfig) -> None:
        if config.whole_batch < config.processes:
            raise UsageError(
                f"A batch of {counted(config.whole_batch, 'graph')} cannot be divided among processes.",
                expected=f"training.batch_size of at least {config.processes}, one graph for each",
                found=f"{config.processes} processes",
                left="nothing was started",
                next=f"fewer --devices, --set training.batch_size={config.processes}, or"
                " --set training.scale=batch (batches and learning rate grow with the processes)",
            )
        self._whole = self._records(config)
        self._datasets = {part: self._records(config, part) for part in PARTS if part in self.split.parts}

    def _size(self, part: str) -> int:
        return len(self._datasets.get(part, ()))

    @property
    def largest_batch(self) -> BatchSize:
        """Upper bound of a process's train batch: the largest graphs together."""
        dataset, count = self._datasets["train"], -(-self.config.whole_batch // self.config.processes)
        nodes, edges = (sorted(sizes.tolist())[-count:] for sizes in (dataset.nodes, dataset.edges))
        return BatchSize(len(nodes), sum(nodes), sum(edges), sum(n * n for n in nodes))

    @property
    def ragged(self) -> bool:
        """True if graphs differ in size."""
        dataset = self._datasets["train"]
        return any(sizes.min() < sizes.max() for sizes in (dataset.nodes, dataset.edges))

    @cached_property
    def example(self) -> Any:
        """The first train graph as a batch."""
        return self.record("train", 0)

    def record(self, part: str, position: int) -> Any:
        """One graph of a part as a batch."""
        dataset = self._datasets[part][position : position + 1]
        return next(iter(_loader(dataset, 1, prefetch=0, rank=0, world_size=1)))

    def batches(self, epoch: Callable[[], int], done: Callable[[], int] = lambda: 0) -> EpochBatches:
        """Train batches of the epoch that ``epoch()`` gives; every process of a run gets as many."""
        return EpochBatches(self._train_loader(), epoch, done, of_nodes=self.task.level == "node")

    def _train_loader(self, **ranks: int) -> GraphLoader:
        order = {"shuffle": self.config.training.shuffle, "seed": self.config.training.seed}
        size = self.config.whole_batch
        return self._loader(self._datasets["train"], size, even=True, divide=True, **order, **ranks)

    def names(self, epoch: int, batch: int) -> list[str]:
        """Keys of the graphs, of all processes."""
        return self._train_loader(rank=0, world_size=1).keys(epoch, batch)

    def passes(self, parts: Sequence[str]) -> list[Pass]:
        """Each part in batches of its own, in file order; whole batches go to the processes in turn."""
        size, found = self.config.training.batch_size, list[Pass]()
        for part in parts:
            loader = self._loader(dataset := self._datasets[part], size)
            rank, processes = loader.ranks()
            if processes > 1:  # a loss may depend on how graphs are batched, so its batches are those of one
                own = [place for place in range(len(dataset)) if place // size % processes == rank]
                loader = self._loader(dataset[own], size, rank=0, world_size=1)
            found.append(((part,), loader))
        return found

    def _loader(self, dataset: ShardedDataset, batch_size: int, **options: Any) -> GraphLoader:
        return _loader(dataset, batch_size, pin_memory=page_locked(self.config.system.device), **options)


def _loader(dataset: ShardedDataset, batch_size: int, **options: Any) -> GraphLoader:
    return GraphLoader(dataset, batch_size, compact=dataset.schema.edges == "neighbor", **options)
