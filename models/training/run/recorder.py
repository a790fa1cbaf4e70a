"""What happens after each epoch: evaluate, choose the best, write it all down, save a checkpoint."""

from __future__ import annotations

import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint
from torch import Tensor

from kmip_data.errors import CheckFailed, UsageError
from kmip_data.files.changes import csv_bytes
from kmip_data.format.parts import PARTS
from kmip_data.format.writer import write_file
from kmip_data.models.training.config.schedules import step_schedule
from kmip_data.models.training.data.run_data import RunData
from kmip_data.models.training.memory.machine import is_main_process
from kmip_data.models.training.objective.metrics import METRICS, is_better
from kmip_data.models.training.run.checkpoint import (
    BEST,
    LAST,
    copy_weights,
    random_state,
    set_random_state,
    write_kept,
    write_weights,
)
from kmip_data.models.training.run.folders import METRICS_NAME, STEPS_NAME
from kmip_data.models.training.run.history import Row, check_history, history_csv
from kmip_data.models.training.run.meter import STEP
from kmip_data.models.training.run.module import TrainingModule, evaluate_parts
from kmip_data.runtime.progress import Progress
from kmip_data.wording import rough_time

FORECAST_AFTER = 2  #: epochs
WORTH_SAYING = 60.0  #: seconds that are left


def is_eval_epoch(epoch: int, *, every: int, epochs: int) -> bool:
    """Whether ``epoch`` (from 0) is evaluated: each ``every``-th, and always the first and the last.

    Source: ``torch_geometric/graphgym/utils/epoch.py`` of PyG 2.0.4.
    """
    return (epoch + 1) % every == 0 or epoch in {0, epochs - 1}


