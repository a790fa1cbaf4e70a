"""Time of training steps, models in turn, so that a busy machine slows all of them."""

from __future__ import annotations

import gc
import itertools
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch_geometric.data import Data

from kmip_data.errors import KmipDataError
from kmip_data.models.layers.batch import BatchSize
from kmip_data.models.precision import float32_product_precision
from kmip_data.models.profiling.clock import StageClock
from kmip_data.models.profiling.measuring import Peak
from kmip_data.models.training import memory_estimate
from kmip_data.models.training.capture.cuda_graphs import StepOutput
from kmip_data.models.training.config.keys import RunConfig
from kmip_data.models.training.data.run_data import RunData
from kmip_data.models.training.machine import Device
from kmip_data.models.training.run.checkpoint import random_state, set_random_state
from kmip_data.models.training.run.loop import Loop
from kmip_data.models.training.run.module import TrainingModule
from kmip_data.runtime.memory import is_out_of_memory


@dataclass(kw_only=True)
class Pace:
    """Speed of one network; seconds per batch, medians over all counted batches."""

    name: str
    #: from one batch's end to the next; None: see ``note``
    seconds: float | None = None
    graphs: float = 0.0  #: graphs per batch
    #: bytes beyond the weights: growth of the process, or allocation on the GPU
    peak: int | None = None
    ratio: float | None = None  #: time relative to the first network
    spread: tuple[float, float] | None = None  #: smallest and largest ratio over the rounds
    hours: float | None = None  #: estimate for all epochs of the configuration, without evaluations
    note: str = ""  #: reason why it could not be measured


def time_epoch(loop: Loop, most: int | None = None) -> list[tuple[float, int]]:
    """Train on an epoch, or at most ``most`` batches of it; return seconds and graphs of each batch.

    Waiting for a batch counts. Steps on a GPU are timed by events, so that nothing waits for them.
    """
    run_step = loop.run_step
    clock = StageClock(loop.device)
    graphs = list[int]()

    def timed_step(batch: Data, *args: object, **step_position: bool) -> StepOutput:
        learned = run_step(batch, *args, **step_position)
        clock(f"batch {len(graphs)}")
        graphs.append(BatchSize.of(batch).graphs)
        return learned

    loop.run_step = timed_step
    clock("start")
    loop.train_epoch(most)
    loop.run_step = run_step
    return list(zip(clock.seconds_by_stage().values(), graphs, strict=True))


class Contestant:
    """One network in the training loop, without CUDA graphs."""

    def __init__(
        self,
        name: str,
        config: RunConfig,
        data: RunData,
        device: Device,
    ) -> None:
        self.config = data.pin_settings(config)
        self.data = data
        self.device = torch.device(device.type)
        # As in `train`: seeded weights, and layers recomputed if memory is short.
        recompute = memory_estimate.plan_memory(self.config, data, device).recompute
        torch.manual_seed(config.training.seed)
        self.module = TrainingModule(self.config, data, recompute=recompute)
        self.pace = Pace(name=name)
        self.rounds: list[list[tuple[float, int]]] = []  #: seconds and graphs of each batch

    def run(self, batches: int) -> list[tuple[float, int]]:
        """Train on one warm-up batch and ``batches`` more; return their seconds and graphs."""
        loop = Loop(self.module, self.data, self.device)
        # 1. A step may accumulate several batches; an epoch's last step may have fewer.
        of_one = min(self.config.training.accumulate, loop.batches_per_epoch)
        steps = -(-(batches + 1) // of_one)

        # 2. Epoch after epoch, as far as the steps go.
        times = []
        with float32_product_precision(self.config.training.precision):
            while loop.step < steps:
                times += time_epoch(loop, of_one * (steps - loop.step))
                loop.epoch = loop.epoch + 1
                loop.batches_done = 0
                self.module.metrics.reset()
        self.epoch = loop.batches_per_epoch
        return times[1:]

    def measure(self, batches: int) -> None:
        """Add a round, and its peak memory."""
        peak = Peak(self.device)
        peak.start(self.module.parameters())
        self.rounds.append(self.run(batches))
        peak.stop()
        if peak.bytes is not None:
            self.pace.peak = max(self.pace.peak or 0, peak.bytes)

    def medians(self) -> list[float]:
        """Return the seconds of a batch in each round."""
        return [statistics.median(seconds for seconds, _ in round_) for round_ in self.rounds]

    def summarise(self, first: list[float]) -> None:
        """Fill in the pace; ``first``: :meth:`medians` of the first network."""
        # Ratios are of rounds, in which both ran side by side; seconds of all batches.
        pace = self.pace
        seconds, graphs = zip(*itertools.chain(*self.rounds), strict=True)
        pace.seconds = statistics.median(seconds)
        pace.graphs = statistics.mean(graphs)
        ratios = [median / other for median, other in zip(self.medians(), first, strict=True)]
        pace.ratio = statistics.median(ratios)
        pace.spread = (min(ratios), max(ratios))
        pace.hours = self.config.training.epochs * self.epoch * pace.seconds / 3600


def compare_training(
    makers: Mapping[str, Callable[[str], Contestant]],
    *,
    rounds: int,
    most: int,
    seconds: float,
    log: Callable[[str], None],
) -> list[Pace]:
    """Measure networks in turn, round after round; ratios refer to the first.

    ``makers`` make a contestant by name; one that does not fit into memory becomes a row with the
    reason. An uncounted round compiles and warms up before the counted ``rounds``; a round has at
    most ``most`` batches, fewer if ``seconds`` for all rounds of one network do not suffice.
    """
    paces = []
    ready = {}
    before = random_state()
    for name, make in makers.items():
        log(f"{name} …")
        try:
            made = make(name)
            warm = made.run(1)[-1][0]
        except Exception as error:
            refused = isinstance(error, KmipDataError | NotImplementedError)
            if not refused and not is_out_of_memory(error):
                raise
            lines = str(error).splitlines() or [type(error).__name__]
            paces.append(Pace(name=name, note=lines[0]))
            continue
        paces.append(made.pace)
        # Estimate from the warm-up batch how many batches fit into this share of the time.
        fitting = int(seconds / rounds / max(warm, 1e-9))
        ready[made] = max(1, min(most, fitting))

    for number in range(rounds):
        log(f"round {number + 1} of {rounds}")
        for contestant, batches in ready.items():
            gc.collect()
            contestant.measure(batches)
    first = next(iter(ready)).medians() if ready else []
    for contestant in ready:
        contestant.summarise(first)
    set_random_state(before)
    return paces
