"""Run folders ``runs/<dataset>/<model>/<name>``: names, files, ``metrics.csv``, ``result.json``, tables."""

from __future__ import annotations

import contextlib
import csv
import itertools
import math
import os
import platform
import re
import shlex
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, model_validator

import kmip_data
from kmip_data.builds.home import Home
from kmip_data.errors import DamagedInput, UsageError
from kmip_data.files.changes import begin_folder, build_lock, refuse_link, refuse_links_below
from kmip_data.files.faults import located, writing
from kmip_data.files.reading import read_json, read_model, read_small, sealed_json
from kmip_data.format.card import OF_SAMPLE, remark
from kmip_data.format.splits import PARTS
from kmip_data.models.training.config.keys import RunConfig, SystemConfig
from kmip_data.models.training.config.presets import folder_of
from kmip_data.models.training.metrics import all_metrics, is_share
from kmip_data.registry import Plugin
from kmip_data.shipped import Strict
from kmip_data.wording import nearest

if TYPE_CHECKING:
    from kmip_data.models.training.data.run_data import RunData

CONFIG_NAME = "config.toml"
METRICS_NAME = "metrics.csv"
RESULT_NAME = "result.json"
#: Files that commands write into the folder of a run.
_OWN = re.compile(
    r"config\.toml|metrics\.csv|result\.json|(initial|model)\.safetensors|explore\.html"
    r"|checkpoints/((last|previous)\.ckpt|digests|(best|epoch-\d+)\.safetensors)"
    r"|(approximation|cumulative-weight)\.(csv|png)"
)
RUN = "run"  #: marker of a run folder
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")

#: Part -> name -> value.
Metrics = dict[str, dict[str, float]]


def check_name(name: str) -> None:
    """Raise ``UsageError`` unless ``name`` is a file name."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is not a name for a run.",
            next="another --name, of letters, digits, '.', '_' and '-', that begins with a letter or digit",
        )


@contextlib.contextmanager
def new_run(
    home: Home,
    dataset: str,
    model: str,
    name: str,
    *,
    exact: bool,
) -> Iterator[Path]:
    """Make a new run folder and hold its lock.

    Unless ``exact``, a name that is taken gets a number.

    A folder without a configuration is the rest of a run that was killed early, and is reused.
    Raises ``UsageError`` if an ``exact`` name exists, or a parent folder is a link;
    ``OutOfResources`` without disk space.
    """
    parent = home.runs / dataset / model
    folder = parent / name
    with writing(folder):
        refuse_links_below(home.runs, parent)
        parent.mkdir(parents=True, exist_ok=True)
        for number in itertools.count(2):
            with contextlib.suppress(FileExistsError):
                folder.mkdir()
                break
            if exact:
                break
            folder = parent / f"{name}-{number}"
    refuse_link(folder)
    with build_lock(folder, wait=False):
        if (folder / CONFIG_NAME).exists():
            raise UsageError(
                f"A run called {folder.name!r} already exists: {folder}",
                next=f"kmip-data train --resume {shlex.quote(str(folder))}, or another --name",
            )
        begin_folder(folder, RUN)
        yield folder


def files_of_run(folder: Path) -> list[str]:
    """Return the file names of a run in its folder, the configuration last."""
    names = []
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if _OWN.fullmatch(name) and not path.is_dir():
            names.append(name)
    return sorted(names, key=lambda name: (name == CONFIG_NAME, name))


def home_option(run: Path) -> str:
    """Return the option `` --home DIR`` for a run outside the default home."""
    name = Path(*run.parts[-3:])  # dataset, model, run
    home = Home(Path(*run.parts[:-4]))
    if run != home.runs / name or home == Home.locate():
        return ""
    return f" --home {shlex.quote(str(home.root))}"


def find_run(run: str | os.PathLike[str], home: Home) -> Path:
    """Resolve RUN: a run folder, or its path below ``runs/``.

    The last parts suffice, and the beginning of the name, if they are unique. Raises ``UsageError``
    if no run matches, or several do.
    """
    text = os.fspath(run)
    path = located(text, "run")
    if (path / CONFIG_NAME).is_file():
        return path
    wanted = Path(text).parts
    runs = sorted(entry.parent for entry in home.runs.glob(f"*/*/*/{CONFIG_NAME}"))
    matches = [folder for folder in runs if has_beginning(folder.parts, wanted)]
    exact = [folder for folder in matches if folder.name == wanted[-1]]
    matches = exact or matches
    if len(matches) == 1:
        return matches[0]
    if matches:
        fault = "are called" if exact else "begin with"
        several = "".join(f"\n    {folder}" for folder in matches)
        raise UsageError(f"{len(matches)} runs {fault} {text!r}.", found=several, next="a path")
    names = [str(folder.relative_to(home.runs)) for folder in runs]
    # Compare with the last parts of paths, as a name is much shorter than its path.
    ends = ["/".join(folder.parts[-len(wanted) :]) for folder in runs]
    close = dict(zip(ends, names, strict=True)).get(nearest(text, ends) or "")
    raise UsageError(
        f"There is no run {text!r}.{f' Did you mean {close!r}?' if close else ''}",
        found="".join(f"\n    {name}" for name in names[-5:]) or f"no runs under {home.runs}",
        next="kmip-data runs" if names else "kmip-data train --dataset NAME",
    )


def has_beginning(parts: Sequence[str], wanted: Sequence[str]) -> bool:
    """True if a run's path ends with ``wanted``, of whose last part the beginning suffices."""
    if not wanted:
        return False
    *parents, name = parts[-len(wanted) :]
    return parents == [*wanted[:-1]] and name.startswith(wanted[-1])


