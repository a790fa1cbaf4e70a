"""Results measured with this package, shipped as rows of ``manifests/results/measured``.

A row holds the metric, digests of weights, seconds and machine for a preset's seeds. ``kmip-data
train --reproduce DATASET/ROW`` repeats it.
"""

from __future__ import annotations

import functools
import statistics
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field

from kmip_data.errors import NotReproduced, Setting, UsageError, unknown_name_error
from kmip_data.files.small_files import json_digest, sha256_file
from kmip_data.models.training.metric_text import format_metric, format_metric_with_unit
from kmip_data.models.training.metrics import is_percent
from kmip_data.models.training.run.result import RunResult
from kmip_data.models.training.run.run_folder import WEIGHTS_NAME, metrics_columns
from kmip_data.models.training.run.summary import RunSummary, sample_std
from kmip_data.strict_model import Digest, StrictModel, read_shipped, shipped_names

#: Tolerances for a row's second epoch on later code: relative, and absolute for metrics in percent.
LOSS_TOLERANCE = 0.01
METRIC_TOLERANCE = 0.001

#: Fields of :class:`ShippedResult` by column of a file's runs; other columns are in ``metrics.csv``.
RUN_COLUMNS = {
    "seed": "seeds",
    "fold": "folds",
    "split": "splits",
    "val": "val",
    "test": "test",
    "seconds": "seconds",
    "weights": "weights",
}


class ShippedResult(StrictModel):
    """One row; tuples have one value per run."""

    name: str
    dataset: str
    build: str  #: key of the build
    model: str
    variant: str
    metric: str  #: metric that selects the best epoch; values are fractions, not percent
    epochs: int
    planned: int | None = None  #: epochs of the schedule; ``None``: the trained epochs
    parameters: int
    nodes: int | None = None  #: average number of nodes per graph in the real data
    hardware: str  #: processor and threads, or GPU
    torch: str
    commit: str
    note: str = ""
    set: tuple[str, ...] = ()  #: settings in addition to the preset, like --set
    #: mean and deviation on test that the source of the settings published
    published: tuple[float, float] | None = None
    seeds: tuple[int, ...] = Field(min_length=1)
    folds: tuple[int, ...] = ()  #: number of the published split, if there are several
    splits: tuple[str, ...]  #: digest of the split
    val: tuple[float, ...]
    test: tuple[float, ...]
    seconds: tuple[float, ...]  #: duration of the training
    weights: tuple[Digest, ...]  #: SHA-256 of model.safetensors
    #: columns of metrics.csv in the first epochs
    first_epochs: tuple[dict[str, tuple[float, ...]], ...] = ()

    @property
    def schedule_epochs(self) -> int:
        """Epochs of the schedule, before which training may have stopped."""
        return self.planned or self.epochs

    @property
    def mean(self) -> float:
        """Mean of the metric on test over the runs."""
        return statistics.fmean(self.test)

    @property
    def std(self) -> float | None:
        """Standard deviation on test; ``None`` for a single run."""
        return sample_std(self.test)

    @property
    def folds_or_seeds(self) -> tuple[int, ...]:
        """Number that identifies each run: its fold or its seed."""
        return self.folds or self.seeds

    def format_mean(self, part: str = "test") -> str:
        """Format the mean and the standard deviation on ``val`` or ``test``."""
        values = self.test if part == "test" else self.val
        return format_metric(self.metric, statistics.fmean(values), sample_std(values))


@functools.cache
def read_shipped_results() -> dict[str, ShippedResult]:
    """Read all rows by ``FILE/NAME``."""
    rows = {}
    for file in shipped_names("results/measured"):
        values = read_shipped("results/measured", file)
        for row in values["row"]:
            # The table ``common`` holds the values that all rows of a file share.
            rows[f"{file}/{row['name']}"] = _read_row(values["common"] | row)
    return rows


