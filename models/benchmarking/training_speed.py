"""Time of training steps of several networks, measured in turn, so that other load slows all of them."""

from __future__ import annotations

import gc
import itertools
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch_geometric.data import Data

from kmip_data.errors import KmipDataError
from kmip_data.models.benchmarking.clock import StageClock
from kmip_data.models.benchmarking.measuring import PeakMemory
from kmip_data.models.layers.batch import BatchSize
from kmip_data.models.precision import float32_product_precision
from kmip_data.models.training import memory_estimate
from kmip_data.models.training.capture.cuda_graphs import StepOutput
from kmip_data.models.training.config.run_config import RunConfig
from kmip_data.models.training.data.run_data import RunData
from kmip_data.models.training.devices import Device
from kmip_data.models.training.run.checkpoint import random_state, set_random_state
from kmip_data.models.training.run.loop import Loop
from kmip_data.models.training.run.training_module import TrainingModule
from kmip_data.runtime.memory import is_out_of_memory


@dataclass(kw_only=True)
class TrainingSpeed:
    """Speed and memory of one network in training."""

    name: str
    seconds: float | None = None  #: median seconds per batch; None: see ``note``
    graphs: float = 0.0  #: mean graphs per batch
    peak: int | None = None  #: peak bytes beyond the weights, of the process or on the GPU
    ratio: float | None = None  #: time relative to the first network
    spread: tuple[float, float] | None = None  #: smallest and largest ratio over the rounds
    hours: float | None = None  #: estimate for all configured epochs, without evaluations
    note: str = ""  #: reason why it could not be measured


def time_epoch(loop: Loop, max_batches: int | None = None) -> list[tuple[float, int]]:
    """Train for at most one epoch and ``max_batches``; return the seconds and graphs of each batch.

    Waiting for a batch counts. CUDA events time steps on a GPU, so that nothing waits for them.
    """
    run_batch = loop.run_batch
    clock = StageClock(loop.device)
    graphs = list[int]()

    def timed_step(batch: Data, *args: object, **step_position: bool) -> StepOutput:
        learned = run_batch(batch, *args, **step_position)
        clock(f"batch {len(graphs)}")
        graphs.append(BatchSize.of(batch).graphs)
        return learned

    loop.run_batch = timed_step
    clock("start")
    loop.train_epoch(max_batches)
    loop.run_batch = run_batch
    return list(zip(clock.seconds_by_stage().values(), graphs, strict=True))


class TrainingBenchmark:
    """Benchmark of one network in the training loop, without CUDA graphs."""

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
        # As in `train`: seed the weights, and recompute layers if memory is short.
        recompute = memory_estimate.estimate_step_memory(self.config, data, device).recompute
        torch.manual_seed(config.training.seed)
        self.module = TrainingModule(self.config, data, recompute=recompute)
        self.speed = TrainingSpeed(name=name)
        #: seconds and graphs of each batch of each round
        self.rounds: list[list[tuple[float, int]]] = []

    def run(self, batches: int) -> list[tuple[float, int]]:
        """Train on a warm-up batch and at least ``batches`` more; return the latter's seconds and graphs."""
        loop = Loop(self.module, self.data, self.device)
        # A step may accumulate several batches; an epoch's last step may have fewer.
        batches_per_step = min(self.config.training.accumulate, loop.batches_per_epoch)
        steps = -(-(batches + 1) // batches_per_step)

        times = []
        with float32_product_precision(self.config.training.precision):
            while loop.step < steps:
                times += time_epoch(loop, batches_per_step * (steps - loop.step))
                loop.epoch = loop.epoch + 1
                loop.batches_done = 0
                self.module.metrics.reset()
        self.batches_per_epoch = loop.batches_per_epoch
        return times[1:]

    def measure_round(self, batches: int) -> None:
        """Measure the time and peak memory of one round."""
        peak = PeakMemory(self.device)
        peak.start(self.module.parameters())
        self.rounds.append(self.run(batches))
        peak.stop()
        if peak.bytes is not None:
            self.speed.peak = max(self.speed.peak or 0, peak.bytes)

    def round_medians(self) -> list[float]:
        """Return the median seconds per batch of each round."""
        return [statistics.median(seconds for seconds, _ in batches) for batches in self.rounds]

    def summarise(self, reference: list[float]) -> None:
        """Fill in ``speed``; ``reference`` are the :meth:`round_medians` of the first network."""
        speed = self.speed
        seconds, graphs = zip(*itertools.chain(*self.rounds), strict=True)
        speed.seconds = statistics.median(seconds)
        speed.graphs = statistics.mean(graphs)
        # Compare within a round, in which both networks ran under the same load.
        medians = zip(self.round_medians(), reference, strict=True)
        ratios = [median / reference_median for median, reference_median in medians]
        speed.ratio = statistics.median(ratios)
        speed.spread = (min(ratios), max(ratios))
        speed.hours = self.config.training.epochs * self.batches_per_epoch * speed.seconds / 3600


def compare_training(
    builders: Mapping[str, Callable[[str], TrainingBenchmark]],
    *,
    rounds: int,
    max_batches: int,
    max_seconds: float,
    log: Callable[[str], None],
) -> list[TrainingSpeed]:
    """Measure networks in turn, round after round; ratios refer to the first.

    ``builders`` build a benchmark from its name. A network that does not fit into memory gets a row
    with the reason. A warm-up round, which also compiles, precedes the counted ``rounds``. A round
    has at most ``max_batches``, fewer if all rounds of a network would exceed ``max_seconds``.
    """
    speeds = []
    batches_per_round = {}
    initial_random_state = random_state()
    for name, build in builders.items():
        log(f"{name} …")
        try:
            benchmark = build(name)
            warm_up_seconds = benchmark.run(1)[-1][0]
        except Exception as error:
            is_unsupported = isinstance(error, KmipDataError | NotImplementedError)
            if not is_unsupported and not is_out_of_memory(error):
                raise
            lines = str(error).splitlines() or [type(error).__name__]
            speeds.append(TrainingSpeed(name=name, note=lines[0]))
            continue
        speeds.append(benchmark.speed)
        # Estimate from the warm-up batch how many batches fit into a round.
        fitting = int(max_seconds / rounds / max(warm_up_seconds, 1e-9))
        batches_per_round[benchmark] = max(1, min(max_batches, fitting))

    for index in range(rounds):
        log(f"round {index + 1} of {rounds}")
        for benchmark, batches in batches_per_round.items():
            gc.collect()
            benchmark.measure_round(batches)
    reference = next(iter(batches_per_round)).round_medians() if batches_per_round else []
    for benchmark in batches_per_round:
        benchmark.summarise(reference)
    set_random_state(initial_random_state)
    return speeds
