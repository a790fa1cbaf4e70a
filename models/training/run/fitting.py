"""One run in its folder, driven by Lightning, from its last checkpoint to its result."""

from __future__ import annotations

import contextlib
import errno
import shlex
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Trainer, seed_everything
from lightning.pytorch.callbacks import Callback

from kmip_data.errors import CheckFailed, DamagedInput, KmipDataError, OutOfResources, UsageError
from kmip_data.files.errors import FULL, disk_error
from kmip_data.format.writer import write_file
from kmip_data.models.budget import count_parameters
from kmip_data.models.layers.precision import products
from kmip_data.models.search.gpu.launch import forget_not_finite
from kmip_data.models.training.capture.reasons import why_plain
from kmip_data.models.training.capture.steps import captured_steps
from kmip_data.models.training.config.keys import RunConfig
from kmip_data.models.training.config.optimisers import rate_for
from kmip_data.models.training.data.on_card import sent_ahead
from kmip_data.models.training.data.run_data import RunData
from kmip_data.models.training.memory.estimate import Estimate
from kmip_data.models.training.memory.machine import Device, out_of_memory
from kmip_data.models.training.run.checkpoint import (
    INITIAL,
    LAST,
    WEIGHTS,
    AtomicCheckpointIO,
    random_state,
    set_random_state,
    write_weights,
)
from kmip_data.models.training.run.fine_tuning import take_weights
from kmip_data.models.training.run.folders import CURVES_NAME, RESULT_NAME
from kmip_data.models.training.run.history import draw_curves
from kmip_data.models.training.run.logs import build_logger, quiet_lightning
from kmip_data.models.training.run.module import Diverged, TrainingModule, evaluate_parts
from kmip_data.models.training.run.profile import Profile
from kmip_data.models.training.run.recorder import Recorder
from kmip_data.models.training.run.result import (
    Memory,
    RunResult,
    Seconds,
    SplitUsed,
    package_versions,
)
from kmip_data.runtime import buffers
from kmip_data.runtime.memory_errors import is_out_of_memory
from kmip_data.runtime.peak_memory import peak_host_memory
from kmip_data.wording import counted

TERMINATED = 143


@dataclass(frozen=True)
class Job:
    """A run to be trained."""

    config: RunConfig  #: with all that the data decide written out
    data: RunData
    folder: Path | None  #: the run folder; ``None`` where another process of a distributed run made it
    device: Device
    memory: Estimate  #: what it will take, and whether its layers are recomputed
    profile: bool = False  #: whether some steps are traced


def fit(job: Job, *, tell: Callable[[str], None], quiet: bool = False) -> RunResult:
    """Train until the last epoch, measure the best weights on every part, and write the result.

    The global random generators, and the choice of deterministic kernels, are afterwards as they were.
    """
    config, data, folder = job.config, job.data, job.folder
    with quiet_lightning(), contextlib.ExitStack() as restored:
        restored.callback(set_random_state, random_state())
        if config.system.deterministic:
            before = torch.are_deterministic_algorithms_enabled()
            warn = torch.is_deterministic_algorithms_warn_only_enabled()
            restored.callback(torch.use_deterministic_algorithms, before, warn_only=warn)
        seed_everything(config.training.seed, workers=False, verbose=False)
        hinted = data.with_hints(config, job.device.kind)
        module = TrainingModule(hinted, data, recompute=job.memory.recompute)
        recorder = Recorder(module, folder, data, quiet=quiet)
        plain = why_plain(config, data, job.device, recompute=job.memory.recompute, profile=job.profile)
        if plain is None:
            module.learn_with(captured_steps(module.forward_loss, module.config, tell, pad=data.ragged))
        trainer = _trainer(job, recorder, tell)
        checkpoint = folder / LAST if folder is not None and (folder / LAST).is_file() else None
        if folder is not None and checkpoint is None and config.training.init_from:
            take_weights(module.model, folder / INITIAL)
        for line in _announcement(job, module, resumed=checkpoint is not None):
            tell(line)
        if job.device.kind == "cuda":
            how = "captured as CUDA graphs" + (", batches padded to few sizes" if data.ragged else "")
            tell(f"steps: {how if plain is None else f'not captured: {plain}'}")
            torch.cuda.reset_peak_memory_stats()
            forget_not_finite(torch.device("cuda", torch.cuda.current_device()))
        sound, guarded = _sound(checkpoint, recorder), _guarded(job, recorder, tell)
        with sound, guarded, contextlib.closing(recorder), products(config.training.precision):
            device = trainer.strategy.root_device
            own = data.batches(lambda: len(recorder.history), lambda: recorder.batches)
            trainer.fit(module, sent_ahead(own, device, tell), ckpt_path=checkpoint)
            if trainer.interrupted:
                raise KeyboardInterrupt
            module.learn_with(None)  # the graphs' memory is free for the evaluation
            return _finish(job, recorder, device)