def _read_row(row: dict[str, Any]) -> ShippedResult:
    """Read a row, whose ``runs`` hold a list of values for each run, named by ``columns``."""
    columns = row.pop("columns")
    runs = row.pop("runs")
    for name, values in zip(columns, zip(*runs, strict=True), strict=True):
        if name in RUN_COLUMNS:
            row[RUN_COLUMNS[name]] = values

    first_epochs = []
    for run in runs:
        cells = zip(columns, run, strict=True)
        first_epochs.append({name: value for name, value in cells if name not in RUN_COLUMNS})
    row["first_epochs"] = list(filter(None, first_epochs))
    return ShippedResult.model_validate(row)


def read_shipped_result(name: str) -> ShippedResult:
    """Return the row ``FILE/NAME``; raise ``UsageError`` with the nearest name if there is none."""
    rows = read_shipped_results()
    if name not in rows:
        nearest = max(rows, key=lambda row: SequenceMatcher(None, name, row).ratio())
        raise unknown_name_error("row", name, [*rows], command=Setting(reproduce=nearest))
    return rows[name]


def check_reproduced(shipped: ShippedResult, summary: RunSummary) -> tuple[dict[str, object], str]:
    """Compare each run of ``summary`` with ``shipped``; return the comparison as JSON and as text.

    A run is *equal* if its test metric and the SHA-256 of its weights equal the row's. If it stopped
    before the row's last epoch, all values of the row's first epochs must be equal. Equality is
    promised only for the row's commit, processor, threads and torch. Otherwise a run must be
    *close*: in the second epoch, training loss and val metric must lie within ``LOSS_TOLERANCE`` and
    ``METRIC_TOLERANCE`` of the row's. The test metric of a complete run must lie within three
    standard deviations of the row's mean.

    Raises ``UsageError`` if the run stopped early and the row has no values of single epochs;
    ``NotReproduced`` if a run is not close or was trained on another build or split.
    """
    first = summary.results[0]
    is_complete = first.epochs >= shipped.epochs
    if not is_complete and not shipped.first_epochs:
        raise UsageError(
            f"{shipped.dataset}/{shipped.name} has no values of single epochs.",
            steps=Setting(stop_after=None),
        )

    runs = []
    for folder, result in zip(summary.runs, summary.results, strict=True):
        runs.append(_compare_run(shipped, folder, result, is_complete=is_complete))

    lines = [run.line for run in runs]
    lines.append(
        f"row: {shipped.format_mean()}, {shipped.epochs} of {shipped.schedule_epochs} epochs, "
        f"{shipped.hardware}, torch {shipped.torch}; bitwise equal only at commit {shipped.commit}"
    )
    lines.append(f"here: {first.epochs} epochs, {first.hardware}, torch {first.versions['torch']}")
    name = f"{shipped.dataset}/{shipped.name}"
    if not all(run.reproduced for run in runs):
        raise NotReproduced(
            f"{name} is not reproduced.",
            expected=f"equal values, or a second epoch within {LOSS_TOLERANCE:.0%} (loss) and "
            f"{100 * METRIC_TOLERANCE:g} points (metric) and a test metric within three deviations",
            found=lines,
            steps="compare build, split, machine, version of torch and threads (OMP_NUM_THREADS); "
            "use another home",
        )
    compared = {
        "row": name,
        "epochs": first.epochs,
        "mean": shipped.mean,
        "std": shipped.std,
        "hardware": shipped.hardware,
        "torch": shipped.torch,
        "commit": shipped.commit,
        "seeds": [run.facts for run in runs],
    }
    return compared, "\n".join(lines)


class RunComparison(NamedTuple):
    """Comparison of a run with a row."""

    reproduced: bool  #: True if the run is equal or close, on the same data
    facts: dict[str, object]
    line: str


