"""``kmip-data demo``: show what k-MIP attention is for, offline, in about a minute of work."""

from __future__ import annotations

import contextlib
import io
import json
import shlex
import sys
import time
from typing import TYPE_CHECKING

import click

from kmip_data.cli.shared.command_classes import ClickCommand
from kmip_data.cli.shared.options import json_option
from kmip_data.cli.shared.output import Json, completed, format_table, print_result, wants_json
from kmip_data.errors import Command, MissingExtra, SourceUnavailable

if TYPE_CHECKING:
    from kmip_data.builds.home import Home


CITY = "helsinki"
TASK = "long-range"
#: Size of the task. Attention learns it in three epochs.
GRAPHS = 2_400
NODES = 32
EPOCHS = 4
LARGE_NODES = 512  #: size of the graphs that the trained networks are tested on
LARGE_GRAPHS = 24
MODELS = ("gps-kmip", "gps-transformer", "gps-none", "gcn")
TIMED_NODES = (1_000, 4_000, 16_000)  #: sizes at which attention is timed
DISTANCE_BANDS = ("1", "2", "4", "9–12", "19–26")  #: distances in the summary, in edges
PICTURE = "long-range.png"


@click.command(cls=ClickCommand)
@click.option(
    "--home", "folder", default="demo-home", envvar="KMIP_DATA_HOME", metavar="DIR",
    help="Folder for all results.  [default: $KMIP_DATA_HOME, else demo-home]",
)  # fmt: skip
@json_option
def command(folder: str) -> None:
    """Show offline, in about a minute on two cores, what k-MIP attention is for.

    1. Trains four networks on a task whose answer lies at a distant node. 2. Draws the streets
    of Helsinki and an interactive page, if the extra demo is installed. 3. Compares the time of
    k-MIP and full attention. Each command is shown before it runs.
    """
    from kmip_data.builds.home import Home

    home = Home.locate(folder)
    started = time.monotonic()
    name = time.strftime("demo-%Y%m%d-%H%M%S")
    # With --json, stdout has only the JSON object; everything else goes to stderr.
    with contextlib.redirect_stdout(sys.stderr) if wants_json() else contextlib.nullcontext():
        click.echo(f"All files are written below {home.path}.")
        result, text = _run_demo(home, name)
    seconds = time.monotonic() - started
    click.echo(f"\nDone in {seconds:.0f} s.\n\n{text}", err=wants_json())
    print_result({**result, "home": home.path, "seconds": seconds})


