"""Accuracy of k-MIP and full attention after equal training time, by graph size.

The task is retrieval of ``long-range``, where the answer is at another node. Batches and epochs have
the same number of nodes at each size. Times are CPU seconds of one thread, without evaluation.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import click
import torch

from benchmarks.table import Row, thread_count
from kmip_data.builds.home import Home
from kmip_data.models.training.config.overrides import apply_overrides
from kmip_data.models.training.config.presets import config_for_data
from kmip_data.models.training.data.open_data import open_data
from kmip_data.models.training.run.loop import Loop
from kmip_data.models.training.run.training_module import TrainingModule, evaluate_parts

#: Nodes -> CPU seconds until both models have learned the task, or at 2,048 nodes neither has.
BUDGETS = {32: 10.0, 128: 20.0, 512: 40.0, 2048: 240.0}
SEEDS = range(5)
TOTAL_NODES = 192_000  #: nodes of all graphs, counting each as the maximum size
BATCH_NODES = 2_048  #: nodes of a batch, counted likewise
BATCHES_PER_TURN = 15  #: batches between evaluations, a fifth of an epoch
NOTE = (
    "sizes: retrieval, presets long-range/gps-kmip and long-range/gps-transformer, one thread; "
    "CPU seconds of training, in turn; test accuracy at the best val accuracy, mean of seeds 0 to 4"
)


class Learner:
    """Network trained in turns."""

    def __init__(self, model: str, nodes: int, home: Home, *, seed: int = 0) -> None:
        config = apply_overrides(
            config_for_data("long-range", model),
            [
                f"data.parameters.nodes={nodes}",
                f"data.parameters.graphs={TOTAL_NODES // nodes}",
                f"training.batch_size={BATCH_NODES // nodes}",
                f"training.seed={seed}",
                "system.device=cpu",
            ],
        )
        data = open_data(config, home=home, quiet=True)
        torch.manual_seed(config.training.seed)
        self.module = TrainingModule(config, data)
        self.loop = Loop(self.module, data, torch.device("cpu"))
        self.seconds = 0.0
        self.curve: list[tuple[float, float, float]] = []  #: seconds, val accuracy, test accuracy

    def train_turn(self) -> None:
        """Train on a few batches, then evaluate."""
        loop = self.loop
        start = time.process_time()
        loop.train_epoch(BATCHES_PER_TURN)
        self.seconds += time.process_time() - start

        if loop.batches_done == loop.batches_per_epoch:
            loop.epoch += 1
            loop.batches_done = 0
        self.module.metrics.reset()
        metrics = evaluate_parts(self.module, loop.data, ("val", "test"), loop.device)
        point = (self.seconds, metrics["val"]["accuracy"], metrics["test"]["accuracy"])
        self.curve.append(point)

    def accuracy(self, seconds: float) -> float:
        """Return the test accuracy at the best val accuracy within ``seconds``, or 0."""
        points = [(val, test) for elapsed, val, test in self.curve if elapsed <= seconds]
        return max(points, default=(0.0, 0.0))[1]


def compare_sizes(
    nodes: int, seconds: float, home: Home, *, seed: int = 0
) -> tuple[Learner, Learner]:
    """Train k-MIP and full attention on graphs of up to ``nodes`` nodes for equal CPU seconds."""
    for model in ("gps-kmip", "gps-transformer"):
        Learner(model, nodes, home).train_turn()  # compiles the kernels
    sparse = Learner("gps-kmip", nodes, home, seed=seed)
    full = Learner("gps-transformer", nodes, home, seed=seed)
    while min(sparse.seconds, full.seconds) < seconds:
        # Continue with the one that trained less, so that other load affects both.
        learner = min(sparse, full, key=lambda learner: learner.seconds)
        learner.train_turn()
        _, val, test = learner.curve[-1]
        model = learner.module.config.model.name
        click.echo(
            f"{model}, N = {nodes}: {learner.seconds:.1f} s, val {100 * val:.2f} %, test {100 * test:.2f} %",
            err=True,
        )
    return sparse, full


def compare_seeds(
    nodes: int, seconds: float, home: Home, seeds: Sequence[int]
) -> list[tuple[Learner, Learner]]:
    """Compare both models with each seed."""
    return [compare_sizes(nodes, seconds, home, seed=seed) for seed in seeds]


def rows(*, quick: bool = False) -> list[Row]:
    """Measure accuracy after equal training time on graphs of 32 to 2,048 nodes."""
    budgets = {32: 1.0} if quick else BUDGETS
    seeds = SEEDS[:1] if quick else SEEDS
    measured = []
    with tempfile.TemporaryDirectory() as folder, thread_count(1):
        for nodes, budget in budgets.items():
            pairs = compare_seeds(nodes, budget, Home(Path(folder)), seeds)
            for seconds in (budget / 8, budget / 4, budget / 2, budget):
                measured.append(
                    Row(
                        what=f"retrieval, graphs of up to {nodes:,} nodes, after {seconds:g} s of training",
                        against="full attention",
                        ours=100 * fmean(sparse.accuracy(seconds) for sparse, _ in pairs),
                        theirs=100 * fmean(full.accuracy(seconds) for _, full in pairs),
                        unit="%",
                        note=NOTE,
                    )
                )
    return measured
