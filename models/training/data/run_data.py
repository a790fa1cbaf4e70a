"""Base class for the data of a run (build, split, parts, task), and transfer to a GPU.

The subclasses in :mod:`.open_data` make batches of many graphs or of a single one.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch_geometric.data import Data

from kmip_data.builds.added_columns import shards_digest
from kmip_data.builds.home import Build, added_column_names, path_or_none
from kmip_data.datasets.inputs import DEGREE_PROFILE, network_inputs
from kmip_data.errors import Setting, Step, UsageError
from kmip_data.format.card import COMPLETE_BY_COUNTS, Card, SplitEntry
from kmip_data.format.schema import LINK_ATTRIBUTE, LOG10_UNIT, Column
from kmip_data.format.split_files import PARTS
from kmip_data.format.targets import (
    DEFAULT_METRICS,
    TargetType,
    eval_metric,
    require_network_inputs,
    require_trainable,
    target_column,
    target_type_of,
)
from kmip_data.models.layers.batch import BatchSize
from kmip_data.models.network import fit_hidden_dim
from kmip_data.models.training.config.adapt_preset import compatible_choices, level_of_column
from kmip_data.models.training.config.overrides import value_of_key
from kmip_data.models.training.config.run_config import RunConfig, without_none
from kmip_data.models.training.data.scaled_columns import default_scale
from kmip_data.models.training.tasks import (
    Task,
    target_types_of_classes,
    target_types_of_values,
)
from kmip_data.pipelines.added_splits import remedy_for_empty_part
from kmip_data.reading.batching import make_batch
from kmip_data.reading.dataset import ShardedDataset

#: Default loss by type of the targets.
DEFAULT_LOSSES: dict[TargetType, str] = {
    "classification": "cross_entropy",
    "multilabel": "binary_cross_entropy",
    "regression": "l1",
    "links": "link_cross_entropy",
}


def task_of_targets(
    column: Column, config: RunConfig, output_counts: Mapping[TargetType, int]
) -> Task:
    """Return the task of the targets: the one in ``config``, or else inferred from their column.

    A single integer per row is a class. Several integers per row, or numbers with a number of
    classes, are labels. Other numbers are values to regress, and bits of pairs are links.
    ``output_counts`` maps each possible type of the targets to its number of outputs. Raises
    ``UsageError`` if task, loss, metric or head of ``config`` do not fit the targets.
    """
    stored = target_type_of(column)
    target_type = config.training.task or stored
    level = level_of_column(column)
    targets = f"{stored} of a {level}"
    if stored == "classification":
        targets = f"one of {output_counts[stored]} classes of a {level}"
    for name, names in compatible_choices(
        column, target_type, output_counts, output_counts.get(target_type)
    ).items():
        value = value_of_key(config, name)
        if value is None or value in names:
            continue
        if name != "training.task" and target_type != stored:
            targets += f", learned as {config.training.task}"
        raise UsageError(
            f"{name} = {value} does not fit the targets: {column.attribute} is {targets}.",
            expected=", ".join(names),
            steps=["with none, the targets select it", Setting({name: "none"})],
        )
    return Task(
        level,
        target_type,
        output_counts[target_type],
        log10=target_type == "regression" and column.unit == LOG10_UNIT,
        stored_type=None if target_type == stored else stored,
    )


def _check_classes_are_numbers(card: Card, task: Task) -> None:
    """Raise ``UsageError`` for a regression on class numbers if the class names are other numbers."""
    names = card.class_names
    default_names = [str(number) for number in range(len(names))]
    if task.target_type != "regression" or task.stored_type != "classification":
        return
    if list(names) == default_names:
        return
    if names and all(name.removeprefix("-").isdecimal() for name in names):
        raise UsageError(
            f"The targets of {card.dataset} are classes, numbered from 0 and named {names[0]}, {names[1]}, …: "
            "a regression would learn their numbers.",
            steps="build it again with task = regression, which keeps the values",
        )


def with_task_defaults(config: RunConfig, task: Task) -> RunConfig:
    """Return ``config`` with the task's defaults for an unset loss, metric or head."""
    loss = DEFAULT_LOSSES[task.target_type]
    metric = task.metric or DEFAULT_METRICS[task.target_type]
    if task.target_type == "classification" and task.level == "node":
        loss = "weighted_cross_entropy"
    config = config.with_values(
        "training",
        loss=config.training.loss or loss,
        metric=config.training.metric or metric,
    )
    return config.with_values("model", head=config.model.head or task.level)


