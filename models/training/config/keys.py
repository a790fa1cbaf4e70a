"""Typed configuration of a run: every key, its type, default and meaning."""

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

    dataset: str = Field(description="dataset name or build folder")
    sample: bool = Field(default=False, description="use the generated miniature")
    parameters: dict[str, Any] = Field(
        default_factory=dict, description="build parameters that differ from their defaults, such as k"
    )
    split: dict[str, Any] = Field(default_factory=dict, description="split parameters, such as test_area")
    split_seed_follows_run: bool = Field(
        default=False,
        description="draw the split with the run's seed",
    )
    features: str = Field(
        default="all",
        description="view of the node features (all: every column), or degree-profile: five numbers"
        " computed from the edges",
    )
    coordinates: Literal["replace", "append", "none"] = Field(
        default="replace",
        description="cities: sinusoids replace longitude and latitude (code, 67 columns), follow them"
        " (text, 69), or neither (35)",
    )


class TrainingConfig(Section):
    """The loop."""

    epochs: int = Field(default=200, ge=1, description="epochs of the run; the schedule ends with them")
    batch_size: int = Field(default=8, ge=1, description="graphs per batch, dealt to all processes")
    scale: Literal["global", "batch"] = Field(
        default="global",
        description="several processes: batch_size of all together, or of each, with the learning rate"
        " scaled by their number (sgd, asgd) or its square root",
    )
    sync_batchnorm: bool = Field(
        default=True,
        description="several processes: batch norms use the rows of all of them",
    )
    accumulate: int = Field(
        default=1,
        ge=1,
        description="batches per optimiser step",
    )
    clip_norm: float = Field(default=1.0, ge=0, description="largest norm of the gradient; 0: no clipping")
    shuffle: bool = Field(default=True, description="shuffle the train graphs each epoch")
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
        description="one large graph: train on batch_size nodes with at most this many sampled neighbours"
        " per hop, such as [10, 10]; empty: whole graph",
    )
    k_schedule: str = Field(
        default="",
        description="k from the first epoch to the last, such as cosine:50:5 or linear:50:5; it ends at"
        " model.attention.k, which evaluations use",
    )
    eval_every: int = Field(
        default=1, ge=1, description="epochs between evaluations; the first and last are always evaluated"
    )
    patience: int | None = Field(
        default=None,
        ge=1,
        description="stop after this many evaluations without improvement",
    )
    ema: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="decay of an exponential moving average of the weights, which is then evaluated and"
        " saved",
    )
    keep_best: int = Field(
        default=1,
        ge=1,
        description="number of best epochs whose weights are saved",
    )
    init_from: str = Field(
        default="",
        description="run to take initial weights from, where name and shape fit",
    )
    seed: int = Field(default=0, ge=0, lt=2**32, description="seed of weights, dropout and order")
    precision: Literal["32", "tf32", "bf16x3", "16-mixed", "bf16-mixed"] = Field(
        default="32",
        description="arithmetic of the model; weights and loss stay float32. tf32 (GPU): all matrix"
        " products; bf16x3 (GPU): those of GatedGCN's edges",
    )


class SystemConfig(Section):
    """Use of the machine. It never changes what is learned, up to rounding."""

    device: Literal["auto", "cpu", "cuda"] = Field(default="auto", description="auto: a GPU if there is one")
    devices: int = Field(default=1, ge=1, description="processes per machine, one per GPU")
    nodes: int = Field(default=1, ge=1, description="machines, under torchrun or SLURM")
    compile: bool = Field(default=False, description="torch.compile the model")
    capture: Literal["auto", "off"] = Field(
        default="auto",
        description="GPU: replay steps as CUDA graphs where possible",
    )
    deterministic: bool = Field(
        default=False, description="use PyTorch's deterministic kernels (slower on a GPU)"
    )
    logger: Literal["csv", "tensorboard", "wandb"] = Field(
        default="csv", description="logger of the metrics, besides metrics.csv"
    )
    checkpoint_every: float | None = Field(
        default=None,
        gt=0,
        description="minutes between checkpoints within an epoch; none: after each epoch only",
    )
    profile: bool = Field(
        default=False, description="trace a few steps into trace.json and print the slowest operations"
    )
    log_every: int = Field(default=50, ge=0, description="steps per row of steps.csv; 0: no file")


class RunConfig(Section):
    """Everything that defines a run; written as ``config.toml`` into its folder."""

    version: Literal[1] = Field(default=1, description="layout version")
    preset: str = Field(default="", description="preset of the run")
    variant: str = Field(
        default="code",
        description="variant of the preset: code, text, or another that it names",
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