def _run_demo(home: Home, name: str) -> tuple[Json, str]:
    """Run the three parts of the demo; return what ``--json`` prints, and the summary."""
    from kmip_data.models.analysis.explanations import draw_metric_by_distance, evaluate_by_distance
    from kmip_data.models.training.run.find_runs import find_run
    from kmip_data.models.training.run.result import read_result
    from kmip_data.pipelines.find_builds import find_build

    click.echo(
        "\nA task that needs attention: each node must return a value that one other node holds."
    )
    target = _build_task(home, NODES, GRAPHS)
    large = _build_task(home, LARGE_NODES, LARGE_GRAPHS)

    # 1. Train each network, and evaluate it by the distance to the answer and on larger graphs.
    by_model = {}
    on_large = {}
    lines = []
    for model in MODELS:
        _show_and_run(home, f"train {target} --model {model} --epochs {EPOCHS} --name {name}")
        run = find_run(f"{model}/{name}", home)
        result = read_result(run)
        accuracy = result.metrics["test"]["accuracy"]
        seconds = result.seconds.total
        click.echo(
            f"{model}: {100 * accuracy:.1f} % of the test nodes after {seconds:.0f} s of training"
        )
        bands = evaluate_by_distance(run, home=home)
        assert bands is not None, "its data have distances"
        by_model[model] = bands
        step = f"evaluate {model}/{name} --dataset {large} --split all --json"
        evaluation = json.loads(_show_and_run(home, step))
        on_large[model] = evaluation["metrics"]["all"]["accuracy"]
        values = dict(zip(bands.bands, bands.values, strict=True))
        shown = [f"{100 * values[band]:.0f}" if band in values else "–" for band in DISTANCE_BANDS]
        large_cell = f"{100 * on_large[model]:.1f}"
        lines.append([model, f"{100 * accuracy:.1f}", large_cell, *shown])
    picture = home.path / PICTURE
    draw_metric_by_distance(
        by_model, picture, title="Accuracy by the distance to the answer", chance=1 / 8
    )

    # 2. Draw a city, if this machine can.
    click.echo(
        "\nReal data: the streets of central Helsinki. © OpenStreetMap contributors, ODbL 1.0."
    )
    page = None
    try:
        for step in (f"build {CITY}", f"explore {CITY} --no-open"):
            _show_and_run(home, step)
        page = find_build(CITY, home=home).path / "explore.html"
        last = f"Open {page}"
    except (MissingExtra, SourceUnavailable) as error:  # raised by the first step
        click.echo(error.message)
        steps = "; ".join(map(str, [*error.steps, completed(Command("kmip-data demo"))]))
        last = f"The map of the city: {steps}"

    # 3. Time forward passes of k-MIP and full attention on the CPU.
    click.echo("\nk-MIP attention, exact, against full attention: one head, 10 channels, k = 10.")
    times = []
    rows = []
    for n in TIMED_NODES:
        kmip, full = _attention_seconds(n)
        times.append({"nodes": n, "kmip": kmip, "full": full})
        rows.append([f"{n:,}", f"{kmip:.3f}", f"{full:.3f}", f"{full / kmip:.1f}"])
    header = [
        "network",
        "test [%]",
        f"on {LARGE_NODES}",
        "1 edge",
        *(f"{band} edges" for band in DISTANCE_BANDS[1:]),
    ]
    text = f"""\
{format_table(header, lines)}
Chance is 12.5 %. Attention finds the node at any distance; two layers of message
passing reach two edges. The graphs have up to {NODES} nodes, but those of the third column
up to {LARGE_NODES}. By distance: {picture}

{format_table(["nodes", "k-MIP [s]", "full [s]", "ratio"], rows)}
Full attention learns this task as well, but takes longer and carries over less.
What does not help: attention on the streets of Helsinki (docs/results.md).

{last}"""
    facts = {
        "models": {model: vars(bands) for model, bands in by_model.items()},
        "large": on_large,
        "attention": times,
        "picture": picture,
        "page": page,
    }
    return facts, text


def _attention_seconds(n: int) -> list[float]:
    """Return the seconds of k-MIP and of full attention on n nodes, each in its second forward pass."""
    import torch

    from kmip_data.models import kmip_attention

    queries, keys, values = torch.randn(3, 1, n, 10, generator=torch.Generator().manual_seed(0))

    def attend_to_all() -> None:
        for rows in queries.split(1_000, dim=1):  # a block of scores at a time
            (rows @ keys.mT / 10**0.5).softmax(-1) @ values

    seconds = []
    for attend in (lambda: kmip_attention(queries, keys, values, 10), attend_to_all):
        attend()  # compiles
        start = time.perf_counter()
        attend()
        seconds.append(time.perf_counter() - start)
    return seconds


def _build_task(home: Home, nodes: int, graphs: int) -> str:
    """Build the task with ``graphs`` of up to ``nodes`` nodes; return the name of the build."""
    from kmip_data.pipelines.find_builds import find_build

    _show_and_run(home, f"build {TASK} --set nodes={nodes} --set graphs={graphs} --jobs 1")
    return find_build(TASK, {"nodes": nodes, "graphs": graphs}, home=home).path.name


def _show_and_run(home: Home, line: str) -> str:
    """Show a command, run it, and return its output."""
    from kmip_data.cli.main import root
    from kmip_data.cli.shared.command_line_errors import PROGRAM

    args = [*line.split(), "--home", str(home.path)]
    click.echo(f"$ kmip-data {shlex.join(args)}")
    if args[0] in {"build", "train"}:
        args.append("--quiet")
    output = io.StringIO()
    with contextlib.redirect_stdout(output), root.make_context(PROGRAM, args) as context:
        root.invoke(context)  # its errors are errors of the demo
    return output.getvalue()