ALL_RECORDS = "all"  #: part with all records, regardless of the split
#: Batch attribute with the numbers of the rows in a part's mask, int64, by part.
ROW_ATTRIBUTES = {part: f"{part}_rows" for part in (*PARTS, ALL_RECORDS)}
#: Parts that share batches, and these batches.
EvaluationPass = tuple[tuple[str, ...], Iterable[Data]]
RECORDS_PER_READ = 4096


class RunData(ABC):
    """Build opened for a run.

    ``task`` is the task of a finished run, for a build without targets.
    """

    #: noun for the members of a part: graphs or nodes
    part_members: str
    #: records or a batch whose features give the input sizes of a network
    _feature_source: ShardedDataset | Data

    def __init__(
        self,
        build: Build,
        split_name: str,
        config: RunConfig,
        required: Sequence[str],
        task: Task | None = None,
    ) -> None:
        self.build = build
        #: key in ``card.splits``
        self.split_name = split_name
        #: source of the node features
        self.inputs = network_inputs(build.card, config.data.features, config.data.coordinates)
        column = check_target_column(build, config, task, needs_split=bool(required))
        self._open(config)
        #: number of graphs (or nodes) of each part that is not empty
        self.sizes: dict[str, int] = {}
        for part in PARTS:
            size = self._part_size(part)
            if size:
                self.sizes[part] = size
        for part in required:
            self.check_part(part, remedy_for_empty_part(build.card, split_name, part))
        self.task = self._choose_task(column, config) if column is not None else cast(Task, task)
        #: configuration with the task's loss, metric and head
        self.config = with_task_defaults(config, self.task)
        if config.data.scale == "auto":
            scale = default_scale(build.card, self.task.target_type)
            self.config = self.config.with_values("data", scale=scale)
        self._check_task()

    def _choose_task(self, column: Column, config: RunConfig) -> Task:
        task = task_of_targets(column, config, self._output_counts(column, config))
        card = self.build.card
        if task.stored_type is not None:
            _check_classes_are_numbers(card, task)
            return task
        # A manifest may replace the default metric of the targets.
        return replace(task, metric=eval_metric(card.schema_, card.manifest))

    @abstractmethod
    def _open(self, config: RunConfig) -> None:
        """Open the build's records, with the columns that ``config`` needs."""

    def _check_task(self) -> None:  # noqa: B027 -- nothing to check by default
        """Raise ``UsageError`` if the opened build cannot be used for the task and its options."""

    def _output_counts(self, column: Column, config: RunConfig) -> dict[TargetType, int]:
        """Return the possible types of the targets, each with its number of outputs."""
        stored = target_type_of(column)
        if stored == "classification":
            # Count classes over all records, as a part may lack some.
            records = ShardedDataset(self.build, split_name=self.split_name, columns=["y"])
            return target_types_of_classes(int(records.num_classes))
        if config.training.task is not None and stored != "links":
            return target_types_of_values(self.read_rows("y"))
        return {stored: column.shape[0] if column.shape and stored != "links" else 1}

    def attributes_read(self, config: RunConfig) -> list[str]:
        """Return the attributes of nodes and edges that the network reads."""
        names = [*self.inputs.attributes]
        if config.model.edge_encoder not in {"dummy", "none"}:
            names.append("edge_attr")
        return names

    def _open_records(self, config: RunConfig, part: str | None = None) -> ShardedDataset:
        """Open a part, or all records, with only the columns that the network reads."""
        stored = self.build.card.schema_.attributes
        names = [
            name for name in (*self.attributes_read(config), "y", LINK_ATTRIBUTE) if name in stored
        ]
        added = added_column_names(self.build.path)
        names += [encoding.name for encoding in config.model.encodings if encoding.name in added]
        return ShardedDataset(
            self.build,
            part,
            self.inputs.transform,
            split_name=self.split_name,
            columns=[*names, "edge_index"],
            views=self.inputs.views,
        )

    @abstractmethod
    def _part_size(self, part: str) -> int:
        """Return the number of graphs (or nodes) of a part."""

    @property
    @abstractmethod
    def largest_batch(self) -> BatchSize:
        """Upper bound on the size of a train batch."""

    @property
    @abstractmethod
    def is_ragged(self) -> bool:
        """True if train batches, except the last, differ in their numbers of nodes or edges."""

    @property
    @abstractmethod
    def example_batch(self) -> Data:
        """Small batch with the columns that the network reads."""

    @abstractmethod
    def record_batch(self, part: str, position: int) -> Data:
        """Return the batch of one record of a part."""

    @abstractmethod
    def train_batches(self, epoch: int, skip: int = 0) -> Iterable[Data]:
        """Return the train batches of an epoch, from 0, without the first ``skip``."""

    @abstractmethod
    def evaluation_passes(self, parts: Sequence[str]) -> list[EvaluationPass]:
        """Return passes over ``parts`` in which all processes together visit every row once."""

    def read_rows(self, attribute: str) -> Iterator[torch.Tensor]:
        """Yield the stored rows of a node or edge attribute, some records of all parts at a time."""
        for batch in stored_batches(ShardedDataset(self.build, columns=[attribute])):
            yield batch[attribute]

    @abstractmethod
    def stored_train_rows(self, attributes: Sequence[str]) -> Iterator[Data]:
        """Yield the rows of stored attributes that are trained on, some at a time, in stored order."""

    def read_targets(self, part: str) -> torch.Tensor:
        """Return all targets ``y`` of a part: numbers or labels (rows, outputs), or classes (rows,)."""
        dataset = ShardedDataset(
            self.build,
            None if self.part_members == "nodes" else part,
            split_name=self.split_name,
            columns=["y"],
        )
        if self.part_members == "nodes":
            targets = self.task.targets(dataset[0])[dataset.masks[f"{part}_mask"]]
        else:
            targets = torch.cat([self.task.targets(batch) for batch in stored_batches(dataset)])
        if self.task.target_type == "classification":
            return targets
        return targets.view(-1, self.task.outputs)

    @property
    def parts(self) -> tuple[str, ...]:
        """Parts that are not empty, in order."""
        return tuple(self.sizes)

    def check_part(self, part: str, steps: Step | Sequence[Step] = ()) -> None:
        """Raise ``UsageError``, with ``steps``, if the part does not exist or is empty."""
        if not self.split_name and part != ALL_RECORDS:
            raise UsageError(
                f"{self.build.card.dataset} has no split, so that it has no {part} part.",
                steps=Setting(split=ALL_RECORDS),
            )
        if part not in (*self.sizes, ALL_RECORDS):
            sizes = ", ".join(f"{name} {size:,}" for name, size in self.sizes.items())
            raise UsageError(
                f"The {part} part of the split {self.split_name!r} has no {self.part_members}: "
                f"{sizes or 'all empty'}.",
                steps=steps or [Setting(split=name) for name in self.sizes],
            )

    @property
    def evaluated_parts(self) -> tuple[str, ...]:
        """Parts measured in an evaluation; train is measured during training."""
        return tuple(part for part in self.sizes if part != "train")

    @property
    def in_channels(self) -> int:
        """Columns of ``x``."""
        return int(self._feature_source.num_node_features)

    @property
    def network_sizes(self) -> dict[str, Any]:
        """Arguments of :func:`~kmip_data.models.network.build_model` determined by the data."""
        return {
            "in_channels": self.in_channels,
            "out_channels": self.task.outputs,
            "edge_channels": int(self._feature_source.num_edge_features) or None,
        }

    @property
    def split(self) -> SplitEntry:
        """Entry of the split in the card."""
        return self.build.card.splits[self.split_name]

    @property
    def description(self) -> str:
        """Description of the data in one line."""
        card = self.build.card
        sizes = ", ".join(f"{part} {size:,}" for part, size in self.sizes.items())
        line = (
            f"{card.dataset}{card.coverage_suffix}, {self.build.path}, split {self.split_name!r}: "
        )
        line += f"{sizes} {self.part_members}"
        if card.raw_file_status == COMPLETE_BY_COUNTS:
            line += f"; raw files: {COMPLETE_BY_COUNTS}"
        return line

    @property
    def digests(self) -> dict[str, Any]:
        """Digests of build, shards and split, which must not change before a run is resumed."""
        card = self.build.card
        digests = {name: entry.digest for name, entry in self.split.parts.items()}
        return {"build_key": card.key, "shards": shards_digest(card), "split": digests}

    def sample_in_evaluation(self) -> None:
        """Set ``training.eval_neighbors`` so that evaluations sample like training."""
        neighbors = self.config.training.neighbors
        self.config = self.config.with_values("training", eval_neighbors=neighbors)

    def pin_settings(self, config: RunConfig) -> RunConfig:
        """Return ``config`` with the settings that the data determine.

        These are build, split, task, width, scaled columns, and whether evaluations are sampled.
        """
        card = self.build.card
        folder = path_or_none(config.data.dataset)
        config = config.with_values(
            "data",
            # A relative path would depend on the working directory.
            dataset=config.data.dataset if folder is None else str(folder),
            parameters=without_none(card.parameters),
            split=without_none(self.split.parameters),
            sample=card.sample,
            scale=self.config.data.scale,
        )
        config = config.with_values("training", eval_neighbors=self.config.training.eval_neighbors)
        config = with_task_defaults(config, self.task)
        return config.model_copy(
            update={"model": fit_hidden_dim(config.model, **self.network_sizes)}
        )


