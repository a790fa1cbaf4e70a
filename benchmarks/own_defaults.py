"""Settings of a training on own data, compared with linear models on many sets.

Each line of ``WORK/runs.jsonl`` is a run; a run that is listed there is not repeated::

    python -m benchmarks.own_defaults run --data DIR --work WORK --candidates sage,mlp
    python -m benchmarks.own_defaults run --data DIR --work WORK --candidates before,default --seeds 0..2
    python -m benchmarks.own_defaults table --work WORK
"""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd
import torch
from torch import Tensor

from benchmarks.own_sets import SETS, build_set
from kmip_data.builds.home import Home
from kmip_data.cli.shared.options import parse_distinct_numbers
from kmip_data.errors import KmipDataError
from kmip_data.format.card import Card
from kmip_data.models.training.accumulators import metric_of_outputs
from kmip_data.models.training.config.adapt_preset import fit_to_columns, molecule_encoders
from kmip_data.models.training.config.overrides import apply_overrides, config_from_mapping
from kmip_data.models.training.config.presets import config_for_data, load_preset
from kmip_data.models.training.config.run_config import RunConfig
from kmip_data.models.training.data.open_data import open_data
from kmip_data.models.training.data.run_data import RunData
from kmip_data.models.training.metrics import LabelRows, all_metrics, is_better, is_percent
from kmip_data.models.training.references.constant import constant_answer
from kmip_data.models.training.references.features import read_parts
from kmip_data.models.training.references.fitted import (
    fits_of_methods,
    linear_methods,
    tree_methods,
)
from kmip_data.models.training.references.propagation import propagation_answer
from kmip_data.models.training.run.predictions import Predictions, predict, record_keys_and_pointers
from kmip_data.models.training.run.train import resume, train
from kmip_data.models.training.standard_errors import weighted_sums

#: Processor seconds after which a run ends with an epoch.
MOST_SECONDS = 60
TIMED_EPOCHS = 3  #: epochs after which the time of one is known
PATIENCE = 50
COMMON = (
    "model.head_l2norm=false model.hidden_dim=64 model.layers=2 model.dropout=0.1 optimizer.lr=0.003"
    f" schedule.warmup_epochs=5 training.epochs=300 training.patience={PATIENCE}"
    " training.batch_size=32"
)
#: What one graph was trained with before, beside the preset of actor.
BEFORE_ON_ONE_GRAPH = "model.layers=5 model.hidden_dim=256 model.dropout=0.5 optimizer.lr=0.005"
#: Candidates: a model, and what differs from the settings in common.
CANDIDATES = {
    "mlp": "mlp",
    "gcn": "gcn",
    "sage": "sage",
    "sage-0": "sage model.dropout=0",
    "sage-drop": "sage model.dropout=0.5 optimizer.weight_decay=0.1",
    "sage-unweighted": "sage training.loss=cross_entropy",
    "sage-linear": "sage model.dropout=0 model.local.residual=linear model.local.stack=gnn-plus",
    "sage-128": "sage training.loss=cross_entropy model.hidden_dim=128 model.layers=3",
    "gine-sum": "gine model.layers=3 model.pooling=sum",
    "gated": "gps-none model.layers=3",
    "gated-64": "gps-none model.layers=3 training.batch_size=64",
    "gated-sum-64": "gps-none model.layers=3 training.batch_size=64 model.pooling=sum",
    "gine-sum-64": "gine-plus model.layers=3 training.batch_size=64 model.pooling=sum",
    "sage-16": "sage training.batch_size=16",
    "gated-16": "gps-none model.layers=3 training.batch_size=16",
    "kmip": "gps-kmip model.layers=3",
}


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

    @property
    def has_features(self) -> bool:
        """True if nodes have features."""
        return any(column.attribute == "x" for column in self.card.schema_.columns)

    def config(self, candidate: str) -> RunConfig:
        """Return the configuration of a candidate; ``before`` and ``default`` are the package's."""
        schema = self.card.schema_
        if candidate == "default":
            config = config_for_data(str(self.build), home=self.home)
        elif candidate == "before" and self.card.counts["graphs"] == 1:
            config, _ = fit_to_columns(load_preset("actor"), schema, self.name)
            config = apply_overrides(config, BEFORE_ON_ONE_GRAPH.split())
        else:
            model, *settings = CANDIDATES.get(candidate, "gps-kmip").split()
            values = {"data": {"dataset": str(self.build)}, "model": {"name": model}}
            config = config_from_mapping(values, candidate)
            encoders = molecule_encoders(schema)
            has_edges = any(column.attribute == "edge_attr" for column in schema.columns)
            if candidate != "before":
                if has_edges:
                    encoders = {"model.edge_encoder": "linear", **encoders}
                settings = [*COMMON.split(), *settings]
            settings = [*(f"{key}={value}" for key, value in encoders.items()), *settings]
            config = apply_overrides(config, settings)
        if not self.has_features:
            config = apply_overrides(config, ["data.features=degree-profile"])
        config = config.with_values("training", references=False)
        return config.with_values("data", dataset=str(self.build))

    @cached_property
    def data(self) -> RunData:
        """Data as the methods read them."""
        return open_data(self.config("before"), home=self.home)

    @cached_property
    def metric(self) -> str:
        """Metric that chooses and is reported."""
        return str(self.data.pin_settings(self.config("before")).training.metric)

    @cached_property
    def linear(self) -> tuple[dict[str, float], Tensor, Tensor]:
        """Metrics on test of the references, outputs of the best linear model, and targets."""
        task = self.data.task
        parts = read_parts(self.data)
        references = {}
        constant = constant_answer(self.data, self.metric)
        propagated = propagation_answer(self.data, self.metric)
        for name, reference in (("constant", constant), ("label propagation", propagated)):
            if reference is not None and reference.test is not None:
                references[name] = reference.test
        methods = {"linear": linear_methods(), "trees": tree_methods()}
        best: tuple[float | None, Tensor] = (None, torch.empty(0))
        for kind, features in product(methods, ("features", "with_neighbors")):
            best_of_kind: tuple[float | None, Tensor] = (None, torch.empty(0))
            for _, outputs in fits_of_methods(task, parts, features, methods[kind]):
                value = metric_of_outputs(task, self.metric, outputs["val"], parts["val"].targets)
                if value is not None and is_better(self.metric, value, best_of_kind[0]):
                    best_of_kind = value, outputs["test"]
            test = metric_of_outputs(task, self.metric, best_of_kind[1], parts["test"].targets)
            references[f"{kind} {features}"] = test or 0.0
            is_best = best[0] is None or is_better(self.metric, best_of_kind[0] or 0.0, best[0])
            if kind == "linear" and is_best:
                best = best_of_kind
        return references, best[1], parts["test"].targets

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