def metrics_columns(run: Path) -> dict[str, list[tuple[int, float]]]:
    """Return the columns of ``metrics.csv``: epochs, from 1, with their finite values.

    Cells that cannot be read are omitted.
    """
    columns: dict[str, list[tuple[int, float]]] = {}
    with contextlib.suppress(OSError, ValueError, csv.Error):
        lines = read_small(run / METRICS_NAME).decode().splitlines()
        for epoch, row in enumerate(csv.DictReader(lines), start=1):
            for name, cell in row.items():
                with contextlib.suppress(ValueError, TypeError):
                    value = float(cell)
                    if math.isfinite(value):
                        columns.setdefault(name, []).append((epoch, value))
    return columns


def own_choices(config: RunConfig, folder: Path, home: Home) -> RunConfig:
    """Return the configuration of a run; one from another home may not run commands or open folders.

    Raises ``UsageError`` if such a run has a folder as its data.
    """
    if folder.resolve().is_relative_to(home.runs.resolve()):
        return config
    if os.sep in config.data.dataset or folder_of(config.data.dataset):
        raise UsageError(
            f"{folder} is not a run of this home and names a folder as its data: {config.data.dataset}",
            next=f"if you trust it, move the run below {home.runs}; or evaluate it with --dataset",
        )
    return config.model_copy(update={"system": SystemConfig()})


class SplitUsed(Strict):
    """Split that the run was trained on."""

    name: str
    rule: str
    parameters: dict[str, Any]
    digests: dict[str, str] = Field(description="part -> digest of its keys in order")

    @classmethod
    def of(cls, data: RunData) -> SplitUsed:
        """Describe the split of ``data``."""
        return cls(
            name=data.split_name,
            rule=data.split.rule,
            parameters=data.split.parameters,
            digests=data.identity["split"],
        )


class Seconds(Strict):
    """Wall-clock times."""

    train_epoch: float = Field(description="mean over epochs, evaluation not counted")
    total: float = Field(description="all epochs with their evaluations, over every resumption")


class Memory(Strict):
    """Peak memory of the (first) process in bytes."""

    device: int | None = Field(description="allocated on the GPU by PyTorch; none on a CPU")
    host: int = Field(description="resident set of the whole process")


