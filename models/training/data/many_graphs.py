"""Data of many graphs: batches of whole graphs, each part in batches of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

from kmip_data.builds.home import Build
from kmip_data.datasets.points import feature_views
from kmip_data.datasets.transforms import LocalDegreeProfile
from kmip_data.format.schema import Column
from kmip_data.graphs.degree_profile import FIELDS
from kmip_data.models.training.config.keys import RunConfig
from kmip_data.models.training.data.run_data import DEGREE_PROFILE, Pass, RunData, columns_read
from kmip_data.models.training.memory.machine import Size
from kmip_data.reading.dataset import ShardedDataset
from kmip_data.reading.loader import GraphLoader


class EpochBatches:
    """The train batches of the epoch at hand, in an order that depends on the seed and that epoch alone.

    Lightning counts the epochs of a loader by how often it was iterated, resumed or not, and would
    keep its position too; here an epoch is what has been trained before, and nothing else.

    Parameters
    ----------
    epoch
        Gives the number of finished epochs.
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

    def __init__(self, build: Build, split_name: str, config: RunConfig, required: Sequence[str]) -> None:
        computed = config.data.features == DEGREE_PROFILE
        options: dict[str, Any] = {
            "split_name": split_name,
            "views": () if computed else feature_views(build.card.dataset, config.data.features),
            "columns": columns_read(build, config),
            "transform": LocalDegreeProfile("2.0") if computed else None,
        }
        self._whole = ShardedDataset(build, **options)
        self._datasets: dict[str, ShardedDataset] = {}
        self._options = options
        super().__init__(build, split_name, config, required)

    def _size(self, part: str, config: RunConfig) -> int:
        if part not in self.split.parts:
            return 0
        self._datasets[part] = ShardedDataset(self.build, part, **self._options)
        return len(self._datasets[part])

    def _num_classes(self, column: Column) -> int:
        # Without a transform, which would have every graph read.
        labels = ShardedDataset(self.build, split_name=self.split_name, columns=["y"])
        return int(labels.num_classes)

    @property
    def in_channels(self) -> int:
        """Columns of ``x``."""
        return int(self._whole.num_node_features)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of ``x``; empty where the build does not name them."""
        if self.config.data.features == DEGREE_PROFILE:
            return FIELDS
        schema = self.build.card.schema_
        view = next((view for view in self._options["views"] if view.attribute == "x"), None)
        column = next(column for column in schema.columns if column.attribute == "x")
        return column.fields if view is None else column.fields[view.start : view.stop]

    @property
    def edge_channels(self) -> int | None:
        """Columns of ``edge_attr``, ``None`` without."""
        return int(self._whole.num_edge_features) or None

    @property
    def largest_batch(self) -> Size:
        """Upper bound of a train batch: the largest graphs together."""
        dataset, count = self._datasets["train"], self.config.training.batch_size
        nodes, edges = (sorted(sizes.tolist())[-count:] for sizes in (dataset.nodes, dataset.edges))
        return Size(len(nodes), sum(nodes), sum(edges))

    @cached_property
    def example(self) -> Any:
        """The first train graph as a batch."""
        dataset = self._datasets["train"]
        compact = dataset.schema.edges == "neighbor"
        return next(iter(GraphLoader(dataset[:1], 1, compact=compact, prefetch=0)))

    def batches(self, epoch: Callable[[], int]) -> EpochBatches:
        """Train batches of the epoch that ``epoch()`` gives; every process of a run gets as many."""
        training = self.config.training
        loader = self.loader("train", shuffle=training.shuffle, seed=training.seed, even=True)
        return EpochBatches(loader, epoch)

    def passes(self, parts: Sequence[str]) -> list[Pass]:
        """Each part in batches of its own, in file order."""
        return [((part,), self.loader(part)) for part in parts]

    def loader(self, part: str, **order: Any) -> GraphLoader:
        """Batches of a part, in file order by default, each graph once over all processes."""
        dataset = self._datasets[part]
        return GraphLoader(
            dataset,
            self.config.training.batch_size,
            compact=dataset.schema.edges == "neighbor",
            **order,
        )