def outputs_of(predictions: Predictions) -> Tensor:
    """Return predictions in the form of a network's output."""
    values = predictions.pred if predictions.logits is None else predictions.logits
    return torch.as_tensor(values)


def measure(
    measured: MeasuredSet, candidate: str, seed: int, stop_seconds: float
) -> dict[str, Any]:
    """Train a candidate and return a line of the results."""
    config = measured.config(candidate).with_seed(seed)
    last_epoch = config.training.last_epoch

    # 1. Train some epochs, and then as many as fit into the time.
    name = f"{candidate}-{seed}"
    unfinished = measured.home.runs / measured.card.dataset_label / config.model.name / name
    shutil.rmtree(unfinished, ignore_errors=True)
    start = time.process_time()
    timed = min(TIMED_EPOCHS, last_epoch)
    stopping = config.with_values("training", stop_after=timed)
    summary = train(stopping, home=measured.home, name=name, quiet=True)
    run = summary.runs[0]
    epochs = pd.read_csv(run / "metrics.csv")
    fitting = max(timed, int(stop_seconds / epochs["seconds"].min()))
    summary = resume(run, home=measured.home, stop_after=min(fitting, last_epoch), quiet=True)
    seconds = time.process_time() - start

    # 2. Compare test with the linear model, item by item.
    result = summary.results[0]
    metric = measured.metric
    references, linear, targets = measured.linear
    task = measured.data.task
    outputs = outputs_of(predict(run, home=measured.home))
    value, slopes = metric_and_slopes(task, metric, outputs, targets)
    linear_value, linear_slopes = metric_and_slopes(task, metric, linear, targets)
    by_item = sum_by_item(slopes - linear_slopes, measured.item_of_row)
    sign = 1 if is_better(metric, 1.0, 0.0) else -1
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
        "difference": sign * (value - linear_value),
        "difference_error": float(by_item.square().sum().sqrt()),
        "seconds": round(seconds, 1),
        "epochs": result.epochs,
        "of": last_epoch,
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
@click.option("--candidates", default=",".join(CANDIDATES), help="Names of candidates.")
@click.option("--sets", default=",".join(SETS), help="Names of sets.")
@click.option("--seeds", default="0", help="Seeds.")
@click.option("--most", default=float(MOST_SECONDS), help="Seconds after which a run ends.")
def run_candidates(
    data: Path, work: Path, candidates: str, sets: str, seeds: str, most: float
) -> None:
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
                    row = measure(measured, candidate, seed, most)
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
    """Print the sets with the references, the settings before, and the default."""
    lines = (work / "runs.jsonl").read_text("utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    click.echo(
        f"| set | task | train | {' | '.join(REFERENCES)} | before | default | {DIFFERENCE} | s |"
    )
    click.echo("|---" * (len(REFERENCES) + 7) + "|")
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
        for reference in REFERENCES:
            value = references.get(reference)
            cells.append("–" if value is None else digits(value))
        before = [row for row in of_set if row["candidate"] == "before"]
        cells.append(mean_of_runs(before, digits) if before else "–")
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


REFERENCES = (
    "constant",
    "linear features",
    "linear with_neighbors",
    "trees features",
    "trees with_neighbors",
    "label propagation",
)
DIFFERENCE = "default against the better linear model"


def metric_digits(row: dict[str, Any]) -> Any:
    """Return the format of a set's metric: percent, or four significant digits."""
    percent = is_percent(row["metric"])

    def digits(value: float, *, sign: bool = False) -> str:
        plus = "+" if sign else ""
        return f"{100 * value:{plus}.1f}" if percent else f"{value:{plus}.3g}"

    return digits


def mean_of_runs(runs: list[dict[str, Any]], digits: Any) -> str:
    """Return the mean on test, its error, and the epochs of runs that had no time for all."""
    text = digits(np.mean([row["test"] for row in runs]))
    if runs[0]["test_error"] is not None:
        text += f" ± {digits(np.mean([row['test_error'] for row in runs]))}"
    if len(runs) > 1:
        text += f" ({len(runs)} seeds)"
    stopped = [row for row in runs if row["epochs"] < min(row["of"], row["best_epoch"] + PATIENCE)]
    if stopped:
        text += f" (stopped after {stopped[0]['epochs']} epochs)"
    return text


if __name__ == "__main__":
    main(prog_name="own_defaults")
