"""Settings of a training on own data, compared with linear models on many sets.

Each line of ``WORK/runs.jsonl`` is a run; a run that is listed there is not repeated::

    python -m benchmarks.own_defaults run --data DIR --work WORK --candidates sage,mlp
    python -m benchmarks.own_defaults run --data DIR --work WORK --candidates default --seeds 0..2
    python -m benchmarks.own_defaults table --work WORK
"""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from torch import Tensor

from benchmarks.own_sets import SETS, build_set
from kmip_data.builds.home import Home
from kmip_data.cli.shared.options import parse_distinct_numbers
from kmip_data.errors import KmipDataError
from kmip_data.format.card import Card
from kmip_data.models.training.accumulators import metric_of_outputs
from kmip_data.models.training.config.overrides import apply_overrides
from kmip_data.models.training.config.presets import config_for_data
from kmip_data.models.training.config.run_config import RunConfig
from kmip_data.models.training.data.open_data import open_data
from kmip_data.models.training.data.run_data import RunData
from kmip_data.models.training.metrics import LabelRows, all_metrics, is_better, is_percent
from kmip_data.models.training.references.answers import reference_answers
from kmip_data.models.training.references.features import read_parts
from kmip_data.models.training.references.fitted import (
    fits_of_methods,
    linear_methods,
)
from kmip_data.models.training.references.reference import TITLES
from kmip_data.models.training.run.predictions import predict, record_keys_and_pointers
from kmip_data.models.training.run.train import train
from kmip_data.models.training.standard_errors import weighted_sums


@dataclass
class MeasuredSet:
    """A set in a home, with its linear model."""

    name: str
    build: Path
    home: Home

    @property
    def card(self) -> Card:
        """Card of the build."""
        return Card.model_validate_json((self.build / "card.json").read_text("utf-8"))

    def config(self, candidate: str) -> RunConfig:
        """Return the configuration of a candidate: a model, or ``default``."""
        model = None if candidate == "default" else candidate
        config = config_for_data(str(self.build), model, home=self.home)
        if "x" not in self.card.schema_.attributes:  # nodes without features
            config = apply_overrides(config, ["data.features=degree-profile"])
        config = config.with_values("training", references=False)
        return config.with_values("data", dataset=str(self.build))

    @cached_property
    def data(self) -> RunData:
        """Data as the methods read them."""
        return open_data(self.config("default"), home=self.home)

    @cached_property
    def metric(self) -> str:
        """Metric that chooses and is reported."""
        return str(self.data.pin_settings(self.config("default")).training.metric)

    @cached_property
    def linear(self) -> tuple[dict[str, float | None], Tensor, Tensor]:
        """Metrics on test of the references, outputs of the best linear model, and targets."""
        config = self.config("default").with_values("training", references=True)
        answers = reference_answers(self.data, self.data.pin_settings(config), click.echo)
        references = {name: answer.test for name, answer in answers.items()}

        task = self.data.task
        parts = read_parts(self.data)

        def score_on_val(outputs: dict[str, Tensor]) -> float:
            value = metric_of_outputs(task, self.metric, outputs["val"], parts["val"].targets)
            return sign_of(self.metric) * (value or 0.0)

        fits = [
            outputs
            for features in ("features", "with_neighbors")
            for _, outputs in fits_of_methods(task, parts, features, linear_methods())
        ]
        return references, max(fits, key=score_on_val)["test"], parts["test"].targets

    @cached_property
    def item_of_row(self) -> Tensor:
        """Item of each test row: the row itself, or its graph."""
        rows = torch.arange(len(self.linear[2]))
        if self.data.part_members == "nodes" or self.data.task.level == "graph":
            return rows
        _, pointers = record_keys_and_pointers(self.data, "test")
        return torch.from_numpy(np.searchsorted(pointers, rows, side="right") - 1)

    @property
    def train_items(self) -> int:
        """Number of items in train."""
        train = self.card.splits[self.data.split_name].parts["train"]
        return train.nodes if self.data.part_members == "nodes" else train.graphs


def metric_and_slopes(
    task: Any, metric: str, outputs: Tensor, targets: Tensor
) -> tuple[float, Tensor]:
    """Return a metric of outputs, and its slopes in the weights of the rows."""
    weights = torch.ones(len(targets), dtype=torch.float64, requires_grad=True)
    if task.target_type == "multilabel":
        sums: Any = LabelRows(outputs.double(), targets.double(), weights)
    elif task.target_type == "classification":
        sums = weighted_sums(task, [targets * task.outputs + outputs.argmax(1)], weights)
    else:
        targets = targets.double()
        errors = outputs.double().view(targets.shape) - targets
        sums = weighted_sums(task, [torch.stack([errors, targets])], weights)
    value = all_metrics()[metric].compute(sums)
    (slopes,) = torch.autograd.grad(value, weights)
    return float(value.detach()), slopes - slopes.mean()


def sign_of(metric: str) -> int:
    """Return 1 if a larger metric is better, else -1."""
    return 1 if is_better(metric, 1.0, 0.0) else -1


