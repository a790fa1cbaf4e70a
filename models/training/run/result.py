"""Result of a run in ``result.json``."""

from __future__ import annotations

import contextlib
import hashlib
import platform
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

import kmip_data
from kmip_data.errors import DamagedInput, UsageError
from kmip_data.files.small_files import read_json, read_model, read_small_file, sealed_json
from kmip_data.format.split_files import PARTS
from kmip_data.format.targets import TargetType
from kmip_data.models.training.config.overrides import config_to_toml
from kmip_data.models.training.config.run_config import RunConfig
from kmip_data.models.training.metric_text import SCALED_LOSS
from kmip_data.models.training.metrics import ClassScores, all_metrics
from kmip_data.models.training.references.reference import References
from kmip_data.models.training.run.run_folder import CONFIG_NAME, RESULT_NAME, resume_command
from kmip_data.models.training.tasks import Level, Task
from kmip_data.registry import Plugin
from kmip_data.strict_model import StrictModel

if TYPE_CHECKING:
    from kmip_data.models.training.data.run_data import RunData


class RunSplit(StrictModel):
    """Split of a run."""

    name: str
    rule: str
    parameters: dict[str, Any]
    digests: dict[str, str] = Field(description="part -> digest of its keys in order")

    @classmethod
    def from_data(cls, data: RunData) -> RunSplit:
        """Describe the split of ``data``."""
        return cls(
            name=data.split_name,
            rule=data.split.rule,
            parameters=data.split.parameters,
            digests=data.digests["split"],
        )


class RunTargets(StrictModel):
    """Targets of a run, which it needs to predict data that have none."""

    level: Level
    target_type: TargetType
    log10: bool = Field(description="true: decimal logarithms of the numbers that metrics compare")

    @classmethod
    def from_task(cls, task: Task) -> RunTargets:
        """Describe the targets of ``task``."""
        return cls(level=task.level, target_type=task.target_type, log10=task.log10)


class Seconds(StrictModel):
    """Wall-clock times of a run, in seconds."""

    train_epoch: float = Field(description="mean over epochs, without evaluations")
    total: float = Field(description="all epochs with their evaluations, including before a resume")


class Memory(StrictModel):
    """Peak memory of the (first) process in bytes."""

    device: int | None = Field(description="allocated on the GPU by PyTorch; none on a CPU")
    host: int = Field(description="resident set size of the process")


