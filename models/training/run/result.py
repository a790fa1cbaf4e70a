"""Results of finished runs: ``result.json``, version 1, and tables of mean and deviation over seeds."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from kmip_data.errors import DamagedInput
from kmip_data.files.reading import read_model
from kmip_data.format.card import remark
from kmip_data.format.splits import PARTS
from kmip_data.models.kinds import Section
from kmip_data.models.training.config.keys import RunConfig
from kmip_data.models.training.data.run_data import RunData
from kmip_data.models.training.objective.metrics import METRICS
from kmip_data.models.training.run.folders import RESULT_NAME
from kmip_data.runtime.memory import peak_host_memory

Metrics = dict[str, dict[str, float]]  #: part -> name -> value
PACKAGES = ("torch", "torch-geometric", "torchmetrics", "numpy", "numba", "pykeops")


class SplitUsed(Section):
    """Split of the build that the run was trained on."""

    name: str
    rule: str
    parameters: dict[str, Any]
    digests: dict[str, str] = Field(description="part -> digest of its keys in order")

    @classmethod
    def of(cls, data: RunData) -> SplitUsed:
        """Describe the split of ``data``."""
        rule, parameters = data.split.rule, data.split.parameters
        return cls(name=data.split_name, rule=rule, parameters=parameters, digests=data.identity["split"])


class Seconds(Section):
    """Wall-clock time."""

    train_epoch: float = Field(description="mean over epochs, evaluation not counted")
    total: float = Field(description="all epochs with their evaluations, over every resumption")


class Memory(Section):
    """Peaks of the (first) process in bytes."""

    device: int | None = Field(description="allocated on the GPU by PyTorch; none on a CPU")
    host: int = Field(description="resident set of the whole process")


class RunResult(Section):
    """One run. Metrics are of the best epoch's weights, by one pass in eval mode over each part."""

    version: Literal[1] = 1
    name: str
    dataset: str
    sample: bool = Field(description="trained on generated data: the figures mean nothing about the dataset")
    complete: bool | None = Field(
        default=None, description="false: trained on part of the published set; none: none was published"
    )
    build_key: str
    build_parameters: dict[str, Any]
    split: SplitUsed
    model: str
    preset: str
    variant: str
    config: dict[str, Any] = Field(description="the whole configuration, as in config.toml")
    num_features: int = Field(description="columns of x")
    columns: tuple[str, ...] = Field(default=(), description="names of the columns of x, where they have any")
    vocabulary: str = Field(
        default="", description="digest of the categories of one-hot columns, where there are any"
    )
    num_classes: int = Field(description="outputs of the network: classes, labels or targets")
    num_parameters: int
    seed: int
    device: str
    versions: dict[str, str]
    epochs: int
    best_epoch: int = Field(description="counted from 0; first epoch with the best validation metric")
    metric: str = Field(description="the metric that chose the epoch")
    metrics: dict[str, dict[str, float]] = Field(description="part -> loss and metrics")
    seconds: Seconds
    memory: Memory

    @model_validator(mode="after")
    def _makes_a_table(self) -> Self:
        names = {frozenset(values) for values in self.metrics.values()}
        if self.metric not in METRICS or len(names) != 1 or self.metrics.keys() - set(PARTS):
            raise ValueError("its metrics are not those of a run")
        return self

    @classmethod
    def of(
        cls,
        config: RunConfig,
        data: RunData,
        *,
        history: Sequence[Mapping[str, float]],
        parameters: int,
        peak: int | None,
        **found: Any,
    ) -> Self:
        """Describe a run that has ended, from its configuration, its data and its history."""
        card = data.build.card
        return cls(
            **card.identity,
            build_parameters=card.parameters,
            split=SplitUsed.of(data),
            model=config.model.name,
            preset=config.preset,
            variant=config.variant,
            config=config.model_dump(mode="json"),
            num_features=data.in_channels,
            columns=data.inputs.names,
            vocabulary=data.inputs.vocabulary,
            num_classes=data.num_classes,
            num_parameters=parameters,
            seed=config.training.seed,
            versions=package_versions(),
            epochs=len(history),
            metric=str(config.training.metric),
            seconds=Seconds(
                train_epoch=sum(row["seconds_train"] for row in history) / len(history),
                total=sum(row["seconds"] for row in history),
            ),
            memory=Memory(device=peak, host=peak_host_memory()),
            **found,
        )

    def to_json(self) -> str:
        """Readable JSON with sorted keys."""
        return json.dumps(self.model_dump(), indent=1, sort_keys=True, allow_nan=False) + "\n"


