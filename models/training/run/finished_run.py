"""Finished runs, opened with their weights and compatible data."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict, Unpack

import torch

from kmip_data.builds.home import Build, Home, unused_name
from kmip_data.columns.column_roles import column_roles_on_card
from kmip_data.datasets.inputs import check_same_categories
from kmip_data.errors import Command, Setting, Step, UsageError
from kmip_data.format.card import Card
from kmip_data.format.targets import target_column, target_type_of
from kmip_data.graphs.city_columns import is_city
from kmip_data.models.config import COMPONENT_SECTIONS
from kmip_data.models.precision import autocast
from kmip_data.models.training import self_check
from kmip_data.models.training.config.adapt_preset import level_of_column
from kmip_data.models.training.config.overrides import apply_overrides, read_config
from kmip_data.models.training.config.run_config import RunConfig
from kmip_data.models.training.data.open_data import open_data
from kmip_data.models.training.data.run_data import ALL_RECORDS, RunData, with_task_defaults
from kmip_data.models.training.devices import Device, check_precision, choose_device
from kmip_data.models.training.memory_estimate import (
    require_network_memory,
    training_memory_error,
)
from kmip_data.models.training.run import run_folder
from kmip_data.models.training.run.checkpoint import load_weights
from kmip_data.models.training.run.find_runs import (
    build_of_result,
    config_with_build_folder,
    find_run,
    newest_results,
    raw_folder_of_build,
    steps_for_moved_build,
)
from kmip_data.models.training.run.result import RunResult, read_result
from kmip_data.models.training.run.run_folder import CONFIG_NAME, WEIGHTS_NAME
from kmip_data.models.training.run.training_module import TrainingModule
from kmip_data.pipelines.find_builds import find_build
from kmip_data.runtime.memory import is_out_of_memory
from kmip_data.text import count_with_noun

#: Rules of splits that are drawn, not stored with the data.
DRAWN_RULES = {"random", "scaffold", "spatial", "stratified"}


class RunOptions(TypedDict, total=False):
    """Data, device and keys with which a finished run is opened; see ``evaluate``."""

    dataset: str | None
    sample: bool
    home: str | os.PathLike[str] | Home | None
    device: str | None
    overrides: Sequence[str]


@dataclass(frozen=True)
class OpenedRun:
    """A finished run, with the data to apply it to."""

    folder: Path
    config: RunConfig
    result: RunResult
    data: RunData
    device: Device
    part: str | None  #: only part to evaluate; None: all

    @property
    def parts(self) -> tuple[str, ...]:
        """Parts to evaluate: those of the run's data, or of a split that other data bring; else all.

        A drawn split only divides the data that a network is trained on.
        """
        if self.part is not None:
            return (self.part,)
        data = self.data
        is_other = data.build.card.key != self.result.build_key
        if is_other and (not data.split_name or data.split.rule in DRAWN_RULES):
            return (ALL_RECORDS,)
        return data.parts

    @contextlib.contextmanager
    def load_module(self) -> Iterator[TrainingModule]:
        """Load the network with the run's best weights; out-of-memory errors state the batch size."""
        model = with_task_defaults(self.config, self.data.task).model
        step = f"compare {self.folder / CONFIG_NAME} with the run's source, or use more memory"
        # The run may be a stranger's; its weights are read next to those that are drawn.
        require_network_memory(model, self.data.network_sizes, step, copies=2)
        module = TrainingModule(self.config, self.data)
        module.is_finished_run = True
        load_weights(module.model, self.folder / WEIGHTS_NAME, self.result.files.get(WEIGHTS_NAME))
        try:
            yield module.to(self.device.type)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            raise training_memory_error(error, module, self.data) from error

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
    split: str | None = None,
    targets: bool = True,
    command: str | None = None,
    **options: Unpack[RunOptions],
) -> OpenedRun:
    """Open a finished run with its own or other compatible data.

    Other arguments and errors as for :func:`kmip_data.models.training.run.evaluate_run.evaluate`. With
    ``targets=False``, the data need no targets. ``command`` is the subcommand to suggest
    in errors, if it takes ``--dataset``.
    """
    dataset = options.get("dataset")
    sample = options.get("sample", False)
    home = Home.locate(options.get("home"))
    folder = find_run(run, home)
    config = read_config(folder / CONFIG_NAME)
    result = read_result(folder)

    # 1. Device. All search backends return the same bits, and the run's may need another device.
    selected = choose_device(options.get("device") or config.system.device)
    check_precision(config.training.precision, selected, finished=True)
    if hasattr(config.model.attention, "search"):
        attention = config.model.attention.model_copy(update={"search": "auto"})
        config = config.with_values("model", attention=attention)
    config = _with_test_overrides(config, options.get("overrides", ()))
    if selected.type == "cuda":
        self_check.check_gpu_before_run(config.model, selected.name)

    # 2. Data.
    if dataset is not None:
        config = config.with_values("data", dataset=dataset, sample=sample, parameters={}, split={})
        data_config = config
    else:
        config = run_folder.restrict_foreign_config(config, folder, home)
        try:
            data_config = config_with_build_folder(config, lambda: result.build_key, home)
        except UsageError as error:
            if command is not None:
                other_data = Command("kmip-data {} {} --dataset FOLDER", command, folder)
                error.steps.insert(0, other_data)
            raise
    try:
        data = open_data(data_config, home=home, required=(), build=False, task=result.task)
    except UsageError as error:
        if dataset is None:
            raise
        other = find_build(dataset, home=home, sample=sample)
        if difference := _describe_other_targets(dataset, other.card, result):
            raise UsageError(
                f"The run {folder.name!r} learned {difference}.",
                steps=_fitting_run_steps(other, "targets", result, home),
            ) from error
        # A finished run cannot follow the advice to change settings.
        if not any(isinstance(step, Setting) for step in error.steps):
            raise
        raise UsageError(
            f"The run {folder.name!r} on {result.dataset} does not fit {dataset}: {error.message}",
            steps=_fitting_run_steps(other, "features and targets", result, home),
        ) from error

    # 3. Agreement of the data with the weights.
    if targets and target_column(data.build.card.schema_) is None:
        raise UsageError(
            f"{data.build.card.dataset} has no targets to compare predictions with.",
            steps=Command("kmip-data predict {} --dataset", folder, data.build.path),
        )
    _check_fit(data, result, home)
    if split is not None:
        data.check_part(split)
    if dataset is None and data.build.card.key != result.build_key:
        build = data.build
        steps = steps_for_moved_build(config, home)
        if command is not None:
            steps = [Command("kmip-data {} {} --dataset", command, folder, build.path)]
        raise UsageError(
            f"The build of {build.card.dataset} is {build.card.key}, but the run was trained "
            f"on {result.build_key}.",
            steps=steps,
        )
    return OpenedRun(folder, config, result, data, selected, split)