def _trainer(job: Job, recorder: Recorder, tell: Callable[[str], None]) -> Trainer:
    config, folder = job.config, job.folder
    profiles = [Profile(folder, tell)] if job.profile and folder is not None and recorder.writes else []
    system, training = config.system, config.training
    logger: Any = False
    if folder is not None and recorder.writes:
        project = f"kmip-data-{job.data.label}"
        logger = build_logger(system.logger, folder, project=project, config=config.model_dump(mode="json"))
    return build_trainer(
        config,
        job.device,
        [*profiles, recorder.module.meter, recorder],
        max_epochs=training.epochs,
        logger=logger,
        default_root_dir=folder,
    )


def build_trainer(config: RunConfig, device: Device, callbacks: list[Callback], **options: Any) -> Trainer:
    """Return Lightning's loop for a run; ``options`` are further ones of ``Trainer``."""
    system, training = config.system, config.training
    settings: dict[str, Any] = {"logger": False, **options}
    return Trainer(
        accelerator="gpu" if device.kind == "cuda" else "cpu",
        devices=system.devices,
        num_nodes=system.nodes,
        strategy="auto" if system.devices * system.nodes == 1 else "ddp",
        precision=training.precision if training.precision in ("16-mixed", "bf16-mixed") else "32-true",
        accumulate_grad_batches=training.accumulate,
        gradient_clip_val=training.clip_norm or None,
        limit_val_batches=0,
        num_sanity_val_steps=0,
        deterministic="warn" if system.deterministic else None,
        callbacks=callbacks,
        plugins=[AtomicCheckpointIO()],
        use_distributed_sampler=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **settings,
    )


def _announcement(job: Job, module: TrainingModule, *, resumed: bool) -> Iterator[str]:
    config = job.config
    yield f"data: {job.data.description}"
    yield f"model: {config.model.name}, {count_parameters(module.model):,} parameters"
    schedule, epochs = config.schedule, config.training.epochs
    warmup = min(schedule.warmup_epochs, epochs)
    shape = f", {warmup} of them warm-up" if schedule.kind.endswith("with_warmup") else ""
    per_step = ", the rate moves with each step" if schedule.per == "step" else ""
    yield f"schedule: {schedule.kind}, {counted(epochs, 'epoch')}{shape}{per_step}"
    many = f", {config.processes} processes" if config.processes > 1 else ""
    yield f"device: {job.device.name} ({job.device.reason}){many}, precision {config.training.precision}"
    if many:
        rate = config.optimiser.lr
        grown = f", learning rate {rate_for(config.optimiser, config.processes):g} instead of {rate:g}"
        scaled = config.training.scale == "batch"
        yield f"batches: of {config.whole_batch} graphs, divided among processes{grown if scaled else ''}"
    again = "; layers are recomputed in the backward pass" if job.memory.recompute else ""
    if again and config.system.compile:
        again += ", and for that not compiled"
    yield f"memory: {job.memory}{many and ' each'}{again}"
    yield f"run: {job.folder}{', from its last checkpoint' if resumed else ''}"


