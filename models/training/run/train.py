"""Training: one resumable run per fold and seed, and the mean over them.

From the command to a step of the optimizer:

1. ``kmip-data train`` (``cli/train.py``) turns its options into a configuration and calls :func:`train`.
2. :func:`_train_one`, once per fold and seed, or :func:`resume` opens the data and the run folder.
3. :func:`fit_retrying_out_of_memory` builds network and loop, and retries with recomputed layers if a
   GPU runs out of memory.
4. ``Loop.train_epochs`` (``loop.py``) calls ``train_epoch``, which calls ``train_batch`` on each batch.
"""

from __future__ import annotations

import gc
import os
import shlex
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch

from kmip_data.builds.home import Home, build_of_folder
from kmip_data.errors import CheckFailed, DamagedInput, KmipDataError, OutOfResources, UsageError
from kmip_data.files.atomic_writes import folder_lock, marker_content, refuse_links, write_file
from kmip_data.files.folder_marker import is_output
from kmip_data.files.small_files import first_problem, sha256_file
from kmip_data.format.card import SplitPart
from kmip_data.models.network import count_parameters
from kmip_data.models.precision import float32_product_precision
from kmip_data.models.search.gpu.launch import reset_not_finite_flags
from kmip_data.models.training import memory_estimate, self_check
from kmip_data.models.training.capture.cuda_graphs import CudaGraphs
from kmip_data.models.training.capture.steps import CapturedSteps, why_not_capturable
from kmip_data.models.training.config.overrides import apply_overrides, config_to_toml, read_config
from kmip_data.models.training.config.presets import config_for_data, preset_origin
from kmip_data.models.training.config.run_config import RunConfig
from kmip_data.models.training.data.open_data import open_build_and_split, open_data
from kmip_data.models.training.data.run_data import RunData
from kmip_data.models.training.data.scaled_columns import build_network, measure_scaling
from kmip_data.models.training.devices import Device, check_precision, choose_device
from kmip_data.models.training.loggers import build_logger, check_logger
from kmip_data.models.training.processes import (
    all_gather,
    is_lost_process,
    is_main_process,
    join_processes,
    lost_process_error,
)
from kmip_data.models.training.references.answers import reference_answers
from kmip_data.models.training.run import checkpoint, run_folder
from kmip_data.models.training.run.announcement import announcement
from kmip_data.models.training.run.find_runs import config_with_build_folder, find_run
from kmip_data.models.training.run.input_checks import (
    check_encoders,
    check_features,
    target_warnings,
)
from kmip_data.models.training.run.loop import Loop
from kmip_data.models.training.run.paper_comparison import compare_with_paper
from kmip_data.models.training.run.result import (
    Memory,
    RunResult,
    RunSplit,
    RunTargets,
    Seconds,
    is_edited,
    package_versions,
    read_result,
    refuse_edited,
)
from kmip_data.models.training.run.run_folder import CONFIG_NAME, RESULT_NAME, WEIGHTS_NAME
from kmip_data.models.training.run.summary import RunSummary
from kmip_data.models.training.run.training_module import (
    TrainingModule,
    accumulate_metrics,
    check_metrics_finite,
    compute_metrics,
)
from kmip_data.runtime import reused_buffers
from kmip_data.runtime.memory import is_out_of_memory, peak_host_memory
from kmip_data.runtime.progress import print_status
from kmip_data.text import count_with_noun


@dataclass(frozen=True)
class PreparedRun:
    """Everything needed to train one run."""

    #: configuration, including the settings that depend on the data
    config: RunConfig
    data: RunData
    #: run folder; ``None`` in all processes but the first of a distributed run
    folder: Path | None
    device: Device
    memory: memory_estimate.StepMemory
    log: Callable[[str], None]
    quiet: bool
    #: True to announce only the run folder, as the first run of the command announced the rest
    announce_folder_only: bool = False


