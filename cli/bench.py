"""``kmip-data bench``: speed of attention, reading and training on this machine."""

from __future__ import annotations

import click

from kmip_data.cli.shared.commands import LazyGroup


@click.group(
    cls=LazyGroup,
    package="kmip_data.cli.benchmarks",
    commands_in={
        "attention": "Time and memory of attention methods: the paper's efficiency experiment.",
        "reading": "Reading of shards compared with PyTorch Geometric's datasets.",
        "train": "Training steps of models, in turn.",
    },
    examples=[
        "kmip-data bench attention --max-n 1e4 --save attention",
        "kmip-data bench reading",
        "kmip-data bench train helsinki --model gps-kmip,gcn",
    ],
)
def command() -> None:
    """Measure speed on this machine.

    What is compared runs in turn in one command, so that a busy machine slows all of it. In a checkout `make
    bench` measures every row of docs/performance.md.
    """
