"""The batches of a run: its build, its split, its parts and its view of the features."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kmip_data.card import read_card
from kmip_data.datasets import feature_views
from kmip_data.errors import UsageError
from kmip_data.home import Build, Home
from kmip_data.loader import GraphLoader
from kmip_data.models.training.config import DataConfig, RunConfig
from kmip_data.models.training.machine import Size
from kmip_data.models.training.metrics import PARTS
from kmip_data.models.training.presets import is_build_folder
from kmip_data.models.training.result import SplitUsed
from kmip_data.opening import obtain, split_name
from kmip_data.schema import Column
from kmip_data.sharded import ShardedDataset


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


@dataclass
class RunData:
    """A build, opened for a run.

    Attributes
    ----------
    build
        What the graphs are read from.
    split_name
        Key of ``card.splits``.
    config
        The run; its batch size, seed, order and features.
    required
        Parts that must have graphs.
    num_classes
        Number of classes of the whole build.
    """

    build: Build
    split_name: str
    config: RunConfig
    required: tuple[str, ...] = ("train", "val")
    num_classes: int = field(init=False)
    _parts: dict[str, ShardedDataset] = field(init=False)

    def __post_init__(self) -> None:
        _check_task(self.build)
        options: dict[str, Any] = {
            "split_name": self.split_name,
            "views": feature_views(self.build.card.dataset, self.config.data.features),
            "columns": _columns(self.build),
        }
        # Classes are counted over all records: a part may lack some.
        self.num_classes = int(ShardedDataset(self.build, **options).num_classes)
        parts = {
            part: ShardedDataset(self.build, part, **options) for part in PARTS if part in self.split.parts
        }
        self._parts = {part: dataset for part, dataset in parts.items() if len(dataset)}
        for part in self.required:
            if part not in self._parts:
                raise UsageError(
                    f"The {part} part of the split {self.split_name} has no graphs.",
                    expected="at least one graph to train on, and one to choose the best epoch by",
                    found=str({name: entry.graphs for name, entry in self.split.parts.items()}),
                    left="nothing was started",
                    next="a larger --limit, or another split",
                )

    @property
    def split(self) -> Any:
        """The split's entry in the card."""
        return self.build.card.splits[self.split_name]

    @property
    def parts(self) -> tuple[str, ...]:
        """Parts that have graphs, in order."""
        return tuple(self._parts)

    @property
    def evaluated(self) -> tuple[str, ...]:
        """Parts measured in an evaluation epoch; train comes from the epoch itself."""
        return tuple(part for part in self._parts if part != "train")

    @property
    def in_channels(self) -> int:
        """Columns of ``x``."""
        return int(next(iter(self._parts.values())).num_node_features)

    @property
    def largest_batch(self) -> Size:
        """Upper bound of a train batch: the largest graphs together."""
        dataset, count = self._parts["train"], self.config.training.batch_size
        nodes, edges = (sorted(sizes.tolist())[-count:] for sizes in (dataset.nodes, dataset.edges))
        return Size(len(nodes), sum(nodes), sum(edges))

    @property
    def label(self) -> str:
        """Name of the dataset for folders; a sample says so."""
        card = self.build.card
        return f"{card.dataset}-sample" if card.sample else card.dataset

    @property
    def description(self) -> str:
        """One line for people."""
        sizes = ", ".join(f"{part} {len(dataset)}" for part, dataset in self._parts.items())
        sample = " (sample: generated data)" if self.build.card.sample else ""
        return (
            f"{self.build.card.dataset}{sample}, {self.build.path}, split {self.split_name}: {sizes} graphs"
        )

    @property
    def split_used(self) -> SplitUsed:
        """The split as ``result.json`` has it."""
        return SplitUsed(
            name=self.split_name,
            rule=self.split.rule,
            parameters=self.split.parameters,
            digests={name: entry.digest for name, entry in self.split.parts.items()},
        )

    @property
    def identity(self) -> dict[str, Any]:
        """What a resumed run must find again: build and split, by digest."""
        return {"build_key": self.build.card.key, "split": self.split_used.digests}

    def batches(self, epoch: Callable[[], int]) -> EpochBatches:
        """Train batches of the epoch that ``epoch()`` gives; every process of a run gets as many."""
        training = self.config.training
        loader = self._loader("train", shuffle=training.shuffle, seed=training.seed, even=True)
        return EpochBatches(loader, epoch)

    def loader(self, part: str) -> GraphLoader:
        """Batches of a part in file order, each graph once over all processes."""
        return self._loader(part)

    def _loader(self, part: str, **order: Any) -> GraphLoader:
        dataset = self._parts[part]
        return GraphLoader(
            dataset,
            self.config.training.batch_size,
            compact=dataset.schema.edges == "neighbor",
            **order,
        )

    def pinned(self, config: RunConfig) -> RunConfig:
        """Return ``config`` with every parameter of the build and split written out, defaults too."""
        given = {name: value for name, value in self.build.card.parameters.items() if value is not None}
        split = {name: value for name, value in self.split.parameters.items() if value is not None}
        data = config.data.model_copy(
            update={"parameters": given, "split": split, "sample": self.build.card.sample}
        )
        return config.model_copy(update={"data": data})