def stored_batches(dataset: ShardedDataset, records: int = RECORDS_PER_READ) -> Iterator[Data]:
    """Yield the records of a dataset in order, some ``records`` at a time."""
    assembler = dataset.assembler
    if assembler is None:
        # A city or another single graph cannot be batched.
        yield from dataset
        return
    for start in range(0, len(dataset), records):
        yield make_batch(assembler, dataset.records[start : start + records])


def check_target_column(
    build: Build, config: RunConfig, task: Task | None = None, *, needs_split: bool = True
) -> Column | None:
    """Return the target column; raise ``UsageError`` if features, targets or a split are missing.

    With the ``task`` of a finished run, targets may be missing.
    """
    features = config.data.features != DEGREE_PROFILE
    if task is not None and target_column(build.card.schema_) is None:
        require_network_inputs(build.card, build.path, needs_features=features)
        return None
    return require_trainable(
        build.card, build.path, needs_features=features, needs_split=needs_split
    )


def prefetch_to_device(batches: Iterable[Data], device: torch.device) -> Iterable[Data]:
    """Return the batches on ``device``; a GPU copies each one during the previous step."""
    return copy_ahead(batches, device) if device.type == "cuda" else batches


def uses_page_locked_memory(device: str) -> bool:
    """True if batches for this ``system.device`` are page-locked, so that copies overlap steps."""
    return device != "cpu" and torch.cuda.is_available()


