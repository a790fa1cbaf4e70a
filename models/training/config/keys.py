"""The typed configuration of a run: every key, its type, its default and what it means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from kmip_data.models.config import ModelConfig
from kmip_data.models.kinds import Section
from kmip_data.models.training.config.optimisers import OptimiserConfig
from kmip_data.models.training.config.schedules import KSchedule, ScheduleConfig


class DataConfig(Section):
    """Dataset, its parameters and its split."""

    dataset: str = Field(description="name of a dataset, or a build folder")
    sample: bool = Field(default=False, description="the generated miniature instead of the real data")
    parameters: dict[str, Any] = Field(
        default_factory=dict, description="build parameters, such as k or limit; others keep their defaults"
    )
    split: dict[str, Any] = Field(
        default_factory=dict, description="split parameters, such as split, test_area or split_seed"
    )
    split_seed_follows_run: bool = Field(
        default=False,
        description="draw the split with the run's seed, so that each seed has validation records of its own",
    )
    features: str = Field(
        default="all",
        description="view of the node features, where the dataset has one (all: every column), or"
        " degree-profile: five numbers computed from the edges",
    )
    coordinates: Literal["replace", "append", "none"] = Field(
        default="replace",
        description="cities: sinusoids instead of longitude and latitude (the code, 67 columns),"
        " beside them (the text, 69), or neither (35)",
    )


class TrainingConfig(Section):
    """The loop."""

    epochs: int = Field(default=200, ge=1, description="epochs of the run; the schedule ends with them")
    batch_size: int = Field(default=8, ge=1, description="graphs per batch, dealt to all processes")
    scale: Literal["global", "batch"] = Field(
        default="global",
        description="several processes: divide batch_size among them, which learns what one process would;"
        " or batches so many times as large, and the learning rate with them (sgd, asgd: as many times;"
        " others: its square root)",
    )
    sync_batchnorm: bool = Field(
        default=True,
        description="several processes: batch norms take mean and variance over the rows of all of them",
    )
    accumulate: int = Field(
        default=1,
        ge=1,
        description="batches per step; every loss is divided by it, also in a short last group",
    )
    clip_norm: float = Field(default=1.0, ge=0, description="largest norm of the gradient; 0: no clipping")
    shuffle: bool = Field(default=True, description="new order of the train graphs in every epoch")
    loss: (
        Literal["weighted_cross_entropy", "cross_entropy", "binary_cross_entropy", "l1", "link_cross_entropy"]
        | None
    ) = Field(default=None, description="loss function; none: the usual one for the targets")
    metric: (
        Literal[
            "accuracy",
            "f1",
            "miou",
            "ap",
            "mae",
            "mrr",
            "mrr_filtered",
            "mrr_extended",
            "hits1",
            "hits3",
            "hits10",
        ]
        | None
    ) = Field(
        default=None,
        description="validation metric that chooses the best epoch; none: the usual one for the targets",
    )
    neighbors: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        default=(),
        description="one large graph: train on batch_size nodes at a time, with at most this many sampled"
        " neighbours per node in each hop, such as [10, 10] for two hops; empty: on the whole graph",
    )
    k_schedule: str = Field(
        default="",
        description="how k moves in training, such as cosine:50:5 or linear:50:5, from the first epoch to the"
        " last; evaluations take model.attention.k, where it ends",
    )
    eval_every: int = Field(
        default=1, ge=1, description="epochs between evaluations; the first and the last are always evaluated"
    )
    patience: int | None = Field(
        default=None,
        ge=1,
        description="end the run after so many evaluations in a row without a better validation metric; none:"
        " all epochs",
    )
    ema: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="decay of an exponential moving average of the weights, such as 0.999, taken after each"
        " step; its weights are what is evaluated and saved; none: the weights themselves",
    )
    keep_best: int = Field(
        default=1,
        ge=1,
        description="best epochs whose weights are kept; from 2 on, also as checkpoints/epoch-N.safetensors",
    )
    init_from: str = Field(
        default="",
        description="run whose weights the model begins with, where name and shape fit; empty: drawn anew",
    )
    seed: int = Field(default=0, ge=0, lt=2**32, description="seed of the weights, dropout and order")
    precision: Literal["32", "tf32", "bf16x3", "16-mixed", "bf16-mixed"] = Field(
        default="32",
        description="arithmetic of the model; weights and loss stay float32. tf32 and bf16x3 (GPU): as 32 but"
        " for matrix products, all of them or those of GatedGCN's edges",
    )


class SystemConfig(Section):
    """Use of the machine. It never changes what is learned, up to rounding."""

    device: Literal["auto", "cpu", "cuda"] = Field(default="auto", description="auto: a GPU if there is one")
    devices: int = Field(
        default=1, ge=1, description="processes per machine, one per GPU; each takes its share of a batch"
    )
    nodes: int = Field(default=1, ge=1, description="machines, under torchrun or SLURM")
    compile: bool = Field(default=False, description="torch.compile the model")
    capture: Literal["auto", "off"] = Field(
        default="auto",
        description="GPU: steps recorded once and replayed as CUDA graphs, where that is possible (auto), or"
        " operation by operation (off)",
    )
    deterministic: bool = Field(
        default=False, description="PyTorch's deterministic kernels where it has them (slower on a GPU)"
    )
    logger: Literal["csv", "tensorboard", "wandb"] = Field(
        default="csv", description="where metrics go besides metrics.csv"
    )
    checkpoint_every: float | None = Field(
        default=None,
        gt=0,
        description="minutes from one checkpoint within an epoch to the next; none: after each epoch alone",
    )
    profile: bool = Field(
        default=False, description="trace a few steps into trace.json, and print the slowest operations"
    )
    log_every: int = Field(
        default=50, ge=0, description="steps from one row of steps.csv to the next; 0: no such file"
    )


class RunConfig(Section):
    """Everything that defines a run; written as ``config.toml`` into its folder."""

    version: Literal[1] = Field(default=1, description="version of this file's layout")
    preset: str = Field(default="", description="preset the run began with; empty: none")
    variant: str = Field(
        default="code",
        description="what the preset follows where the paper's code and text disagree: code, text, or another"
        " variant that it names",
    )
    data: DataConfig
    model: ModelConfig = Field(default_factory=ModelConfig)
    optimiser: OptimiserConfig = Field(default_factory=OptimiserConfig)
    schedule: ScheduleConfig = Field(default_factory=ScheduleConfig)
    training: TrainingConfig = Field(default_factory=TrainingConfig)
    system: SystemConfig = Field(default_factory=SystemConfig)

    @model_validator(mode="after")
    def _k_ends_where_it_is_evaluated(self) -> Self:
        text = self.training.k_schedule
        k = getattr(self.model.attention, "k", None)
        if text and k != (last := KSchedule.parse(text).last):
            msg = f"training.k_schedule ends at {last}, and model.attention.k is {k}; make them equal"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _fused_is_not_clipped_in_half_precision(self) -> Self:
        training = self.training
        if self.optimiser.fused and training.precision == "16-mixed" and training.clip_norm:
            msg = "optimiser.fused scales gradients of 16-mixed itself, so training.clip_norm must be 0"
            raise ValueError(msg)
        return self

    @property
    def processes(self) -> int:
        """Processes that train together."""
        return self.system.devices * self.system.nodes

    @property
    def whole_batch(self) -> int:
        """Graphs of a batch, over all processes."""
        return self.training.batch_size * (self.processes if self.training.scale == "batch" else 1)

    def with_seed(self, seed: int) -> RunConfig:
        """Return this configuration for another seed, and its split too where that follows the run."""
        data = self.data
        if data.split_seed_follows_run:
            data = data.model_copy(update={"split": {**data.split, "split_seed": seed}})
        training = self.training.model_copy(update={"seed": seed})
        return self.model_copy(update={"data": data, "training": training})


def without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that are set: TOML has no null."""
    return {name: value for name, value in values.items() if value is not None}
