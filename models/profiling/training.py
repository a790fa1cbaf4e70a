"""The trainer's own loop, timed by its parts: models in turn, so that a busy machine slows all of them."""

from __future__ import annotations

import gc
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psutil
import torch

from kmip_data.errors import KmipDataError
from kmip_data.models.budget import count_parameters
from kmip_data.models.profiling.calls import CallCounter
from kmip_data.models.profiling.measuring import Peak
from kmip_data.models.training.capture.reasons import why_plain
from kmip_data.models.training.capture.steps import WARM_UP, captured_steps
from kmip_data.models.training.config.keys import RunConfig
from kmip_data.models.training.data.run_data import RunData
from kmip_data.models.training.memory.estimate import free_bytes, plan_memory
from kmip_data.models.training.memory.machine import Device, float32_products
from kmip_data.models.training.run.checkpoint import random_state, seed_all, set_random_state
from kmip_data.models.training.run.loop import Loop
from kmip_data.models.training.run.meter import STAGES
from kmip_data.models.training.run.module import TrainingModule
from kmip_data.runtime import buffers
from kmip_data.runtime.memory_errors import is_out_of_memory

RECORDED = 4 * (WARM_UP + 1)  #: batches before all shapes are: first and further ones of a step, whole, last
SIZES = 8  #: times as many where batches differ in size
TRIES = 5  #: further ones, of which some shape was there before
ON_GPU = ("launches", "kernels", "synchronisations")  #: what is counted there besides operators
SHARE = 0.8  #: of free memory that a network may take on a CPU


@dataclass(kw_only=True)
class Pace:
    """How fast one network trains; seconds and numbers are of one batch, medians over all that count."""

    name: str
    parameters: int = 0
    seconds: float | None = None  #: from the end of a batch to the end of the next; None: see ``note``
    captured: float | None = None  #: the same with steps as CUDA graphs, as ``train`` does; None: not so
    stages: dict[str, float] = field(default_factory=dict)  #: of :data:`STAGES`
    graphs: float = 0.0  #: of a batch
    batches: int = 0  #: that were measured
    peak: int | None = None  #: bytes beyond the weights: growth of the process, or allocated on the GPU
    operators: int | None = None  #: called by the step, not by other operators
    launches: int | None = None  #: of the GPU's kernels; of a CUDA graph one
    kernels: int | None = None  #: that the GPU ran
    synchronisations: int | None = None  #: of the host with the GPU
    replayed: dict[str, int] = field(default_factory=dict)  #: these three of a step as a CUDA graph
    ratio: float | None = None  #: time to that of the first network
    spread: tuple[float, float] | None = None  #: the ratio's smallest and largest over the rounds
    hours: float | None = None  #: to train for the configuration's epochs, without evaluations
    note: str = ""  #: why it, or its ``captured``, could not be measured


