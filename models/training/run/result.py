"""Result of a run in ``result.json``, and tables and means over runs."""

from __future__ import annotations

import contextlib
import math
import os
import platform
import shlex
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, model_validator

import kmip_data
from kmip_data.builds.home import Build, Home, list_builds
from kmip_data.columns.column_uses import description_on_card
from kmip_data.errors import DamagedInput, KmipDataError, UsageError
from kmip_data.files.reading import read_json, read_model, read_small_file, sealed_json
from kmip_data.format.card import SAMPLE_NOTE, coverage_suffix
from kmip_data.format.split_files import PARTS
from kmip_data.format.targets import TargetType
from kmip_data.models.training.config.overrides import read_config
from kmip_data.models.training.metrics import all_metrics, is_percent
from kmip_data.models.training.run import run_folder
from kmip_data.models.training.run.run_folder import RESULT_NAME
from kmip_data.models.training.tasks import Level, Task
from kmip_data.registry import Plugin
from kmip_data.strict_model import Strict
from kmip_data.text import count_with_noun

if TYPE_CHECKING:
    from kmip_data.models.training.data.run_data import RunData

#: Metric values by part and metric name.
Metrics = dict[str, dict[str, float]]


class RunSplit(Strict):
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
            digests=data.identity["split"],
        )


class RunTargets(Strict):
    """Targets of a run, which it needs to predict data that have none."""

    level: Level
    target_type: TargetType
    log10: bool = Field(description="true: decimal logarithms of the numbers that metrics compare")

    @classmethod
    def from_task(cls, task: Task) -> RunTargets:
        """Describe the targets of ``task``."""
        return cls(level=task.level, target_type=task.target_type, log10=task.log10)


class Seconds(Strict):
    """Wall-clock times of a run, in seconds."""

    train_epoch: float = Field(description="mean over epochs, without evaluations")
    total: float = Field(description="all epochs with their evaluations, including before a resume")


class Memory(Strict):
    """Peak memory of the (first) process in bytes."""

    device: int | None = Field(description="allocated on the GPU by PyTorch; none on a CPU")
    host: int = Field(description="resident set size of the process")


