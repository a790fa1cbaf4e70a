"""k-MIP attention against full attention by the size of graphs: accuracy after equal seconds of training.

The task is ``long-range``, whose answer is held by another node of the graph. Batches and epochs
have the same number of nodes at each size. One thread; seconds are the processor's, evaluations not
among them.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import click
import torch
from benchmarks.table import Row, thread_count

from kmip_data.builds.home import Home
from kmip_data.models.training.config.overrides import apply_overrides
from kmip_data.models.training.config.presets import config_for
from kmip_data.models.training.data.graphs import open_data
from kmip_data.models.training.run.loop import Loop
from kmip_data.models.training.run.module import TrainingModule, evaluate_parts

SIZES = (32, 128, 512, 2048)
NODES = 192_000  #: of all graphs if each were as large as the largest
BATCH_NODES = 2_048  #: likewise of a batch
TURN = 15  #: batches between two evaluations, a fifth of an epoch
NOTE = (
    "sizes: retrieval, presets long-range/gps-kmip and long-range/gps-transformer, seed 0, one thread; "
    "processor seconds of training, the two in turns; accuracy on test where that on val was best"
)


class Learner:
    """A network that trains in turns with another one."""

    def __init__(self, model: str, nodes: int, home: Home) -> None:
        config = apply_overrides(
            config_for("long-range", model),
            [
                f"data.parameters.nodes={nodes}",
                f"data.parameters.graphs={NODES // nodes}",
                f"training.batch_size={BATCH_NODES // nodes}",
                "system.device=cpu",
            ],
        )
        data = open_data(config, home=home, quiet=True)
        torch.manual_seed(config.training.seed)
        self.module = TrainingModule(config, data)
        self.loop = Loop(self.module, data, torch.device("cpu"))
        self.seconds = 0.0
        self.curve: list[tuple[float, float, float]] = []  #: seconds, accuracy on val and on test

    def turn(self) -> None:
        """Train on a few batches, then evaluate."""
        loop = self.loop
        begun = time.process_time()
        loop.train_epoch(TURN)
        self.seconds += time.process_time() - begun

        if loop.batch == loop.count:
            loop.epoch += 1
            loop.batch = 0
        self.module.metrics.reset()
        found = evaluate_parts(self.module, loop.data, ("val", "test"), loop.device)
        point = (self.seconds, found["val"]["accuracy"], found["test"]["accuracy"])
        self.curve.append(point)

    def accuracy(self, seconds: float) -> float:
        """Return the accuracy on test of the best evaluation on val within ``seconds``, or 0."""
        points = [(val, test) for spent, val, test in self.curve if spent <= seconds]
        return max(points, default=(0.0, 0.0))[1]


def compare_sizes(nodes: int, seconds: float, home: Home) -> tuple[Learner, Learner]:
    """Train k-MIP and full attention on graphs of up to ``nodes`` nodes for equal processor seconds."""
    for model in ("gps-kmip", "gps-transformer"):
        Learner(model, nodes, home).turn()  # the first one compiles
    sparse = Learner("gps-kmip", nodes, home)
    full = Learner("gps-transformer", nodes, home)
    while min(sparse.seconds, full.seconds) < seconds:
        # The one that trained less goes on, so that the load of the machine meets both.
        learner = min(sparse, full, key=lambda each: each.seconds)
        learner.turn()
        _, val, test = learner.curve[-1]
        model = learner.module.config.model.name
        click.echo(
            f"{model}, N = {nodes}: {learner.seconds:.1f} s, val {100 * val:.2f} %, test {100 * test:.2f} %",
            err=True,
        )
    return sparse, full


def rows(*, quick: bool = False) -> list[Row]:
    """Measure accuracy after equal seconds of training on graphs of 32 to 2,048 nodes."""
    budget = 1.0 if quick else 120.0
    measured = []
    with tempfile.TemporaryDirectory() as folder, thread_count(1):
        for nodes in SIZES[:1] if quick else SIZES:
            sparse, full = compare_sizes(nodes, budget, Home(Path(folder)))
            for seconds in (budget / 8, budget / 4, budget / 2, budget):
                measured.append(
                    Row(
                        what=f"retrieval, graphs of up to {nodes:,} nodes, after {seconds:g} s of training",
                        against="full attention",
                        ours=100 * sparse.accuracy(seconds),
                        theirs=100 * full.accuracy(seconds),
                        unit="%",
                        note=NOTE,
                    )
                )
    return measured
