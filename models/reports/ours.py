"""Results of this package as data: the rows of ``manifests/results/ours``.

A row is a preset and its seeds: metric, digests of weights, seconds, machine. ``kmip-data report``
shows it beside the paper's figure, ``kmip-data train --reproduce DATASET/ROW`` trains it again.
"""

from __future__ import annotations

import functools
import statistics
from typing import Any, NamedTuple

from pydantic import Field, model_validator

from kmip_data.errors import NotReproduced, UsageError
from kmip_data.files.reading import json_digest, sha256_file
from kmip_data.manifest import Digest, Strict, read_shipped, shipped_names, unknown_name
from kmip_data.models.training.run.checkpoint import WEIGHTS
from kmip_data.models.training.run.folder import (
    RunResult,
    Summary,
    metrics_columns,
    value_text,
    with_unit,
)


class Ours(Strict):
    """One row; its lists have one value for each seed."""

    name: str
    dataset: str
    build: str = Field(description="key of the build")
    model: str
    variant: str
    metric: str = Field(description="the metric that chose the epoch; shares, not percent")
    epochs: int
    planned: int | None = Field(
        default=None, description="epochs of the schedule; none: as many as were trained"
    )
    parameters: int
    hardware: str = Field(description="processor and threads, or GPU")
    torch: str
    arithmetic: int = Field(default=1, description="``system.arithmetic`` of the training")
    commit: str
    note: str = ""
    seeds: tuple[int, ...] = Field(min_length=1)
    splits: tuple[str, ...] = Field(description="digest of the split")
    val: tuple[float, ...]
    test: tuple[float, ...]
    seconds: tuple[float, ...] = Field(description="of the whole training")
    weights: tuple[Digest, ...] = Field(description="SHA-256 of model.safetensors")
    first_epochs: tuple[dict[str, tuple[float, ...]], ...] = Field(
        default=(), description="columns of metrics.csv in the first epochs"
    )

    @model_validator(mode="after")
    def _one_value_a_seed(self) -> Ours:
        lists: list[tuple[Any, ...]] = [
            self.splits,
            self.val,
            self.test,
            self.seconds,
            self.weights,
        ]
        if self.first_epochs:
            lists.append(self.first_epochs)
        if any(len(values) != len(self.seeds) for values in lists):
            raise ValueError("its lists do not have one value for each seed")
        return self

    @property
    def schedule_epochs(self) -> int:
        """Epochs of the schedule; the training may have stopped before."""
        return self.planned or self.epochs

    @property
    def mean(self) -> float:
        """Mean on test."""
        return statistics.fmean(self.test)

    @property
    def std(self) -> float | None:
        """Standard deviation on test (ddof 0); None for one seed."""
        return statistics.pstdev(self.test) if len(self.test) > 1 else None

    def text(self, part: str = "test") -> str:
        """Return mean and standard deviation on ``val`` or ``test`` for people."""
        values = self.test if part == "test" else self.val
        std = statistics.pstdev(values) if len(values) > 1 else None
        return value_text(self.metric, statistics.fmean(values), std)


@functools.cache
def our_rows() -> dict[str, Ours]:
    """Return every row by ``FILE/NAME``."""
    rows = {}
    for file in shipped_names("results/ours"):
        values = read_shipped("results/ours", file)
        for row in values["row"]:
            # What the rows of a file share stands in its table ``common``.
            rows[f"{file}/{row['name']}"] = Ours.model_validate(values["common"] | row)
    return rows


def our_row(name: str) -> Ours:
    """Return a row by ``FILE/NAME``, or raise ``UsageError`` with the nearest name."""
    rows = our_rows()
    if name not in rows:
        raise unknown_name(
            "row", name, [*rows], command="kmip-data train --reproduce DATASET/MODEL"
        )
    return rows[name]


def row_of_result(result: RunResult) -> Ours | None:
    """Return the row with the data, model, variant and epochs of ``result``, whatever its seeds."""
    planned = result.config["training"]["epochs"]
    wanted = (result.build_key, result.model, result.variant, result.metric, result.epochs, planned)
    for row in our_rows().values():
        length = (row.epochs, row.schedule_epochs)
        if (row.build, row.model, row.variant, row.metric, *length) == wanted:
            return row
    return None


