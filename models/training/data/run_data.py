"""What a run reads, whichever form its data have: a build, its split, its parts, its task."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from kmip_data.builds.columns import added_names
from kmip_data.builds.home import Build
from kmip_data.datasets.city_columns import is_city, vocabulary
from kmip_data.errors import UsageError
from kmip_data.format.parts import PARTS
from kmip_data.format.schema import LINKS, Column
from kmip_data.models.network import fit_hidden_dim
from kmip_data.models.registry import POSITIONAL
from kmip_data.models.training.config.keys import RunConfig
from kmip_data.models.training.memory.machine import Size
from kmip_data.models.training.objective.tasks import Task, is_class, target_column, task_of, with_task
from kmip_data.models.training.run.result import SplitUsed


class Batches(Protocol):
    """Batches of one pass."""

    def __iter__(self) -> Any: ...
    def __len__(self) -> int: ...


#: Parts, and one pass over the batches that hold them: each part in passes of its own, or all in one.
Pass = tuple[tuple[str, ...], Iterable[Any]]


class RunData(ABC):
    """A build, opened for a run.

    Attributes
    ----------
    build
        What the graphs are read from.
    split_name
        Key of ``card.splits``.
    config
        The run, with loss, metric and head written out.
    task
        What is predicted.
    sizes
        Part -> number of its graphs (or nodes), for parts that have any, in order.
    """

    unit: str  #: what a part is made of: graphs or nodes

    def __init__(self, build: Build, split_name: str, config: RunConfig, required: Sequence[str]) -> None:
        self.build, self.split_name = build, split_name
        column = check_columns(build, config)
        self.sizes = {part: size for part in PARTS if (size := self._size(part, config))}
        for part in required:
            if part not in self.sizes:
                raise UsageError(
                    f"The {part} part of the split {split_name} has no {self.unit}.",
                    expected=f"at least one to train on, and one to choose the best epoch by ({self.unit})",
                    found=str(self.sizes),
                    left="nothing was started",
                    next="a larger --limit, or another split",
                )
        # Classes are counted over all records: a part may lack some.
        classes = self._num_classes(column) if is_class(column) else 0
        self.task: Task = task_of(column, config, num_classes=classes)
        self.config = with_task(config, self.task)

    @abstractmethod
    def _size(self, part: str, config: RunConfig) -> int:
        """Number of graphs (or nodes) of a part; opens what it needs."""

    @abstractmethod
    def _num_classes(self, column: Column) -> int:
        """Number of classes of the whole build, where the targets are classes."""

    @property
    @abstractmethod
    def in_channels(self) -> int:
        """Columns of ``x``."""

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of ``x``; empty where the build does not name them."""

    @property
    def vocabulary(self) -> str:
        """Digest of the categories that one-hot columns stand for; empty where there are none to know.

        Where they are not known, they are taken to be this build's own.
        """
        card = self.build.card
        if not is_city(card):
            return ""
        known = vocabulary(card)
        return canonical_digest(card.key if known is None else known)

    @property
    @abstractmethod
    def edge_channels(self) -> int | None:
        """Columns of ``edge_attr``, ``None`` without."""

    @property
    @abstractmethod
    def largest_batch(self) -> Size:
        """Upper bound of a train batch."""

    @property
    @abstractmethod
    def example(self) -> Any:
        """A small batch of what the network reads."""

    @abstractmethod
    def batches(self, epoch: Callable[[], int]) -> Batches:
        """Train batches of the epoch that ``epoch()`` gives."""

    @abstractmethod
    def passes(self, parts: Sequence[str]) -> list[Pass]:
        """What must be read to measure ``parts``, each row of a part once over all processes."""

    @property
    def parts(self) -> tuple[str, ...]:
        """Parts that are not empty, in order."""
        return tuple(self.sizes)

    @property
    def evaluated(self) -> tuple[str, ...]:
        """Parts measured in an evaluation epoch; train comes from the epoch itself."""
        return tuple(part for part in self.sizes if part != "train")

    @property
    def num_classes(self) -> int:
        """Columns of the network's output."""
        return self.task.outputs

    @property
    def split(self) -> Any:
        """The split's entry in the card."""
        return self.build.card.splits[self.split_name]

    @property
    def label(self) -> str:
        """Name of the dataset for folders; a sample says so."""
        card = self.build.card
        return f"{card.dataset}-sample" if card.sample else card.dataset

    @property
    def description(self) -> str:
        """One line for people."""
        sizes = ", ".join(f"{part} {size:,}" for part, size in self.sizes.items())
        return (
            f"{self.build.card.dataset}{self.build.card.remark}, {self.build.path}, split {self.split_name}: "
            f"{sizes} {self.unit}"
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

    def pinned(self, config: RunConfig) -> RunConfig:
        """Return ``config`` with all that the data decide written out: build, split, task, width."""
        given = {name: value for name, value in self.build.card.parameters.items() if value is not None}
        split = {name: value for name, value in self.split.parameters.items() if value is not None}
        data = config.data.model_copy(
            update={"parameters": given, "split": split, "sample": self.build.card.sample}
        )
        config = with_task(config.model_copy(update={"data": data}), self.task)
        model = fit_hidden_dim(
            config.model,
            in_channels=self.in_channels,
            num_classes=self.num_classes,
            edge_channels=self.edge_channels,
        )
        return config.model_copy(update={"model": model})


def canonical_digest(value: Any) -> str:
    """First 12 hex digits of the SHA-256 of a value as canonical JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


#: Attributes that a network reads, where they are stored; nothing else fills batches.
READ = ("x", "edge_attr", "y", LINKS)
DEGREE_PROFILE = "degree-profile"  #: features that are computed from the edges


def columns_read(build: Build, config: RunConfig) -> list[str]:
    """Names of the attributes that items of a run have: what the network reads and no more."""
    stored = {column.attribute for column in build.card.schema_.columns}
    names = list(READ)
    if config.model.edge_encoder == "dummy":
        names.remove("edge_attr")
    if config.data.features == DEGREE_PROFILE:
        names.remove("x")
    encoding = POSITIONAL[config.model.positional].encoding
    joined = [encoding.name] if encoding and encoding.name in added_names(build.path) else []
    return [name for name in names if name in stored] + ["edge_index", *joined]


def check_columns(build: Build, config: RunConfig) -> Column:
    """Return the column of the targets; raise UsageError where something to learn from is missing."""
    card, schema = build.card, build.card.schema_
    labels = target_column(schema)
    missing = [
        what
        for what, there in (
            (
                "node features x (--set data.features=degree-profile computes some from the edges)",
                config.data.features == DEGREE_PROFILE or any(c.attribute == "x" for c in schema.columns),
            ),
            ("edges", schema.edges != "none"),
            (
                "targets y of nodes or graphs, or links",
                labels is not None and labels.level in {"node", "graph"},
            ),
            ("a split", bool(card.splits)),
        )
        if not there
    ]
    if missing or labels is None or len(labels.shape) > 1:
        raise UsageError(
            f"{card.dataset} is not data to train on.",
            expected="node features, edges, one row of targets for each node or graph, and a split",
            found=f"missing: {'; '.join(missing)}" if missing else "targets with several rows",
            left="nothing was started",
            next=f"kmip-data info {build.path}",
        )
    return labels
