"""``kmip-data demo``: the main commands from a real city to trained models, offline."""

from __future__ import annotations

import contextlib
import shlex
import sys
import time
from collections.abc import Mapping, Sequence

import click

from kmip_data.cli.shared.commands import Command, json_option
from kmip_data.cli.shared.output import print_json
from kmip_data.wording import counted

CITY = "helsinki"
MODELS = ("gps-kmip", "gcn", "mlp")
SEEDS = 3  #: of each model with ``--full``; else one
#: Options of ``train``: they learn something within a minute on two cores.
SETTINGS = ("--as", "small-city", "--epochs", "60")


@click.command(cls=Command, examples=["kmip-data demo", "kmip-data demo --full --home /tmp/demo"])
@click.option("--full", is_flag=True, help=f"Train each model from {SEEDS} seeds.")
@click.option(
    "--home", "folder", default="demo-home", envvar="KMIP_DATA_HOME", metavar="DIR",
    help="Folder of all results.  [default: $KMIP_DATA_HOME, else demo-home]",
)  # fmt: skip
@json_option
def command(full: bool, folder: str, as_json: bool) -> None:
    """Train models on a real city, offline, in a few minutes.

    The streets of central Helsinki come with an installed package. Builds and verifies the dataset, draws it,
    trains GPS + k-MIP, a GCN and an MLP, and evaluates the weights. Each step is a command that is shown
    before it runs.
    """
    from kmip_data.builds.home import Home
    from kmip_data.cli.main import PROGRAM, root
    from kmip_data.models.training.run.folder import find_run, read_result

    home = Home.locate(folder)
    started = time.monotonic()
    name = time.strftime("demo-%Y%m%d-%H%M%S")
    endings = [f"-seed{seed}" for seed in range(SEEDS)] if full else [""]
    runs = {model: [f"{model}/{name}{ending}" for ending in endings] for model in MODELS}
    # With --json stdout is for the one object at the end; the rest goes to stderr.
    with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
        click.echo(
            "Real data: the streets of central Helsinki, from an OpenStreetMap extract in a package."
            " © OpenStreetMap contributors, ODbL 1.0."
        )
        click.echo(f"All files are written below {home.root}.")
        steps = _steps(runs, name, full=full)
        for number, (title, step) in enumerate(steps, start=1):
            args = [*step, "--home", str(home.root)]
            click.echo(f"\n[{number}/{len(steps)}] {title}\n$ kmip-data {shlex.join(args)}")
            with root.make_context(PROGRAM, args) as context:  # an error of a step is one of the demo
                root.invoke(context)
    seconds = time.monotonic() - started
    models = {
        model: [read_result(find_run(run, home)).metrics for run in each] for model, each in runs.items()
    }
    run = find_run(runs[MODELS[0]][0], home)
    page = run / "explore.html"
    found = {"home": home.root, "run": run, "page": page, "models": models, "seconds": seconds}
    text = (
        f"\nDone in {seconds:.0f} s. Open {page}\n\n"
        f"The runs: kmip-data runs --home {shlex.quote(str(home.root))}\n"
        "Eleven models on two cities: docs/results.md. The paper's network and its 1,500 epochs:"
        f" kmip-data train --dataset {CITY}"
    )
    click.echo(text, err=as_json)
    if as_json:
        print_json(found)


def _steps(runs: Mapping[str, Sequence[str]], name: str, *, full: bool) -> list[tuple[str, list[str]]]:
    """Return a title and the arguments of a command for each step."""
    training = [*SETTINGS, "--name", name, *(["--seeds", f"0..{SEEDS - 1}"] if full else [])]
    first = runs[MODELS[0]][0]
    each = f" from each of {counted(SEEDS, 'seed')}" if full else ""
    return [
        ("Turn the extract into a graph whose nodes have a long-range label", ["build", CITY]),
        ("Check every byte of the build", ["verify", CITY]),
        ("Draw the map: by class, by eccentricity, by split", ["preview", CITY]),
        *(
            (f"Train {model}{each}, with settings for a small city",
             ["train", "--dataset", CITY, "--model", model, *training])
            for model in runs
        ),
        ("Evaluate the best weights, class by class", ["evaluate", first, "--by-class"]),
        ("Draw the map again, with where the model is right", ["preview", CITY, "--run", first]),
        ("Compare the models with the GCN, seed by seed",
         ["report", *(run for each in runs.values() for run in each), "--against", "gcn"]),
        ("Write an interactive page of the graph and its predictions", ["explore", first, "--no-open"]),
    ]  # fmt: skip
