"""Base of the data of a run: build, split, parts, task, and transfer to a GPU.

Batches of many graphs or of one graph are in :mod:`.open_data`.
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
from kmip_data.builds.home import Build, added_column_names
from kmip_data.datasets.inputs import DEGREE_PROFILE, network_inputs
from kmip_data.errors import UsageError
from kmip_data.format.card import COMPLETE_BY_COUNTS, Card, SplitEntry
from kmip_data.format.schema import LINKS, LOG10, Column
from kmip_data.format.split_files import PARTS
from kmip_data.format.targets import (
    DEFAULT_METRICS,
    TargetType,
    check_network_inputs,
    eval_metric,
    learned_column,
    target_column,
    target_type_of,
)
from kmip_data.models.layers.batch import BatchSize
from kmip_data.models.network import fit_hidden_dim
from kmip_data.models.training.config.keys import RunConfig, without_none
from kmip_data.models.training.config.overrides import key_value
from kmip_data.models.training.config.preset_for_data import compatible_choices, level_of_column
from kmip_data.models.training.config.presets import build_folder_or_none
from kmip_data.models.training.tasks import (
    Task,
    target_types_of_classes,
    target_types_of_values,
)
from kmip_data.pipelines.added_splits import fill_step
from kmip_data.reading.batching import make_batch
from kmip_data.reading.dataset import ShardedDataset

#: Kind of the targets -> default loss.
USUAL_LOSSES: dict[TargetType, str] = {
    "classification": "cross_entropy",
    "multilabel": "binary_cross_entropy",
    "regression": "l1",
    "links": "link_cross_entropy",
}


def task_of_targets(
    column: Column, config: RunConfig, output_counts: Mapping[TargetType, int]
) -> Task:
    """Return the task of the targets: the task of ``config``, or else by their stored form.

    Integers, one per row, are classes; integers in a row, or others with a number of
    classes, are labels; other numbers are values; bits of pairs are links. ``output_counts`` maps each
    possible type of the targets to the number of outputs. Raises ``UsageError`` if task, loss, metric or head of
    ``config`` do not fit the targets.
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
        chosen = key_value(config, name)
        if chosen is None or chosen in names:
            continue
        if name != "training.task" and target_type != stored:
            targets += f", learned as {config.training.task}"
        raise UsageError(
            f"{name} = {chosen} does not fit the targets: {column.attribute} is {targets}.",
            expected=", ".join(names),
            next=f"--set {name}=none, chosen by the targets; or one of these",
        )
    return Task(
        level,
        target_type,
        output_counts[target_type],
        log10=target_type == "regression" and column.unit == LOG10,
        stored=None if target_type == stored else stored,
    )


def _check_classes_are_numbers(card: Card, task: Task) -> None:
    """Raise ``UsageError`` for a regression on numbers of classes whose names are other numbers."""
    names = card.class_names
    default_names = [str(number) for number in range(len(names))]
    if task.target_type != "regression" or task.stored != "classification":
        return
    if list(names) == default_names:
        return
    if names and all(name.removeprefix("-").isdecimal() for name in names):
        raise UsageError(
            f"The targets of {card.dataset} are classes, numbered from 0 and named {names[0]}, {names[1]}, …: "
            "a regression would learn their numbers.",
            next="build it again with --set task=regression, which keeps the values",
        )


def with_task_defaults(config: RunConfig, task: Task) -> RunConfig:
    """Return ``config`` with loss, metric and head filled in by the task."""
    loss = USUAL_LOSSES[task.target_type]
    metric = task.metric or DEFAULT_METRICS[task.target_type]
    if task.target_type == "classification" and task.level == "node":
        loss = "weighted_cross_entropy"
    config = config.with_values(
        "training",
        loss=config.training.loss or loss,
        metric=config.training.metric or metric,
    )
    return config.with_values("model", head=config.model.head or task.level)


ALL = "all"  #: all records, whatever part they are in, as a part
#: Part -> batch attribute with the rows of its mask, int64.
ROWS = {part: f"{part}_rows" for part in (*PARTS, ALL)}
#: Parts, and one pass over their batches.
Pass = tuple[tuple[str, ...], Iterable[Data]]
#: Records read at a time.
PIECE = 4096


