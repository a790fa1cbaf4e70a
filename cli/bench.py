"""``kmip-data bench``: speed of attention, reading and training on this machine."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kmip_data.cli.shared.commands import (
    TARGET,
    Command,
    Group,
    device_option,
    json_option,
    keys_option,
    number_option,
    quiet_option,
    sample_option,
    work_options,
)
from kmip_data.cli.shared.output import check_prefix, print_json, show, table, with_ending
from kmip_data.runtime.progress import say
from kmip_data.wording import counted

if TYPE_CHECKING:
    from kmip_data.builds.home import Home
    from kmip_data.models.profiling.measuring import Protocol
    from kmip_data.models.profiling.methods import Shape
    from kmip_data.models.profiling.results import Measurement
    from kmip_data.models.profiling.training import Pace

SHARE = 0.8  #: of the free memory that a method may take
SETTINGS = ("inference", "training")
ROUNDS, BATCHES, SECONDS = 5, 20, 60.0  #: rounds, batches of one, seconds of all rounds of a network


@click.group(
    cls=Group,
    invoke_without_command=True,
    examples=[
        "kmip-data bench attention --max-n 1e4 --save attention",
        "kmip-data bench reading",
        "kmip-data bench train helsinki --model gps-kmip,gcn",
    ],
)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Measure speed on this machine.

    What is compared runs in turn in one command, so that a busy machine slows all of it. In a checkout `make
    bench` measures every row of docs/performance.md.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


class Count(click.ParamType):  # type: ignore[type-arg]
    """A number of nodes from 100 to 1e9, also as 1e5."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read ``1e5`` and ``100000``."""
        try:
            number = float(value)
        except ValueError:
            self.fail(f"{value!r} is not a number", param, ctx)
        if not 100 <= number <= 1e9:
            self.fail(f"{value} is not a number from 100 to 1e9", param, ctx)
        return int(number)


@command.command(
    "attention",
    cls=Command,
    examples=[
        "kmip-data bench attention --max-n 1e4 --save attention",
        "kmip-data bench attention --methods auto,cpu,dense,keops --max-n 1e5 --k 100",
        "kmip-data bench attention --data sphere --d 64 --max-n 1e5",
    ],
)
@click.option("--methods", metavar="LIST", help="Such as auto,symbolic,naive,full,sdpa; `all`: every method.")
@number_option(
    "--max-n", "Largest number of nodes, at least 100; sizes are 100, 316, 1,000 …", 100_000, type=Count()
)
@click.option("--setting", type=click.Choice([*SETTINGS, "both"]), default="both", show_default=True)
@number_option("--heads", "Attention heads.", 1)
@number_option("--d", "Length of a query, a key and a value.", 10, type=click.IntRange(1, 256))
@number_option("--k", "Keys that a query attends to.", 10)
@click.option(
    "--data",
    type=click.Choice(["gaussian", "sphere", "clustered"]),
    default="gaussian",
    show_default=True,
    help="Rows: standard normal, of length 1, or around 64 centres.",
)
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True)
@click.option("--save", metavar="PREFIX", help="Write PREFIX.csv and PREFIX.png.")
@json_option
@quiet_option
def attention(
    methods: str | None, max_n: int, data: str, device: str, save: str | None, as_json: bool,
    quiet: bool, **options: Any,
) -> None:  # fmt: skip
    """Repeat the paper's efficiency experiment on this machine.

    Time and peak memory of attention methods against the number of nodes, in inference and in training, each
    method in a process of its own: out of memory or time is a cell of the table. The paper's A100 figures are
    shown with them, marked as such.
    """
    from kmip_data.models.profiling.measuring import Protocol, measure
    from kmip_data.models.profiling.methods import Shape, default_methods, method_names, sizes_up_to
    from kmip_data.models.profiling.results import published
    from kmip_data.models.training.machine import choose_device
    from kmip_data.runtime.memory import free_host_memory

    prefix = None if save is None else Path(save).expanduser()
    if prefix is not None:
        check_prefix(prefix)
    kind = choose_device(device).kind
    names = default_methods(kind) if methods is None else [name.strip() for name in methods.split(",")]
    names = method_names() if names == ["all"] else list(dict.fromkeys(names))
    settings: Any = SETTINGS if options["setting"] == "both" else (options["setting"],)
    d = options["d"]
    shape = Shape(heads=options["heads"], d=d, value_dim=d, k=options["k"], data=data)
    sizes = sizes_up_to(max_n)
    protocol = Protocol(device=kind, memory_limit=int(SHARE * free_host_memory()))

    def log(cell: Measurement) -> None:
        say(f"{cell.method}, {cell.setting}, {cell.n:,} nodes: {_time(cell)}", quiet=quiet)

    cells = measure(names, sizes, shape=shape, protocol=protocol, settings=settings, log=log)
    paper = published() if shape == Shape() else None
    about = {"machine": machine_line(), "what": _what(shape, protocol)}
    if prefix is not None:
        _save(prefix, cells, f"{about['what']}\n{about['machine']}", paper)
    if as_json:
        print_json({**about, "cells": [cell.as_dict() for cell in cells]})
        return
    for setting in settings:
        click.echo(f"{_table(setting, [cell for cell in cells if cell.setting == setting], paper)}\n")
    notes = [cell for cell in cells if cell.status != "ok" and not cell.note.startswith("not tried")]
    for cell in notes:
        click.echo(f"{cell.method}, {cell.n:,} nodes: {cell.note}")
    click.echo(f"{about['what']}; median of at most {protocol.repeats} runs\n{about['machine']}")
    if paper is not None:
        click.echo(f"A100: figures of the paper, not of this machine ({paper.source})")


