"""Record of a run as it trains: measurements of its steps, metrics.csv, steps.csv, a picture, a logger.

Nothing here waits for a GPU before the epoch's end: losses and norms are written to a tensor there, times
are CUDA events, and all of them are read at once.
"""

from __future__ import annotations

import importlib.util
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, distributed

from kmip_data.drawing.style import PALETTE, look, new_figure, percent, save, styled
from kmip_data.errors import UsageError
from kmip_data.files.changes import write_file
from kmip_data.files.reading import csv_bytes
from kmip_data.format.splits import PARTS
from kmip_data.models.layers.batch import BatchSize
from kmip_data.models.training.config.keys import RunConfig
from kmip_data.models.training.metrics import METRICS
from kmip_data.models.training.run.folder import METRICS_NAME, STEPS_NAME, is_share, with_unit
from kmip_data.runtime.memory import peak_host_memory

Row = dict[str, float]  #: one epoch: epoch, lr, seconds, train_loss, val_f1 …
Logger = Callable[[dict[str, float], int], None]  #: of values by name, and the number of the epoch or step
#: Columns of ``steps.csv``; ``step`` counts from 0 over the run.
STEP = (
    "epoch",
    "step",
    "loss",
    "grad_norm",
    "graphs_per_second",
    "nodes_per_second",
    "share_waiting",
    "peak_memory",
)
LABELS = {"train": "train (while learning)", "val": "val", "test": "test"}


class Fault(NamedTuple):
    """First number of an epoch that is not finite."""

    what: str
    first: int  #: batch
    last: int  #: batch; differs from ``first`` where several batches make a step
    step: int


@dataclass
class _Batch:
    graphs: int
    nodes: int
    steps: bool = False  #: True if the optimiser stepped after it
    memory: float = math.nan
    times: list[Any] = field(default_factory=list)  #: asked for, begun, ended
    seconds: Sequence[float] = ()  #: waiting and working, once ``times`` were read