def _with_test_overrides(config: RunConfig, overrides: Sequence[str]) -> RunConfig:
    """Return ``config`` with ``overrides``; refuse keys that could change what the weights mean."""
    if not overrides:
        return config
    changed = apply_overrides(config, overrides)
    allowed = [
        f"model.{section}.{key}"
        for section in COMPONENT_SECTIONS
        for key in sorted(getattr(config.model, section).test_keys)
    ]
    for override in overrides:
        key = override.partition("=")[0].strip()
        if key not in allowed:
            raise UsageError(
                f"{key} cannot change at test.",
                expected=", ".join(allowed)
                or "no setting: the weights fix all keys of this network",
                found=override,
                steps=Setting({key: None}),
            )
    return changed


def _describe_other_targets(dataset: str, card: Card, result: RunResult) -> str:
    """Describe how the targets of a run and of other data differ; empty if type and level agree."""
    column = target_column(card.schema_)
    if column is None:
        return ""
    learned = f"{result.targets.target_type} of each {result.targets.level}"
    available = f"{target_type_of(column)} of each {level_of_column(column)}"
    if learned == available:
        return ""
    return f"{learned}, and {dataset} has targets for {available}"


def _misfit_steps(build: Build, result: RunResult, home: Home) -> list[Step]:
    """Return what to do if data have other columns or classes than the run's data.

    Your own files are rebuilt if they have the run's columns; otherwise choose another run.
    """
    card = build.card
    trained_on = build_of_result(result, home)
    required = None
    if trained_on is not None:
        required = column_roles_on_card(trained_on.card.statistics)
    described = column_roles_on_card(card.statistics)
    if trained_on is None or required is None or described is None:
        return _fitting_run_steps(build, "features and classes", result, home)

    # 1. Rebuild the same files like the run's build.
    archive = raw_folder_of_build(build, home)
    existing_columns = {(role.level, role.column) for role in described.columns}
    required_columns = {
        (role.level, role.column)
        for role in required.columns
        if role.use not in {"label", "ignored", "part", "group"}
    }
    if archive != "FILE" and required_columns <= existing_columns:
        name = unused_name(f"{card.dataset}-new", home)
        words = ("build", "graphs", "--name", name, "--archive", archive)
        command = Command("kmip-data", *words, "--like", trained_on.path.name)
        return [command, f"then the same command again with the dataset {name!r}"]

    # 2. Choose another run.
    return _fitting_run_steps(build, "columns", result, home)


def _fitting_run_steps(build: Build, noun: str, result: RunResult, home: Home) -> list[Step]:
    """Return what to do if data lack what a run learned from: use their newest run, or train one."""
    # Data without targets have no runs.
    if build.card.schema_.y_column is None:
        return [f"use data with the {noun} of {result.dataset!r}", Command("kmip-data list")]
    command = Command("kmip-data train", build.card.dataset)
    for folder, other in newest_results(home):
        if other.build_key == build.card.key:
            command = Command("kmip-data predict", run_folder.short_run_name(folder))
            break
    return ["choose a run trained on these data", command]


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
            steps=_misfit_steps(data.build, result, home),
        )
    check_same_categories(card, data.inputs, result.vocabulary, result.dataset)