class RunResult(Strict):
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
        description="first epoch with the best validation metric, counted from 0"
    )
    metric: str = Field(description="metric that selects the best epoch")
    metrics: dict[str, dict[str, float]] = Field(description="loss and metrics by part")
    chance: float | None = Field(
        default=None,
        description="metric of a constant prediction on test; none: not computed",
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
    resume = f"kmip-data train --resume {shlex.quote(str(run))}"
    try:
        return read_model(
            run / RESULT_NAME,
            RunResult,
            "cannot be read as a result",
            next=f"{resume} rewrites it from the run's last checkpoint",
        )
    except FileNotFoundError as error:
        raise UsageError(
            f"{run} is not a finished run: it has no {RESULT_NAME}.",
            next=resume,
        ) from error


def is_edited(run: Path) -> bool:
    """True if a run's result file was changed after it was written."""
    path = run / RESULT_NAME
    return sealed_json(read_json(path)).encode() != read_small_file(path)


def refuse_edited(run: Path) -> None:
    """Raise ``DamagedInput`` if the result was edited."""
    if is_edited(run):
        raise DamagedInput(
            f"{run / RESULT_NAME} was edited: its digest does not match its content.",
            next=f"restore it; or remove it, and kmip-data train --resume {shlex.quote(str(run))} "
            "measures the last checkpoint again",
        )


def package_versions() -> dict[str, str]:
    """Return the versions of Python, this package and the packages that affect results."""
    versions = {"python": platform.python_version(), "kmip-data": kmip_data.__version__}
    for package in ("torch", "torch-geometric", "numpy", "numba", "pykeops"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return versions


def sample_std(values: Sequence[float]) -> float:
    """Return the sample standard deviation (n - 1): 0 for a single value, NaN if any value is NaN."""
    if any(map(math.isnan, values)):
        return math.nan
    return statistics.stdev(values) if len(values) > 1 else 0.0


def mean_std(runs: Sequence[Metrics]) -> tuple[Metrics, Metrics]:
    """Return the mean and the sample standard deviation of every metric over runs."""
    mean: Metrics = {}
    std: Metrics = {}
    for part in runs[0]:
        mean[part] = {}
        std[part] = {}
        for name in dict.fromkeys(name for run in runs for name in run[part]):
            values = [run[part].get(name, math.nan) for run in runs]
            mean[part][name] = statistics.fmean(values)
            std[part][name] = sample_std(values)
    return mean, std


def chance_metric(data: RunData, metric: str) -> float | None:
    """Return the metric of a constant prediction on test, or ``None`` for other metrics.

    The prediction is the largest class for accuracy, the median of the train targets for MAE, and
    their mean for R²; a constant has a ROC-AUC of 0.5.
    """
    if metric == "roc_auc":
        return 0.5
    if metric in {"mae", "r2"} and {"train", "test"} <= {*data.parts}:
        return _metric_of_constant(data, metric)
    classes = data.build.card.statistics.get("classes", {}).get("splits", {})
    counts = classes.get(data.split_name, {}).get("test", [])
    if metric != "accuracy" or not sum(counts):
        return None
    return float(max(counts) / sum(counts))


def _metric_of_constant(data: RunData, metric: str) -> float | None:
    """Return the metric on test if each target is predicted by its train median (MAE) or mean (R²)."""
    import torch

    from kmip_data.models.training.accumulators import SplitMetrics

    train = data.read_targets("train")
    center = train.nanmedian(dim=0).values if metric == "mae" else train.nanmean(dim=0)
    test = data.read_targets("test")
    metrics = SplitMetrics(data.task, metric)
    metrics.update(center.expand_as(test), test, torch.zeros(()))
    value = metrics.compute()[metric]
    return value if math.isfinite(value) else None


def metric_title(name: str) -> str:
    """Return the title of a metric or of the loss, with its unit."""
    metric = all_metrics().get(name)
    if metric is None:
        return name
    return f"{metric.title} [%]" if metric.percent else metric.title


def format_metric(name: str, mean: float, std: float | None) -> str:
    """Format a metric or the loss, with its deviation if given; fractions in percent, NaN as –."""
    if math.isnan(mean):
        return "–"
    scale, digits = (100, 2) if is_percent(name) else (1, 4)
    text = f"{scale * mean:.{digits}f}"
    if std is None:
        return text
    return f"{text} ± {scale * std:.{digits}f}"


def format_metric_with_unit(name: str, mean: float, std: float | None = None) -> str:
    """Format a metric with its unit, such as 0.2562 for ``mae`` and 66.31 % for ``ap``."""
    text = format_metric(name, mean, std)
    return f"{text} %" if is_percent(name) and text != "–" else text


def metrics_table(runs: Sequence[Metrics]) -> str:
    """Format a table of parts and metrics, fractions in percent; mean ± std over several runs.

    An undefined metric is shown as –, with the reason below the table.
    """
    mean, std = mean_std(runs)
    measured = {name for values in mean.values() for name in values}
    if "mae" in measured:
        measured.discard("mae_batches")  # nearly equal; only for comparison with other software
    names = [name for name in ("loss", *all_metrics()) if name in measured]
    notes = []
    rows = [["", *map(metric_title, names)]]
    for part in PARTS:
        if part not in mean:
            continue
        row = [part]
        for name in names:
            value = mean[part].get(name, math.nan)
            deviation = std[part].get(name) if len(runs) > 1 else None
            row.append(format_metric(name, value, deviation))
            metric = all_metrics().get(name)
            if math.isnan(value) and metric is not None and metric.needs:
                notes.append(f"–: {metric.title} needs {metric.needs}")
        rows.append(row)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.rjust, row, widths)) for row in rows]
    return "\n".join([*lines, *dict.fromkeys(notes)])


def format_metric_by_part(name: str, metrics: Metrics) -> str:
    """Format a metric of each part, such as ``train accuracy 71.00 %, val accuracy 70.00 %``."""
    return ", ".join(
        f"{part} {name} {format_metric_with_unit(name, values[name])}"
        for part, values in metrics.items()
    )