class Meter:
    """Measure the steps of an epoch.

    Parameters
    ----------
    every
        Steps from one row of ``steps.csv`` to the next; 0: no rows.
    scaled
        True if losses are scaled up (``16-mixed``): an infinite gradient then only skips its step.
    """

    def __init__(self, *, every: int, scaled: bool) -> None:
        self.every, self.scaled = every, scaled
        self.at_once = True  #: True if a number may be read as soon as it exists: on one CPU process
        self._device = torch.device("cpu")
        self._epoch = self._first_step = self._steps = 0
        self._processes = 1
        self._batches: list[_Batch] = []
        self._values = torch.empty(2, 0)  # losses and norms of each batch
        self._asked: Any = None

    def begin(self, epoch: int, step: int, batches: int, device: torch.device) -> None:
        """Begin an epoch of ``batches`` batches, whose first step is number ``step`` of the run."""
        self._device, self._epoch, self._first_step, self._steps = device, epoch, step, 0
        # Several processes meet in the gradient: all of them see there that one has diverged.
        self._processes = distributed.get_world_size() if distributed.is_initialized() else 1
        self.at_once = device.type == "cpu" and self._processes == 1
        self._batches, self._values = [], torch.zeros(2, batches, device=device)
        self._asked = self._now()

    def begin_batch(self, batch: Any) -> BatchSize:
        """Note that a batch has reached the device; return its size."""
        size = BatchSize.of(batch)
        counted = not (self._processes > 1 and "train_mask" in batch)  # else another process counts it
        self._batches.append(_Batch(size.graphs * counted, size.nodes * counted))
        self._batches[-1].times = [self._asked, self._now()]
        return size

    def loss(self, loss: Tensor) -> None:
        """Keep the loss of the current batch."""
        self._values[0, len(self._batches) - 1] = loss.detach()

    def norm(self, norm: Tensor) -> None:
        """Keep the norm, before clipping, of the gradient that the current batch completes."""
        self._steps += not self._batches[-1].steps
        self._batches[-1].steps = True
        self._values[1, len(self._batches) - 1] = norm

    def end_batch(self) -> None:
        """Note the end of a batch; after a step that gets a row, how much memory was needed."""
        done = self._batches[-1]
        self._asked = self._now()
        done.times.append(self._asked)
        if self.every and done.steps and (self._first_step + self._steps - 1) % self.every == 0:
            done.memory = self._memory()

    def fault(self, since: int = 0) -> Fault | None:
        """Return the first loss or gradient of the epoch, from batch ``since`` on, that is not finite."""
        losses, norms = self._values[:, since : len(self._batches)].tolist()
        for batch, (loss, norm) in enumerate(zip(losses, norms, strict=True), since):
            if math.isfinite(loss) and (math.isfinite(norm) or self.scaled):
                continue
            before = [number for number, done in enumerate(self._batches[:batch]) if done.steps]
            step = self._first_step + len(before)
            if not math.isfinite(loss):
                return Fault(f"The loss is {loss}", batch, batch, step)
            return Fault(f"The gradient's norm is {norm}", before[-1] + 1 if before else 0, batch, step)
        return None

    @property
    def newest(self) -> int:
        """Number of the current batch."""
        return max(0, len(self._batches) - 1)

    def state(self) -> dict[str, Any]:
        """Return the measurements of the epoch so far, for :meth:`load`: tensors and a number."""
        self._read()
        rows = [[b.graphs, b.nodes, b.steps, b.memory, *b.seconds] for b in self._batches]
        batches = torch.tensor(rows, dtype=torch.float64)
        return {"first_step": self._first_step, "values": self._values.cpu(), "batches": batches}

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue an epoch from the result of :meth:`state`."""
        self._first_step = state["first_step"]
        self._values.copy_(state["values"])
        for graphs, nodes, steps, memory, waiting, *working in state["batches"].tolist():
            done = _Batch(int(graphs), int(nodes), bool(steps), memory, seconds=(waiting, sum(working)))
            self._batches.append(done)
        self._steps = sum(done.steps for done in self._batches)

    def seconds(self) -> list[tuple[float, int]]:
        """Return the seconds of each batch of the epoch, waiting included, and its graphs."""
        self._read()
        return [(sum(done.seconds), done.graphs) for done in self._batches]

    def read(self) -> tuple[Row, list[list[float]]]:
        """Return the columns of the epoch in ``metrics.csv``, and its rows of ``steps.csv``."""
        self._read()
        losses, norms = self._values.tolist()
        if self._processes > 1:
            sizes = torch.tensor([[b.graphs, b.nodes] for b in self._batches], device=self._device)
            distributed.all_reduce(sizes)
            for done, (graphs, nodes) in zip(self._batches, sizes.tolist(), strict=True):
                done.graphs, done.nodes = graphs, nodes
        # Batches that make one step together: the last of each has the norm of their gradient.
        ends = [number + 1 for number, done in enumerate(self._batches) if done.steps]
        groups = [slice(begin, end) for begin, end in zip([0, *ends], ends, strict=False)]
        epoch = self._speed(self._batches[: max(ends, default=0)])
        finite = [norms[end - 1] for end in ends if math.isfinite(norms[end - 1])]
        epoch["grad_norm"] = sum(finite) / len(finite) if finite else math.nan
        epoch["grad_norm_max"] = max(finite, default=math.nan)
        epoch["peak_memory"] = self._memory()
        rows = []
        for step, group in enumerate(groups, self._first_step):
            if self.every and step % self.every == 0:
                row = self._speed(self._batches[group]) | {"epoch": self._epoch, "step": step}
                row["loss"] = sum(losses[group]) / (group.stop - group.start)
                row |= {"grad_norm": norms[group][-1], "peak_memory": self._batches[group][-1].memory}
                rows.append([row[name] for name in STEP])
        return epoch, rows

    def _speed(self, batches: list[_Batch]) -> Row:
        """Speed over the batches of a step, or of all, of all processes together."""
        seconds = sum(sum(done.seconds) for done in batches) or math.nan
        return {
            "graphs_per_second": sum(done.graphs for done in batches) / seconds,
            "nodes_per_second": sum(done.nodes for done in batches) / seconds,
            "share_waiting": sum(done.seconds[0] for done in batches) / seconds,
        }

    def _read(self) -> None:
        """Turn points in time into seconds, once the GPU has finished the newest batch."""
        if self._device.type == "cuda" and self._batches:
            self._asked.synchronize()
        for done in self._batches:
            if not done.seconds:
                asked, begun, ended = done.times
                done.seconds = (_between(asked, begun), _between(begun, ended))

    def _now(self) -> Any:
        if self._device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def _memory(self) -> float:
        """Peak memory in bytes: allocated on the GPU, or held by the process."""
        if self._device.type == "cuda":
            return float(torch.cuda.max_memory_allocated(self._device))
        return float(peak_host_memory())


def _between(begun: Any, ended: Any) -> float:
    return float(ended - begun) if isinstance(begun, float) else float(begun.elapsed_time(ended)) / 1000


def write_history(folder: Path, history: list[Row], steps: list[list[float]]) -> None:
    """Write ``metrics.csv``, one line per epoch, and ``steps.csv``; cells without a value are empty."""
    names = list(dict.fromkeys(name for row in history for name in row))
    cells = ([row.get(name) for name in names] for row in history)
    write_file(folder / METRICS_NAME, csv_bytes(names, cells))
    if steps:
        rows = ([int(epoch), int(step), *values] for epoch, step, *values in steps)
        write_file(folder / STEPS_NAME, csv_bytes(STEP, rows))


def line_of(row: Row, epochs: int, metric: str, *, best: bool) -> str:
    """Return the line that is printed of an evaluated epoch."""
    parts = [f"epoch {int(row['epoch']) + 1}/{epochs}", f"train loss {row['train_loss']:.4f}"]
    values = {part: row.get(f"{part}_{metric}") for part in PARTS}
    title = METRICS[metric].title
    parts += [
        f"{part} {title} {with_unit(metric, value)}" for part, value in values.items() if value is not None
    ]
    return f"{'  '.join(parts)}{' (best)' if best else ''}  {row['seconds']:.1f} s"


def check_logger(name: str) -> None:
    """Raise UsageError, with the package to install, where a logger's package is not installed."""
    if name != "csv" and importlib.util.find_spec(name) is None:
        raise UsageError(
            f"The logger {name!r} needs the package of that name.",
            next=f"pip install {name}, or --set system.logger=csv",
        )