class RunResult(StrictModel):
    """Result of a run; its metrics are measured in eval mode with the weights of the best epoch."""

    version: Literal[1] = 1
    name: str
    dataset: str
    sample: bool = Field(
        description="trained on generated data: the results say nothing about the dataset"
    )
    complete: bool | None = Field(
        default=None,
        description="false: trained on part of the published set; none: none was published",
    )
    build_key: str
    build_parameters: dict[str, Any]
    split: RunSplit
    model: str
    preset: str
    variant: str
    config: dict[str, Any] = Field(description="complete configuration, as in config.toml")
    num_features: int = Field(description="columns of x")
    columns: tuple[str, ...] = Field(default=(), description="names of the columns of x, if any")
    vocabulary: str = Field(
        default="", description="digest of the categories of one-hot columns, if any"
    )
    targets: RunTargets
    num_classes: int = Field(description="outputs of the network: classes, labels or targets")
    class_names: tuple[str, ...] = Field(
        default=(), description="names of the classes or labels, if any"
    )
    num_parameters: int
    seed: int
    device: str
    hardware: str = Field(
        default="", description="processor and number of PyTorch's threads, or the GPU"
    )
    versions: dict[str, str]
    epochs: int
    best_epoch: int = Field(
        description="first epoch with the best metric on training.watched_part, counted from 0"
    )
    metric: str = Field(description="metric that selects the best epoch")
    metrics: dict[str, dict[str, float]] = Field(description="loss and metrics by part")
    standard_errors: dict[str, float] = Field(
        default={}, description="standard errors of the metrics on test, over its items"
    )
    class_scores: list[ClassScores] = Field(
        default=[], description="scores of each class on test, of a classification"
    )
    references: References = Field(
        default={}, description="metric of simple methods that were fitted on the same parts"
    )
    seconds: Seconds
    memory: Memory
    files: dict[str, str] = Field(default={}, description="SHA-256 of the files of the run")
    digest: str = Field(default="", description="SHA-256 of all other fields, as on a card")

    def to_json(self) -> str:
        """Return stable, readable JSON with a new ``digest``."""
        return sealed_json(self.model_dump(mode="json"))

    @property
    def task(self) -> Task:
        """Task of the run."""
        return Task(**self.targets.model_dump(), outputs=self.num_classes)

    @property
    def loss_title(self) -> str:
        """Title of the loss, which is of scaled targets in a regression with ``data.scale = both``."""
        data = self.config.get("data")
        is_scaled = isinstance(data, dict) and data.get("scale") == "both"
        return SCALED_LOSS if is_scaled and self.targets.target_type == "regression" else "loss"

    @property
    def watched_part(self) -> str:
        """Part whose metric selected the best epoch."""
        training = self.config.get("training")
        part = training.get("watched_part") if isinstance(training, dict) else None
        return part if part in PARTS else "val"

    @model_validator(mode="after")
    def _check_metrics(self) -> Self:
        # A part may lack metrics that it leaves undefined, but never the selection metric.
        parts_have_metric = bool(self.metrics)
        parts_have_metric &= all(self.metric in values for values in self.metrics.values())
        # A plugin's metric may not be loaded, but the configuration names it.
        known_metrics: set[str | None] = set(all_metrics())
        training = self.config.get("training")
        plugins = self.config.get("plugins") or ()
        for plugin in plugins:
            Plugin.model_validate(plugin)
        if plugins and isinstance(training, dict):
            known_metrics.add(training.get("metric"))
        if self.metric not in known_metrics:
            raise ValueError(f"there is no metric {self.metric!r}; a plugin may define it")
        if not parts_have_metric or self.metrics.keys() - set(PARTS):
            raise ValueError(f"a part lacks {self.metric}, or is not one of {', '.join(PARTS)}")
        return self


def read_result(run: Path) -> RunResult:
    """Read the result of a run folder.

    Raises ``UsageError`` if the run is unfinished; ``DamagedInput`` if the file is not a result of
    version 1.
    """
    try:
        return read_model(
            run / RESULT_NAME,
            RunResult,
            "cannot be read as a result",
            steps=["resuming rewrites it from the run's last checkpoint", resume_command(run)],
        )
    except FileNotFoundError as error:
        raise UsageError(
            f"{run} is not a finished run: it has no {RESULT_NAME}.",
            steps=resume_command(run),
        ) from error


def stored_configuration(result: RunResult) -> bytes | None:
    """Return the configuration file of a run, made from its result; ``None`` if that is impossible.

    A configuration with plugins cannot be validated, because nothing of a run is imported.
    """
    if result.config.get("plugins"):
        return None
    try:
        text = config_to_toml(RunConfig.model_validate(result.config)).encode()
    except ValidationError:
        return None
    return text if hashlib.sha256(text).hexdigest() == result.files.get(CONFIG_NAME) else None


def is_edited(run: Path) -> bool:
    """True if a run's result file was changed after it was written."""
    path = run / RESULT_NAME
    return sealed_json(read_json(path)).encode() != read_small_file(path)


def refuse_edited(run: Path) -> None:
    """Raise ``DamagedInput`` if the result was edited."""
    if is_edited(run):
        raise DamagedInput(
            f"{run / RESULT_NAME} was edited: its digest does not match its content.",
            steps=[
                "restore it; or move it away, and resuming measures the last checkpoint again",
                resume_command(run),
            ],
        )


def package_versions() -> dict[str, str]:
    """Return the versions of Python, this package and the packages that affect results."""
    versions = {"python": platform.python_version(), "kmip-data": kmip_data.__version__}
    for package in ("torch", "torch-geometric", "numpy", "numba", "pykeops"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return versions