class RunData(ABC):
    """A build, opened for a run.

    ``task``: the task of a finished run, for a build without targets.
    """

    #: Unit of a part: graphs or nodes.
    unit: str
    #: All parts.
    _whole: ShardedDataset | Data

    def __init__(
        self,
        build: Build,
        split_name: str,
        config: RunConfig,
        required: Sequence[str],
        task: Task | None = None,
    ) -> None:
        self.build = build
        #: Key of ``card.splits``.
        self.split_name = split_name
        #: Source of the node features.
        self.inputs = network_inputs(build.card, config.data.features, config.data.coordinates)
        column = checked_target_column(build, config, task)
        self._open(config)
        #: Part -> number of its graphs (or nodes), for parts that have any, in order.
        self.sizes: dict[str, int] = {}
        for part in PARTS:
            size = self._part_size(part)
            if size:
                self.sizes[part] = size
        for part in required:
            self.check_part(part, fill_step(build.card, split_name, part))
        self.task = self._choose_task(column, config) if column is not None else cast(Task, task)
        #: Configuration with loss, metric and head filled in.
        self.config = with_task_defaults(config, self.task)

    def _choose_task(self, column: Column, config: RunConfig) -> Task:
        task = task_of_targets(column, config, self._output_counts(column, config))
        card = self.build.card
        if task.stored is not None:
            _check_classes_are_numbers(card, task)
            return task
        # A manifest may name another metric than the usual one of its targets.
        return replace(task, metric=eval_metric(card.schema_, card.manifest))

    @abstractmethod
    def _open(self, config: RunConfig) -> None:
        """Open the parts of the build that ``config`` names."""

    def _output_counts(self, column: Column, config: RunConfig) -> dict[TargetType, int]:
        """Return possible types of the targets, with the number of outputs."""
        stored = target_type_of(column)
        if stored == "classification":
            # Count classes over all records, as a part may lack some.
            records = ShardedDataset(self.build, split_name=self.split_name, columns=["y"])
            return target_types_of_classes(int(records.num_classes))
        if config.training.task is not None and stored != "links":
            return target_types_of_values(self.rows_of("y"))
        return {stored: column.shape[0] if column.shape and stored != "links" else 1}

    def attributes_read(self, config: RunConfig) -> list[str]:
        """Return the attributes of nodes and edges that the network reads."""
        names = [*self.inputs.attributes]
        if config.model.edge_encoder not in {"dummy", "none"}:
            names.append("edge_attr")
        return names

    def _open_records(self, config: RunConfig, part: str | None = None) -> ShardedDataset:
        """Open a part, or all, with only the columns that the network reads."""
        stored = {column.attribute for column in self.build.card.schema_.columns}
        names = [name for name in (*self.attributes_read(config), "y", LINKS) if name in stored]
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
        """Number of graphs (or nodes) of a part."""

    @property
    @abstractmethod
    def largest_batch(self) -> BatchSize:
        """Return an upper bound on the size of a train batch."""

    @property
    @abstractmethod
    def is_ragged(self) -> bool:
        """True if train batches before the last differ in their numbers of nodes or edges."""

    @property
    @abstractmethod
    def example_batch(self) -> Data:
        """Return a small batch with the columns that the network reads."""

    @abstractmethod
    def record_batch(self, part: str, position: int) -> Data:
        """Return the batch of one record of a part."""

    @abstractmethod
    def train_batches(self, epoch: int, done: int = 0) -> Iterable[Data]:
        """Return the train batches of an epoch, from 0, without its first ``done``."""

    @abstractmethod
    def evaluation_passes(self, parts: Sequence[str]) -> list[Pass]:
        """Return passes over ``parts`` that visit every row once over all processes."""

    def rows_of(self, attribute: str) -> Iterator[torch.Tensor]:
        """Yield the stored rows of a node or edge attribute of all parts, :data:`PIECE` records at a time."""
        for batch in _stored_batches(ShardedDataset(self.build, columns=[attribute])):
            yield batch[attribute]

    def targets_of(self, part: str) -> torch.Tensor:
        """Return all targets ``y`` of a part of a regression, (rows, outputs)."""
        dataset = ShardedDataset(
            self.build,
            None if self.unit == "nodes" else part,
            split_name=self.split_name,
            columns=["y"],
        )
        if self.unit == "nodes":
            whole = dataset[0]
            targets = self.task.targets(whole)[dataset.masks[f"{part}_mask"]]
            return targets.view(-1, self.task.outputs)
        return torch.cat(
            [
                self.task.targets(batch).view(-1, self.task.outputs)
                for batch in _stored_batches(dataset)
            ]
        )

    @property
    def parts(self) -> tuple[str, ...]:
        """Parts that are not empty, in order."""
        return tuple(self.sizes)

    def check_part(self, part: str, step: str = "") -> None:
        """Raise ``UsageError``, with the next ``step``, where the part does not exist or is empty."""
        if part not in (*self.sizes, ALL):
            sizes = ", ".join(f"{name} {size:,}" for name, size in self.sizes.items())
            raise UsageError(
                f"The {part} part of the split {self.split_name!r} has no {self.unit}: {sizes or 'all empty'}.",
                next=step or f"another part: {' or '.join(self.sizes)}",
            )

    @property
    def evaluated_parts(self) -> tuple[str, ...]:
        """Parts measured in an evaluation; train is measured while learning."""
        return tuple(part for part in self.sizes if part != "train")

    @property
    def in_channels(self) -> int:
        """Columns of ``x``."""
        return int(self._whole.num_node_features)

    @property
    def network_sizes(self) -> dict[str, Any]:
        """Arguments of :func:`~kmip_data.models.network.build_model` determined by the data."""
        return {
            "in_channels": self.in_channels,
            "num_classes": self.task.outputs,
            "edge_channels": int(self._whole.num_edge_features) or None,
        }

    @property
    def split(self) -> SplitEntry:
        """The split's entry in the card."""
        return self.build.card.splits[self.split_name]

    @property
    def description(self) -> str:
        """Describe the data in a line."""
        card = self.build.card
        sizes = ", ".join(f"{part} {size:,}" for part, size in self.sizes.items())
        line = (
            f"{card.dataset}{card.coverage_suffix}, {self.build.path}, split {self.split_name!r}: "
        )
        line += f"{sizes} {self.unit}"
        if card.raw_file_status == COMPLETE_BY_COUNTS:
            line += f"; raw files: {COMPLETE_BY_COUNTS}"
        return line

    @property
    def identity(self) -> dict[str, Any]:
        """Digests of build, shards and split, which a resumed run compares."""
        card = self.build.card
        digests = {name: entry.digest for name, entry in self.split.parts.items()}
        return {"build_key": card.key, "shards": shards_digest(card), "split": digests}

    def sample_evaluation(self) -> None:
        """Sample evaluations like training: fill in ``training.eval_neighbors``."""
        neighbors = self.config.training.neighbors
        self.config = self.config.with_values("training", eval_neighbors=neighbors)

    def pin_settings(self, config: RunConfig) -> RunConfig:
        """Return ``config`` with all settings determined by the data.

        They are build, split, task, width, and whether evaluations are sampled.
        """
        card = self.build.card
        folder = build_folder_or_none(config.data.dataset)
        config = config.with_values(
            "data",
            # A relative path would depend on the working directory.
            dataset=config.data.dataset if folder is None else str(folder),
            parameters=without_none(card.parameters),
            split=without_none(self.split.parameters),
            sample=card.sample,
        )
        config = config.with_values("training", eval_neighbors=self.config.training.eval_neighbors)
        config = with_task_defaults(config, self.task)
        return config.model_copy(
            update={"model": fit_hidden_dim(config.model, **self.network_sizes)}
        )