def read_result(run: Path) -> RunResult:
    """Read the result of a run folder.

    Raises ``DamagedInput`` where there is none (the run is unfinished), or it is not a result of version 1.
    """
    try:
        return read_model(
            run / RESULT_NAME,
            RunResult,
            "cannot be read as a result",
            expected="JSON of version 1",
            next=f"kmip-data train --resume {run} writes it anew from the run's last checkpoint",
        )
    except FileNotFoundError as error:
        raise DamagedInput(
            f"{run} is not a finished run.",
            expected=f"{RESULT_NAME} in it",
            found="no such file",
            left="the folder is as it was",
            next=f"kmip-data train --resume {run}",
        ) from error


def package_versions() -> dict[str, str]:
    """Versions of Python, this package and those a result depends on."""
    import platform
    from importlib import metadata

    import kmip_data

    found = {"python": platform.python_version(), "kmip-data": kmip_data.__version__}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def mean_std(runs: Sequence[Metrics]) -> tuple[Metrics, Metrics]:
    """Mean and standard deviation (ddof 0, as upstream aggregates seeds) of every metric over runs."""
    parts = runs[0]
    values = {part: {name: [run[part][name] for run in runs] for name in parts[part]} for part in parts}
    mean = {part: {name: statistics.fmean(v) for name, v in names.items()} for part, names in values.items()}
    std = {part: {name: statistics.pstdev(v) for name, v in names.items()} for part, names in values.items()}
    return mean, std


def title_of(name: str) -> str:
    """Return the title of a metric, or of the loss, with its unit."""
    metric = METRICS.get(name)
    return name if metric is None else f"{metric.title} [%]" if metric.percent else metric.title


def value_text(name: str, mean: float, std: float | None) -> str:
    """Write a metric, or the loss, with its deviation if there is one; shares in percent."""
    scale, digits = (100, 2) if name in METRICS and METRICS[name].percent else (1, 4)
    text = f"{scale * mean:.{digits}f}"
    return text if std is None else f"{text} ± {scale * std:.{digits}f}"


def metrics_table(runs: Sequence[Metrics]) -> str:
    """Parts against metrics, shares in percent; mean ± std where there are several runs."""
    mean, std = mean_std(runs)
    parts = [part for part in PARTS if part in mean]
    names = [name for name in ("loss", *METRICS) if name in mean[parts[0]]]

    def cell(part: str, name: str) -> str:
        return value_text(name, mean[part][name], std[part][name] if len(runs) > 1 else None)

    rows = [["", *map(title_of, names)]]
    rows += [[part, *(cell(part, name) for name in names)] for part in parts]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)) for row in rows
    )


@dataclass(frozen=True)
class Summary:
    """Results of the same configuration with different seeds, and their folders."""

    runs: list[Path]
    results: list[RunResult]

    def to_dict(self) -> dict[str, Any]:
        """Object that ``train --json`` prints.

        ``run``, ``seed``, ``best_epoch``, ``metrics``, ``sample`` and ``complete``. With several seeds the
        first three are lists, ``metrics`` has the mean and ``std`` the deviation, and ``runs`` has one
        object per seed.
        """
        each = [
            {"run": str(run)}
            | result.model_dump(include={"seed", "best_epoch", "metrics", "sample", "complete"})
            for run, result in zip(self.runs, self.results, strict=True)
        ]
        if len(each) == 1:
            return each[0]
        mean, std = mean_std([result.metrics for result in self.results])
        lists = {name: [entry[name] for entry in each] for name in ("run", "seed", "best_epoch")}
        return {
            **lists,
            "metrics": mean,
            "std": std,
            "sample": self.results[0].sample,
            "complete": self.results[0].complete,
            "runs": each,
        }

    def table(self) -> str:
        """Table of parts and metrics (mean ± std over seeds), with the data and the model."""
        first = self.results[0]
        seeds = ", ".join(str(result.seed) for result in self.results)
        best = ", ".join(str(result.best_epoch + 1) for result in self.results)
        return (
            f"{metrics_table([result.metrics for result in self.results])}\n"
            f"{first.dataset}{remark(first.sample, first.complete)}, {first.model}, seed {seeds};"
            f" weights of epoch {best} of {first.epochs}"
            f", the best by {METRICS[first.metric].title} on val"
        )