def _save(prefix: Path, cells: list[Measurement], title: str, paper: Any) -> None:
    """Write the cells as CSV and as a picture."""
    from kmip_data.files.changes import write_output
    from kmip_data.files.reading import csv_bytes
    from kmip_data.models.profiling.results import draw_sweep

    rows = [cell.as_dict() for cell in cells]
    write_output(with_ending(prefix, ".csv"), csv_bytes([*rows[0]], (row.values() for row in rows)))
    draw_sweep(cells, with_ending(prefix, ".png"), title=title, paper=paper)


def _what(shape: Shape, protocol: Protocol) -> str:
    """Return one line that says what is measured."""
    sizes = f"H = {shape.heads}, d = {shape.d}, k = {shape.k}"
    return f"{sizes}, {shape.data}, {protocol.device}, {counted(protocol.threads, 'thread')}"


def _table(setting: str, cells: list[Measurement], paper: Any) -> str:
    """Return methods against sizes, with growth and memory per node; the paper's figures below."""
    from kmip_data.models.profiling.results import growth_exponent

    sizes = sorted({cell.n for cell in cells})
    rows: list[list[Any]] = []
    for method in dict.fromkeys(cell.method for cell in cells):
        of_it = {cell.n: cell for cell in cells if cell.method == method}
        done = [cell for cell in of_it.values() if cell.seconds]
        peak = done[-1].peak_bytes if done else None
        memory = "–" if peak is None else f"{peak / done[-1].n:,.0f}"
        growth = growth_exponent([(cell.n, cell.seconds or 0.0) for cell in done]) if done else None
        rows.append([method, *(_time(of_it[n]) for n in sizes), _power(growth), memory])
    for curve in paper.curve if paper is not None else ():
        if curve.setting == setting:
            seconds = {n: ms / 1e3 for n, ms in zip(curve.n, curve.milliseconds, strict=True)}
            memory = f"{curve.megabytes[-1] * 2**20 / curve.n[-1]:,.0f}" if curve.megabytes else "–"
            times = [quantity(seconds.get(n), "s") for n in sizes]
            rows.append([f"A100: {curve.method}", *times, _power(growth_exponent(seconds.items())), memory])
    return table([setting, *(f"{n:,}" for n in sizes), "growth", "bytes per node"], rows)


def _time(cell: Measurement) -> str:
    return cell.status if cell.seconds is None else quantity(cell.seconds, "s")


def _power(exponent: float | None) -> str:
    return "–" if exponent is None else f"n^{exponent:.2f}"


@command.command(
    "reading", cls=Command, examples=["kmip-data bench reading", "kmip-data bench reading --graphs 32"]
)
@number_option("--graphs", "Generated graphs of S3DIS size: 4,096 nodes, 32 neighbours each.", 256)
@json_option
def reading(graphs: int, as_json: bool) -> None:
    """Time single graphs at random and shuffled batches.

    Reads generated graphs from shards and from PyTorch Geometric's datasets on disk and in memory, in turn.
    A ratio above 1 means that the shards are faster.
    """
    from kmip_data.models.profiling.reading import compare_reading

    found = compare_reading(graphs)
    about = {"machine": machine_line(), "graphs": graphs, "rows": [row._asdict() for row in found]}
    header = ["", "kmip-data", "PyTorch Geometric", "ratio", "spread"]
    rows = [
        [
            row.what,
            *(quantity(seconds, "s") for seconds in (row.ours, row.theirs)),
            f"{row.ratio:.2f}×",
            f"{row.least:.2f} to {row.most:.2f}",
        ]
        for row in found
    ]
    show(about, f"{table(header, rows)}\n{graphs:,} graphs; {about['machine']}", as_json=as_json)


@command.command(
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
def train(
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

    first = configs[names[0]]
    device = choose_device(first.system.device)
    data = {name: open_data(config, home=home, quiet=quiet) for name, config in configs.items()}
    makers = {
        name: partial(Contestant, config=config, data=data[name], device=device)
        for name, config in configs.items()
    }
    paces = compare_training(
        makers, rounds=ROUNDS, most=BATCHES, seconds=SECONDS, log=partial(say, quiet=quiet)
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


def quantity(value: float | None, unit: str) -> str:
    """Write a figure with a unit that suits its size.

    >>> quantity(0.00042, "s")
    '420 µs'
    """
    if value is None:
        return "–"
    if unit == "s" and value < 1:
        return f"{value * 1e6:.3g} µs" if value < 1e-3 else f"{value * 1e3:.3g} ms"
    space = " " if unit not in ("", "×") else ""
    return (f"{value:,.0f}" if value >= 1000 else f"{value:.3g}") + space + unit


def machine_line() -> str:
    """Return processor, cores this process may use, memory, system and versions."""
    import importlib.metadata
    import os
    import platform
    import re

    import psutil

    from kmip_data.runtime.threads import available_cores

    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file() and (
        found := re.search(r"^model name\s*:\s*(.*)$", cpuinfo.read_text(), re.MULTILINE)
    ):
        name = found[1].strip()
    facts = [
        name,
        f"{available_cores()} cores",
        f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        f"{platform.system()} {platform.machine()}",
        f"Python {platform.python_version()}",
        *(f"{package} {importlib.metadata.version(package)}" for package in ("numpy", "torch")),
        *([f"load {os.getloadavg()[0]:.1f}"] if hasattr(os, "getloadavg") else []),
    ]
    return ", ".join(facts)