def train(
    config: RunConfig | str,
    *,
    home: str | os.PathLike[str] | Home | None = None,
    seeds: Sequence[int] | None = None,
    folds: Sequence[int] | None = None,
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
        Default: only ``config.training.seed``.
    folds
        Numbers of published splits; default: only ``config.data.split``.
    name
        Name of the run folder (a prefix with folds or several seeds); a timestamp if ``None``.
        An existing run with this name and configuration is resumed, or returned if finished.
    build_options
        Options of :func:`kmip_data.pipelines.find.obtain` (``archives``, ``offline``, ``jobs`` …).

    Raises
    ------
    UsageError
        Unavailable device, precision, search backend or logger; invalid or existing name; empty part
        of the split.
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
    seeds = tuple(seeds) if seeds else (config.training.seed,)
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
                    next="leave --split-rule out, or train --seeds with one --split-seed after the other",
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
            model = build_network(config.model, data)
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
    epochs: int | None = None,
    quiet: bool = False,
    **build_options: Any,
) -> RunSummary:
    """Continue a run from its last checkpoint; a finished run is returned unchanged.

    A run stopped before its first checkpoint starts over. A finished run with an unreadable result
    is measured again from its checkpoint. On a CPU, the weights are bitwise equal to those of an
    uninterrupted run with the same versions and number of threads. ``devices`` per machine defaults
    to the run's setting. A run that ended at ``training.stop_after`` continues to a larger
    ``stop_after`` and gets a new result.

    With ``epochs`` beyond its schedule, a finished run is trained longer: from its last epoch on it
    follows a schedule of that length, and ``training.lengthened`` records the epoch. The result
    differs from a run that had this many epochs from the start.

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
            raise run_folder.end_epoch_error(folder, config, "--stop-after", stop_after)
        config = apply_overrides(config, [f"training.stop_after={stop_after}"])
    if epochs is not None:
        config = _lengthened_config(config, epochs, result, folder)
    training = config.training

    # 2. Return the result of a run that has nothing left to train.
    if result is not None:
        stored = result.config["training"]
        has_same_end = (stored.get("stop_after"), stored["epochs"]) == (
            training.stop_after,
            training.epochs,
        )
        if has_same_end or result.epochs >= training.last_epoch:
            command = run_folder.resume_command(folder)
            hint = f"{command} --epochs {2 * training.epochs} trains it longer."
            if result.epochs < training.epochs:
                hint = f"{command} --stop-after {training.epochs} continues it."
            log(
                f"{folder} is finished already, after {result.epochs} of {training.epochs} epochs; "
                f"{hint}"
            )
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
        if (stop_after is not None or epochs is not None) and is_main_process():
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


def _lengthened_config(
    config: RunConfig, epochs: int, result: RunResult | None, folder: Path
) -> RunConfig:
    """Return the configuration of a finished run with a longer schedule."""
    training = config.training
    if epochs == training.epochs:
        return config  # the same command, repeated after an interruption
    if epochs < training.epochs or result is None:
        raise run_folder.end_epoch_error(folder, config, "--epochs", epochs)
    lengthened = (*training.lengthened, result.epochs)
    changes = {"epochs": epochs, "stop_after": None, "lengthened": lengthened}
    return config.with_values("training", **changes)


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


def fit_retrying_out_of_memory(run: PreparedRun) -> RunResult:
    """Train until the last epoch, measure the best weights on every part, and write the result.

    If a GPU runs out of memory, the run resumes from its last checkpoint with recomputed layers,
    unless ``model.checkpoint_layers`` is set or the run has several processes. The global random
    generators and the setting for deterministic kernels are restored afterwards.
    """
    try:
        return _fit_once(run)
    except OutOfResources as error:
        fixed = run.config.model.checkpoint_layers is not None or run.config.processes > 1
        if run.device.type != "cuda" or fixed or not is_out_of_memory(error):
            raise
        run.log(f"{error.message} Retrying with layers recomputed in the backward pass.")
    # Outside the handler, because the error keeps its frames alive, and with them the tensors.
    gc.collect()
    torch.cuda.empty_cache()
    return _fit_once(replace(run, memory=replace(run.memory, recompute=True)))


def _fit_once(run: PreparedRun) -> RunResult:
    """Build network and loop, train from the last checkpoint if there is one, and write the result."""
    config = run.config
    data = run.data
    folder = run.folder
    with checkpoint.keep_random_state(), float32_product_precision(config.training.precision):
        device = join_processes(config, run.device.type)
        # Each process measures its own memory, but all must make the same choice, because
        # recomputed norms exchange their sums once more.
        recompute = any(all_gather(run.memory.recompute))
        run = replace(run, memory=replace(run.memory, recompute=recompute))
        torch.manual_seed(config.training.seed)
        if config.system.deterministic:
            torch.use_deterministic_algorithms(True, warn_only=True)

        # 1. Build the network, and capture its steps if possible.
        module = TrainingModule(config, data, recompute=recompute)
        output_folder = folder if is_main_process() else None
        last_checkpoint = None if folder is None else checkpoint.latest_checkpoint(folder)
        if last_checkpoint is None:
            measure_scaling(module.model, data)
        if output_folder is not None and last_checkpoint is None and config.training.init_from:
            checkpoint.load_initial_weights(module.model, output_folder)
        why_not_captured: str | None = "no GPU"
        if device.type == "cuda":
            why_not_captured = why_not_capturable(config, data, run.device, recompute=recompute)
            torch.cuda.reset_peak_memory_stats()
            reset_not_finite_flags(device)
        for line in announcement(
            run, module, why_not_captured, resumed=last_checkpoint is not None
        ):
            if not run.announce_folder_only or line.startswith("run: "):
                run.log(line)
        loop = Loop(
            module,
            data,
            device,
            folder=folder,
            # The loop must hold the only reference, so that it can free captured steps.
            captured=CapturedSteps(CudaGraphs(device), run.log)
            if why_not_captured is None
            else None,
            quiet=run.quiet,
            logger=build_logger(
                config, output_folder, f"kmip-data-{data.build.card.dataset_label}"
            ),
        )

        # 2. Train and evaluate; explain an error, and print the command to resume.
        try:
            if last_checkpoint is not None:
                loop.load(checkpoint.read_checkpoint(last_checkpoint))
                if loop.epoch > config.training.last_epoch:
                    done = count_with_noun(loop.epoch, "epoch")
                    run.log(f"The run has finished {done} already and ends here.")
            loop.train_epochs()
            return _evaluate_and_write(run, loop)
        except BaseException as error:
            explained = _error_with_remedy(error, loop, last_checkpoint)
            resumable = (KeyboardInterrupt, SystemExit, OSError, OutOfResources)
            if folder is not None and isinstance(explained, resumable):
                hint = "Stopped. Continue from the last checkpoint with"
                if checkpoint.latest_checkpoint(folder) is None:
                    hint = "Stopped before the first checkpoint. Start over with"
                run.log(f"{hint}: {run_folder.resume_command(folder)}")
            if explained is error:
                raise
            raise explained from error
        finally:
            reused_buffers.release_buffers()


def _evaluate_and_write(run: PreparedRun, loop: Loop) -> RunResult:
    """Measure the best weights on every part, and write weights and result."""
    config = run.config
    data = run.data
    folder = run.folder
    if loop.best_epoch is None:
        raise CheckFailed(
            f"No epoch has a finite {config.training.metric} on val.",
            next=f"kmip-data verify {shlex.quote(str(data.build.path))}; or a lower --set optimizer.lr=…",
        )

    best_weights = loop.best_weights[loop.best_epoch]
    loop.module.model.load_state_dict(best_weights)
    accumulated = accumulate_metrics(loop.module, data, data.parts, loop.device, error_part="test")
    class_scores = accumulated["test"].class_scores() if "test" in accumulated else []
    errors = accumulated["test"].standard_errors() if "test" in accumulated else {}
    metrics = compute_metrics(loop.module, accumulated)
    check_metrics_finite(metrics)

    card = data.build.card
    history = loop.history
    is_gpu = loop.device.type == "cuda"
    device_memory = torch.cuda.max_memory_allocated(loop.device) if is_gpu else None
    result = RunResult(
        **card.identity,
        name=folder.name if folder is not None else "",
        build_parameters=card.parameters,
        split=RunSplit.from_data(data),
        model=config.model.name,
        preset=config.preset,
        variant=config.variant,
        config=config.model_dump(mode="json"),
        num_features=data.in_channels,
        columns=data.inputs.names,
        vocabulary=data.inputs.vocabulary_digest,
        targets=RunTargets.from_task(data.task),
        num_classes=data.task.outputs,
        class_names=tuple(card.class_names),
        num_parameters=count_parameters(loop.module.model),
        seed=config.training.seed,
        device=run.device.name,
        hardware=run.device.hardware,
        versions=package_versions(),
        epochs=len(history),
        best_epoch=loop.best_epoch,
        metric=loop.metric,
        metrics=metrics,
        standard_errors=errors,
        class_scores=class_scores,
        seconds=Seconds(
            train_epoch=sum(row["seconds_train"] for row in history) / len(history),
            total=sum(row["seconds"] for row in history),
        ),
        memory=Memory(device=device_memory, host=peak_host_memory()),
        references=reference_answers(data, config, folder, run.log),
    )

    if folder is not None and is_main_process():
        checkpoint.write_weights(folder / WEIGHTS_NAME, best_weights)
        names = [name for name in run_folder.files_of_run(folder) if name != RESULT_NAME]
        digests = {name: sha256_file(folder / name)[0] for name in names if not is_output(name)}
        result = result.model_copy(update={"files": digests})
        write_file(folder / RESULT_NAME, result.to_json().encode())
    return result


def _error_with_remedy(
    error: BaseException, loop: Loop, last_checkpoint: Path | None
) -> BaseException:
    """Return a version of ``error`` with a remedy, or ``error`` itself.

    If a resumed run fails inside torch or the loop before saving anything, ``last_checkpoint`` is
    assumed to be at fault.
    """
    if is_out_of_memory(error):
        return memory_estimate.training_memory_error(error, loop.module, loop.data)
    if is_lost_process(error):
        return lost_process_error()
    is_explained = isinstance(error, KmipDataError | OSError)
    failed_after_resume = last_checkpoint is not None and not loop.has_saved
    if failed_after_resume and isinstance(error, Exception) and not is_explained:
        return DamagedInput(
            f"The run cannot be resumed from {last_checkpoint}: {type(error).__name__}: {first_problem(error)}",
            next="start another run",
        )
    return error


def _select_device(config: RunConfig) -> Device:
    """Select the device; raise ``UsageError`` for unsupported settings or an uninstalled logger."""
    device = choose_device(config.system.device, config.system.devices)
    check_precision(config.training.precision, device)
    config.model.attention.check_device(device.type)
    check_logger(config.system.logger)
    if device.type == "cuda":
        self_check.check_gpu_before_run(config.model, device.name)
    return device
