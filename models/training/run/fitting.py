"""One run in its folder, driven by Lightning, from its last checkpoint to its result."""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Trainer, seed_everything

from kmip_data.errors import CheckFailed, DamagedInput, KmipDataError, OutOfResources, UsageError
from kmip_data.files.errors import FULL, disk_error
from kmip_data.format.writer import write_file
from kmip_data.models.training.config.keys import RunConfig
from kmip_data.models.training.data.run_data import RunData
from kmip_data.models.training.memory.estimate import Estimate, plan_memory
from kmip_data.models.training.memory.machine import (
    Device,
    is_out_of_memory,
    out_of_memory,
    peak_device_memory,
    peak_host_memory,
)
from kmip_data.models.training.run.checkpoint import (
    LAST,
    WEIGHTS,
    AtomicCheckpointIO,
    random_state,
    set_random_state,
    write_weights,
)
from kmip_data.models.training.run.curves import draw_curves
from kmip_data.models.training.run.folders import CURVES_NAME
from kmip_data.models.training.run.logs import build_logger, quiet_lightning
from kmip_data.models.training.run.module import TrainingModule, evaluate_parts
from kmip_data.models.training.run.recorder import Recorder
from kmip_data.models.training.run.result import (
    RESULT_NAME,
    Memory,
    RunResult,
    Seconds,
    SplitUsed,
    package_versions,
)
from kmip_data.reading import buffers

TERMINATED = 143


def fit(
    config: RunConfig,
    data: RunData,
    folder: Path | None,
    device: Device,
    memory: Estimate,
    *,
    tell: Callable[[str], None],
    quiet: bool = False,
) -> RunResult:
    """Train until the last epoch, measure the best weights on every part, and write the result.

    ``folder`` is ``None`` where another process of a distributed run made it. The global random
    generators are seeded for the run and afterwards as they were.
    """
    with quiet_lightning(), _determinism(config.system.deterministic), _own_generators():
        seed_everything(config.training.seed, workers=False, verbose=False)
        module = module_for(config, data, recompute=memory.recompute)
        recorder = Recorder(module, folder, data, config, quiet=quiet)
        trainer = _trainer(config, folder, device, recorder, data)
        checkpoint = folder / LAST if folder is not None and (folder / LAST).is_file() else None
        for line in _announcement(config, data, folder, device, module, memory, checkpoint):
            tell(line)
        if device.kind == "cuda":
            torch.cuda.reset_peak_memory_stats()
        with _sound(checkpoint, recorder), _guarded(config, module, recorder, folder, tell):
            trainer.fit(module, data.batches(lambda: len(recorder.history)), ckpt_path=checkpoint)
            if trainer.interrupted:
                raise KeyboardInterrupt
            return _finish(config, data, folder, device, module, recorder, trainer)


def module_for(config: RunConfig, data: RunData, *, recompute: bool = False) -> TrainingModule:
    """Return the network for ``data``, with new weights from the global generator."""
    model = config.model.model_copy(update={"checkpoint_layers": recompute})
    return TrainingModule(
        config.model_copy(update={"model": model}),
        task=data.task,
        in_channels=data.in_channels,
        edge_channels=data.edge_channels,
    )


def check(config: RunConfig, data: RunData, device: Device) -> Estimate:
    """Find what cannot work before anything is written; return what the run will take of memory.

    Raises
    ------
    UsageError
        A model or option is not there.
    OutOfResources
        A step will not fit into memory.
    """
    with torch.device("meta"), _own_generators():  # no memory
        module_for(config, data)
    return plan_memory(config, data, device)


@contextlib.contextmanager
def _own_generators() -> Iterator[None]:
    """Leave the global random generators as they were."""
    before = random_state()
    try:
        yield
    finally:
        set_random_state(before)


def _trainer(
    config: RunConfig, folder: Path | None, device: Device, recorder: Recorder, data: RunData
) -> Trainer:
    system, training = config.system, config.training
    logger: Any = False
    if folder is not None and recorder.writes:
        logger = build_logger(
            system.logger,
            folder,
            project=f"kmip-data-{data.label}",
            config=config.model_dump(mode="json"),
        )
    strategy = "auto" if system.devices * system.nodes == 1 else "ddp"
    return Trainer(
        accelerator="gpu" if device.kind == "cuda" else "cpu",
        devices=system.devices,
        num_nodes=system.nodes,
        strategy=strategy,
        precision="32-true" if training.precision == "32" else training.precision,
        max_epochs=training.epochs,
        accumulate_grad_batches=training.accumulate,
        gradient_clip_val=training.clip_norm or None,
        limit_val_batches=0,
        num_sanity_val_steps=0,
        logger=logger,
        callbacks=[recorder],
        plugins=[AtomicCheckpointIO()],
        default_root_dir=folder,
        use_distributed_sampler=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


def _announcement(
    config: RunConfig,
    data: RunData,
    folder: Path | None,
    device: Device,
    module: TrainingModule,
    memory: Estimate,
    checkpoint: Path | None,
) -> Iterator[str]:
    yield f"data: {data.description}"
    count = sum(parameter.numel() for parameter in module.model.parameters())
    yield f"model: {config.model.name}, {count:,} parameters"
    schedule = config.schedule
    warmup = min(schedule.warmup_epochs, config.training.epochs)
    shape = f", {warmup} of them warm-up" if schedule.kind == "cosine_with_warmup" else ""
    epochs = config.training.epochs
    yield f"schedule: {schedule.kind}, {epochs} epoch{'s' if epochs > 1 else ''}{shape}"
    many = f", {config.system.devices} processes" if config.system.devices > 1 else ""
    yield f"device: {device.name} ({device.reason}){many}, precision {config.training.precision}"
    again = "; layers are recomputed in the backward pass" if memory.recompute else ""
    yield f"memory: {memory}{many and ' each'}{again}"
    if checkpoint is not None:
        yield f"run: {folder}, from its last checkpoint"
    else:
        yield f"run: {folder}"


@contextlib.contextmanager
def _guarded(
    config: RunConfig,
    module: TrainingModule,
    recorder: Recorder,
    folder: Path | None,
    tell: Callable[[str], None],
) -> Iterator[None]:
    """Turn what ends a run early into what the user can act on, and give Ctrl-C back its meaning."""
    main_thread = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGINT) if main_thread else None
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as stop:
        from lightning.pytorch.utilities.exceptions import SIGTERMException

        tell(f"Stopped; {_kept(recorder)}. Go on with: {_resume(folder)}")
        if recorder.interrupted:
            # Lightning leaves with SystemExit(1) and Ctrl-C switched off.
            raise KeyboardInterrupt from None
        raise SystemExit(TERMINATED) if isinstance(stop, SIGTERMException) else stop from None
    except Exception as error:
        if (full := _full_disk(error, folder)) is not None:
            full.parts["on disk"] = f"{folder}; {_kept(recorder)}"
            full.parts["next"] = f"make room (or mend the disk), then: {_resume(folder)}"
            raise full from error
        if config.system.compile and type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
            raise UsageError(
                "torch.compile could not compile the model.",
                expected="a C++ compiler, and a version of PyTorch that takes this model",
                found=str(error).strip().splitlines()[0],
                left=f"{folder}; {_kept(recorder)}",
                next="leave out --compile",
            ) from error
        if not is_out_of_memory(error):
            raise
        left = f"{folder}; {_kept(recorder)}"
        raise out_of_memory(error, size=module.size, doing=module.doing, config=config, left=left) from error
    finally:
        buffers.release()
        if main_thread and handler is not None:
            signal.signal(signal.SIGINT, handler)