def open_data(
    config: RunConfig, *, home: Home, required: tuple[str, ...] = ("train", "val"), **build_options: Any
) -> RunData:
    """Open the build that ``config.data`` means, building it first where it is missing.

    Parameters
    ----------
    required
        Parts that must have graphs.
    build_options
        As for :func:`kmip_data.opening.obtain`.

    Raises
    ------
    UsageError
        There is no such dataset, split or view, or a part has no graphs.
    """
    build, name = _obtain(config.data, home, **build_options)
    return RunData(build, name, config, required)


def _obtain(data: DataConfig, home: Home, **options: Any) -> tuple[Build, str]:
    if not is_build_folder(data.dataset):
        build = obtain(data.dataset, data.parameters, data.split, home=home, sample=data.sample, **options)
        return build, split_name(build, data.split)
    folder = Path(data.dataset).expanduser().absolute()
    build = Build(folder, read_card(folder))
    for name, value in data.parameters.items():
        if build.card.parameters.get(name) != value:
            raise UsageError(
                f"{folder} was built with another {name}.",
                expected=f"{name} = {value!r}",
                found=f"{build.card.parameters.get(name)!r}",
                left="nothing was changed",
                next=f"leave {name} out, or name the dataset: kmip-data train --dataset {build.card.dataset}",
            )
    return build, split_name(build, data.split)


def _columns(build: Build) -> list[str]:
    """What a network reads: features, edges and labels, and nothing that only fills batches."""
    stored = {column.attribute for column in build.card.schema_.columns}
    return [name for name in ("x", "edge_attr", "y") if name in stored] + ["edge_index"]


def _check_task(build: Build) -> None:
    """Raise UsageError unless the build is many graphs with features, edges and a class for each node."""
    card, schema = build.card, build.card.schema_
    labels = schema.labels
    missing = [
        what
        for what, there in (
            ("node features x", any(column.attribute == "x" for column in schema.columns)),
            ("edges", schema.edges != "none"),
            ("a whole-number class y for each node", labels is not None and _is_node_class(labels)),
            ("a split", bool(card.splits)),
            ("more than one graph", card.counts.get("graphs") != 1),
        )
        if not there
    ]
    if missing:
        raise UsageError(
            f"{card.dataset} is not data for node classification over many graphs.",
            expected="node features, edges, a class for each node, and a split of the graphs",
            found=f"missing: {'; '.join(missing)}",
            left="nothing was started",
            next=f"kmip-data info {build.path}",
        )


def _is_node_class(column: Column) -> bool:
    return column.level == "node" and column.shape == () and column.presented.startswith(("int", "uint"))