class Recorder(Checkpoint):
    """Keep the history of a run, its best weights and a checkpoint to resume from.

    Everything that a resumed run needs lies in the checkpoint, so ``metrics.csv`` and the best
    weights are written anew from it and never disagree with it. ``folder`` is ``None`` where another
    process of the run made it.
    """

    def __init__(
        self, module: TrainingModule, folder: Path | None, data: RunData, *, quiet: bool = False
    ) -> None:
        self.module, self.folder, self.data, self.quiet = module, folder, data, quiet
        self.writes = folder is not None and is_main_process()
        training = module.config.training
        self.epochs, self.eval_every, self.metric = training.epochs, training.eval_every, str(training.metric)
        self.patience, self.keep_best = training.patience, training.keep_best
        self.minutes = module.config.system.checkpoint_every
        self.history: list[Row] = []
        self.steps: list[list[float]] = []  #: rows of steps.csv
        self.batches = 0  #: of the running epoch, done when the last checkpoint was begun
        self.saved = (0, 0)  #: epochs, and batches of another, that the checkpoint on disk has
        self.proven = False  #: whether something was done and saved, so that what was resumed is sound
        self.kept: dict[int, dict[str, Tensor]] = {}  #: weights of the best epochs, the best first
        self.interrupted = False
        self._random: list[dict[str, Any]] = []  #: of each process
        self._within: list[dict[str, Any]] = []  #: what each process had counted of an unfinished epoch
        self._validation_loss: float | None = None
        self._started = self._saved_at = 0.0
        self._progress: Progress | None = None

    @property
    def best_epoch(self) -> int | None:
        """First epoch with the best validation metric; ``None`` before there is one."""
        return next(iter(self.kept), None)

    @property
    def best_weights(self) -> dict[str, Tensor]:
        """Weights of that epoch."""
        return next(iter(self.kept.values()), {})

    # What a checkpoint keeps.

    def state_dict(self) -> dict[str, Any]:
        """History, best weights, random generators: tensors and plain values."""
        within = {"within": of_all_processes(self._so_far())} if self.batches else {}
        return {
            **within,
            "history": self.history,
            "steps": torch.tensor(self.steps, dtype=torch.float64).view(-1, len(STEP)),
            "best_epoch": self.best_epoch,
            "best_weights": self.best_weights,
            "next_best": dict(list(self.kept.items())[1:]),
            "validation_loss": self._validation_loss,
            "random": of_all_processes(random_state()),
            "data": self.data.identity,
        }

    def _so_far(self) -> dict[str, Any]:
        """What this process has of the running epoch."""
        seconds, module = time.perf_counter() - self._started, self.module
        own = {"meter": module.meter.state(), "metrics": module.metrics.state()}
        return {"batches": self.batches, "seconds": seconds, **own}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up a checkpoint; raise CheckFailed for one that was made with other data."""
        if state_dict["data"] != self.data.identity:
            raise CheckFailed(
                "The data are not those that the run began with.",
                expected=str(state_dict["data"]),
                found=str(self.data.identity),
                left=f"{self.folder} as it was",
                next="build the dataset as it was (the run's config.toml has the parameters), or a new run",
            )
        best_epoch = state_dict["best_epoch"]
        kept = {} if best_epoch is None else {best_epoch: state_dict["best_weights"]}
        kept |= state_dict.get("next_best", {})
        for epoch in kept or [None]:
            check_history(state_dict["history"], epoch, f"val_{self.metric}")
        shapes = [{name: tensor.shape for name, tensor in weights.items()} for weights in kept.values()]
        own = {name: tensor.shape for name, tensor in self.module.model.state_dict().items()}
        if any(found != own for found in shapes):
            raise ValueError("its best weights are of another model")
        self.history, self.kept = state_dict["history"], kept
        if (steps := state_dict.get("steps")) is not None:  # runs of before have none
            self.steps = steps.view(-1, len(STEP)).tolist()
        self._within = state_dict.get("within", [])
        if self._within and len(self._within) != (processes := self.module.config.processes):
            raise UsageError(
                "The checkpoint lies within an epoch that other processes share.",
                expected=f"{len(self._within)} processes",
                found=f"{processes}",
                left=f"{self.folder} as it was",
                next="go on with as many devices as it began with",
            )
        self.batches = self._within[0]["batches"] if self._within else 0
        self.saved = (len(self.history), self.batches)
        self._validation_loss = state_dict["validation_loss"]
        random = state_dict["random"]
        self._random = random if isinstance(random, list) else [random]  # runs of before have one

    # What Lightning calls.

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Go on where a resumed run stood: its generators, and what it had counted of an epoch."""
        self._saved_at = time.perf_counter()
        if self._within:  # Lightning says nothing of an epoch that it is already in
            for callback in trainer.callbacks:  # type: ignore[attr-defined]
                callback.on_train_epoch_start(trainer, pl_module)
            pl_module.on_train_epoch_start()
            own = self._within[trainer.global_rank]
            self._started -= own["seconds"]
            self.module.meter.load(own["meter"])
            self.module.metrics.load(own["metrics"])
        if self._random:
            set_random_state(self._random[trainer.global_rank % len(self._random)])
            self._write()  # a line and weights of an epoch that was not saved may be there
            trainer.should_stop = self._out_of_patience()
        elif trainer.global_rank:
            # Every process began with the run's seed, for equal weights; its dropout should be its own.
            seed = self.module.config.training.seed
            torch.manual_seed(int(np.random.SeedSequence([seed, trainer.global_rank]).generate_state(1)[0]))
        if self.writes:
            batches = self.epochs * int(trainer.num_training_batches)
            done = len(self.history) * batches // self.epochs + self.batches
            self._progress = Progress("train", batches, unit="batches", initial=done, quiet=self.quiet)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the clock."""
        self._started = time.perf_counter()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Move the bar (without a terminal, a line every ten seconds); save, when it is time."""
        if self._progress is not None:
            self._progress.update(1)
        # Between steps there are gradients, which no checkpoint has; the end of an epoch has one of its own.
        if self.minutes is None or trainer.is_last_batch or not self.module.meter.stepped:
            return
        # The first process's clock decides for all.
        if trainer.strategy.broadcast(time.perf_counter() - self._saved_at >= 60 * self.minutes):
            self.module.stop_if_diverged()  # what a GPU met and nobody has read yet must not be gone on with
            self._save(trainer, batch_idx + 1)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Evaluate, record, step the schedule, save."""
        epoch = trainer.current_epoch
        self.module.stop_if_diverged()
        train = self.module.metrics.compute()
        seconds = time.perf_counter() - self._started
        measured, steps = self.module.meter.read()
        share_buffers(self.module.model)
        rate = float(trainer.optimizers[0].param_groups[0]["lr"])
        row: Row = {"epoch": epoch, "lr": rate, "seconds_train": round(seconds, 6)}
        row |= {f"train_{name}": value for name, value in train.items()}
        if is_eval_epoch(epoch, every=self.eval_every, epochs=self.epochs):
            row |= self._evaluate(epoch, trainer.strategy.root_device)
        row["seconds"] = round(time.perf_counter() - self._started, 6)
        row |= measured
        self.history.append(row)
        self.steps += steps
        if self.module.config.schedule.per == "epoch":
            step_schedule(self.module.schedule, self._validation_loss)
        for logger in trainer.loggers:
            for values in steps:
                named = {f"step/{name}": value for name, value in zip(STEP[2:], values[2:], strict=True)}
                logger.log_metrics(named, step=int(values[1]))
            logger.log_metrics({name: value for name, value in row.items() if name != "epoch"}, step=epoch)
        self._write(best=epoch in self.kept)
        self._save(trainer)
        if self._progress is not None:
            if f"val_{self.metric}" in row:
                self._progress.message(self._line(row))
            if len(self.history) == FORECAST_AFTER:
                self._forecast()
        if self._out_of_patience():
            trainer.should_stop = True
            if self._progress is not None and len(self.history) < self.epochs:
                title = METRICS[self.metric].title
                self._progress.message(f"stopped: no better val {title} in {self.patience} evaluations")

    def _save(self, trainer: Trainer, batches: int = 0) -> None:
        """Write the checkpoint, so many batches into an epoch; every process takes part, the first writes."""
        self.batches = batches
        trainer.save_checkpoint((self.folder or Path()) / LAST)
        self.saved, self._saved_at = (len(self.history), batches), time.perf_counter()
        self.proven = True

    def _out_of_patience(self) -> bool:
        """Whether the last ``patience`` evaluations were no better than the best before them."""
        since = self.history[0 if self.best_epoch is None else self.best_epoch + 1 :]
        return self.patience is not None and sum("val_loss" in row for row in since) >= self.patience

    def _write(self, *, best: bool = True) -> None:
        """Write the metrics and, if they are new, the best weights."""
        if self.folder is not None and self.writes:
            write_file(self.folder / METRICS_NAME, history_csv(self.history))
            if self.steps:
                rows = ([int(epoch), int(step), *values] for epoch, step, *values in self.steps)
                write_file(self.folder / STEPS_NAME, csv_bytes(STEP, rows))
            if best and self.kept:
                write_weights(self.folder / BEST, self.best_weights)
                if self.keep_best > 1:
                    write_kept(self.folder, self.kept)

    def _forecast(self) -> None:
        """Say how long the run will take, where that is worth knowing, from the epochs so far."""
        left = self.epochs - len(self.history)
        train = self.history[-1]["seconds_train"]  # the first one also compiles and warms up
        measured = [row["seconds"] - row["seconds_train"] for row in self.history if "val_loss" in row]
        evaluations = sum(
            is_eval_epoch(epoch, every=self.eval_every, epochs=self.epochs)
            for epoch in range(len(self.history), self.epochs)
        )
        seconds = left * train + evaluations * min(measured)
        if self._progress is not None and seconds > WORTH_SAYING:
            self._progress.message(
                f"time: {train:.1f} s per epoch and {min(measured):.1f} s per evaluation, as measured; the"
                f" {left:,} epochs left take about {rough_time(seconds)}{' at most' if self.patience else ''}"
            )

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Remember why the run ended."""
        self.interrupted = isinstance(exception, KeyboardInterrupt)

    def close(self) -> None:
        """Close the bar, however the run ended."""
        if self._progress is not None:
            self._progress.close()

    def _evaluate(self, epoch: int, device: torch.device) -> Row:
        row: Row = {}
        model, average = self.module.model, self.module.average
        with nullcontext() if average is None else average.within(model):
            if average is not None:
                share_buffers(model)
            for part, values in evaluate_parts(self.module, self.data, self.data.evaluated, device).items():
                # "train" alone is what was measured while learning.
                column = "train_eval" if part == "train" else part
                row |= {f"{column}_{name}": value for name, value in values.items()}
            self._keep(epoch, row[f"val_{self.metric}"])
        self._validation_loss = row["val_loss"]
        return row

    def _keep(self, epoch: int, value: float) -> None:
        """Keep the weights of an epoch that is among the best so far."""
        better = [is_better(self.metric, value, self.history[e][f"val_{self.metric}"]) for e in self.kept]
        place = better.index(True) if True in better else len(better)
        if place < self.keep_best and is_better(self.metric, value, None):
            ranked = list(self.kept.items())
            ranked.insert(place, (epoch, copy_weights(self.module.model)))
            self.kept = dict(ranked[: self.keep_best])

    def _line(self, row: Row) -> str:
        parts = [f"epoch {int(row['epoch']) + 1}/{self.epochs}", f"train loss {row['train_loss']:.4f}"]
        title = METRICS[self.metric].title
        values = {part: row.get(f"{part}_{self.metric}") for part in PARTS}
        parts += [f"{part} {title} {value:.4f}" for part, value in values.items() if value is not None]
        best = " (best)" if self.best_epoch == row["epoch"] else ""
        return f"{'  '.join(parts)}{best}  {row['seconds']:.1f} s"


def of_all_processes(state: Any) -> list[Any]:
    """Return ``state`` of every process, in order; all must call this."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return [state]
    states = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(states, state)
    return states


def share_buffers(model: torch.nn.Module) -> None:
    """Give every process of a distributed run the first one's buffers.

    Each has met other graphs in its last step, so their batch norm statistics differ; DDP shares them
    before a training step only, and an evaluation over processes must be of one network.
    """
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        for buffer in model.buffers():
            torch.distributed.broadcast(buffer, src=0)
