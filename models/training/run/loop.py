"""The training loop, from the first epoch to the last.

A step takes ``training.accumulate`` batches: forward and backward for each, then clip the gradient,
step the optimizer and the schedule. After an epoch, evaluate the network and save the best weights
and a checkpoint. A run resumed from a checkpoint reaches the same weights, bitwise on a CPU.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.optim import Optimizer
from torch_geometric.data import Data

from kmip_data.errors import CheckFailed, Setting, UsageError
from kmip_data.files.atomic_writes import write_file
from kmip_data.files.small_files import csv_bytes
from kmip_data.models.scaling import target_scale
from kmip_data.models.training.capture.cuda_graphs import StepOutput
from kmip_data.models.training.capture.steps import CapturedSteps, TrainBatchFunction
from kmip_data.models.training.data.run_data import RunData, prefetch_to_device
from kmip_data.models.training.loggers import Logger
from kmip_data.models.training.metric_text import (
    SCALED_LOSS,
    EpochTable,
    format_metric_with_unit,
)
from kmip_data.models.training.metrics import all_metrics, is_better
from kmip_data.models.training.optimizers import build_optimizer
from kmip_data.models.training.processes import all_gather, is_main_process, rank, share_buffers
from kmip_data.models.training.run import checkpoint
from kmip_data.models.training.run.run_folder import (
    BEST_WEIGHTS,
    METRICS_NAME,
    shorter_run_commands,
)
from kmip_data.models.training.run.training_module import (
    TrainingModule,
    check_metrics_finite,
    evaluate_parts,
)
from kmip_data.models.training.schedules import build_schedule, step_schedule
from kmip_data.runtime.compiling import time_without_compiling
from kmip_data.runtime.memory import HeapBound
from kmip_data.runtime.progress import Progress
from kmip_data.text import count_with_noun, format_duration

#: Shortest run, in seconds, whose duration is forecast from its first batches.
FORECAST_SECONDS = 1_800.0
#: Duration from which shorter runs are suggested.
DAY_SECONDS = 86_400.0
#: Number of the batch whose time is extrapolated: the first two are slower, as they compile and plan.
FORECAST_BATCH = 3
ORDINALS = ("first", "second", "third")
#: Values of an epoch by name: epoch, lr, seconds, train_loss, val_f1 …
EpochMetrics = dict[str, float]


class Loop:
    """Training loop of ``module`` on ``data``.

    Parameters
    ----------
    folder
        Folder for checkpoints, metrics and best weights; ``None`` to write nothing.
    captured
        Called with :meth:`train_batch` and its arguments; replays the step as a CUDA graph.
    logger
        Called with the values and the number of each epoch.
    """

    def __init__(
        self,
        module: TrainingModule,
        data: RunData,
        device: torch.device,
        *,
        folder: Path | None = None,
        captured: CapturedSteps | None = None,
        quiet: bool = True,
        logger: Logger = lambda *_: None,
    ) -> None:
        self.module = module.to(device)
        self.data = data
        self.device = device
        self.folder = folder
        self.config = module.config
        self.settings = module.config.training
        self.captured = captured
        self.logger = logger
        self.quiet = quiet
        self.run_batch: TrainBatchFunction = self.train_batch
        if captured is not None:
            self.run_batch = partial(captured, self.train_batch)
        if module.divides_batches:
            devices = [device] if device.type == "cuda" else None
            module.network = DistributedDataParallel(module.model, devices)
        # Position: finished epochs, finished batches of the current epoch, optimizer steps.
        self.epoch = 0
        self.batches_done = 0
        self.step = 0
        self.batches_per_epoch = len(data.train_batches(0))  # type: ignore[arg-type] # a loader or a list
        self.optimizer = build_optimizer(
            module.model, self.config.optimizer, fused=self.settings.can_fuse_step(device.type)
        )
        steps_per_epoch = -(-self.batches_per_epoch // self.settings.accumulate)
        self.schedule = build_schedule(
            self.optimizer, self.config.schedule, self.settings.epochs, steps_per_epoch
        )
        self.scaler = torch.amp.GradScaler(
            device.type, enabled=self.settings.precision == "16-mixed"
        )

        self.metric = str(self.settings.metric)
        #: column of the value that selects the best epoch
        self.watched = f"{self.settings.watched_part}_{self.metric}"
        #: one row per epoch
        self.history: list[EpochMetrics] = []
        #: the best epoch and its weights
        self.best_weights: dict[int, dict[str, Tensor]] = {}
        #: True once this process has saved, so that the checkpoint it resumed from was valid
        self.has_saved = False
        #: measurements of the epoch that a resumed run continues
        self._unfinished: dict[str, Any] | None = None
        self._heap = HeapBound()
        self._epoch_start = time_without_compiling()
        self._saved_at = self._epoch_start
        self.progress = Progress("train", 0, quiet=True)
        loss_title = "train loss" if target_scale(module.model) is None else SCALED_LOSS
        self.table = EpochTable(self.settings, data.evaluated_parts, loss_title)
        self._header_printed = False
        #: end times of this process's first batches
        self._batch_ends: list[float] = []

    def train_epochs(self) -> None:
        """Train from the current position to the last epoch, or until patience runs out."""
        epochs = self.settings.last_epoch
        # Show a single progress bar, so silence evaluations after epochs.
        self.module.quiet = True
        if self.folder is not None and is_main_process() and not self.quiet:
            done = self.epoch * self.batches_per_epoch + self.batches_done
            self.progress = Progress(
                "training", epochs * self.batches_per_epoch, unit="batches", initial=done
            )
        if rank() and not self.epoch and not self.batches_done:
            self._seed_process()
        try:
            while self.epoch < epochs and not self.out_of_patience:
                self.train_epoch()
                self.end_epoch()
        finally:
            self.progress.close()
            self.module.quiet = self.quiet or not is_main_process()
            # Free the memory of captured steps.
            self.captured = None
            self.run_batch = self.train_batch

    def _seed_process(self) -> None:
        """Seed this process by rank and position.

        All processes start with the run's seed for equal weights, but dropout must differ.
        """
        entropy = [self.settings.seed, rank(), self.epoch, self.batches_done]
        torch.manual_seed(int(np.random.SeedSequence(entropy).generate_state(1)[0]))

    def train_epoch(self, max_batches: int | None = None) -> None:
        """Train on the remaining batches of the current epoch, at most ``max_batches``."""
        module = self.module
        meter = module.meter
        accumulate = self.settings.accumulate
        module.train()
        k = module.begin_epoch(self.epoch)
        if self.captured is not None:
            self.captured.discard_if_changed(k)  # captured steps contain k
        self._epoch_start = time_without_compiling()
        first_step = self.step - self.batches_done // accumulate
        meter.begin(first_step, self.batches_per_epoch, self.device)

        # A resumed run restores the measurements of the batches before the checkpoint.
        if self._unfinished is not None:
            self._epoch_start -= self._unfinished["seconds"]
            meter.values.copy_(self._unfinished["meter"])
            module.metrics.load(self._unfinished["metrics"], self.device)
            self._unfinished = None

        batches = self.data.train_batches(self.epoch, self.batches_done)
        for batch in islice(prefetch_to_device(batches, self.device), max_batches):
            number = self.batches_done
            is_last = number + 1 == self.batches_per_epoch
            module.activity = f"training in epoch {self.epoch + 1}, batch {number + 1}"
            # A step ends after ``accumulate`` batches, or earlier at the end of the epoch.
            starts_step = number % accumulate == 0
            ends_step = is_last or (number + 1) % accumulate == 0
            output = self.run_batch(
                batch, self.optimizer, starts_step=starts_step, ends_step=ends_step
            )
            meter.record_loss(number, output.loss, output.grad_norm if ends_step else None)
            module.metrics.update(output.logits, output.target, output.loss)
            if ends_step:
                self.step += 1
                if self.config.schedule.per == "step":
                    self.schedule.step()
            self.batches_done += 1
            self._heap.return_excess()
            self.progress.update(1)
            if len(self._batch_ends) < FORECAST_BATCH:
                self._print_forecast()
            # A checkpoint holds no gradients, so write it only after a step; ``end_epoch`` writes
            # one, too.
            if ends_step and not is_last and self._is_checkpoint_due():
                module.raise_if_diverged()  # the GPU may hold a loss that was not read yet
                self.save()

    def _print_forecast(self) -> None:
        """Print the expected duration of a long run after this process's third batch.

        If an epoch is shorter, a run of over a day is announced in its first epoch, by a slower batch.
        """
        previous = self._batch_ends[-1] if self._batch_ends else self._epoch_start
        self._batch_ends.append(time_without_compiling())
        number = len(self._batch_ends)
        epochs = self.settings.last_epoch
        seconds = (self._batch_ends[-1] - previous) * self.batches_per_epoch * epochs
        ends_first_epoch = not self.epoch and self.batches_done == self.batches_per_epoch
        is_due = number == FORECAST_BATCH or (ends_first_epoch and seconds >= DAY_SECONDS)
        if not is_due or seconds < FORECAST_SECONDS:
            return
        self._batch_ends += [0.0] * (FORECAST_BATCH - number)  # print it once
        self.progress.print_line(
            f"time: about {format_duration(seconds)} for {count_with_noun(epochs, 'epoch')} "
            f"of {self.batches_per_epoch:,} batches, by the {ORDINALS[number - 1]} batch"
        )
        if seconds >= DAY_SECONDS and self.folder is not None:
            commands = shorter_run_commands(
                self.folder, self.config, self.data, DAY_SECONDS / seconds
            )
            self.progress.print_line(f"warning: over a day; shorter: {'; or '.join(commands)}")

    def train_batch(
        self,
        batch: Data,
        optimizer: Optimizer,
        *,
        starts_step: bool,
        ends_step: bool,
    ) -> StepOutput:
        """Accumulate the gradient of one batch; at the end of a step, clip it and update the weights."""
        module = self.module
        settings = self.settings
        # Processes exchange gradients only once per step, at its end.
        defers_exchange = module.divides_batches and not ends_step
        with module.network.no_sync() if defers_exchange else nullcontext():
            logits, target, loss, backward_loss = module.train_loss(batch)
            if starts_step:
                # With captured steps, zero in place: they contain the addresses of gradients.
                optimizer.zero_grad(set_to_none=self.captured is None)
            # Divide by ``accumulate`` even if the last step of an epoch has fewer batches.
            self.scaler.scale(backward_loss / settings.accumulate).backward()  # type: ignore[no-untyped-call]
        # Stands in for the norm, which nobody reads before a step ends: captured steps return tensors.
        grad_norm = loss.detach()
        if ends_step:
            self.scaler.unscale_(optimizer)
            parameters = []
            for group in optimizer.param_groups:
                parameters += group["params"]
            grad_norm = get_total_norm([p.grad for p in parameters if p.grad is not None])
            if settings.clip_norm:
                clip_grads_with_norm_(parameters, settings.clip_norm, grad_norm)
            self.scaler.step(optimizer)  # without mixed precision: optimizer.step()
            self.scaler.update()
        return StepOutput(logits.detach(), target, loss.detach(), grad_norm)

    def end_epoch(self) -> None:
        """Evaluate if due, record the epoch, step the schedule, and save."""
        # 1. Collect the measurements of the epoch.
        epoch = self.epoch
        module = self.module
        module.raise_if_diverged()
        train = module.metrics.compute()
        seconds = time_without_compiling() - self._epoch_start
        step_measurements = module.meter.epoch_measurements()
        share_buffers(module.model)
        rate = float(self.optimizer.param_groups[0]["lr"])
        row: EpochMetrics = {"epoch": epoch, "lr": rate, "seconds_train": round(seconds, 6)}
        row |= {f"train_{name}": value for name, value in train.items()}

        # 2. Evaluate, always after the first and the last epoch, like
        #    ``torch_geometric/graphgym/utils/epoch.py`` of PyG 2.0.4.
        is_due = (epoch + 1) % self.settings.eval_every == 0
        is_due |= epoch in {0, self.settings.epochs - 1}
        if is_due:
            self.evaluate(epoch, row)
        row["seconds"] = round(time_without_compiling() - self._epoch_start, 6)
        row |= step_measurements
        self.history.append(row)

        # 3. Advance the position and the schedule, then write files.
        self.epoch = epoch + 1
        self.batches_done = 0
        if self.config.schedule.per == "epoch":
            step_schedule(self.schedule, self.history, self.settings.watched_part)
        self.logger({name: value for name, value in row.items() if name != "epoch"}, epoch)
        self.write_metrics_and_weights(best=self.best_epoch == epoch)
        self.save()
        # A run that stops here needs an evaluation for its result. The checkpoint was written first,
        # so that a resumed run equals an uninterrupted one.
        if not is_due and self.epoch == self.settings.last_epoch:
            self.evaluate(epoch, row)
            self.write_metrics_and_weights(best=self.best_epoch == epoch)
        self._print_epoch(row)

    def _print_epoch(self, row: EpochMetrics) -> None:
        """Print an evaluated epoch as a row of the table, and whether patience ends the run."""
        if f"val_{self.metric}" in row:
            if not self._header_printed:
                for line in self.table.header().splitlines():
                    self.progress.print_line(line)
                self._header_printed = True
            self.progress.print_line(self.table.row(self.history, self.best_epoch))
            value = format_metric_with_unit(self.metric, row[self.watched])
            self.progress.note = f"{self.settings.watched_part} {value}, epoch {self.epoch}"
        if self.out_of_patience and self.epoch < self.settings.last_epoch:
            title = all_metrics()[self.metric].title
            patience = self.settings.patience
            watched = self.settings.watched_part
            self.progress.print_line(
                f"stopped: no better {watched} {title} in {patience} evaluations"
            )

    def evaluate(self, epoch: int, row: EpochMetrics) -> None:
        """Add the metrics after ``epoch`` to its row, and copy the weights if it is the best so far."""
        # Parts of graphs take a pass each, so test is measured only after an epoch that improves.
        parts = self.data.evaluated_parts
        postponed = [
            part for part in parts if part == "test" and self.data.part_members == "graphs"
        ]
        self._measure([part for part in parts if part not in postponed], row)

        # If the targets of val leave the metric undefined, further epochs cannot change that.
        value = row[f"val_{self.metric}"]
        if math.isnan(value) and all_metrics()[self.metric].required_targets:
            check_metrics_finite({"val": {self.metric: value}})

        best_value = None
        if self.best_epoch is not None:
            best_value = self.history[self.best_epoch][self.watched]
        if is_better(self.metric, row[self.watched], best_value):
            self.best_weights = {epoch: checkpoint.copy_weights(self.module.model)}
            self._measure(postponed, row)

    def _measure(self, parts: Sequence[str], row: EpochMetrics) -> None:
        """Add the metrics of ``parts`` to the row of an epoch."""
        measure = partial(evaluate_parts, self.module, self.data, parts, self.device)
        metrics = (
            measure() if self.captured is None else self.captured.run_with_free_memory(measure)
        )
        # All processes use the first one's metrics, so that they agree on the best and the last epoch.
        for part, values in all_gather(metrics)[0].items():
            # The prefix "train" is for metrics measured during training.
            prefix = "train_eval" if part == "train" else part
            row |= {f"{prefix}_{name}": value for name, value in values.items()}

    @property
    def best_epoch(self) -> int | None:
        """First epoch with the best validation metric, or ``None`` before the first evaluation."""
        return next(iter(self.best_weights), None)

    @property
    def out_of_patience(self) -> bool:
        """True if the last ``training.patience`` evaluations did not improve the best metric."""
        patience = self.settings.patience
        if patience is None:
            return False
        first = 0 if self.best_epoch is None else self.best_epoch + 1
        evaluations = sum("val_loss" in row for row in self.history[first:])
        return evaluations >= patience

    def save(self) -> None:
        """Write a checkpoint. All processes must call this, although only the first one writes."""
        state = self.state()
        if self.folder is not None and is_main_process():
            checkpoint.write_checkpoint(self.folder, state)
        self._saved_at = time_without_compiling()
        self.has_saved = True

    def _is_checkpoint_due(self) -> bool:
        minutes = self.config.system.checkpoint_every
        if minutes is None:
            return False
        # All processes must save after the same batch, so the first one's clock decides.
        due = time_without_compiling() - self._saved_at >= 60 * minutes
        return bool(all_gather(due)[0])

    def state(self) -> dict[str, Any]:
        """Return everything a resumed run needs, as tensors and built-in types (``weights_only=True``)."""
        unfinished = {}
        # Within an epoch, include this process's measurements so far.
        if self.batches_done:
            unfinished = {
                "seconds": time_without_compiling() - self._epoch_start,
                "meter": self.module.meter.values.cpu(),
                "metrics": self.module.metrics.state(),
            }
        return {
            "epoch": self.epoch,
            "batch": self.batches_done,
            "step": self.step,
            "model": self.module.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "scaler": self.scaler.state_dict(),
            "history": self.history,
            "best_weights": self.best_weights,
            # Random numbers and measurements differ between processes.
            "processes": all_gather(
                {"random": checkpoint.random_state(), "unfinished": unfinished}
            ),
            "data": self.data.digests,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Continue from the result of :meth:`state`.

        The number of processes may differ, also within an epoch: its n-th batch has the same graphs on
        any number. Raises ``CheckFailed`` if the data differ, and ``UsageError`` if a plugin's metric
        cannot merge the measurements of several processes. An inconsistent history, or weights of
        another network, raise any exception.
        """
        # 1. Check data, position, history and best weights before loading anything.
        if state["data"] != self.data.digests:
            raise CheckFailed(
                f"The data differ from those the run started with: {self.data.digests}, not {state['data']}.",
                steps="build the dataset as it was, by the parameters in config.toml, or start a new run",
            )
        epoch = state["epoch"]
        batch = state["batch"]
        history = state["history"]
        has_best_metric = all(self.watched in history[best] for best in state["best_weights"])
        if not has_best_metric or len(history) != epoch or not 0 <= batch < self.batches_per_epoch:
            raise ValueError("the history does not match the position or the best epoch")
        for weights in (*state["best_weights"].values(), state["model"]):
            self.module.model.load_state_dict(weights)

        # 2. Restore weights, optimizer, schedule and history.
        self.history = history
        self.best_weights = state["best_weights"]
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
        self.scaler.load_state_dict(state["scaler"])

        # 3. Restore the position. The order of an epoch is a function of its number, so the batches
        #    before ``batch`` are skipped without loading them.
        self.epoch = epoch
        self.batches_done = batch
        self.step = state["step"]

        # 4. Restore this process's measurements of an unfinished epoch, then its random generators:
        #    nothing may draw from them before the next batch.
        saved = state["processes"]
        if batch:
            self._unfinished = self._select_measurements(
                [process["unfinished"] for process in saved]
            )
        if rank() < len(saved):
            checkpoint.set_random_state(saved[rank()]["random"])
        else:
            self._seed_process()
        self.write_metrics_and_weights()  # overwrite the files of an epoch that was not saved

    def _select_measurements(self, saved: list[dict[str, Any]]) -> dict[str, Any]:
        """Return this process's measurements of an unfinished epoch, given those of all that saved."""
        if len(saved) == self.config.processes:
            return saved[rank()]
        # On another number of processes, the first one takes the sums of all, and the others start
        # at zero. The meter is the same everywhere: its losses and norms are those of whole batches.
        metrics = self.module.metrics
        try:
            merged = metrics.merge([measured["metrics"] for measured in saved])
        except (AttributeError, RuntimeError) as error:
            raise UsageError(
                f"{self.metric} of {len(saved)} processes cannot be merged within an epoch: {error}",
                steps=[Setting(devices=len(saved)), "add merge_state to the metric"],
            ) from error
        return {**saved[0], "metrics": merged if is_main_process() else metrics.state()}

    def write_metrics_and_weights(self, *, best: bool = True) -> None:
        """Write the metrics and, if ``best``, the best weights."""
        if self.folder is None or not is_main_process():
            return
        names: dict[str, None] = {}
        for row in self.history:
            names |= dict.fromkeys(row)
        cells = ([row.get(name) for name in names] for row in self.history)
        write_file(self.folder / METRICS_NAME, csv_bytes(list(names), cells))
        if best and self.best_epoch is not None:
            checkpoint.write_weights(self.folder / BEST_WEIGHTS, self.best_weights[self.best_epoch])