def _stored_batches(dataset: ShardedDataset) -> Iterator[Data]:
    """Yield the records of a dataset in order, :data:`PIECE` at a time."""
    assembler = dataset.assembler
    if assembler is None:
        # The items of a city or of another single graph are made one by one.
        yield from dataset
        return
    for start in range(0, len(dataset), PIECE):
        yield make_batch(assembler, dataset.records[start : start + PIECE])


def checked_target_column(
    build: Build, config: RunConfig, task: Task | None = None
) -> Column | None:
    """Return the target column; raise ``UsageError`` if features or targets are missing.

    With the ``task`` of a run targets may be missing.
    """
    features = config.data.features != DEGREE_PROFILE
    if task is not None and target_column(build.card.schema_) is None:
        check_network_inputs(build.card, build.path, features=features)
        return None
    return learned_column(build.card, build.path, features=features)


def prefetch_to_device(batches: Iterable[Data], device: torch.device) -> Iterable[Data]:
    """Return the batches; for a GPU, each is copied during the previous step."""
    return copy_ahead(batches, device) if device.type == "cuda" else batches


def uses_page_locked_memory(wanted: str) -> bool:
    """True if batches for this ``system.device`` are page-locked, to be copied during a step."""
    return wanted != "cpu" and torch.cuda.is_available()


@functools.cache
def _copy_stream(device: torch.device) -> torch.cuda.Stream:
    """Return the stream for all copies, as the allocator reuses memory within a stream alone."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def copy_ahead(batches: Iterable[Data], device: torch.device) -> Iterator[Data]:
    """Yield the batches on a GPU, each copied ahead of its use.

    Copies from :func:`uses_page_locked_memory` memory overlap the step. Rows of masks are found on the host
    first, because on the GPU the host would wait for their number.
    """
    sent = map(functools.partial(_start_copy, device), batches)
    previous = next(sent, None)
    while previous is not None:
        following = next(sent, None)  # begins its copy
        yield _wait_for_copy(device, *previous)
        previous = following


@torch.inference_mode(False)  # an evaluation's graph may be trained on, too
def _start_copy(device: torch.device, batch: Data) -> tuple[Data, torch.cuda.Event]:
    """Begin the copy, and record an event for its end."""
    for part, rows in ROWS.items():
        mask = getattr(batch, f"{part}_mask", None)
        # A dataset of one graph has the same batch in every epoch.
        if mask is not None and rows not in batch:
            batch[rows] = mask.nonzero()[:, 0]
    stream = _copy_stream(device)
    with torch.cuda.stream(stream):
        return batch.to(device, non_blocking=True), stream.record_event()


def _wait_for_copy(device: torch.device, batch: Data, copied: torch.cuda.Event) -> Data:
    """Make the GPU, not the host, wait for the copy, and keep the batch's memory until the step's end."""
    stream = torch.cuda.current_stream(device)
    stream.wait_event(copied)
    return batch.apply_(lambda tensor: tensor.is_cuda and tensor.record_stream(stream))
