"""``kmip-data bench train``: training steps of models."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from kmip_data.cli.benchmarks import machine_line, quantity
from kmip_data.cli.shared.commands import Command
from kmip_data.cli.shared.options import TARGET, device_option, keys_option, sample_option, work_options
from kmip_data.cli.shared.output import print_json, table

if TYPE_CHECKING:
    from kmip_data.builds.home import Home
    from kmip_data.models.profiling.training import Pace

ROUNDS, BATCHES, SECONDS = 5, 20, 60.0  #: rounds, batches of one, seconds of all rounds of a network


@click.command(
    "train",
    cls=Command,
    examples=[
        "kmip-data bench train helsinki --model gps-kmip,gcn",
        "kmip-data bench train s3dis --sample",
        "kmip-data bench train malnet-tiny --device cuda --set training.precision=bf16-mixed",
    ],
)
@click.argument("target", type=TARGET)
@click.option("--model", "models", default="gps-kmip", show_default=True, metavar="LIST", help="Model names.")
@device_option()
@sample_option
@keys_option("Configuration key, as in `train`.")
@work_options
def command(
    target: str,
    models: str,
    overrides: tuple[str, ...],
    home: Home,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Time the training steps of models.

    Runs batches of the loop of `train`, several models in turn: seconds, graphs per second, memory, hours
    for the preset's epochs. On a GPU steps are launched kernel by kernel, where `train` replays CUDA graphs.
    """
    from kmip_data.cli.train import configuration

    # Names and keys are checked before torch is imported, which takes seconds.
    names = list(dict.fromkeys(models.split(",")))
    given = {"variant": "code", "epochs": None, "overrides": [*overrides, "system.devices=1"], **options}
    configs = {name: configuration(target, {}, {}, home=home, model=name, **given) for name in names}
    from kmip_data.models.profiling.training import Contestant, compare_training
    from kmip_data.models.training.data.graphs import open_data
    from kmip_data.models.training.machine import choose_device
    from kmip_data.runtime.progress import say

    first = configs[names[0]]
    device = choose_device(first.system.device)
    data = {name: open_data(config, home=home, quiet=quiet) for name, config in configs.items()}
    makers = {
        name: partial(Contestant, config=config, data=data[name], device=device)
        for name, config in configs.items()
    }
    paces = compare_training(
        makers, rounds=ROUNDS, most=BATCHES, seconds=SECONDS, tell=partial(say, quiet=quiet)
    )
    about = {"machine": machine_line(), "device": device.name, "data": data[names[0]].description}
    if as_json:
        print_json({**about, "models": [asdict(pace) for pace in paces]})
        return
    click.echo(pace_table(paces))
    for pace in paces:
        if pace.note:
            click.echo(f"{pace.name}: {pace.note}")
    remark = data[names[0]].build.card.remark
    epochs = f"{first.training.epochs:,} epochs of {first.preset or 'no preset'}"
    extent = f" on these data{remark}, whose epochs are not the published set's" if remark else ""
    click.echo(f"hours: for the {epochs}{extent}, without evaluations; ratio: time over that of {names[0]}")
    click.echo(f"data: {about['data']}\n{about['machine']}; device {device.name}")


def pace_table(paces: list[Pace]) -> str:
    """Return the speed of networks as a table."""
    header = ["", "a batch", "graphs/s", "memory", "hours", "ratio"]
    rows = []
    for pace in paces:
        if pace.seconds is None or pace.ratio is None or pace.spread is None or pace.hours is None:
            rows.append([pace.name, *("–" for _ in header[1:])])
            continue
        rows.append(
            [
                pace.name,
                quantity(pace.seconds, "s"),
                f"{pace.graphs / pace.seconds:.3g}",
                "–" if pace.peak is None else f"{pace.peak / 2**20:,.0f} MiB",
                f"{pace.hours:.3g}",
                f"{pace.ratio:.2f}× ({pace.spread[0]:.2f} to {pace.spread[1]:.2f})",
            ]
        )
    return table(header, rows)