def no_logger(values: dict[str, float], step: int) -> None:
    """Log nothing."""


def build_logger(config: RunConfig, folder: Path, project: str) -> Logger:
    """Return the run's logger; ``metrics.csv`` is always written."""
    if config.system.logger == "tensorboard":
        from torch.utils.tensorboard import SummaryWriter

        writer: Any = SummaryWriter(str(folder / "tensorboard"))

        def to_tensorboard(values: dict[str, float], step: int) -> None:
            for name, value in values.items():
                writer.add_scalar(name, value, step)
            writer.flush()

        return to_tensorboard
    if config.system.logger == "wandb":
        import wandb

        run = wandb.init(dir=folder, name=folder.name, project=project, config=config.model_dump(mode="json"))

        def to_wandb(values: dict[str, float], step: int) -> None:
            kind = "step" if any(name.startswith("step/") for name in values) else "epoch"
            run.log({**values, kind: step})

        return to_wandb
    return no_logger


@styled
def draw_curves(history: list[Row], path: Path, *, title: str, metric: str, best_epoch: int) -> None:
    """Draw loss and the chosen metric of every part over the epochs into a PNG; mark the best epoch."""
    from matplotlib.ticker import MaxNLocator

    best = {part: history[best_epoch].get(f"{part}_{metric}") for part in ("val", "test")}
    values = [f"{part} {with_unit(metric, value)}" for part, value in best.items() if value is not None]
    title += f"\nbest epoch {best_epoch + 1}, {METRICS[metric].title}: {', '.join(values)}"
    figure = new_figure(10, 4, title=title)
    for axes, name in zip(figure.subplots(1, 2), ("loss", metric), strict=True):
        for (part, label), colour in zip(LABELS.items(), PALETTE, strict=False):
            points = [(row["epoch"] + 1, row[f"{part}_{name}"]) for row in history if f"{part}_{name}" in row]
            if points:
                marker = "o" if len(points) <= 30 else None
                axes.plot(*zip(*points, strict=True), label=label, color=colour, marker=marker, markersize=3)
        axes.axvline(best_epoch + 1, color=look().quiet, linestyle="--", linewidth=1, label="best epoch")
        axes.set(xlabel="epoch", ylabel=METRICS[name].title if name in METRICS else name)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid()
    figure.axes[0].legend()
    if is_share(metric):
        figure.axes[1].yaxis.set_major_formatter(percent)
    save(figure, path)