class RunResult(Strict):
    """Result of a run. Metrics belong to the best epoch's weights, from one pass in eval mode over each part."""

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
    split: SplitUsed
    model: str
    preset: str
    variant: str
    config: dict[str, Any] = Field(description="the whole configuration, as in config.toml")
    num_features: int = Field(description="columns of x")
    columns: tuple[str, ...] = Field(
        default=(), description="names of the columns of x, where they have any"
    )
    vocabulary: str = Field(
        default="", description="digest of the categories of one-hot columns, where there are any"
    )
    num_classes: int = Field(description="outputs of the network: classes, labels or targets")
    num_parameters: int
    seed: int
    device: str
    hardware: str = Field(default="", description="processor and PyTorch's threads, or the GPU")
    versions: dict[str, str]
    epochs: int
    best_epoch: int = Field(
        description="counted from 0; first epoch with the best validation metric"
    )
    metric: str = Field(description="the metric that chose the epoch")
    metrics: dict[str, dict[str, float]] = Field(description="part -> loss and metrics")
    seconds: Seconds
    memory: Memory
    files: dict[str, str] = Field(default={}, description="SHA-256 of the files of the run")
    digest: str = Field(default="", description="SHA-256 of all other fields, as on a card")

    def to_json(self) -> str:
        """Return stable, readable JSON with a new ``digest``."""
        return sealed_json(self.model_dump(mode="json"))

    @model_validator(mode="after")
    def _makes_a_table(self) -> Self:
        names = {frozenset(values) for values in self.metrics.values()}
        # A plugin's metric is unknown here, but the configuration names it.
        known: set[str | None] = set(all_metrics())
        training = self.config.get("training")
        plugins = self.config.get("plugins") or ()
        for plugin in plugins:
            Plugin.model_validate(plugin)
        if plugins and isinstance(training, dict):
            known.add(training.get("metric"))
        if self.metric not in known or len(names) != 1 or self.metrics.keys() - set(PARTS):
            raise ValueError("its metrics are not those of a run")
        return self


def read_result(run: Path) -> RunResult:
    """Read the result of a run folder.

    Raises ``UsageError`` if none exists (unfinished run); ``DamagedInput`` if it is not a result of
    version 1.
    """
    resume = f"kmip-data train --resume {shlex.quote(str(run))}"
    try:
        return read_model(
            run / RESULT_NAME,
            RunResult,
            "cannot be read as a result",
            next=f"{resume} writes it anew from the run's last checkpoint",
        )
    except FileNotFoundError as error:
        raise UsageError(
            f"{run} is not a finished run: it has no {RESULT_NAME}.",
            next=resume,
        ) from error


def is_edited(run: Path) -> bool:
    """True if the file differs from the serialisation of its content and digest."""
    path = run / RESULT_NAME
    return sealed_json(read_json(path)).encode() != read_small(path)


def refuse_edited(run: Path) -> None:
    """Raise ``DamagedInput`` if the result was edited."""
    if is_edited(run):
        raise DamagedInput(
            f"{run / RESULT_NAME} was edited: its digest is not that of its content.",
            next=f"restore it; or remove it, and kmip-data train --resume {shlex.quote(str(run))} "
            "measures the last checkpoint again",
        )