def check_reproduced(row: Ours, summary: Summary) -> tuple[dict[str, Any], str]:
    """Compare each seed of ``summary`` with ``row``; return that as a dictionary and as text.

    With the row's processor, threads and torch, metric and weights have to be equal bit for bit;
    elsewhere, or with another seed, the metric has to lie within three standard deviations of the
    row's mean. Raises ``NotReproduced`` where it does not, or where build or split are others. A
    run that stopped before the row's last epoch is compared with the row's first epochs.
    """
    if summary.results[0].epochs < row.epochs:
        return _check_first_epochs(row, summary)

    lines = []
    seeds = []
    reproduced = True
    far = 3 * (row.std or 0)
    columns = zip(row.test, row.weights, row.splits, strict=True)
    of_seed = dict(zip(row.seeds, columns, strict=True))
    for folder, result in zip(summary.runs, summary.results, strict=True):
        # 1. Metric, weights and split of this seed, and the row's.
        test = result.metrics["test"][row.metric]
        weights, _ = sha256_file(folder / WEIGHTS)
        split = json_digest(result.split.digests)[:12]
        published = of_seed.get(result.seed)
        same_data = result.build_key == row.build
        before = None
        if published is not None:
            before = published[0]
            same_data = same_data and split == published[2]
        equal = same_data and (test, weights, split) == published

        # 2. Bits can be equal on the row's processor and torch alone: elsewhere sums are added up
        # in another order, and three deviations hold nearly every seed.
        same_machine = (result.hardware, result.versions["torch"]) == (row.hardware, row.torch)
        if published is not None and same_machine:
            reproduced &= equal
        else:
            reproduced &= same_data and abs(test - row.mean) <= far

        # 3. The seed in the dictionary, and as a line.
        seeds.append(
            {
                "seed": result.seed,
                "test": test,
                "row": before,
                "equal": equal,
            }
        )
        line = f"seed {result.seed}: {with_unit(row.metric, test)}, row "
        line += "–" if before is None else with_unit(row.metric, before)
        if not same_data:
            line += ": other data"
        elif equal:
            line += ": equal, weights too"
        lines.append(line)

    first = summary.results[0]
    lines.append(f"row: {row.text()}, {row.hardware}, torch {row.torch}")
    lines.append(f"here: {first.hardware}, torch {first.versions['torch']}")
    text = "\n".join(lines)
    if not reproduced:
        advice = "compare build, split, machine and version of torch"
        if row.std is None:
            advice += (
                "; a row of one seed has no deviation, so that only equal figures reproduce it"
            )
        raise NotReproduced(
            f"{row.dataset}/{row.name} is not reproduced.", found=f"\n{text}", next=advice
        )
    shared = {
        "mean": row.mean,
        "std": row.std,
        "hardware": row.hardware,
        "torch": row.torch,
    }
    return {"row": f"{row.dataset}/{row.name}", **shared, "seeds": seeds}, text


def _check_first_epochs(row: Ours, summary: Summary) -> tuple[dict[str, Any], str]:
    """Compare the columns of ``metrics.csv`` with the first epochs of ``row``, to the last digit.

    Raises ``UsageError`` where the row has none, ``NotReproduced`` where the data are others, or a
    figure differs on the row's processor with its version of torch; elsewhere differences are shown
    alone.
    """
    if not row.first_epochs:
        raise UsageError(
            f"{row.dataset}/{row.name} has no figures of single epochs.",
            next=f"kmip-data train --reproduce {row.dataset}/{row.name}, without --stop-after",
        )
    expected_of_seed = dict(zip(row.seeds, row.first_epochs, strict=True))
    split_of_seed = dict(zip(row.seeds, row.splits, strict=True))
    seeds = []
    lines = []
    reproduced = True

    for folder, result in zip(summary.runs, summary.results, strict=True):
        split = json_digest(result.split.digests)[:12]
        same_split = split == split_of_seed.get(result.seed, split)
        same_data = same_split and result.build_key == row.build
        columns = metrics_columns(folder)
        differing = []
        compared = 0
        for name, values in expected_of_seed.get(result.seed, {}).items():
            # A run may have stopped before the last epoch of the row, or gone beyond it.
            measured = [value for _, value in columns.get(name, [])]
            for epoch, (before, now) in enumerate(zip(values, measured, strict=False), start=1):
                compared += 1
                if before != now:
                    differing.append(f"{name} of epoch {epoch}: {now!r}, row {before!r}")

        # A seed that the row lacks has nothing compared: it is not equal.
        same_machine = (result.hardware, result.versions["torch"]) == (row.hardware, row.torch)
        equal = same_data and compared > 0 and not differing
        reproduced &= same_data and (equal or not same_machine)
        verdict = "; ".join(differing) or f"all {compared} figures of its first epochs are equal"
        lines.append(f"seed {result.seed}: {verdict if same_data else 'other data'}")
        seeds.append({"seed": result.seed, "compared": compared, "equal": equal})

    lines.append(
        f"row: {row.epochs} of {row.schedule_epochs} epochs, {row.hardware}, torch {row.torch}"
    )
    first = summary.results[0]
    lines.append(f"here: {first.epochs} epochs, {first.hardware}, torch {first.versions['torch']}")
    text = "\n".join(lines)
    if not reproduced:
        raise NotReproduced(
            f"The first epochs of {row.dataset}/{row.name} are not reproduced.",
            found=f"\n{text}",
            next="compare build, split, machine and version of torch",
        )
    return {"row": f"{row.dataset}/{row.name}", "epochs": first.epochs, "seeds": seeds}, text


class Leaderboard(Strict):
    """One file: the leaderboards of one benchmark, whose metric is the lower the better."""

    source: str
    metrics: tuple[str, ...] = Field(
        description="metrics of ours that its figures are compared with"
    )
    models: dict[str, str] = Field(
        description="model of ours -> name of the same network on the leaderboard"
    )
    entries: dict[str, dict[str, tuple[float, float]]] = Field(
        description="dataset -> entry -> mean and standard deviation on test"
    )


class Entry(NamedTuple):
    """An entry of a leaderboard."""

    name: str
    mean: float
    std: float
    source: str


@functools.cache
def leaderboards() -> list[Leaderboard]:
    """Return every shipped leaderboard."""
    folder = "results/leaderboards"
    return [
        Leaderboard.model_validate(read_shipped(folder, name)) for name in shipped_names(folder)
    ]


def entry_for(dataset: str, model: str, metric: str) -> Entry | None:
    """Return the entry of the same network, else the best one; None without a leaderboard."""
    for board in leaderboards():
        entries = board.entries.get(dataset) if metric in board.metrics else None
        if entries:
            name = board.models.get(model, "")
            if name not in entries:
                name = min(entries, key=lambda each: entries[each][0])
            return Entry(name, *entries[name], board.source)
    return None