@contextlib.contextmanager
def _guarded(job: Job, recorder: Recorder, tell: Callable[[str], None]) -> Iterator[None]:
    """Turn what ends a run early into what the user can act on, and give Ctrl-C back its meaning."""
    config, module, folder = job.config, recorder.module, job.folder
    resume = f"kmip-data train --resume {shlex.quote(str(folder))}"
    main_thread = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGINT) if main_thread else None
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as stop:
        from lightning.pytorch.utilities.exceptions import SIGTERMException

        tell(f"Stopped; {_kept(recorder)}. Go on with: {resume}")
        if recorder.interrupted:
            # Lightning leaves with SystemExit(1) and Ctrl-C switched off.
            raise KeyboardInterrupt from None
        raise SystemExit(TERMINATED) if isinstance(stop, SIGTERMException) else stop from None
    except Exception as error:
        left = f"{folder}; {_kept(recorder)}"
        if isinstance(error, Diverged):
            error.parts["on disk"] = left
            error.parts["next"] = (
                f"{resume} --set optimiser.lr={config.optimiser.lr / 10:g}, or --set training.clip_norm=…;"
                f" kmip-data verify {shlex.quote(str(job.data.build.path))} checks the data"
            )
            raise
        if (full := _full_disk(error, folder)) is not None:
            full.parts["on disk"] = left
            full.parts["next"] = f"make room (or mend the disk), then: {resume}"
            raise full from error
        if config.system.compile and type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
            raise UsageError(
                "torch.compile could not compile the model.",
                expected="a C++ compiler, and a version of PyTorch that takes this model",
                found=str(error).strip().splitlines()[0],
                left=left,
                next="leave out --compile",
            ) from error
        if not is_out_of_memory(error):
            raise
        raise out_of_memory(error, size=module.size, doing=module.doing, config=config, left=left) from error
    finally:
        buffers.release()
        if main_thread and handler is not None:
            signal.signal(signal.SIGINT, handler)


def _full_disk(error: Exception, folder: Path | None) -> KmipDataError | None:
    """Return our error where the disk did not take a file of the run."""
    cause = error.__cause__ if isinstance(error, OutOfResources) else error
    if not isinstance(cause, OSError) or cause.errno not in {*FULL, errno.EIO}:
        return None
    return error if isinstance(error, OutOfResources) else disk_error(cause, folder or Path())


#: What state of another shape or type ends in, inside Lightning and torch.
_OF_WRONG_VALUES = (AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


@contextlib.contextmanager
def _sound(checkpoint: Path | None, recorder: Recorder) -> Iterator[None]:
    """Blame the checkpoint that a run goes on from for what fails before a whole epoch was done with it."""
    try:
        yield
    except _OF_WRONG_VALUES as error:
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
    epochs, batches = recorder.saved
    if batches:
        return f"the checkpoint of epoch {epochs + 1}, after its batch {batches}, is kept"
    return f"the checkpoint after epoch {epochs} is kept" if epochs else "no epoch was finished"


def _finish(job: Job, recorder: Recorder, device: torch.device) -> RunResult:
    """Measure the best weights on every part and write weights, result and picture."""
    config, data, folder, module = job.config, job.data, job.folder, recorder.module
    if recorder.best_epoch is None:
        raise CheckFailed(
            "No epoch has a validation metric.",
            expected=f"a finite {config.training.metric} on val",
            found="NaN in every evaluated epoch",
            left=f"{folder} with its metrics",
            next="kmip-data verify on the build, or a lower --set optimiser.lr=…",
        )
    module.model.load_state_dict(recorder.best_weights)
    module.to(device)
    metrics = evaluate_parts(module, data, data.parts, device)
    history, card = recorder.history, data.build.card
    peak = int(torch.cuda.max_memory_allocated(device)) if device.type == "cuda" else None
    result = RunResult(
        name=folder.name if folder is not None else "",
        **card.identity,
        build_parameters=card.parameters,
        split=SplitUsed.of(data),
        model=config.model.name,
        preset=config.preset,
        variant=config.variant,
        config=config.model_dump(mode="json"),
        num_features=data.in_channels,
        columns=data.inputs.names,
        vocabulary=data.inputs.vocabulary,
        num_classes=data.num_classes,
        num_parameters=count_parameters(module.model),
        seed=config.training.seed,
        device=job.device.name,
        versions=package_versions(),
        epochs=len(history),
        best_epoch=recorder.best_epoch,
        metric=recorder.metric,
        metrics=metrics,
        seconds=Seconds(
            train_epoch=sum(row["seconds_train"] for row in history) / len(history),
            total=sum(row["seconds"] for row in history),
        ),
        memory=Memory(device=peak, host=peak_host_memory()),
    )
    if folder is not None and recorder.writes:
        write_weights(folder / WEIGHTS, recorder.best_weights)
        draw_curves(
            history,
            folder / CURVES_NAME,
            title=f"{result.dataset}{card.remark} · {result.model} · seed {result.seed}",
            metric=result.metric,
            best_epoch=result.best_epoch,
        )
        write_file(folder / RESULT_NAME, result.to_json().encode())
    return result
