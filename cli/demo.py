"""``kmip-data demo``: the main job from end to end, offline, on generated data."""

from __future__ import annotations

import contextlib
import shlex
import sys
import time
from typing import TYPE_CHECKING

import click

from kmip_data.cli.command import Command
from kmip_data.cli.options import json_option
from kmip_data.cli.output import facts, print_json

if TYPE_CHECKING:
    from pathlib import Path

    from kmip_data.home import Home

DEFAULT_HOME = "demo-home"
EPOCHS = 4
DATA = ["s3dis", "--sample", "--limit", "24"]
SMALL = [
    "model.layers=2",
    "model.hidden_dim=32",
    "training.batch_size=1",
    "training.accumulate=1",
    "schedule.warmup_epochs=0",
    "optimiser.lr=3e-3",
]  #: a network and steps that learn something within a minute on two cores


@click.command(cls=Command, examples=["kmip-data demo", "kmip-data demo --home /tmp/demo --epochs 3"])
@click.option(
    "--home",
    "folder",
    default=DEFAULT_HOME,
    show_default=True,
    metavar="DIR",
    help="Everything is written below DIR.",
)
@click.option("--epochs", default=EPOCHS, show_default=True, type=click.IntRange(min=1), metavar="N")
@json_option
def command(folder: str, epochs: int, as_json: bool) -> None:
    """Sample data to a trained model, offline, in a few minutes.

    Builds S3DIS from generated rooms in the upstream layout, verifies the build, draws a picture,
    trains GPS + k-MIP for a few epochs, and evaluates the weights: each step is a command that is
    shown before it runs. The rooms are generated, so the figures say nothing about S3DIS.
    """
    from kmip_data.home import Home

    home = Home.locate(folder)
    started = time.monotonic()
    name = time.strftime("demo-%Y%m%d-%H%M%S")
    # With --json stdout is for the one object at the end: all else goes to stderr.
    with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
        click.echo(
            "The data are a generated sample in the layout of S3DIS: the figures mean nothing about S3DIS."
        )
        click.echo(f"Everything is written below {home.root}.")
        steps = _steps(name, epochs)
        for number, (title, step) in enumerate(steps, start=1):
            args = [*step, "--home", str(home.root)]
            click.echo(f"\n[{number}/{len(steps)}] {title}\n$ kmip-data {shlex.join(args)}")
            _run(args)
        seconds = time.monotonic() - started
        click.echo(f"\nDone in {seconds:.0f} s. What was made:")
        made = _made(home, name)
        click.echo(facts([(what, str(path)) for what, path in made.items()], indent=2))
        click.echo("\nThe same on real data: kmip-data train --dataset s3dis")
    if as_json:
        from kmip_data.models.training.result import read_result

        result = read_result(made["run"])
        print_json(
            {
                "sample": True,
                "home": home.root,
                **made,
                "best_epoch": result.best_epoch,
                "metrics": result.metrics,
                "seconds": seconds,
            }
        )


def _steps(name: str, epochs: int) -> list[tuple[str, list[str]]]:
    """What the demo does: a title and the arguments of a command each."""
    training = [word for item in SMALL for word in ("--set", item)]
    return [
        ("Generate sample rooms in the upstream layout and build graphs of their blocks", ["build", *DATA]),
        ("Check every byte of the build", ["verify", *DATA]),
        ("Draw three blocks", ["preview", *DATA]),
        (
            f"Train GPS + k-MIP for {epochs} epochs, smaller than the paper's",
            ["train", "--dataset", *DATA, "--epochs", str(epochs), "--name", name, *training],
        ),
        ("Evaluate the best weights", ["evaluate", name]),
    ]


def _run(args: list[str]) -> None:
    """Run one command; what goes wrong in it goes wrong in the demo, and is reported as such."""
    from kmip_data.cli.main import PROGRAM, root

    with root.make_context(PROGRAM, args) as context:
        root.invoke(context)


def _made(home: Home, name: str) -> dict[str, Path]:
    """Where the results lie."""
    from kmip_data.home import open_target
    from kmip_data.models.training.folders import find_run

    build = open_target("s3dis", home, {"limit": int(DATA[-1])}, sample=True).path
    run = find_run(name, home)
    return {
        "build": build,
        "picture": build / "preview.png",
        "run": run,
        "curves": run / "curves.png",
        "result": run / "result.json",
    }
