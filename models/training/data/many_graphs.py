"""Data of many graphs: batches of whole graphs, each part in batches of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

from kmip_data.format.parts import PARTS
from kmip_data.models.kinds import Size
from kmip_data.models.training.config.keys import RunConfig
from kmip_data.models.training.data.run_data import Pass, RunData
from kmip_data.reading.loader import GraphLoader


class EpochBatches:
    """The train batches of the current epoch, in an order that depends on the seed and that epoch alone.

    Lightning counts the epochs of a loader by how often it was iterated, resumed or not, and would
    keep its position too; here ``epoch()``, the number of finished ones, decides and nothing else.
    """

    def __init__(self, loader: GraphLoader, epoch: Callable[[], int]) -> None:
        self._loader, self._epoch = loader, epoch

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        self._loader.set_epoch(self._epoch())
        batches = iter(self._loader)
        batch = next(batches, None)
        while batch is not None:
            # One ahead, so that the loader has ended before Lightning, which counts, drops it: a Ctrl-C
            # that met its threads' end while it is being dropped would be lost.
            following = next(batches, None)
            yield batch
            batch = following


class ManyGraphs(RunData):
    """A build of many graphs."""

    unit = "graphs"

    def _open(self, config: RunConfig) -> None:
        self._whole = self._records(config)
        self._datasets = {part: self._records(config, part) for part in PARTS if part in self.split.parts}

    def _size(self, part: str) -> int:
        return len(self._datasets.get(part, ()))

    @property
    def largest_batch(self) -> Size:
        """Upper bound of a train batch: the largest graphs together."""
        dataset, count = self._datasets["train"], self.config.training.batch_size
        nodes, edges = (sorted(sizes.tolist())[-count:] for sizes in (dataset.nodes, dataset.edges))
        return Size(len(nodes), sum(nodes), sum(edges), sum(n * n for n in nodes))

    @cached_property
    def example(self) -> Any:
        """The first train graph as a batch."""
        dataset = self._datasets["train"]
        compact = dataset.schema.edges == "neighbor"
        return next(iter(GraphLoader(dataset[:1], 1, compact=compact, prefetch=0)))

    def batches(self, epoch: Callable[[], int]) -> EpochBatches:
        """Train batches of the epoch that ``epoch()`` gives; every process of a run gets as many."""
        return EpochBatches(self._train_loader(), epoch)

    def _train_loader(self) -> GraphLoader:
        training = self.config.training
        return self.loader("train", shuffle=training.shuffle, seed=training.seed, even=True)

    def names(self, epoch: int, batch: int) -> list[str]:
        """Keys of the graphs, in this process's batch."""
        return self._train_loader().keys(epoch, batch)

    def passes(self, parts: Sequence[str]) -> list[Pass]:
        """Each part in batches of its own, in file order."""
        return [((part,), self.loader(part)) for part in parts]

    def loader(self, part: str, **order: Any) -> GraphLoader:
        """Batches of a part, in file order by default, each graph once over all processes."""
        dataset = self._datasets[part]
        compact = dataset.schema.edges == "neighbor"
        return GraphLoader(dataset, self.config.training.batch_size, compact=compact, **order)
