"""Training: steps of a model's own loop by their parts, beside PyTorch Geometric's layers and upstream's."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from kmip_data.cli.bench import machine_line, quantity, quick_option
from kmip_data.cli.shared.command import Command
from kmip_data.cli.shared.names import TARGET
from kmip_data.cli.shared.options import sample_option, work_options
from kmip_data.cli.shared.output import print_json, table

if TYPE_CHECKING:
    from kmip_data.builds.home import Home
    from kmip_data.models.profiling.training import Pace

ROUNDS, BATCHES, SECONDS = 5, 20, 60.0  #: of a network: rounds, batches of one, seconds of all
QUICK = (1, 1, 1.0)


@click.command(
    "train",
    cls=Command,
    examples=[
        "kmip-data bench train helsinki --model gps-kmip,gcn",
        "kmip-data bench train s3dis --sample --quick",
        "kmip-data bench train malnet-tiny --device cuda --set training.precision=bf16-mixed",
    ],
)
@click.argument("target", type=TARGET)
@click.option(
    "--model", "models", default="gps-kmip", show_default=True, metavar="LIST", help="Which models."
)
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), help="[default: auto]")
@sample_option
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="As `train` takes it.")
@click.option("--alone", is_flag=True, help="The models alone, without layers of others to compare with.")
@quick_option
@work_options
def command(
    target: str,
    models: str,
    overrides: tuple[str, ...],
    alone: bool,
    quick: bool,
    home: Home,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """How fast models train here, by the parts of a step.

    Batches of the loop that `train` runs, several models in turn: waiting for data, forward pass
    without search, search, backward pass, optimiser; graphs a second, memory, operators called (on a
    GPU also the time of a batch as a CUDA graph; launches, kernels and synchronisations, in brackets
    those of such a batch), hours to the preset's epochs. Beside them, with the width and depth of the
    first model, PyTorch Geometric's GPSConv with multihead and with Performer attention, and k-MIP
    attention as upstream computes it.
    """
    from kmip_data.cli.train import configuration

    names = list(dict.fromkeys(models.split(",")))
    given = {"variant": "code", "epochs": None, "overrides": [*overrides, "system.devices=1"], **options}
    configs = {name: configuration(target, {}, {}, home=home, model=name, **given) for name in names}
    from kmip_data.models.profiling.rivals import rivals
    from kmip_data.models.profiling.training import Contestant, compare_training
    from kmip_data.models.training.data.obtain import open_data
    from kmip_data.models.training.machine import choose_device
    from kmip_data.models.training.run.train import teller

    first = configs[names[0]]
    device = choose_device(first.system.device)
    data = {name: open_data(config, home=home, quiet=quiet) for name, config in configs.items()}
    makers = [
        (name, partial(Contestant, config=config, data=data[name], device=device))
        for name, config in configs.items()
    ]
    if not alone:
        makers += [
            (name, partial(Contestant, config=first, data=data[names[0]], device=device, replace=replace))
            for name, replace in rivals(first.model, device.kind).items()
        ]
    rounds, most, seconds = QUICK if quick else (ROUNDS, BATCHES, SECONDS)
    paces = compare_training(makers, rounds=rounds, most=most, seconds=seconds, tell=teller(quiet))
    about = {"machine": machine_line(), "device": device.name, "data": data[names[0]].description}
    if as_json:
        print_json({**about, "quick": quick, "models": [asdict(pace) for pace in paces]})
        return
    click.echo(_table(paces, cuda=device.kind == "cuda"))
    for pace in paces:
        if pace.note:
            click.echo(f"{pace.name}: {pace.note}")
    card = data[names[0]].build.card
    epochs = f"{first.training.epochs:,} epochs of {first.preset or 'no preset'}"
    extent = f" on these data{card.remark}, whose epochs are not the published set's" if card.remark else ""
    click.echo(f"hours: to the {epochs}{extent}, without evaluations; ratio: time to that of {paces[0].name}")
    click.echo(f"data: {about['data']}")
    small = " (quick: not the figures of a full run)" if quick else ""
    click.echo(f"{about['machine']}; device {device.name}{small}")


def _table(paces: list[Pace], *, cuda: bool) -> str:
    from kmip_data.models.profiling.training import ON_GPU

    stages = list(next((pace.stages for pace in paces if pace.stages), {}))
    counts = ["operators", *(ON_GPU if cuda else [])]
    captured = ["captured"] if cuda else []
    header = [
        "",
        "a batch",
        *captured,
        *stages,
        "graphs/s",
        "data's share",
        "memory",
        *counts,
        "hours",
        "ratio",
    ]
    rows = []
    for pace in paces:
        if pace.seconds is None:
            rows.append([pace.name, *("–" for _ in header[1:])])
            continue
        low, high = pace.spread or (0.0, 0.0)
        rows.append(
            [
                pace.name,
                quantity(pace.seconds, "s"),
                *("–" if pace.captured is None else quantity(pace.captured, "s") for _ in captured),
                *(quantity(seconds, "s") for seconds in pace.stages.values()),
                f"{pace.graphs / pace.seconds:.3g}",
                f"{100 * pace.stages['data'] / pace.seconds:.1f} %",
                "–" if pace.peak is None else f"{pace.peak / 2**20:,.0f} MiB",
                *(_count(pace, name) for name in counts),
                f"{pace.hours:.3g}",
                f"{pace.ratio:.2f}× ({low:.2f} to {high:.2f})",
            ]
        )
    return table(header, rows)


def _count(pace: Pace, name: str) -> str:
    """Of a plain step and, in brackets, of a recorded one."""
    captured = f" ({pace.replayed[name]:,})" if name in pace.replayed else ""
    return f"{getattr(pace, name):,}{captured}"