def _compare_run(
    shipped: ShippedResult, folder: Path, result: RunResult, *, is_complete: bool
) -> RunComparison:
    """Compare a run with the row's run of the same seed or fold."""
    # 1. Collect data and values of the run and of the row.
    number = result.split.parameters["fold"] if shipped.folds else result.seed
    columns = zip(shipped.test, shipped.weights, shipped.splits, strict=True)
    shipped_runs = dict(zip(shipped.folds_or_seeds, columns, strict=True))
    shipped_test, weights, split = shipped_runs.get(number, (None, None, None))
    values = _first_values(shipped, folder, number)
    deciding = _deciding_values(shipped, values)
    same_split = split in {None, json_digest(result.split.digests)[:12]}
    same_data = same_split and result.build_key == shipped.build

    # 2. Decide whether they are bitwise equal, or close.
    test = None
    is_equal = bool(values) and all(value.measured == value.shipped for value in values)
    if is_complete:
        test = result.metrics["test"][shipped.metric]
        is_equal = (test, sha256_file(folder / WEIGHTS_NAME)[0]) == (shipped_test, weights)
    reproduced = same_data and (is_equal or _is_close(shipped, test, deciding))

    # 3. Describe the run.
    repetition = "fold" if shipped.folds else "seed"
    facts = {
        repetition: number,
        "test": test,
        "row": shipped_test,
        "equal": is_equal and same_data,
        "values": [value.as_json() for value in deciding],
    }
    parts = []
    if test is not None:
        expected = (
            "–" if shipped_test is None else format_metric_with_unit(shipped.metric, shipped_test)
        )
        parts.append(f"test {format_metric_with_unit(shipped.metric, test)}, row {expected}")
    parts += [value.text() for value in deciding]
    if not same_data:
        parts.append("other data")
    elif is_equal:
        parts.append("equal, weights too" if is_complete else f"all {len(values)} values equal")
    return RunComparison(reproduced, facts, f"{repetition} {number}: {'; '.join(parts)}")


class EpochValue(NamedTuple):
    """A value of one epoch, in a row and in a run measured here."""

    name: str
    epoch: int
    shipped: float
    measured: float

    def as_json(self) -> dict[str, object]:
        """Return the values as ``row`` and ``here``, their keys in the output of ``train``."""
        return {
            "name": self.name,
            "epoch": self.epoch,
            "row": self.shipped,
            "here": self.measured,
        }

    def text(self) -> str:
        """Format the measured value next to the shipped one."""
        return f"{self.name} of epoch {self.epoch}: {self.measured!r}, row {self.shipped!r}"


def _first_values(shipped: ShippedResult, folder: Path, number: int) -> list[EpochValue]:
    """Pair the columns of ``metrics.csv`` with the first epochs of ``shipped``."""
    measured = metrics_columns(folder)
    stored = dict(zip(shipped.folds_or_seeds, shipped.first_epochs, strict=False)).get(number, {})
    values = []
    for name, shipped_values in stored.items():
        measured_values = dict(measured.get(name, []))
        for epoch, shipped_value in enumerate(shipped_values, start=1):
            if epoch in measured_values:
                values.append(EpochValue(name, epoch, shipped_value, measured_values[epoch]))
    return values


def _deciding_values(shipped: ShippedResult, values: list[EpochValue]) -> list[EpochValue]:
    """Return the training loss and the val metric of the last compared epoch, usually the second."""
    last = max((value.epoch for value in values), default=0)
    names = {"train_loss", f"val_{shipped.metric}"}
    return [value for value in values if value.epoch == last and value.name in names]


def _is_close(shipped: ShippedResult, test: float | None, deciding: list[EpochValue]) -> bool:
    """True if the test metric, if measured, and the deciding epoch are close to the row's."""
    if test is not None and shipped.std is not None and abs(test - shipped.mean) > 3 * shipped.std:
        return False

    for value in deciding:
        is_fraction = value.name != "train_loss" and is_percent(shipped.metric)
        tolerance = METRIC_TOLERANCE if is_fraction else LOSS_TOLERANCE * abs(value.shipped)
        if abs(value.measured - value.shipped) > tolerance:
            return False
    # Something must have been compared, but a row with a single run has no deviation.
    return len(deciding) == 2 or (test is not None and shipped.std is not None)