def package_versions() -> dict[str, str]:
    """Return versions of Python, this package and the packages that affect results."""
    versions = {"python": platform.python_version(), "kmip-data": kmip_data.__version__}
    for package in ("torch", "torch-geometric", "numpy", "numba", "pykeops"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return versions


def mean_std(runs: Sequence[Metrics], ddof: int = 0) -> tuple[Metrics, Metrics]:
    """Mean and standard deviation of every metric over runs.

    ``ddof`` is 0 over seeds, as upstream, and 1 over splits, as in papers.
    """
    deviation = statistics.stdev if ddof else statistics.pstdev
    mean: Metrics = {}
    std: Metrics = {}
    for part, names in runs[0].items():
        mean[part] = {}
        std[part] = {}
        for name in names:
            values = [run[part][name] for run in runs]
            mean[part][name] = statistics.fmean(values)
            std[part][name] = deviation(values)
    return mean, std


def title_of(name: str) -> str:
    """Return the title of a metric, or of the loss, with its unit."""
    metric = all_metrics().get(name)
    if metric is None:
        return name
    return f"{metric.title} [%]" if metric.unit == "share" else metric.title


def value_text(name: str, mean: float, std: float | None) -> str:
    """Format a metric, or the loss, with its deviation if any; fractions in percent."""
    scale, digits = (100, 2) if is_share(name) else (1, 4)
    text = f"{scale * mean:.{digits}f}"
    if std is None:
        return text
    return f"{text} ± {scale * std:.{digits}f}"


def with_unit(name: str, mean: float, std: float | None = None) -> str:
    """Format a metric, such as 0.2562 of ``mae`` and 66.31 % of ``ap``."""
    text = value_text(name, mean, std)
    return f"{text} %" if is_share(name) else text


def metrics_table(runs: Sequence[Metrics], ddof: int = 0) -> str:
    """Format parts against metrics, fractions in percent; mean ± std over several runs."""
    mean, std = mean_std(runs, ddof)
    names = [name for name in ("loss", *all_metrics()) if name in next(iter(mean.values()))]
    rows = [["", *map(title_of, names)]]
    for part in PARTS:
        if part not in mean:
            continue
        row = [part]
        for name in names:
            deviation = std[part][name] if len(runs) > 1 else None
            row.append(value_text(name, mean[part][name], deviation))
        rows.append(row)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.rjust, row, widths)) for row in rows)


@dataclass(frozen=True)
class Summary:
    """Results of one configuration with different seeds or folds, and their folders."""

    runs: list[Path]
    results: list[RunResult]

    @property
    def folds(self) -> list[int]:
        """Fold of each run; empty if all are equal."""
        folds = [result.split.parameters.get("fold", 0) for result in self.results]
        return folds if len({*folds}) > 1 else []

    def to_dict(self) -> dict[str, Any]:
        """Return the object that ``train --json`` prints.

        ``run``, ``seed``, ``best_epoch``, ``metrics``, ``sample`` and ``complete``; with several
        runs the mean ``metrics``, their deviation ``std``, and ``runs``, one object each, with its
        ``fold`` where there are several.
        """
        shown = {"seed", "best_epoch", "metrics", "sample", "complete"}
        runs = []
        for folder, result in zip(self.runs, self.results, strict=True):
            runs.append({"run": str(folder)} | result.model_dump(include=shown))
        if len(runs) == 1:
            return runs[0]
        for run, fold in zip(runs, self.folds, strict=False):
            run["fold"] = fold
        mean, std = mean_std([result.metrics for result in self.results], ddof=bool(self.folds))
        return {"metrics": mean, "std": std, "runs": runs}

    def table(self) -> str:
        """Format a table of parts and metrics (mean ± std over runs), with the data and the model."""
        first = self.results[0]
        seeds = ", ".join(map(str, dict.fromkeys(result.seed for result in self.results)))
        best = ", ".join(str(result.best_epoch + 1) for result in self.results)
        dataset = f"{first.dataset}{remark(first.sample, first.complete)}"
        table = metrics_table([result.metrics for result in self.results], ddof=bool(self.folds))
        folds = ""
        if self.folds:
            numbers = ", ".join(map(str, dict.fromkeys(self.folds)))
            folds = (
                f" fold {numbers}: mean ± standard deviation (n - 1) over {len(self.runs)} runs,"
            )
        text = (
            f"{table}\n{dataset}, {first.model},{folds} seed {seeds}; weights of epoch {best} "
            f"of {first.epochs}, the best by {all_metrics()[first.metric].title} on val"
        )
        return f"{text}\n{OF_SAMPLE}" if first.sample else text