class Contestant:
    """One network in the trainer's loop: that of ``config``, in which ``replace`` may put other layers."""

    def __init__(
        self,
        name: str,
        config: RunConfig,
        data: RunData,
        device: Device,
        replace: Callable[[Any, Any], None] | None = None,
    ) -> None:
        self.config, self.data, self.device = data.pinned(config), data, device
        recompute = plan_memory(self.config, data, device).recompute
        self.plain = why_plain(self.config, data, device, recompute=recompute)
        seed_all(config.training.seed)
        hinted = data.with_hints(self.config, device.kind)
        self.module = TrainingModule(hinted, data, recompute=recompute)
        if replace is not None:
            replace(self.module.model, self.config.model)
        self.pace = Pace(name=name, parameters=count_parameters(self.module.model))
        self.rounds: list[list[dict[str, float]]] = []
        self.replayed: list[dict[str, float]] = []
        self.told: list[str] = []  #: why its steps could not be recorded after all
        self.epoch = len(data.batches(lambda: 0))  # type: ignore[arg-type] # batches of one

    def run(
        self, batches: int, watch: CallCounter | None = None, *, captured: bool = False
    ) -> list[dict[str, float]]:
        """Train on so many batches and one before, which is left out; return the stages of each.

        ``captured``: by recorded steps, which have no stages.
        """
        of_one = min(self.config.training.accumulate, self.epoch)  # an epoch's last step may have fewer
        steps = -(-(batches + 1) // of_one)
        options: dict[str, Any] = {} if watch is None else {"watch": watch}
        if captured:
            learn, pad = self.module.learn, self.data.ragged
            options["captured"] = captured_steps(learn, self.config, self.told.append, pad=pad)
        loop = Loop(self.module, self.data, torch.device(self.device.kind), **options)
        found: list[dict[str, float]] = []
        with float32_products(self.config.training.precision):
            while loop.step < steps:
                loop.train_epoch(of_one * (steps - loop.step))
                found += self.module.meter.stages()
                loop.epoch, loop.batch = loop.epoch + 1, 0
                self.module.metrics.reset()
        return found[1:]

    def measure(self, batches: int) -> None:
        """Add a round, and the most memory it takes."""
        peak = Peak(torch.device(self.device.kind))
        peak.start(self.module.parameters())
        self.rounds.append(self.run(batches))
        peak.stop()
        if peak.bytes is not None:
            self.pace.peak = max(self.pace.peak or 0, peak.bytes)
        if self.plain is None:
            replayed = self.run(batches + self._recorded, captured=True)[-batches:]
            self.replayed = [] if self.told else self.replayed + replayed
            self.pace.note = "".join(self.told[:1])

    def count(self) -> None:
        """Count what one step calls, and what it does where it is recorded."""
        counter, pace = CallCounter(self.device.kind), self.pace
        self.run(1, counter)
        assert counter.found is not None
        pace.operators = counter.found.operators
        if self.device.kind == "cuda":
            for name in ON_GPU:
                setattr(pace, name, getattr(counter.found, name))
        if self.plain is None:
            before = self._recorded + 1  # odd as above: where two batches make a step, the one that steps
            counter = CallCounter(self.device.kind, before=before, replayed=True)
            self.run(before + TRIES, counter, captured=True)
            self.told.clear()  # the rounds see for themselves, without a profiler
            if counter.found is not None:
                pace.replayed = {name: getattr(counter.found, name) for name in ON_GPU}

    @property
    def _recorded(self) -> int:
        """Batches after which all shapes are recorded."""
        return RECORDED * SIZES if self.data.ragged else RECORDED

    def result(self, first: list[float]) -> Pace:
        """Put the rounds together; ``first`` is :meth:`paces` of the first network."""
        pace, done = self.pace, [batch for round_ in self.rounds for batch in round_]
        pace.stages = {name: statistics.median(batch[name] for batch in done) for name in STAGES}
        pace.seconds = statistics.median(batch["whole"] for batch in done)
        pace.graphs = statistics.mean(batch["graphs"] for batch in done)
        pace.batches = len(done)
        ratios = [own / other for own, other in zip(self.paces(), first, strict=True)]
        pace.ratio, pace.spread = statistics.median(ratios), (min(ratios), max(ratios))
        if self.replayed:
            pace.captured = statistics.median(batch["whole"] for batch in self.replayed)
        pace.hours = self.config.training.epochs * self.epoch * (pace.captured or pace.seconds) / 3600
        return pace

    def paces(self) -> list[float]:
        """Seconds of a batch in each round."""
        return [statistics.median(batch["whole"] for batch in round_) for round_ in self.rounds]


def compare_training(
    makers: Iterable[tuple[str, Callable[[str], Contestant]]],
    *,
    rounds: int,
    most: int,
    seconds: float,
    tell: Callable[[str], None],
) -> list[Pace]:
    """Measure networks in turn, round after round: the first is what the others are compared with.

    ``makers`` has the name of each, and what makes it of its name. One more round, before the ``rounds`` that
    count, compiles and warms up. ``most`` are the batches of a round, fewer where ``seconds`` for all rounds
    of a network do not suffice.
    """
    paces: dict[str, Pace] = {}
    ready: dict[Contestant, int] = {}
    before = random_state()
    for name, make in makers:
        tell(f"{name} …")
        try:
            with _memory_bounded(made := make(name)):
                warm = made.run(1)[-1]["whole"]
                made.count()
        except Exception as error:  # noqa: BLE001 -- one row; the next may work
            paces[name] = Pace(name=name, note=_reason(error))
            continue
        paces[name] = made.pace
        ready[made] = max(1, min(most, int(seconds / rounds / max(warm, 1e-9))))
    for number in range(rounds):
        tell(f"round {number + 1} of {rounds}")
        for contestant, batches in ready.items():
            gc.collect()
            with _memory_bounded(contestant):
                contestant.measure(batches)
    if ready:
        first = next(iter(ready)).paces()
        for contestant in ready:
            contestant.result(first)
    set_random_state(before)
    return list(paces.values())


def one_step(name: str, make: Callable[[str], Contestant]) -> Pace:
    """Measure a single batch, after one that compiles; ``note`` says why where it does not fit."""
    before = random_state()
    try:
        with _memory_bounded(made := make(name)):
            made.measure(1)
        return made.result(made.paces())
    except Exception as error:  # noqa: BLE001 -- what is not about memory is raised again
        return Pace(name=name, note=_reason(error))
    finally:
        buffers.release()
        set_random_state(before)


@contextmanager
def _memory_bounded(contestant: Contestant) -> Iterator[None]:
    """On a CPU let an allocation fail where free memory ends: the system would end this process instead."""
    if contestant.device.kind != "cpu" or sys.platform != "linux":
        yield
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    bound = psutil.Process().memory_info().vms + int(SHARE * free_bytes())
    if soft == resource.RLIM_INFINITY or bound < soft:
        resource.setrlimit(resource.RLIMIT_AS, (bound, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _reason(error: Exception) -> str:
    if not isinstance(error, KmipDataError | NotImplementedError) and not is_out_of_memory(error):
        raise error
    return (str(error).splitlines() or [type(error).__name__])[0]
