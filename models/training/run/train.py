"""Training: one resumable run per fold and seed, and the mean over them.

From the command to a step of the optimizer:

1. ``kmip-data train`` (``cli/train.py``) turns its options into a configuration and calls :func:`train`.
2. :func:`_train_one`, once per fold and seed, or :func:`resume` opens the data and the run folder.
3. :func:`fit_retrying_out_of_memory` (``fit.py``) builds network and loop, and retries with recomputed
   layers if a GPU runs out of memory.
4. ``Loop.train_epochs`` (``loop.py``) calls ``train_epoch``, which calls ``train_batch`` on each batch.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch

from kmip_data.builds.home import Home, build_of_folder
from kmip_data.errors import DamagedInput, Setting, Step, UsageError
from kmip_data.files.atomic_writes import folder_lock, marker_content, refuse_links, write_file
from kmip_data.format.card import SplitPart
from kmip_data.models.training import memory_estimate, self_check
from kmip_data.models.training.config.overrides import apply_overrides, config_to_toml, read_config
from kmip_data.models.training.config.paper_comparison import compare_with_paper
from kmip_data.models.training.config.presets import config_for_data, preset_origin
from kmip_data.models.training.config.run_config import RunConfig
from kmip_data.models.training.data.open_data import open_build_and_split, open_data
from kmip_data.models.training.data.scaled_columns import build_scaled_network
from kmip_data.models.training.devices import Device, check_precision, choose_device
from kmip_data.models.training.loggers import check_logger
from kmip_data.models.training.processes import (
    is_main_process,
)
from kmip_data.models.training.run import checkpoint, run_folder
from kmip_data.models.training.run.find_runs import config_with_build_folder, find_run
from kmip_data.models.training.run.fit import fit_retrying_out_of_memory
from kmip_data.models.training.run.input_checks import (
    check_encoders,
    check_features,
    target_warnings,
)
from kmip_data.models.training.run.prepared_run import PreparedRun
from kmip_data.models.training.run.result import (
    RunResult,
    is_edited,
    read_result,
    refuse_edited,
)
from kmip_data.models.training.run.run_folder import CONFIG_NAME, RESULT_NAME, WEIGHTS_NAME
from kmip_data.models.training.run.summary import RunSummary
from kmip_data.runtime.progress import print_status
from kmip_data.text import count_with_noun


def train(
    config: RunConfig | str,
    *,
    home: str | os.PathLike[str] | Home | None = None,
    seeds: int | Sequence[int] | None = None,
    folds: int | Sequence[int] | None = None,
    name: str | None = None,
    quiet: bool = False,
    **build_options: Any,
) -> RunSummary:
    """Train ``config`` once per fold and seed, building the dataset first if it is missing.

    Parameters
    ----------
    config
        Settings of the run, or the dataset of a preset; see
        :func:`kmip_data.models.training.config.presets.load_preset`.
    home
        Folder of builds and runs; the default home if ``None``.
    seeds
        One seed or several, as in ``--seeds``. Default: only ``config.training.seed``.
    folds
        Numbers of published splits, or one; default: only ``config.data.split``.
    name
        Name of the run folder (a prefix with folds or several seeds); a timestamp if ``None``.
        An existing run with this name and configuration is resumed, or returned if finished.
    build_options
        Options of :func:`kmip_data.pipelines.find_builds.find_or_build` (``archives``, ``offline``, ``jobs`` …).

    Raises
    ------
    UsageError
        Unavailable device, precision, search backend or logger; invalid or existing name; empty
        split.
    OutOfResources
        A batch does not fit into memory; the message states its size and options to try.
    CheckFailed
        The loss has diverged.
    KeyboardInterrupt
        Ctrl-C; the last checkpoint is kept and the command to resume has been printed.
    """
    if name is not None:
        run_folder.check_run_name(name)
    home = Home.locate(home)
    if isinstance(config, str):
        config = config_for_data(config, home=home)
    config = config.with_plugins()
    device = _select_device(config)
    log = partial(print_status, quiet=quiet or not is_main_process())

    # 1. Complete the configuration, and reject an invalid seed before the first run.
    if config.training.init_from:
        source = find_run(config.training.init_from, home)
        config = config.with_values("training", init_from=str(source))
    seeds = [seeds] if isinstance(seeds, int) else seeds or [config.training.seed]
    for seed in seeds:
        apply_overrides(config, [f"training.seed={seed}"])
    origin = preset_origin(config)
    if origin:
        log(origin)
    comparison = compare_with_paper(config)
    if comparison is not None:
        log(comparison.line)

    # 2. Make a configuration for each fold, and reject an invalid fold before the first run.
    configs = [config]
    folds = [folds] if isinstance(folds, int) else folds
    if folds:
        split = config.data.split
        configs = [config.with_values("data", split={**split, "fold": fold}) for fold in folds]
        parts_of_folds: list[dict[str, SplitPart]] = []
        for fold_config in configs:
            build, split_name = open_build_and_split(
                fold_config, home=home, quiet=quiet, **build_options
            )
            parts = build.card.splits[split_name].parts
            if parts in parts_of_folds:
                raise UsageError(
                    f"{split_name} has the parts of another fold: both are one split.",
                    steps=[
                        Setting(split_rule=None),
                        "train with one split_seed after another",
                    ],
                )
            parts_of_folds.append(parts)

    # 3. Train once per fold and seed.
    summary = RunSummary([], [])
    for fold_config, seed in product(configs, seeds):
        run_name = name or f"{datetime.now(UTC):%Y%m%d-%H%M%S-%f}-{config.variant}"
        if folds:
            run_name += f"-fold{fold_config.data.split['fold']}"
        if name is None or len(seeds) > 1:
            run_name += f"-seed{seed}"
        run_summary = _train_one(
            fold_config.with_seed(seed),
            run_name,
            home,
            device,
            log,
            quiet=quiet,
            announce_folder_only=bool(summary.runs),
            **build_options,
        )
        summary.results.extend(run_summary.results)
        summary.runs.extend(run_summary.runs)
    return summary


def _train_one(
    config: RunConfig,
    name: str,
    home: Home,
    device: Device,
    log: Callable[[str], None],
    *,
    quiet: bool,
    announce_folder_only: bool,
    **build_options: Any,
) -> RunSummary:
    """Train one configuration in a new run folder, or resume the run of this name and configuration."""
    # 1. Open the data, which determine some settings.
    data = open_data(config, home=home, quiet=quiet, **build_options)
    if memory_estimate.is_graph_too_large(data.pin_settings(config), data, device, log):
        data.sample_in_evaluation()
    config = data.pin_settings(config)
    label = data.build.card.dataset_label

    # 2. Resume the run if its folder exists.
    run_path = home.runs / label / config.model.name / name
    if marker_content(run_path) == run_folder.RUN_MARKER and (run_path / CONFIG_NAME).is_file():
        if _read_build_key(run_path) == data.build.card.key:
            # The same build can be specified in several ways.
            stored = read_config(run_path / CONFIG_NAME).data
            config = config.with_values(
                "data", dataset=stored.dataset, sample=stored.sample, parameters=stored.parameters
            )
        run_folder.require_same_settings(run_path, config)
        return resume(run_path, home=home, quiet=quiet, **build_options)

    # 3. Check features, memory and weights before a folder is created; memory before any network.
    check_features(config, data)
    for warning in target_warnings(config, data):
        log(f"warning: {warning}")
    step_memory = memory_estimate.estimate_step_memory(config, data, device)
    check_encoders(config, data)
    weights = None
    if config.training.init_from:
        with torch.random.fork_rng(devices=[]):
            model = build_scaled_network(config.model, data)
        source = Path(config.training.init_from)
        refuse_edited(source)
        expected = read_result(source).files.get(WEIGHTS_NAME)
        weights = checkpoint.compatible_weights(model, source, expected, log)

    # 4. Create the folder, in the first process only, and train.
    opened: AbstractContextManager[Path | None] = nullcontext()
    if is_main_process():
        opened = run_folder.new_run(home, label, config.model.name, name)
    with opened as folder:
        if folder is not None:
            if weights is not None:
                checkpoint.write_initial_weights(folder, weights)
            write_file(folder / CONFIG_NAME, config_to_toml(config).encode())
        result = fit_retrying_out_of_memory(
            PreparedRun(config, data, folder, device, step_memory, log, quiet, announce_folder_only)
        )
    # The other processes write nothing, and nothing reads their summary.
    return RunSummary([] if folder is None else [folder], [result])


def resume(
    run: str | Path,
    *,
    home: str | os.PathLike[str] | Home | None = None,
    devices: int | None = None,
    stop_after: int | None = None,
    quiet: bool = False,
    **build_options: Any,
) -> RunSummary:
    """Continue a run from its last checkpoint; a finished run is returned unchanged.

    A run stopped before its first checkpoint starts over. A finished run with an unreadable result
    is measured again from its checkpoint. On a CPU, the weights are bitwise equal to those of an
    uninterrupted run with the same versions and number of threads. ``devices`` per machine defaults
    to the run's setting. A run that ended at ``training.stop_after`` continues to a larger
    ``stop_after`` and gets a new result.

    Raises
    ------
    UsageError
        Unknown run, a run in use by another process, or an epoch at which the run cannot end.
    DamagedInput
        Damaged configuration or checkpoint, or an edited result.
    CheckFailed
        The dataset differs from the one the run started with.
    """
    home = Home.locate(home)
    log = partial(print_status, quiet=quiet or not is_main_process())
    folder = find_run(run, home)
    config = read_config(folder / CONFIG_NAME)
    result = _read_valid_result(folder, log)

    # 1. Change the end of the run, if requested.
    if stop_after is not None:
        if stop_after > config.training.epochs:
            step: Step = Setting(stop_after=None)
            if result is not None:  # a finished run: train another
                step = run_folder.config_command(folder, "--epochs", stop_after)
            scheduled = count_with_noun(config.training.epochs, "epoch")
            raise UsageError(
                f"The schedule of the run ends after {scheduled}, not {stop_after}.", steps=step
            )
        config = apply_overrides(config, [f"training.stop_after={stop_after}"])
    training = config.training

    # 2. Return the result of a run that has nothing left to train.
    if result is not None:
        has_same_end = result.config["training"].get("stop_after") == training.stop_after
        if has_same_end or result.epochs >= training.last_epoch:
            line = (
                f"{folder} is finished already, after {result.epochs} of {training.epochs} epochs"
            )
            if result.epochs < training.epochs:
                command = run_folder.resume_command(folder)
                line += f"; {command} --stop-after {training.epochs} continues it"
            log(f"{line}.")
            return RunSummary([folder], [result])

    # 3. Train on from the last checkpoint. The stored configuration keeps its own dataset and devices.
    refuse_links(folder)
    config_toml = config_to_toml(config).encode()
    config = run_folder.restrict_foreign_config(config, folder, home)
    if devices is not None:
        machines = max(1, int(os.environ.get("WORLD_SIZE", devices)) // devices)
        changes = [f"system.devices={devices}", f"system.nodes={machines}"]
        config = apply_overrides(config, changes)
    with folder_lock(folder, wait=False) if is_main_process() else nullcontext():
        device = _select_device(config)
        read_build_key = partial(_read_build_key, folder)
        data_config = config_with_build_folder(config, read_build_key, home)
        data = open_data(data_config, home=home, quiet=quiet, **build_options)
        config = data.pin_settings(config)
        step_memory = memory_estimate.estimate_step_memory(config, data, device)
        if stop_after is not None and is_main_process():
            write_file(folder / CONFIG_NAME, config_toml)
        result = fit_retrying_out_of_memory(
            PreparedRun(config, data, folder, device, step_memory, log, quiet)
        )
        return RunSummary([folder], [result])


def _read_build_key(folder: Path) -> str | None:
    """Read the build key of a run's last checkpoint, or else of the build folder it names, if any."""
    last = checkpoint.latest_checkpoint(folder)
    if last is None:
        build = build_of_folder(read_config(folder / CONFIG_NAME).data.dataset)
        return None if build is None else build.card.key
    key: str = checkpoint.read_checkpoint(last)["data"]["build_key"]
    return key


def _read_valid_result(run: Path, log: Callable[[str], None]) -> RunResult | None:
    """Read the result of a finished run; ``None`` if the result or the weights must be rewritten.

    Raises ``DamagedInput`` if the result was edited, or no checkpoint exists to rewrite it from.
    """
    if not (run / RESULT_NAME).is_file():
        return None
    try:
        result = read_result(run)
        if not is_edited(run):
            checkpoint.read_weights(run / WEIGHTS_NAME, result.files.get(WEIGHTS_NAME))
    except DamagedInput as error:
        if checkpoint.latest_checkpoint(run) is None:
            raise
        log(f"{error.message} It will be rewritten.")
        return None
    refuse_edited(run)
    return result


def _select_device(config: RunConfig) -> Device:
    """Select the device; raise ``UsageError`` for unsupported settings or an uninstalled logger."""
    device = choose_device(config.system.device, config.system.devices)
    check_precision(config.training.precision, device)
    config.model.attention.check_device(device.type)
    check_logger(config.system.logger)
    if device.type == "cuda":
        self_check.check_gpu_before_run(config.model, device.name)
    return device