@dataclass(frozen=True, repr=False)
class Summary:
    """Run folders and results of one configuration with different seeds or folds."""

    runs: list[Path]
    results: list[RunResult]

    def __repr__(self) -> str:
        first = self.results[0]
        mean, _ = mean_std([result.metrics for result in self.results])
        count = count_with_noun(len(self.runs), "run")
        return f"Summary({first.dataset}/{first.model}, {count}, {format_metric_by_part(first.metric, mean)})"

    @property
    def folds(self) -> list[int]:
        """Fold of each run; empty if all runs have the same fold."""
        folds = [result.split.parameters.get("fold", 0) for result in self.results]
        return folds if len({*folds}) > 1 else []

    def to_dict(self) -> dict[str, Any]:
        """Return the object that ``train --json`` prints.

        For one run: ``run``, ``seed``, ``best_epoch``, ``metrics``, ``sample`` and ``complete``. For
        several: the mean ``metrics``, their deviation ``std``, and ``runs``, an object for each run,
        with its ``fold`` if folds differ.
        """
        fields = {"seed", "best_epoch", "metrics", "sample", "complete"}
        runs = []
        for folder, result in zip(self.runs, self.results, strict=True):
            runs.append({"run": str(folder)} | result.model_dump(include=fields))
        if len(runs) == 1:
            return runs[0]
        for run, fold in zip(runs, self.folds, strict=False):
            run["fold"] = fold
        mean, std = mean_std([result.metrics for result in self.results])
        return {"metrics": mean, "std": std, "runs": runs}

    def table(self) -> str:
        """Format a table of parts and metrics (mean ± std over runs), with the data and the model."""
        first = self.results[0]
        seeds = ", ".join(map(str, dict.fromkeys(result.seed for result in self.results)))
        best_epochs = ", ".join(str(result.best_epoch + 1) for result in self.results)
        dataset = f"{first.dataset}{coverage_suffix(first.sample, first.complete)}"
        table = metrics_table([result.metrics for result in self.results])
        aggregation = ""
        if self.folds:
            aggregation = f" fold {', '.join(map(str, dict.fromkeys(self.folds)))}:"
        if len(self.runs) > 1:
            aggregation += f" mean ± standard deviation (n - 1) over {len(self.runs)} runs,"
        text = (
            f"{table}\n{dataset}, {first.model},{aggregation} seed {seeds}; weights of epoch "
            f"{best_epochs} of {first.epochs}, the best by {all_metrics()[first.metric].title} on val"
        )
        return f"{text}\n{SAMPLE_NOTE}" if first.sample else text


def find_table_build(result: RunResult, home: Home) -> Build | None:
    """Find the build of your own tables that a run was trained on; ``None`` for other data."""
    for build in list_builds(home, result.dataset):
        if build.card.key == result.build_key and description_on_card(build.card.statistics):
            return build
    return None


def find_compatible_run(build: Build, home: Home) -> Path | None:
    """Find the newest finished run that can predict a build without targets; ``None`` without one."""
    described = description_on_card(build.card.statistics)
    features = next((c for c in build.card.schema_.columns if c.attribute == "x"), None)
    if described is None or features is None:
        return None
    labels = [column.name for column in described.columns if column.use == "label"]
    finished = list(home.runs.glob(f"*/*/*/{RESULT_NAME}"))
    for path in sorted(finished, key=lambda path: path.stat().st_mtime, reverse=True):
        with contextlib.suppress(KmipDataError, OSError):
            result = read_result(path.parent)
            classes = result.class_names or tuple(map(str, range(result.num_classes)))
            same_classes = not described.classes or classes == described.classes
            # If the run's build inferred its label, the name is not recorded, and any matches.
            run_labels = result.build_parameters.get("label") or labels
            same_target = result.targets.target_type == described.task and [*run_labels] == labels
            if result.columns == features.fields and same_classes and same_target:
                return path.parent
    return None


def resolve_dataset(name: str, home: Home) -> str:
    """Return the dataset, or the build folder, that the run ``name`` was trained on.

    If ``name`` is a file or a folder other than a run, it is returned unchanged.
    """
    path = Path(name)
    if os.path.lexists(path) and not (path / run_folder.CONFIG_NAME).is_file():
        return name
    run = run_folder.find_run(name, home)
    config = read_config(run / run_folder.CONFIG_NAME)
    config = run_folder.config_with_build_folder(config, lambda: read_result(run).build_key, home)
    return config.data.dataset
