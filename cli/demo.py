"""``kmip-data demo``: the main job from end to end, offline: on a real city, or on generated rooms."""

from __future__ import annotations

import contextlib
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import TYPE_CHECKING

import click

from kmip_data.cli.shared.command import Command
from kmip_data.cli.shared.options import json_option
from kmip_data.cli.shared.output import facts, print_json
from kmip_data.wording import counted

if TYPE_CHECKING:
    from pathlib import Path

    from kmip_data.builds.home import Home
    from kmip_data.models.training.run.result import RunResult


@dataclass(frozen=True)
class Demo:
    """What a demo is made of."""

    data: tuple[str, ...]  #: TARGET, with the options of its build
    about: str  #: said first
    build: str  #: titles of steps
    draw: str
    train: str
    epochs: int
    settings: tuple[str, ...]  #: options of ``train``: what learns something within a minute on two cores
    after: str  #: what to do next
    models: tuple[str, ...] = ("gps-kmip",)
    seeds: int = 1
    map: bool = False  #: whether the runs are drawn, and compared by class

    @property
    def sample(self) -> bool:
        """Whether the data are generated."""
        return "--sample" in self.data

    def runs(self, model: str, name: str) -> list[str]:
        """The runs of a model, as other commands name them."""
        runs = [name] if self.seeds == 1 else [f"{name}-seed{seed}" for seed in range(self.seeds)]
        return [f"{model}/{run}" for run in runs]


DEMOS = {
    "city": Demo(
        data=("helsinki",),
        about="Real data: the streets of central Helsinki, from an OpenStreetMap extract that an installed "
        "package brings along. © OpenStreetMap contributors, ODbL 1.0.",
        build="Turn the extract into a graph whose nodes have a long-range label",
        draw="Draw the map: by class, by eccentricity, by split",
        train="Train {model} for {epochs} from each of {seeds}, with settings for a small city",
        epochs=60,
        models=("gps-kmip", "gcn", "mlp"),
        seeds=3,
        settings=("--as", "small-city"),
        after="Eleven models on two cities: docs/results.md. The paper's network and its 1,500 epochs:"
        " kmip-data train --dataset helsinki",
        map=True,
    ),
    "point-cloud": Demo(
        data=("s3dis", "--sample", "--limit", "24"),
        about="The data are a generated sample in the layout of S3DIS: the figures mean nothing about S3DIS.",
        build="Generate sample rooms in the upstream layout and build graphs of their blocks",
        draw="Draw three blocks",
        train="Train {model} for {epochs}, smaller than the paper's",
        epochs=4,
        settings=(
            *("--set", "model.layers=2"),
            *("--set", "model.hidden_dim=32"),
            *("--set", "training.batch_size=1"),
            *("--set", "training.accumulate=1"),
            *("--set", "schedule.warmup_epochs=0"),
            *("--set", "optimiser.lr=3e-3"),
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
    "--epochs", type=click.IntRange(min=1), metavar="N", help="[default: 60 for the city, 4 for the rooms]"
)
@json_option
def command(what: str, folder: str, epochs: int | None, as_json: bool) -> None:
    """A real city to a trained model, offline, in a few minutes.

    WHAT is `city` (default): the streets of central Helsinki, real data that come with an installed
    package. Or `point-cloud`: generated rooms in the layout of S3DIS, whose figures say nothing about
    S3DIS. Builds, verifies the build, draws it, trains GPS + k-MIP (on the city beside a GCN and an MLP) and
    evaluates the weights: each step is a command that is shown before it runs.
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
        results = _results(demo, home, name)
        if len(results) > 1:
            click.echo(f"\n{compared(results)}")
        click.echo(f"\n{demo.after}")
    if as_json:
        first = results[demo.models[0]][0]
        print_json(
            {
                "sample": demo.sample,
                "home": home.root,
                **made,
                "best_epoch": first.best_epoch,
                "metrics": first.metrics,
                "models": {model: [result.metrics for result in each] for model, each in results.items()},
                "seconds": seconds,
            }
        )


def _steps(demo: Demo, name: str, epochs: int) -> list[tuple[str, list[str]]]:
    """What the demo does: a title and the arguments of a command each."""
    training = [*demo.settings, "--epochs", str(epochs), "--name", name]
    training += ["--seeds", f"0..{demo.seeds - 1}"] if demo.seeds > 1 else []
    steps = [
        (demo.build, ["build", *demo.data]),
        ("Check every byte of the build", ["verify", *demo.data]),
        (demo.draw, ["preview", *demo.data]),
    ]
    for model in demo.models:
        title = demo.train.format(
            model=model, epochs=counted(epochs, "epoch"), seeds=counted(demo.seeds, "seed")
        )
        steps.append((title, ["train", "--dataset", *demo.data, "--model", model, *training]))
    first = demo.runs(demo.models[0], name)[0]
    steps.append(("Evaluate the best weights", ["evaluate", first]))
    if demo.map:
        every = [run for model in demo.models for run in demo.runs(model, name)]
        steps.append(("Compare the models by eccentricity, class by class", ["analyze", "classes", *every]))
        again = ["preview", *demo.data, "--run", first]
        steps.append(("Draw the map again, with where the model is right", again))
        steps.append(("The same as a page to move about in", [*again, "--html"]))
    return steps


def _run(args: list[str]) -> None:
    """Run one command; what goes wrong in it goes wrong in the demo, and is reported as such."""
    from kmip_data.cli.main import PROGRAM, root

    with root.make_context(PROGRAM, args) as context:
        root.invoke(context)


def _results(demo: Demo, home: Home, name: str) -> dict[str, list[RunResult]]:
    from kmip_data.models.training.run.folders import find_run
    from kmip_data.models.training.run.result import read_result

    return {
        model: [read_result(find_run(run, home)) for run in demo.runs(model, name)] for model in demo.models
    }


def compared(results: Mapping[str, Sequence[RunResult]]) -> str:
    """Say what attention and message passing change on test, seed by seed: as it is, good or bad."""
    shares = {
        model: [100 * result.metrics["test"]["accuracy"] for result in each]
        for model, each in results.items()
    }
    means = ", ".join(f"{model} {fmean(each):.1f} ± {pstdev(each):.1f} %" for model, each in shares.items())
    lines = [f"Test accuracy: {means}."]
    for what, model, without in (("Attention", "gps-kmip", "gcn"), ("Message passing", "gcn", "mlp")):
        ahead = [own - its for own, its in zip(shares[model], shares[without], strict=True)]
        better, seeds = sum(difference > 0 for difference in ahead), len(ahead)
        verdict = {0: "it does not help here", seeds: "it helps here"}.get(better, "these seeds do not tell")
        lines.append(
            f"{what}: {model} is ahead of {without} from {better} of {counted(seeds, 'seed')}"
            f" ({fmean(ahead):+.1f} points on average); {verdict}."
        )
    return "\n".join(lines)


def _made(demo: Demo, home: Home, name: str) -> dict[str, Path]:
    from kmip_data.models.training.run.folders import find_run
    from kmip_data.pipelines.find import find

    dataset, *options = demo.data
    given = {"limit": int(options[-1])} if "--limit" in options else {}
    build = find(dataset, given, home=home, sample=demo.sample).path
    run = find_run(demo.runs(demo.models[0], name)[0], home)
    made = {
        "build": build,
        "picture": build / "preview.png",
        "run": run,
        "curves": run / "curves.png",
        "result": run / "result.json",
    }
    return {**made, "map": run / "map.png", "page": run / "map.html"} if demo.map else made
