"""Evaluation of a finished run: metrics on every part."""

from __future__ import annotations

import contextlib
import math
import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from kmip_data.builds.home import Build, Home, list_builds
from kmip_data.columns.column_uses import description_on_card
from kmip_data.datasets.inputs import check_same_categories
from kmip_data.errors import CheckFailed, UsageError
from kmip_data.format.card import Card
from kmip_data.format.targets import target_column, target_type_of
from kmip_data.graphs.city_columns import is_city
from kmip_data.models.precision import autocast
from kmip_data.models.training import self_check
from kmip_data.models.training.config.overrides import read_config
from kmip_data.models.training.config.preset_for_data import level_of_column
from kmip_data.models.training.config.run_config import RunConfig
from kmip_data.models.training.data.open_data import open_data
from kmip_data.models.training.data.run_data import RunData
from kmip_data.models.training.machine import Device, check_precision, choose_device
from kmip_data.models.training.memory_estimate import memory_error
from kmip_data.models.training.run import run_folder
from kmip_data.models.training.run.checkpoint import load_weights
from kmip_data.models.training.run.module import TrainingModule, evaluate_parts
from kmip_data.models.training.run.result import (
    RunResult,
    RunSplit,
    find_table_build,
    format_metric_by_part,
    is_edited,
    metrics_table,
    read_result,
)
from kmip_data.models.training.run.run_folder import CONFIG_NAME, RESULT_NAME, WEIGHTS_NAME
from kmip_data.pipelines.find import find
from kmip_data.pipelines.raw.copies import list_copies
from kmip_data.runtime.memory import is_out_of_memory
from kmip_data.text import count_with_noun

#: Tolerance for metrics measured on another machine, absolute and relative.
TOLERANCE = 1e-4


