"""Configuration of a run: the type, default and meaning of every key."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, Field, JsonValue, model_validator

from kmip_data.columns.labels import TaskName
from kmip_data.graphs.city_columns import CoordinateMode
from kmip_data.models.config import ModelConfig
from kmip_data.models.registries import RegisteredName
from kmip_data.models.training.losses import all_losses
from kmip_data.models.training.metrics import METRIC_SYNONYMS, all_metrics
from kmip_data.models.training.optimizers import OptimizerConfig
from kmip_data.models.training.schedules import ScheduleConfig
from kmip_data.registry import PLUGIN_OBJECTS, Plugin
from kmip_data.strict_model import StrictModel

#: Metadata of keys that reports do not compare between runs: they identify the run or the machine,
#: or have their own column (dataset, build, split, seed).
NOT_COMPARED: dict[str, JsonValue] = {"compared": False}


@dataclass(frozen=True)
class KSchedule:
    """Schedule of k in training: ``first`` in the first epoch, ``last`` in the last one."""

    shape: str
    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> KSchedule:
        """Parse ``cosine:50:5``; raise ``ValueError`` for anything else."""
        match = re.fullmatch("(cosine|linear):([1-9][0-9]*):([1-9][0-9]*)", text)
        if match is None:
            raise ValueError(
                f"{text!r} is not a schedule of k: cosine or linear, and two numbers, cosine:50:5"
            )
        return cls(match[1], int(match[2]), int(match[3]))

    def k_in_epoch(self, epoch: int, epochs: int) -> int:
        """Return k in ``epoch``, from 0, of a run of ``epochs``; in a run of one epoch, the last k.

        Examples
        --------
        >>> [KSchedule.parse("cosine:50:5").k_in_epoch(epoch, 5) for epoch in range(5)]
        [50, 43, 28, 12, 5]
        """
        progress = epoch / (epochs - 1) if epochs > 1 else 1.0
        if self.shape == "cosine":
            progress = (1 - math.cos(math.pi * progress)) / 2
        return round(self.first + (self.last - self.first) * progress)


#: Columns that a network standardises; ``auto`` is replaced when the data are opened.
DataScale = Literal["auto", "none", "features", "both"]


class DataConfig(StrictModel):
    """Dataset, its parameters and its split."""

    dataset: str = Field(description="dataset name or build folder", json_schema_extra=NOT_COMPARED)
    sample: bool = Field(
        default=False, description="use the generated sample", json_schema_extra=NOT_COMPARED
    )
    parameters: dict[str, Any] = Field(
        default_factory=dict,
        description="build parameters that differ from their defaults, such as k",
        json_schema_extra=NOT_COMPARED,
    )
    split: dict[str, Any] = Field(
        default_factory=dict,
        description="split parameters, such as test_area",
        json_schema_extra=NOT_COMPARED,
    )
    split_seed_follows_run: bool = Field(
        default=False, description="use the run's seed as split_seed"
    )
    features: str = Field(
        default="all",
        description="view of the node features (all: every column), or degree-profile: five numbers"
        " computed from the edges",
    )
    coordinates: CoordinateMode = Field(
        default="replace",
        description="cities: sinusoids replace longitude and latitude (code, 67 columns), follow them"
        " (text, 69), or neither (35)",
    )
    scale: DataScale = Field(
        default="auto",
        description="numbers to standardise by the training split: features, or both features and regression"
        " targets; auto: both for a regression on your own data, features for your other data, none for"
        " published datasets",
    )


class TrainingConfig(StrictModel):
    """Keys of the training loop.

    Reports list the keys in which two runs differ, except those with the metadata
    :data:`NOT_COMPARED`.
    """

    epochs: int = Field(
        default=200, ge=1, description="epochs of the run; the schedule ends with them"
    )
    stop_after: int | None = Field(
        default=None,
        ge=1,
        description="stop after this many epochs; none: at the end of the schedule",
    )
    batch_size: int = Field(
        default=8, ge=1, description="graphs per batch, divided among all processes"
    )
    accumulate: int = Field(default=1, ge=1, description="batches per optimizer step")
    clip_norm: float = Field(
        default=1.0, ge=0, description="largest norm of the gradient; 0: no clipping"
    )
    shuffle: bool = Field(default=True, description="shuffle the training graphs each epoch")
    task: TaskName | None = Field(
        default=None,
        description="type of the targets, with its default loss and metric; none: as stored",
    )
    loss: Annotated[str, RegisteredName("losses", "loss", all_losses)] | None = Field(
        default=None,
        description="loss function, or one from a plugin; none: the default for the targets",
    )
    metric: (
        Annotated[str, RegisteredName("metrics", "metric", all_metrics, METRIC_SYNONYMS)] | None
    ) = Field(
        default=None,
        description="metric that selects the best epoch on watched_part, or one from a plugin; none: the default"
        " for the targets",
    )
    watched_part: Literal["val", "train"] = Field(
        default="val",
        description="part that selects the best epoch, and that patience and reduce_on_plateau watch;"
        " train: measured while the weights change",
    )
    neighbors: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        default=(),
        description="one large graph: train on batch_size nodes with at most this many sampled neighbours"
        " per hop, such as [10, 10]; empty: whole graph",
    )
    eval_neighbors: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        default=(),
        description="same for evaluations; empty: whole graph if it fits into memory",
    )
    k_schedule: str = Field(
        default="",
        description="k from the first epoch to the last, such as cosine:50:5 or linear:50:5; it ends at"
        " model.attention.k, which evaluations use",
    )
    eval_every: int = Field(
        default=1,
        ge=1,
        description="epochs between evaluations; the first and last are always evaluated",
    )
    patience: int | None = Field(
        default=None, ge=1, description="stop after this many evaluations without improvement"
    )
    references: bool | None = Field(
        default=None,
        description="fit reference answers, such as a linear model, after training in one process;"
        " none: for your own data, not for samples and published datasets",
        json_schema_extra=NOT_COMPARED,
    )
    init_from: str = Field(
        default="", description="run whose weights are copied if their name and shape match"
    )
    seed: int = Field(
        default=0,
        ge=0,
        lt=2**32,
        description="seed of weights, dropout and order",
        json_schema_extra=NOT_COMPARED,
    )
    precision: Literal["32", "tf32", "16-mixed", "bf16-mixed"] = Field(
        default="32",
        description="arithmetic of the model; weights and loss stay float32. tf32 (GPU): matrix products",
    )

    @property
    def last_epoch(self) -> int:
        """Number of epochs after which the run ends."""
        return min(self.epochs, self.stop_after or self.epochs)

    def can_fuse_step(self, device_type: str) -> bool:
        """True if the optimizer's step may be one kernel: on a GPU, unless ``16-mixed`` gradients are clipped.

        A fused optimizer unscales these gradients itself, too late for clipping.
        """
        clips_scaled_gradients = self.precision == "16-mixed" and bool(self.clip_norm)
        return device_type == "cuda" and not clips_scaled_gradients


class SystemConfig(StrictModel):
    """Use of the machine, which affects results only by rounding."""

    device: Literal["auto", "cpu", "cuda"] = Field(
        default="auto", description="auto: a GPU if available", json_schema_extra=NOT_COMPARED
    )
    devices: int = Field(default=1, ge=1, description="processes per machine, one per GPU")
    nodes: int = Field(default=1, ge=1, description="machines, under torchrun or SLURM")
    capture: Literal["auto", "off"] = Field(
        default="auto",
        description="GPU: replay steps as CUDA graphs where possible",
        json_schema_extra=NOT_COMPARED,
    )
    deterministic: bool = Field(
        default=False,
        description="use PyTorch's deterministic kernels (slower on a GPU)",
        json_schema_extra=NOT_COMPARED,
    )
    logger: Literal["csv", "tensorboard", "wandb"] = Field(
        default="csv",
        description="logger of the metrics, in addition to metrics.csv",
        json_schema_extra=NOT_COMPARED,
    )
    checkpoint_every: float | None = Field(
        default=None,
        gt=0,
        description="minutes between checkpoints within an epoch; none: only after each epoch",
        json_schema_extra=NOT_COMPARED,
    )


class RunConfig(StrictModel):
    """Complete definition of a run, written to its folder as ``config.toml``."""

    version: Literal[1] = Field(
        default=1, description="layout version", json_schema_extra=NOT_COMPARED
    )
    preset: str = Field(default="", description="preset of the run", json_schema_extra=NOT_COMPARED)
    variant: str = Field(
        default="code",
        description="variant of the preset: code, text, or another that it defines",
        json_schema_extra=NOT_COMPARED,
    )
    plugins: tuple[Plugin, ...] | None = Field(
        default=None,
        description="plugins of the run with their SHA-256; a run imports none of them itself",
    )
    data: DataConfig
    model: ModelConfig = Field(default_factory=ModelConfig)
    optimizer: OptimizerConfig = Field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = Field(default_factory=ScheduleConfig)
    training: TrainingConfig = Field(default_factory=TrainingConfig)
    system: SystemConfig = Field(default_factory=SystemConfig)

    @model_validator(mode="after")
    def _check_last_k(self) -> Self:
        text = self.training.k_schedule
        k = getattr(self.model.attention, "k", None)
        if text and k != (last := KSchedule.parse(text).last):
            raise ValueError(
                f"training.k_schedule ends at {last}, model.attention.k is {k}; make them equal"
            )
        return self

    @property
    def processes(self) -> int:
        """Number of processes that train together."""
        return self.system.devices * self.system.nodes

    def with_plugins(self) -> RunConfig:
        """Return this configuration with the loaded plugins it uses."""
        used = [
            ("datasets", self.data.dataset),
            ("losses", self.training.loss),
            ("metrics", self.training.metric),
            ("schedules", self.schedule.kind),
            ("optimizers", self.optimizer.name),
            *self.model.plugin_entries,
        ]
        plugins = [
            PLUGIN_OBJECTS[group][name].plugin
            for group, name in used
            if name in PLUGIN_OBJECTS[group]
        ]
        return self.model_copy(update={"plugins": tuple(dict.fromkeys(plugins)) or None})

    def with_values(self, section: str, **values: Any) -> RunConfig:
        """Return this configuration with new values in a section, without validation."""
        keys = getattr(self, section).model_copy(update=values)
        return self.model_copy(update={section: keys})

    def with_seed(self, seed: int) -> RunConfig:
        """Return this configuration with another seed, also for the split if it follows the run's."""
        config = self.with_values("training", seed=seed)
        if self.data.split_seed_follows_run:
            split = {**self.data.split, "split_seed": seed}
            config = config.with_values("data", split=split)
        return config


def is_compared(key: str) -> bool:
    """Return False if the field of a dotted key, or of a table that holds it, is :data:`NOT_COMPARED`."""
    section: Any = RunConfig
    for name in key.split("."):
        fields = section.model_fields
        if name not in fields:
            return True
        if fields[name].json_schema_extra == NOT_COMPARED:
            return False
        section = fields[name].annotation
        if not (isinstance(section, type) and issubclass(section, BaseModel)):
            return True
    return True


def without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    """Drop the parameters that are ``None``, because TOML has no null."""
    return {name: value for name, value in values.items() if value is not None}