def measure(measured: MeasuredSet, candidate: str, seed: int) -> dict[str, Any]:
    """Train a candidate and return a line of the results."""
    config = measured.config(candidate).with_seed(seed)

    # 1. Train it; an unfinished run is repeated.
    name = f"{candidate}-{seed}"
    unfinished = measured.home.runs / measured.card.dataset_label / config.model.name / name
    shutil.rmtree(unfinished, ignore_errors=True)
    start = time.process_time()
    summary = train(config, home=measured.home, name=name, quiet=True)
    run = summary.runs[0]
    seconds = time.process_time() - start

    # 2. Compare test with the linear model, item by item.
    result = summary.results[0]
    metric = measured.metric
    references, linear, targets = measured.linear
    task = measured.data.task
    predictions = predict(run, home=measured.home)
    outputs = predictions.pred if predictions.logits is None else predictions.logits
    value, slopes = metric_and_slopes(task, metric, torch.as_tensor(outputs), targets)
    linear_value, linear_slopes = metric_and_slopes(task, metric, linear, targets)
    by_item = sum_by_item(slopes - linear_slopes, measured.item_of_row)
    return {
        "set": measured.name,
        "candidate": candidate,
        "seed": seed,
        "task": f"{task.level} {task.target_type}",
        "items": measured.train_items,
        "metric": metric,
        "val": result.metrics["val"][metric],
        "test": value,
        "test_error": result.standard_errors.get(metric),
        "difference": sign_of(metric) * (value - linear_value),
        "difference_error": float(by_item.square().sum().sqrt()),
        "seconds": round(seconds, 1),
        "epochs": result.epochs,
        "best_epoch": result.best_epoch + 1,
        "references": references,
    }


def sum_by_item(slopes: Tensor, items: Tensor) -> Tensor:
    """Sum slopes of rows by item."""
    return slopes.new_zeros(int(items.max()) + 1).index_add(0, items, slopes)


@click.group()
def main() -> None:
    """Measure settings of a training on own data."""


@main.command("run")
@click.option("--data", type=click.Path(path_type=Path), required=True, help="Published files.")
@click.option("--work", type=click.Path(path_type=Path), required=True, help="Home and results.")
@click.option("--candidates", default="sage,default", help="Models, or default.")
@click.option("--sets", default=",".join(SETS), help="Names of sets.")
@click.option("--seeds", default="0", help="Seeds.")
def run_candidates(data: Path, work: Path, candidates: str, sets: str, seeds: str) -> None:
    """Train candidates on sets, on one thread."""
    torch.set_num_threads(1)
    home = Home(work / "home")
    results = work / "runs.jsonl"
    work.mkdir(exist_ok=True)
    results.touch()
    done = [json.loads(line) for line in results.read_text().splitlines()]
    finished = {(row["set"], row["candidate"], row["seed"]) for row in done}
    for name in sets.split(","):
        build = build_set(name, data, home)
        if build is None:
            click.echo(f"{name}: files are missing")
            continue
        measured = MeasuredSet(name, build, home)
        for candidate in candidates.split(","):
            for seed in parse_distinct_numbers("--seeds", seeds):
                if (name, candidate, seed) in finished:
                    continue
                try:
                    row = measure(measured, candidate, seed)
                except KmipDataError as error:
                    click.echo(f"{name} {candidate}: {error}")
                    continue
                with results.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                click.echo(
                    f"{name:20} {row['items']:6} {candidate:12} val {row['val']:9.4f} test {row['test']:9.4f}"
                    f" {row['difference']:+9.4f} ± {row['difference_error']:.4f}"
                    f" {row['seconds']:6.1f} s, epoch {row['best_epoch']} of {row['epochs']}"
                )


@main.command("table")
@click.option("--work", type=click.Path(path_type=Path), required=True, help="Results.")
def print_table(work: Path) -> None:
    """Print the sets with the references, GraphSAGE, and the default."""
    lines = (work / "runs.jsonl").read_text("utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    click.echo(f"| set | task | train | {' | '.join(TITLES)} | sage | default | {DIFFERENCE} | s |")
    click.echo("|---" * (len(TITLES) + 7) + "|")
    differences = []
    for name in SETS:
        of_set = [row for row in rows if row["set"] == name]
        runs = [row for row in of_set if row["candidate"] == "default"]
        if not runs:
            continue
        first = runs[0]
        references = first["references"]
        digits = metric_digits(first)
        cells = [name, f"{first['task']}, {first['metric']}", f"{first['items']:,}"]
        for reference in TITLES:
            value = references.get(reference)
            cells.append("–" if value is None else digits(value))
        sage = [row for row in of_set if row["candidate"] == "sage"]
        cells.append(mean_of_runs(sage, digits) if sage else "–")
        cells.append(mean_of_runs(runs, digits))
        difference = np.mean([row["difference"] for row in runs])
        error = np.mean([row["difference_error"] for row in runs])
        differences.append(difference / error)
        cells.append(f"{digits(difference, sign=True)} ± {digits(error)}")
        cells.append(f"{np.mean([row['seconds'] for row in runs]):.0f}")
        click.echo(f"| {' | '.join(cells)} |")
    worse = sum(value < -2 for value in differences)
    median = np.median(differences)
    click.echo(f"Differences in their errors: median {median:+.2f}, {worse} below -2.")


DIFFERENCE = "default against the better linear model"


def metric_digits(row: dict[str, Any]) -> Any:
    """Return the format of a set's metric: percent, or four significant digits."""
    percent = is_percent(row["metric"])

    def digits(value: float, *, sign: bool = False) -> str:
        plus = "+" if sign else ""
        return f"{100 * value:{plus}.1f}" if percent else f"{value:{plus}.3g}"

    return digits


def mean_of_runs(runs: list[dict[str, Any]], digits: Any) -> str:
    """Return the mean on test, and its error."""
    text = digits(np.mean([row["test"] for row in runs]))
    if runs[0]["test_error"] is not None:
        text += f" ± {digits(np.mean([row['test_error'] for row in runs]))}"
    if len(runs) > 1:
        text += f" ({len(runs)} seeds)"
    return text


if __name__ == "__main__":
    main(prog_name="own_defaults")