@dataclass(frozen=True, repr=False)
class Evaluation:
    """Metrics of a run's best weights on a build."""

    run: Path
    result: RunResult
    build: Build
    split: RunSplit
    device: str
    #: loss and metrics by part
    metrics: dict[str, dict[str, float]]
    #: True if ``result.json`` was edited after it was written.
    edited: bool

    def __repr__(self) -> str:
        return f"Evaluation({self.run.name}, {format_metric_by_part(self.result.metric, self.metrics)})"

    @property
    def equals_result(self) -> bool | None:
        """True if the metrics are exactly those in ``result.json``; ``None`` on other data."""
        same_build = self.build.card.key == self.result.build_key
        if not same_build or self.split.digests != self.result.split.digests:
            return None
        return self.metrics == self.result.metrics

    def check(self) -> None:
        """Raise ``CheckFailed`` if a metric differs from ``result.json`` by more than :data:`TOLERANCE`."""
        if self.equals_result is not False:
            return
        differing = []
        for part, values in self.result.metrics.items():
            for name, written in values.items():
                measured = self.metrics.get(part, {}).get(name, math.nan)
                if not math.isclose(measured, written, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
                    differing.append(f"{part} {name} {measured:.6g}, not {written:.6g}")
        if differing:
            raise CheckFailed(
                f"The metrics in {self.run / RESULT_NAME} differ from those of its weights.",
                found="; ".join(differing),
                next="evaluate with the versions and on the device that it names; "
                "if they differ there too, it was edited",
            )

    def to_dict(self) -> dict[str, Any]:
        """Return values for JSON."""
        return {
            "run": str(self.run),
            **self.build.card.identity,
            "build": str(self.build.path),
            "split": self.split.model_dump(),
            "device": self.device,
            "best_epoch": self.result.best_epoch,
            "metrics": self.metrics,
            "same_as_result": self.equals_result,
            "edited": self.edited,
        }

    def table(self) -> str:
        """Format a table of parts and metrics, with the data and the epoch."""
        card = self.build.card
        epoch = f"{self.result.best_epoch + 1} of {self.result.epochs}"
        lines = [
            metrics_table([self.metrics]),
            f"{card.dataset}{card.coverage_suffix}, split {self.split.name!r}; weights of epoch {epoch}",
        ]
        if self.equals_result is not None:
            lines.append(
                "equal to result.json" if self.equals_result else "not bitwise equal to result.json"
            )
        if self.edited:
            lines.append(f"{RESULT_NAME} was edited after it was written")
        return "\n".join(lines)


def evaluate(
    run: str | os.PathLike[str],
    *,
    dataset: str | None = None,
    sample: bool = False,
    home: str | os.PathLike[str] | Home | None = None,
    device: str | None = None,
) -> Evaluation:
    """Evaluate the best weights of ``run`` on its own data or on another build.

    A CPU reproduces the metrics in ``result.json`` exactly on the same machine, with the same number
    of threads and the same versions.

    Parameters
    ----------
    run
        A run folder, or its path below ``runs/``.
    dataset
        Another dataset or build folder with the same features and classes; its default split is used.
    sample
        Use the sample of a ``dataset`` given by name.
    device
        ``auto``, ``cpu`` or ``cuda``; the run's own setting if ``None``.

    Raises
    ------
    UsageError
        Unknown run or build, or data that do not match the weights.
    DamagedInput
        Unfinished run, or a damaged file.
    OutOfResources
        A batch does not fit into memory.
    """
    opened = open_run(run, dataset=dataset, sample=sample, home=home, device=device)
    with opened.load_module() as module:
        metrics = evaluate_parts(
            module, opened.data, opened.data.parts, torch.device(opened.device.type)
        )
    return Evaluation(
        run=opened.folder,
        result=opened.result,
        build=opened.data.build,
        split=RunSplit.from_data(opened.data),
        device=opened.device.name,
        metrics=metrics,
        edited=is_edited(opened.folder),
    )


@dataclass(frozen=True)
class OpenedRun:
    """A finished run, with the data to apply it to."""

    folder: Path
    config: RunConfig
    result: RunResult
    data: RunData
    device: Device

    @contextlib.contextmanager
    def load_module(self) -> Iterator[TrainingModule]:
        """Load the network with the run's best weights; out-of-memory errors state the batch size."""
        module = TrainingModule(self.config, self.data)
        module.finished = True
        load_weights(module.model, self.folder / WEIGHTS_NAME, self.result.files.get(WEIGHTS_NAME))
        try:
            yield module.to(self.device.type)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            raise memory_error(error, module, self.data) from error

    @contextlib.contextmanager
    def load_for_inference(self, activity: str) -> Iterator[TrainingModule]:
        """Like :meth:`load_module`, in eval mode, without gradients, in the run's precision."""
        with self.load_module() as module, torch.inference_mode():
            module.activity = activity
            with autocast(self.config.training.precision, self.device.type):
                yield module.eval()


def open_run(
    run: str | os.PathLike[str],
    *,
    dataset: str | None = None,
    sample: bool = False,
    home: str | os.PathLike[str] | Home | None = None,
    device: str | None = None,
    targets: bool = True,
    command: str = "evaluate",
) -> OpenedRun:
    """Open a finished run with its own or other compatible data; see :func:`evaluate`.

    With ``targets=False``, the data need no targets. ``command`` is the subcommand to suggest in
    errors.
    """
    home = Home.locate(home)
    folder = run_folder.find_run(run, home)
    config = read_config(folder / CONFIG_NAME)
    result = read_result(folder)

    # 1. Device. All search backends return the same bits, and the run's may need another device.
    selected = choose_device(device or config.system.device)
    check_precision(config.training.precision, selected, finished=True)
    if hasattr(config.model.attention, "search"):
        attention = config.model.attention.model_copy(update={"search": "auto"})
        config = config.with_values("model", attention=attention)
    if selected.type == "cuda":
        self_check.check_gpu_before_run(config.model, selected.name)

    # 2. Data.
    if dataset is None:
        config = run_folder.restrict_foreign_config(config, folder, home)
    else:
        config = config.with_values("data", dataset=dataset, sample=sample, parameters={}, split={})
    data_config = config
    if dataset is None:
        data_config = run_folder.config_with_build_folder(config, lambda: result.build_key, home)
    try:
        data = open_data(data_config, home=home, required=(), build=False, task=result.task)
    except UsageError as error:
        difference = ""
        if dataset is not None:
            difference = _describe_other_targets(dataset, sample, home, result)
        if difference:
            raise UsageError(
                f"The run {folder.name!r} learned {difference}.",
                next=f"use data with the targets of {result.dataset}; kmip-data list shows your builds",
            ) from error
        # A finished run cannot follow the advice to change settings.
        if dataset is None or not (error.next or "").startswith("--set"):
            raise
        raise UsageError(
            f"The run {folder.name!r} on {result.dataset} does not fit {dataset}: {error.message}",
            next=f"use data with the features and targets of {result.dataset}; kmip-data list shows your builds",
        ) from error

    # 3. Agreement of the data with the weights.
    if targets and target_column(data.build.card.schema_) is None:
        raise UsageError(
            f"{data.build.card.dataset} has no targets to compare predictions with.",
            next=f"kmip-data predict {folder} --dataset {data.build.path}",
        )
    _check_fit(data, result, home)
    if dataset is None and data.build.card.key != result.build_key:
        words = ["kmip-data", command, str(folder), "--dataset", str(data.build.path)]
        raise UsageError(
            f"The build of {data.build.card.dataset} is {data.build.card.key}, but the run was trained "
            f"on {result.build_key}.",
            next=f"{shlex.join(words)}{run_folder.home_option(folder)}, to use this build anyway",
        )
    return OpenedRun(folder, config, result, data, selected)


def _describe_other_targets(dataset: str, sample: bool, home: Home, result: RunResult) -> str:
    """Describe how the targets of a run and of other data differ; empty if type and level agree."""
    column = target_column(find(dataset, home=home, sample=sample).card.schema_)
    if column is None:
        return ""
    learned = f"{result.targets.target_type} of each {result.targets.level}"
    available = f"{target_type_of(column)} of each {level_of_column(column)}"
    if learned == available:
        return ""
    return f"{learned}, and {dataset} has targets for {available}"


def _misfit_remedy(card: Card, result: RunResult, home: Home) -> str:
    """Return what to do if data have other columns or classes than the run's data.

    Your own files are rebuilt if they have the run's columns; otherwise choose another run.
    """
    trained_on = find_table_build(result, home)
    described = description_on_card(card.statistics)
    if trained_on is None or described is None:
        return f"use data with the features and classes of {result.dataset}; kmip-data list shows your builds"

    # 1. Rebuild the same files like the run's build.
    copies = list_copies(home.raw / card.dataset)
    paths = [copy.path for copy in copies if copy.content_digest == card.content_digest]
    required = description_on_card(trained_on.card.statistics)
    assert required is not None, "a build of your own tables"
    existing_columns = {(column.rows, column.name) for column in described.columns}
    required_columns = {
        (column.rows, column.name)
        for column in required.columns
        if column.use not in {"label", "ignored", "part"}
    }
    if paths and required_columns <= existing_columns:
        name = f"{card.dataset}-new"
        number = 2
        while list_builds(home, name):
            name = f"{card.dataset}-new-{number}"
            number += 1
        words = ["kmip-data", "build", "graphs", "--name", name]
        command = shlex.join([*words, "--archive", str(paths[0]), "--like", trained_on.path.name])
        return f"{command}; then the same command with --dataset {name}"

    # 2. Use the newest run trained on the data; data without targets have no runs.
    if card.schema_.label_column is None:
        return f"use data with the columns of {result.dataset}; kmip-data list shows your builds"
    runs = sorted(home.runs.glob(f"{card.dataset}/*/*/{RESULT_NAME}"), key=os.path.getmtime)
    command = f"kmip-data train {shlex.quote(card.dataset)}"
    if runs:
        run = shlex.quote(run_folder.short_run_name(runs[-1].parent))
        command = f"kmip-data predict {run}"
    return f"{card.dataset} has other columns; choose a run trained on {card.dataset}: {command}"


def _check_fit(data: RunData, result: RunResult, home: Home) -> None:
    """Raise ``UsageError`` unless columns, classes and categories of the data match the run's."""
    card = data.build.card

    # 1. Class names, whose order must match, as outputs have positions. The classes of a city are
    #    named after its own value ranges, so they are not compared.
    names: Sequence[str] = () if is_city(card) else card.class_names
    trained_names: Sequence[str] = result.class_names
    has_classes = data.task.target_type == "classification" and target_column(card.schema_)
    if has_classes and bool(names) != bool(trained_names) and not is_city(card):
        # Classes without names are named by their numbers.
        numbers = tuple(map(str, range(result.num_classes)))
        names = names or numbers
        trained_names = trained_names or numbers
    difference = ""
    for kind, expected_names, existing_names in (
        ("class", trained_names, names),
        ("column", result.columns, data.inputs.names),
    ):
        for expected, name in zip(expected_names, existing_names, strict=False):
            if name != expected and not difference:
                difference = f"the {kind} {name!r}, not {expected!r}"

    # 2. Numbers of columns and classes, which replace a difference in names.
    features = data.in_channels
    classes = data.task.outputs
    differing_counts = []
    if features != result.num_features:
        differing_counts.append((count_with_noun(features, "node feature"), result.num_features))
    if classes != result.num_classes:
        noun = "classes" if data.task.target_type == "classification" else "targets"
        differing_counts.append((f"{classes} {noun}", result.num_classes))
    if differing_counts:
        data_counts = " and ".join(count for count, _ in differing_counts)
        trained_counts = " and ".join(str(number) for _, number in differing_counts)
        difference = f"{data_counts}; the run was trained with {trained_counts}"
    if difference:
        raise UsageError(
            f"The weights do not fit {card.dataset}: it has {difference}.",
            next=_misfit_remedy(card, result, home),
        )
    check_same_categories(card, data.inputs, result.vocabulary, result.dataset)
