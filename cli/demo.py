"""``kmip-data demo``: the main job from end to end, offline: on a real city, or on generated rooms."""

from __future__ import annotations

import contextlib
import shlex
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from kmip_data.cli.shared.command import Command
from kmip_data.cli.shared.options import json_option
from kmip_data.cli.shared.output import facts, print_json
from kmip_data.wording import counted

if TYPE_CHECKING:
    from pathlib import Path

    from kmip_data.builds.home import Home


@dataclass(frozen=True)
class Demo:
    """What a demo is made of."""

    data: tuple[str, ...]  #: TARGET, with the options of its build
    about: str  #: said first
    build: str  #: titles of steps
    draw: str
    train: str
    epochs: int
    settings: tuple[str, ...]  #: a network and training that learns something within a minute on two cores
    after: str  #: what to do next
    map: bool = False  #: whether the run is drawn too

    @property
    def sample(self) -> bool:
        """Whether the data are generated."""
        return "--sample" in self.data


DEMOS = {
    "city": Demo(
        data=("helsinki",),
        about="Real data: the streets of central Helsinki, from an OpenStreetMap extract that an installed "
        "package brings along. © OpenStreetMap contributors, ODbL 1.0.",
        build="Turn the extract into a graph whose nodes have a long-range label",
        draw="Draw the map: by class, by eccentricity, by split",
        train="Train GPS + k-MIP for {epochs}, smaller than the paper's",
        epochs=50,
        settings=(
            "model.layers=3",
            "model.hidden_dim=32",
            "model.head_l2norm=false",
            "schedule.warmup_epochs=2",
            "optimiser.lr=5e-3",
            "optimiser.weight_decay=1e-2",
            "training.eval_every=10",
        ),
        after="The paper's network and its 1,500 epochs: kmip-data train --dataset helsinki",
        map=True,
    ),
    "point-cloud": Demo(
        data=("s3dis", "--sample", "--limit", "24"),
        about="The data are a generated sample in the layout of S3DIS: the figures mean nothing about S3DIS.",
        build="Generate sample rooms in the upstream layout and build graphs of their blocks",
        draw="Draw three blocks",
        train="Train GPS + k-MIP for {epochs}, smaller than the paper's",
        epochs=4,
        settings=(
            "model.layers=2",
            "model.hidden_dim=32",
            "training.batch_size=1",
            "training.accumulate=1",
            "schedule.warmup_epochs=0",
            "optimiser.lr=3e-3",
        ),
        after="The same on real data: kmip-data train --dataset s3dis",
    ),
}


@click.command(
    cls=Command,
    examples=[
        "kmip-data demo",
        "kmip-data demo point-cloud",
        "kmip-data demo city --home /tmp/demo --epochs 100",
    ],
)
@click.argument("what", type=click.Choice(list(DEMOS)), default="city")
@click.option(
    "--home",
    "folder",
    default="demo-home",
    show_default=True,
    metavar="DIR",
    help="Everything is written below DIR.",
)
@click.option(
    "--epochs", type=click.IntRange(min=1), metavar="N", help="[default: 50 for the city, 4 for the rooms]"
)
@json_option
def command(what: str, folder: str, epochs: int | None, as_json: bool) -> None:
    """A real city to a trained model, offline, in a few minutes.

    WHAT is `city` (default): the streets of central Helsinki, real data that come with an installed
    package. Or `point-cloud`: generated rooms in the layout of S3DIS, whose figures say nothing about
    S3DIS. Builds, verifies the build, draws it, trains GPS + k-MIP for a few epochs and evaluates the
    weights: each step is a command that is shown before it runs.
    """
    from kmip_data.builds.home import Home

    demo = DEMOS[what]
    home = Home.locate(folder)
    started = time.monotonic()
    name = time.strftime("demo-%Y%m%d-%H%M%S")
    # With --json stdout is for the one object at the end: all else goes to stderr.
    with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
        click.echo(demo.about)
        click.echo(f"Everything is written below {home.root}.")
        steps = _steps(demo, name, epochs or demo.epochs)
        for number, (title, step) in enumerate(steps, start=1):
            args = [*step, "--home", str(home.root)]
            click.echo(f"\n[{number}/{len(steps)}] {title}\n$ kmip-data {shlex.join(args)}")
            _run(args)
        seconds = time.monotonic() - started
        click.echo(f"\nDone in {seconds:.0f} s. What was made:")
        made = _made(demo, home, name)
        click.echo(facts([(what, str(path)) for what, path in made.items()], indent=2))
        click.echo(f"\n{demo.after}")
    if as_json:
        from kmip_data.models.training.run.result import read_result

        result = read_result(made["run"])
        print_json(
            {
                "sample": demo.sample,
                "home": home.root,
                **made,
                "best_epoch": result.best_epoch,
                "metrics": result.metrics,
                "seconds": seconds,
            }
        )


def _steps(demo: Demo, name: str, epochs: int) -> list[tuple[str, list[str]]]:
    """What the demo does: a title and the arguments of a command each."""
    settings = [word for item in demo.settings for word in ("--set", item)]
    training = ["--epochs", str(epochs), "--name", name, *settings]
    steps = [
        (demo.build, ["build", *demo.data]),
        ("Check every byte of the build", ["verify", *demo.data]),
        (demo.draw, ["preview", *demo.data]),
        (demo.train.format(epochs=counted(epochs, "epoch")), ["train", "--dataset", *demo.data, *training]),
        ("Evaluate the best weights", ["evaluate", name]),
    ]
    if demo.map:
        again = ["preview", *demo.data, "--run", name]
        steps.append(("Draw the map again, with where the model is right", again))
        steps.append(("The same as a page to move about in", [*again, "--html"]))
    return steps


def _run(args: list[str]) -> None:
    """Run one command; what goes wrong in it goes wrong in the demo, and is reported as such."""
    from kmip_data.cli.main import PROGRAM, root

    with root.make_context(PROGRAM, args) as context:
        root.invoke(context)


def _made(demo: Demo, home: Home, name: str) -> dict[str, Path]:
    """Where the results lie."""
    from kmip_data.builds.find import find
    from kmip_data.models.training.run.folders import find_run

    dataset, *options = demo.data
    given = {"limit": int(options[-1])} if "--limit" in options else {}
    build = find(dataset, given, home=home, sample=demo.sample).path
    run = find_run(name, home)
    made = {
        "build": build,
        "picture": build / "preview.png",
        "run": run,
        "curves": run / "curves.png",
        "result": run / "result.json",
    }
    return {**made, "map": run / "map.png", "page": run / "map.html"} if demo.map else made