def _resume(folder: Path | None) -> str:
    return f"kmip-data train --resume {shlex.quote(str(folder))}"


def _full_disk(error: Exception, folder: Path | None) -> KmipDataError | None:
    """Return our error where the disk did not take a file of the run."""
    cause = error.__cause__ if isinstance(error, OutOfResources) else error
    if not isinstance(cause, OSError) or cause.errno not in {*FULL, errno.EIO}:
        return None
    return error if isinstance(error, OutOfResources) else disk_error(cause, folder or Path())


@contextlib.contextmanager
def _sound(checkpoint: Path | None, recorder: Recorder) -> Iterator[None]:
    """Blame the checkpoint that a run goes on from for what fails before a whole epoch was done with it."""
    try:
        yield
    except Exception as error:
        if checkpoint is None or recorder.proven or isinstance(error, KmipDataError):
            raise
        raise DamagedInput(
            f"The run cannot go on from {checkpoint}.",
            expected="a checkpoint that kmip-data train wrote with the run's config.toml",
            found=f"{type(error).__name__}: {error}".splitlines()[0],
            left="the run as it was",
            next="begin another run",
        ) from error


def _kept(recorder: Recorder) -> str:
    done = recorder.saved
    return f"the checkpoint after epoch {done} is kept" if done else "no epoch was finished"


@contextlib.contextmanager
def _determinism(wanted: bool) -> Iterator[None]:
    before = torch.are_deterministic_algorithms_enabled()
    if wanted and not before:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        if wanted and not before:
            torch.use_deterministic_algorithms(False)


def _finish(
    config: RunConfig,
    data: RunData,
    folder: Path | None,
    device: Device,
    module: TrainingModule,
    recorder: Recorder,
    trainer: Trainer,
) -> RunResult:
    """Measure the best weights on every part and write weights, result and picture."""
    if recorder.best_epoch is None:
        raise CheckFailed(
            "No epoch has a validation metric.",
            expected=f"a finite {config.training.metric} on val",
            found="NaN in every evaluated epoch",
            left=f"{folder} with its metrics",
            next="kmip-data verify on the build, or a lower --set optimiser.lr=…",
        )
    module.model.load_state_dict(recorder.best_weights)
    root = trainer.strategy.root_device
    module.to(root)
    metrics = evaluate_parts(module, data, data.parts, root)
    history = recorder.history
    result = RunResult(
        name=folder.name if folder is not None else "",
        dataset=data.build.card.dataset,
        sample=data.build.card.sample,
        complete=data.build.card.complete,
        build_key=data.build.card.key,
        build_parameters=data.build.card.parameters,
        split=SplitUsed.of(data),
        model=config.model.name,
        preset=config.preset,
        variant=config.variant,
        config=config.model_dump(mode="json"),
        num_features=data.in_channels,
        columns=data.inputs.names,
        vocabulary=data.inputs.vocabulary,
        num_classes=data.num_classes,
        num_parameters=sum(parameter.numel() for parameter in module.model.parameters()),
        seed=config.training.seed,
        device=device.name,
        versions=package_versions(),
        epochs=len(history),
        best_epoch=recorder.best_epoch,
        metric=recorder.metric,
        metrics=metrics,
        seconds=Seconds(
            train_epoch=sum(row["seconds_train"] for row in history) / len(history),
            total=sum(row["seconds"] for row in history),
        ),
        memory=Memory(device=peak_device_memory(root), host=peak_host_memory()),
    )
    if folder is not None and recorder.writes:
        write_weights(folder / WEIGHTS, recorder.best_weights)
        draw_curves(
            history,
            folder / CURVES_NAME,
            title=f"{result.dataset}{data.build.card.remark} · {result.model} · seed {result.seed}",
            metric=result.metric,
            best_epoch=result.best_epoch,
        )
        write_file(folder / RESULT_NAME, result.to_json().encode())
    return result
