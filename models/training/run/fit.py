"""One run from its first or last checkpoint to its result."""

from __future__ import annotations

import gc
from dataclasses import replace
from pathlib import Path

import torch

from kmip_data.errors import CheckFailed, Command, DamagedInput, KmipDataError, OutOfResources
from kmip_data.files.atomic_writes import write_file
from kmip_data.files.folder_marker import is_output
from kmip_data.files.small_files import first_problem, sha256_file
from kmip_data.models.network import count_parameters
from kmip_data.models.precision import float32_product_precision
from kmip_data.models.search.gpu.launch import reset_not_finite_flags
from kmip_data.models.training import memory_estimate
from kmip_data.models.training.capture.cuda_graphs import CudaGraphs
from kmip_data.models.training.capture.steps import CapturedSteps, why_not_capturable
from kmip_data.models.training.data.scaled_columns import measure_scaling
from kmip_data.models.training.loggers import build_logger
from kmip_data.models.training.processes import (
    all_gather,
    is_lost_process,
    is_main_process,
    join_processes,
    lost_process_error,
)
from kmip_data.models.training.references.answers import reference_answers
from kmip_data.models.training.run import checkpoint, run_folder
from kmip_data.models.training.run.loop import Loop
from kmip_data.models.training.run.prepared_run import PreparedRun, announcement
from kmip_data.models.training.run.result import (
    Memory,
    RunResult,
    RunSplit,
    RunTargets,
    Seconds,
    package_versions,
)
from kmip_data.models.training.run.run_folder import RESULT_NAME, WEIGHTS_NAME
from kmip_data.models.training.run.training_module import (
    TrainingModule,
    accumulate_metrics,
    check_metrics_finite,
    compute_metrics,
)
from kmip_data.runtime import reused_buffers
from kmip_data.runtime.memory import is_out_of_memory, peak_host_memory
from kmip_data.text import count_with_noun


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
                state = checkpoint.read_checkpoint(last_checkpoint)
                loop.load(state)
                saved = len(state["processes"])
                if saved != config.processes:
                    run.log(
                        f"processes: {config.processes} instead of {saved}; dropout draws other numbers "
                        "than in an uninterrupted run, and a new process is seeded by its rank and epoch"
                    )
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
            steps=["lower optimizer.lr", Command("kmip-data verify", data.build.path)],
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
        references=reference_answers(data, config, run.log),
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
            steps="start another run",
        )
    return error
