"""Training: one resumable run per fold and seed, and the mean over them.

From the command to a step of the optimizer:

1. ``kmip-data train`` (``cli/train.py``) makes a configuration of its options and calls :func:`train`.
2. :func:`_train_one`, for each fold and seed, or :func:`resume` opens data and run folder.
3. :func:`fit_with_retry` makes network and loop; if a GPU lacks memory, once more with recomputed layers.
4. ``Loop.train_epochs`` (``loop.py``) calls ``train_epoch``, which calls ``eager_step`` on a batch.
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

from kmip_data.builds.home import Home
from kmip_data.builds.verify import feature_problems
from kmip_data.errors import CheckFailed, DamagedInput, KmipDataError, OutOfResources, UsageError
from kmip_data.files.atomic_writes import build_lock, marker_content, refuse_links, write_file
from kmip_data.files.folder_marker import is_output
from kmip_data.files.reading import first_problem, sha256_file
from kmip_data.format.card import SplitPart
from kmip_data.models.component_names import edge_encoders, node_encoders
from kmip_data.models.encoders import check_integers
from kmip_data.models.layers.batch import read_batch
from kmip_data.models.network import GPSNetwork, build_model, count_parameters
from kmip_data.models.precision import float32_product_precision
from kmip_data.models.search.gpu.launch import reset_not_finite_flags
from kmip_data.models.training import machine, memory_estimate, self_check
from kmip_data.models.training.capture.cuda_graphs import CudaGraphs
from kmip_data.models.training.capture.steps import CapturedSteps, reason_not_captured
from kmip_data.models.training.config.keys import RunConfig
from kmip_data.models.training.config.overrides import apply_overrides, config_to_toml, read_config
from kmip_data.models.training.config.presets import config_for_data, preset_origin
from kmip_data.models.training.data.open_data import open_data, open_split
from kmip_data.models.training.data.run_data import RunData
from kmip_data.models.training.machine import Device, build_logger, check_logger, is_main_process
from kmip_data.models.training.run import checkpoint, run_folder
from kmip_data.models.training.run.announcement import announcement
from kmip_data.models.training.run.loop import Loop
from kmip_data.models.training.run.module import TrainingModule, check_finite, evaluate_parts
from kmip_data.models.training.run.published_result import published_result_of
from kmip_data.models.training.run.result import (
    Memory,
    RunResult,
    Seconds,
    SplitUsed,
    Summary,
    TargetsUsed,
    chance_metric,
    is_edited,
    package_versions,
    read_result,
    refuse_edited,
)
from kmip_data.models.training.run.run_folder import CONFIG_NAME, RESULT_NAME, WEIGHTS
from kmip_data.runtime import memory
from kmip_data.runtime.memory import is_out_of_memory, peak_host_memory
from kmip_data.runtime.progress import print_status
from kmip_data.text import count_with_noun


@dataclass(frozen=True)
class PreparedRun:
    """A run, ready to be trained."""

    #: configuration with all settings determined by the data
    config: RunConfig
    data: RunData
    #: run folder; ``None`` in further processes of a distributed run
    folder: Path | None
    device: Device
    memory: memory_estimate.StepMemory
    log: Callable[[str], None]
    quiet: bool
    #: True for a further seed or fold, which is announced by its folder alone
    further: bool = False


def train(
    config: RunConfig | str,
    *,
    home: str | os.PathLike[str] | Home | None = None,
    seeds: Sequence[int] | None = None,
    folds: Sequence[int] | None = None,
    name: str | None = None,
    quiet: bool = False,
    **build_options: Any,
) -> Summary:
    """Train ``config`` once per fold and seed, building the dataset first if it is missing.

    Parameters
    ----------
    config
        Settings of the run, or the dataset of a preset; see
        :func:`kmip_data.models.training.config.presets.load_preset`.
    home
        Folder of builds and runs; the default home if ``None``.
    seeds
        Default: ``config.training.seed`` alone.
    folds
        Published splits by number; default: the split of ``config.data.split`` alone.
    name
        Name of the run folder (with folds or several seeds, its beginning); a time stamp if
        ``None``. A run of this name and configuration is continued, or read if finished.
    build_options
        Options of :func:`kmip_data.pipelines.find.obtain` (``archives``, ``offline``, ``jobs`` …).

    Raises
    ------
    UsageError
        Missing device, precision, search backend or logger; invalid or existing name; empty part of
        the split.
    OutOfResources
        A batch does not fit; the message has its size and the flags to try.
    CheckFailed
        The loss has diverged.
    KeyboardInterrupt
        Ctrl-C; the last checkpoint stays, and the command to resume was printed.
    """
    if name is not None:
        run_folder.check_name(name)
    home = Home.locate(home)
    if isinstance(config, str):
        config = config_for_data(config, home=home)
    config = config.with_plugins()
    device = _check_machine(config)
    log = partial(print_status, quiet=quiet or not is_main_process())
    if config.training.init_from:
        source = run_folder.find_run(config.training.init_from, home)
        config = config.with_values("training", init_from=str(source))
    seeds = tuple(seeds) if seeds else (config.training.seed,)
    # Refuse a wrong seed before training any.
    for seed in seeds:
        apply_overrides(config, [f"training.seed={seed}"])
    line = preset_origin(config)
    if line:
        log(line)
    published_result = published_result_of(config)
    if published_result is not None:
        log(published_result.line)

    # Refuse a wrong fold before training any.
    configs = [config]
    if folds:
        split = config.data.split
        configs = [config.with_values("data", split={**split, "fold": fold}) for fold in folds]
        splits: list[dict[str, SplitPart]] = []
        for of_fold in configs:
            build, split_name = open_split(of_fold, home=home, quiet=quiet, **build_options)
            parts = build.card.splits[split_name].parts
            if parts in splits:
                raise UsageError(
                    f"{split_name} has the parts of another fold: both are one split.",
                    next="leave --split-rule out, or train --seeds with one --split-seed after the other",
                )
            splits.append(parts)
    done = Summary([], [])
    for of_fold, seed in product(configs, seeds):
        run_name = name or f"{datetime.now(UTC):%Y%m%d-%H%M%S-%f}-{config.variant}"
        if folds:
            run_name += f"-fold{of_fold.data.split['fold']}"
        if name is None or len(seeds) > 1:
            run_name += f"-seed{seed}"
        one = _train_one(
            of_fold.with_seed(seed),
            run_name,
            home,
            device,
            log,
            quiet=quiet,
            further=bool(done.runs),
            **build_options,
        )
        done.results.extend(one.results)
        done.runs.extend(one.runs)
    return done


def _train_one(
    config: RunConfig,
    name: str,
    home: Home,
    device: Device,
    log: Callable[[str], None],
    *,
    quiet: bool,
    further: bool,
    **build_options: Any,
) -> Summary:
    """Train one configuration in a new run folder; resume a run of this name and configuration."""
    data = open_data(config, home=home, quiet=quiet, **build_options)
    if memory_estimate.is_graph_too_large(data.pin_settings(config), data, device, log):
        data.sample_evaluation()
    config = data.pin_settings(config)
    label = data.build.card.dataset_label
    existing = home.runs / label / config.model.name / name
    if marker_content(existing) == run_folder.RUN and (existing / CONFIG_NAME).is_file():
        if _build_key(existing) == data.build.card.key:
            # One build may be named in several ways.
            stored = read_config(existing / CONFIG_NAME).data
            config = config.with_values(
                "data", dataset=stored.dataset, sample=stored.sample, parameters=stored.parameters
            )
        run_folder.check_settings(existing, config)
        return resume(existing, home=home, quiet=quiet, **build_options)

    weights = None
    if config.training.init_from:
        with torch.random.fork_rng(devices=[]):
            model = build_model(config.model, **data.network_sizes)
        source = Path(config.training.init_from)
        refuse_edited(source)
        expected = read_result(source).files.get(WEIGHTS)
        weights = checkpoint.fitting_weights(model, source, expected, log)
    needed = _try_out(config, data, device)

    # Only the first process has a folder.
    opened: AbstractContextManager[Path | None] = nullcontext()
    if is_main_process():
        opened = run_folder.new_run(home, label, config.model.name, name)
    with opened as folder:
        if folder is not None:
            if weights is not None:
                checkpoint.write_initial_weights(folder, weights)
            write_file(folder / CONFIG_NAME, config_to_toml(config).encode())
        result = fit_with_retry(
            PreparedRun(config, data, folder, device, needed, log, quiet, further)
        )
    # Processes besides the first write nothing; nobody reads their summary.
    return Summary([] if folder is None else [folder], [result])


def _try_out(config: RunConfig, data: RunData, device: Device) -> memory_estimate.StepMemory:
    """Return the memory of a step; raise the error of a network that does not fit the data.

    Integers without an embedding are searched in all records, as early batches may have none.
    Random generators keep their state.
    """
    encoders = {
        "x": node_encoders()[config.model.node_encoder],
        "edge_attr": edge_encoders()[config.model.edge_encoder],
    }
    stored = {column.attribute for column in data.build.card.schema_.columns}
    for attribute, encoder in encoders.items():
        if encoder.integers is not None and attribute in stored:
            check_integers(encoder.integers, data.rows_of(attribute))

    # A plugin's encoder may accept NaN.
    if not config.plugins:
        for problem in feature_problems(data.build, data.attributes_read(config)):
            raise UsageError(
                f"{data.build.path}: {problem}.",
                next="repair the graphs and build them under another name",
            )

    needed = memory_estimate.plan_memory(config, data, device)
    try_encoders(config, data)
    return needed


def try_encoders(config: RunConfig, data: RunData) -> None:
    """Build the network and apply its encoders, or a plugin's whole network, to a record on the CPU.

    This reveals mismatches between data and configuration: kinds and numbers of features.
    """
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        model = build_model(config.model, **data.network_sizes).eval()
        if not isinstance(model, GPSNetwork):
            model(data.example_batch)
            return
        batch = read_batch(data.example_batch, model.reads)
        model.node_encoder(batch)
        if model.reads_edges:
            model.edge_encoder(batch)


def resume(
    run: str | Path,
    *,
    home: str | os.PathLike[str] | Home | None = None,
    devices: int | None = None,
    stop_after: int | None = None,
    epochs: int | None = None,
    quiet: bool = False,
    **build_options: Any,
) -> Summary:
    """Continue a run from its last checkpoint; a finished run is returned unchanged.

    A run stopped before its first checkpoint starts over. A finished run with an unreadable result
    is measured again from its checkpoint. On a CPU the weights are bitwise equal to the weights of an
    uninterrupted run (with the same number of threads and versions). ``devices`` per machine
    defaults to the run's. A run that ended at ``training.stop_after`` continues to a larger
    ``stop_after``, and gets a new result.

    With more ``epochs`` than its schedule a finished run is trained longer, by a schedule of that
    length from its last epoch on; ``training.lengthened`` records where. It equals no run that began
    with that many.

    Raises
    ------
    UsageError
        Unknown run, a run in use by another process, or a number of epochs that it cannot end at.
    DamagedInput
        Damaged configuration or checkpoint, or an edited result.
    CheckFailed
        The dataset differs from the one that the run began with.
    """
    home = Home.locate(home)
    log = partial(print_status, quiet=quiet or not is_main_process())
    folder = run_folder.find_run(run, home)
    config = read_config(folder / CONFIG_NAME)
    result = _sound_result(folder, log)
    if stop_after is not None:
        if stop_after > config.training.epochs:
            raise _end_epoch_error(folder, config, "--stop-after", stop_after)
        config = apply_overrides(config, [f"training.stop_after={stop_after}"])
    if epochs is not None:
        config = _lengthened_config(config, epochs, result, folder)
    training = config.training
    if result is not None:
        # Update the number of epochs before a finished run continues.
        before = result.config["training"]
        same = (training.stop_after, training.epochs) == (
            before.get("stop_after"),
            before["epochs"],
        )
        if same or result.epochs >= training.last_epoch:
            command = run_folder.resume_command(folder)
            more = f"{command} --epochs {2 * training.epochs} trains it longer."
            if result.epochs < training.epochs:
                more = f"{command} --stop-after {training.epochs} continues it."
            log(
                f"{folder} is finished already, after {result.epochs} of {training.epochs} epochs; "
                f"{more}"
            )
            return Summary([folder], [result])
    refuse_links(folder)
    as_text = config_to_toml(config).encode()
    config = run_folder.config_without_foreign_system(config, folder, home)
    if devices is not None:
        machines = max(1, int(os.environ.get("WORLD_SIZE", devices)) // devices)
        changes = [f"system.devices={devices}", f"system.nodes={machines}"]
        config = apply_overrides(config, changes)
    with build_lock(folder, wait=False) if is_main_process() else nullcontext():
        device = _check_machine(config)
        on_build = run_folder.config_on_own_build(config, partial(_build_key, folder), home)
        data = open_data(on_build, home=home, quiet=quiet, **build_options)
        config = data.pin_settings(config)
        needed = memory_estimate.plan_memory(config, data, device)
        if (stop_after is not None or epochs is not None) and is_main_process():
            write_file(folder / CONFIG_NAME, as_text)
        result = fit_with_retry(PreparedRun(config, data, folder, device, needed, log, quiet))
        return Summary([folder], [result])


def _build_key(folder: Path) -> str | None:
    """Return the key of the build that the last checkpoint of a run is of, None without one."""
    last = checkpoint.latest_checkpoint(folder)
    if last is None:
        return None
    key: str = checkpoint.read_checkpoint(last)["data"]["build_key"]
    return key


def _lengthened_config(
    config: RunConfig, epochs: int, result: RunResult | None, folder: Path
) -> RunConfig:
    """Return the configuration of a finished run with a longer schedule."""
    training = config.training
    if epochs == training.epochs:
        return config  # by the same command, after an interruption
    if epochs < training.epochs or result is None:
        raise _end_epoch_error(folder, config, "--epochs", epochs)
    lengthened = (*training.lengthened, result.epochs)
    changes = {"epochs": epochs, "stop_after": None, "lengthened": lengthened}
    return config.with_values("training", **changes)


def _end_epoch_error(folder: Path, config: RunConfig, option: str, epochs: int) -> UsageError:
    """Return the error for a number of epochs at which a run cannot end."""
    command = run_folder.resume_command(folder)
    scheduled = config.training.epochs
    step = f"{command} --stop-after {min(epochs, scheduled)}"
    finished = (folder / RESULT_NAME).is_file()
    if finished and epochs > scheduled:
        step = f"{command} --epochs {epochs}, which trains the finished run longer"
    elif finished:
        file = shlex.quote(str(folder / CONFIG_NAME))
        home = run_folder.home_option(folder)
        step = f"kmip-data train --config {file}{home} --epochs {epochs}, which is a new run"
    elif epochs > scheduled:
        step = f"{command} first; a finished run is trained longer by --epochs {epochs}"
    return UsageError(
        f"The schedule of the run ends after {count_with_noun(scheduled, 'epoch')}, not {epochs} ({option}).",
        next=step,
    )


def _sound_result(run: Path, log: Callable[[str], None]) -> RunResult | None:
    """Return the result of a finished run; None where it or the weights are to be written again.

    Raises ``DamagedInput`` where it was edited, or there is no checkpoint to write it from.
    """
    if not (run / RESULT_NAME).is_file():
        return None
    try:
        result = read_result(run)
        if not is_edited(run):
            checkpoint.read_weights(run / WEIGHTS, result.files.get(WEIGHTS))
    except DamagedInput as error:
        if checkpoint.latest_checkpoint(run) is None:
            raise
        log(f"{error.message} It is written again.")
        return None
    refuse_edited(run)
    return result


def fit_with_retry(run: PreparedRun) -> RunResult:
    """Train until the last epoch, measure the best weights on every part, and write the result.

    If a GPU runs out of memory, the run resumes from its last checkpoint with recomputed layers,
    unless ``model.checkpoint_layers`` is set or there are other processes. The global random
    generators, and the choice of deterministic kernels, are restored afterwards.
    """
    try:
        return _fit_once(run)
    except OutOfResources as error:
        fixed = run.config.model.checkpoint_layers is not None or run.config.processes > 1
        if run.device.type != "cuda" or fixed or not is_out_of_memory(error):
            raise
        run.log(f"{error.message} Once more, with layers recomputed in the backward pass.")
    # Outside the handler: its error holds the frames, and these hold the tensors.
    gc.collect()
    torch.cuda.empty_cache()
    return _fit_once(replace(run, memory=replace(run.memory, recompute=True)))


def _fit_once(run: PreparedRun) -> RunResult:
    config = run.config
    data = run.data
    folder = run.folder
    with checkpoint.keep_random_state(), float32_product_precision(config.training.precision):
        device = machine.join_processes(config, run.device.type)
        # Memory is measured per process. Recomputed norms exchange again, so all processes
        # recompute or none.
        recompute = any(machine.all_gather(run.memory.recompute))
        run = replace(run, memory=replace(run.memory, recompute=recompute))
        torch.manual_seed(config.training.seed)
        if config.system.deterministic:
            torch.use_deterministic_algorithms(True, warn_only=True)
        module = TrainingModule(config, data, recompute=recompute)
        main = folder if is_main_process() else None
        last = None if folder is None else checkpoint.latest_checkpoint(folder)
        if main is not None and last is None and config.training.init_from:
            checkpoint.load_initial_weights(module.model, main)
        not_captured: str | None = "no GPU"
        if device.type == "cuda":
            not_captured = reason_not_captured(config, data, run.device, recompute=recompute)
            torch.cuda.reset_peak_memory_stats()
            reset_not_finite_flags(device)
        for line in announcement(run, module, not_captured, resumed=last is not None):
            if not run.further or line.startswith("run: "):
                run.log(line)
        loop = Loop(
            module,
            data,
            device,
            folder=folder,
            # The loop owns the memory of captured steps, and frees it after training.
            captured=CapturedSteps(CudaGraphs(device), run.log) if not_captured is None else None,
            quiet=run.quiet,
            logger=build_logger(config, main, f"kmip-data-{data.build.card.dataset_label}"),
        )
        try:
            if last is not None:
                loop.load(checkpoint.read_checkpoint(last))
                if loop.epoch > config.training.last_epoch:
                    done = count_with_noun(loop.epoch, "epoch")
                    run.log(f"The run has {done} already, and ends without another one.")
            loop.train_epochs()
            return _evaluate_and_write(run, loop)
        except BaseException as error:
            explained = _error_with_remedy(error, loop, last)
            stopped = (KeyboardInterrupt, SystemExit, OSError, OutOfResources)
            if folder is not None and isinstance(explained, stopped):
                step = "Stopped. Continue from the last checkpoint with"
                if checkpoint.latest_checkpoint(folder) is None:
                    step = "Stopped before the first checkpoint. Begin again with"
                run.log(f"{step}: {run_folder.resume_command(folder)}")
            if explained is error:
                raise
            raise explained from error
        finally:
            memory.release_buffers()


def _evaluate_and_write(run: PreparedRun, loop: Loop) -> RunResult:
    """Measure the best weights on every part and write weights and result."""
    config = run.config
    data = run.data
    folder = run.folder
    if loop.best_epoch is None:
        raise CheckFailed(
            f"No epoch has a finite {config.training.metric} on val.",
            next="kmip-data verify on the build, or a lower --set optimizer.lr=…",
        )
    best = loop.best_weights[loop.best_epoch]
    loop.module.model.load_state_dict(best)
    metrics = evaluate_parts(loop.module, data, data.parts, loop.device)
    check_finite(metrics)
    card = data.build.card
    rows = loop.history
    device_memory = None
    if loop.device.type == "cuda":
        device_memory = torch.cuda.max_memory_allocated(loop.device)
    result = RunResult(
        **card.identity,
        name=folder.name if folder is not None else "",
        build_parameters=card.parameters,
        split=SplitUsed.of(data),
        model=config.model.name,
        preset=config.preset,
        variant=config.variant,
        config=config.model_dump(mode="json"),
        num_features=data.in_channels,
        columns=data.inputs.names,
        vocabulary=data.inputs.vocabulary,
        targets=TargetsUsed.of(data.task),
        num_classes=data.task.outputs,
        class_names=tuple(card.class_names),
        num_parameters=count_parameters(loop.module.model),
        seed=config.training.seed,
        device=run.device.name,
        hardware=run.device.hardware,
        versions=package_versions(),
        epochs=len(rows),
        best_epoch=loop.best_epoch,
        metric=loop.metric,
        metrics=metrics,
        chance=chance_metric(data, loop.metric),
        seconds=Seconds(
            train_epoch=sum(row["seconds_train"] for row in rows) / len(rows),
            total=sum(row["seconds"] for row in rows),
        ),
        memory=Memory(
            device=device_memory,
            host=peak_host_memory(),
        ),
    )
    if folder is not None and is_main_process():
        checkpoint.write_weights(folder / WEIGHTS, best)
        names = [name for name in run_folder.files_of_run(folder) if name != RESULT_NAME]
        digests = {name: sha256_file(folder / name)[0] for name in names if not is_output(name)}
        result = result.model_copy(update={"files": digests})
        write_file(folder / RESULT_NAME, result.to_json().encode())
    return result


def _error_with_remedy(error: BaseException, loop: Loop, last: Path | None) -> BaseException:
    """Return an error with a remedy, or ``error`` itself.

    A failure inside torch or the loop, before a resumed run has saved anything, is attributed to
    its checkpoint ``last``.
    """
    if is_out_of_memory(error):
        return memory_estimate.memory_error(error, loop.module, loop.data)
    if machine.is_lost_process(error):
        return machine.lost_process_error()
    ours = isinstance(error, KmipDataError | OSError)
    if last is not None and not loop.proven and isinstance(error, Exception) and not ours:
        return DamagedInput(
            f"The run cannot be resumed from {last}: {type(error).__name__}: {first_problem(error)}",
            next="start another run",
        )
    return error


def _check_machine(config: RunConfig) -> Device:
    """Choose the device; raise ``UsageError`` for unsupported settings or a missing logger."""
    device = machine.choose_device(config.system.device, config.system.devices)
    machine.check_precision(config.training.precision, device)
    config.model.attention.check_device(device.type)
    check_logger(config.system.logger)
    if device.type == "cuda":
        self_check.check_gpu_before_run(config.model, device.name)
    return device