@functools.cache
def _copy_stream(device: torch.device) -> torch.cuda.Stream:
    """Return the stream for all copies; the allocator reuses memory only within a stream."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def copy_ahead(batches: Iterable[Data], device: torch.device) -> Iterator[Data]:
    """Yield the batches on a GPU, each copied ahead of its use.

    Copies from page-locked memory overlap the step. The row numbers of masks are computed on the
    host, because on the GPU the host would wait for their count.
    """
    copies = map(functools.partial(_start_copy, device), batches)
    current = next(copies, None)
    while current is not None:
        following = next(copies, None)  # starts its copy
        yield _wait_for_copy(device, *current)
        current = following


@torch.inference_mode(False)  # an evaluated graph may also be trained on
def _start_copy(device: torch.device, batch: Data) -> tuple[Data, torch.cuda.Event]:
    """Start the copy, and record an event for its end."""
    for part, attribute in ROW_ATTRIBUTES.items():
        mask = getattr(batch, f"{part}_mask", None)
        # A single graph is the same batch in every epoch, and already has its rows.
        if mask is not None and attribute not in batch:
            batch[attribute] = mask.nonzero()[:, 0]
    stream = _copy_stream(device)
    with torch.cuda.stream(stream):
        return batch.to(device, non_blocking=True), stream.record_event()


def _wait_for_copy(device: torch.device, batch: Data, copied: torch.cuda.Event) -> Data:
    """Make the GPU, not the host, wait for the copy; keep the batch's memory until the step ends."""
    stream = torch.cuda.current_stream(device)
    stream.wait_event(copied)
    return batch.apply_(lambda tensor: tensor.is_cuda and tensor.record_stream(stream))
