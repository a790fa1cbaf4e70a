"""``kmip-data bench``: speed of attention, reading and training on this machine."""

from __future__ import annotations

import functools
import importlib.metadata
import platform
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kmip_data.cli.shared import commands as shared
from kmip_data.cli.shared.output import check_prefix, show, table, with_ending
from kmip_data.runtime.progress import say
from kmip_data.wording import counted

if TYPE_CHECKING:
    from kmip_data.builds.home import Home
    from kmip_data.models.profiling.measuring import Measurement
    from kmip_data.models.profiling.training import Pace

SHARE = 0.8  #: of the free memory that a method may take
ROUNDS, BATCHES, SECONDS = (
    5,
    20,
    60.0,
)  #: rounds, batches of one, seconds of all rounds of a network


@click.group(cls=shared.Group)
def command() -> None:
    """Measure speed on this machine.

    Compared methods take turns, so that a busy machine slows all of them. In a checkout `make bench` measures
    the rows of docs/performance.md.
    """


@command.command("attention", cls=shared.Command)
@click.option(
    "--methods",
    metavar="LIST",
    help="Methods, such as auto,symbolic,naive,full,sdpa; `all`: every method.",
)
@shared.number_option(
    "--max-n",
    "Largest number of nodes; sizes are 100, 316 …",
    100_000,
    type=click.FloatRange(100, 1e9),
)
@shared.number_option(
    "--d", "Dimension of queries, keys and values.", 10, type=shared.Integer(1, 256)
)
@shared.number_option("--k", "Keys per query.", 10)
@click.option(
    "--data", type=click.Choice(["gaussian", "sphere"]), default="gaussian", show_default=True,
    help="Queries and keys: standard normal, or unit vectors.",
)  # fmt: skip
@click.option(
    "--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True
)
@click.option(
    "--breakdown", is_flag=True,
    help="Time each stage at 31,622 nodes (or --max-n): projections, search, softmax, weighted sum, backward.",
)  # fmt: skip
@click.option("--save", metavar="PREFIX", help="Write PREFIX.csv and PREFIX.png.")
@shared.json_option
@shared.quiet_option
def attention(
    methods: str | None, max_n: float, device: str, breakdown: bool, save: str | None, as_json: bool,
    quiet: bool, **shapes: Any,
) -> None:  # fmt: skip
    """Repeat the paper's efficiency experiment on this machine.

    Measures time and peak memory of attention methods against the number of nodes, in inference and in
    training. Each method has its own process, so running out of memory or time fills one cell of the table.
    The paper's A100 figures are shown below, labelled as such.
    """
    from kmip_data.files.changes import write_output
    from kmip_data.files.reading import csv_bytes
    from kmip_data.manifest import read_shipped
    from kmip_data.models.profiling.breakdown import (
        METHODS,
        NODES,
        PATIENCE,
        draw_breakdown,
        median_stages,
    )
    from kmip_data.models.profiling.measuring import SETTINGS, Protocol, draw_sweep, measure
    from kmip_data.models.profiling.methods import Shape, default_methods, method_names, sizes_up_to
    from kmip_data.models.training.machine import choose_device
    from kmip_data.runtime.memory import free_host_memory

    prefix = None if save is None else Path(save).expanduser()
    if prefix is not None:
        check_prefix(prefix)
    kind = choose_device(device).kind
    if methods is not None:
        chosen = methods.replace(" ", "").split(",")
    elif breakdown:
        chosen = list(METHODS)
    else:
        chosen = default_methods(kind)
    names = method_names() if chosen == ["all"] else list(dict.fromkeys(chosen))
    settings: Any = SETTINGS
    sizes = sizes_up_to(max_n)
    if breakdown:
        settings = SETTINGS[-1:]
        sizes = sizes_up_to(min(max_n, NODES))[-1:]
    shape = Shape(**shapes)
    memory_limit = int(SHARE * free_host_memory())
    protocol = Protocol(device=kind, memory_limit=memory_limit)
    if breakdown:
        protocol = replace(protocol, stages=True, time_limit=PATIENCE)

    def log(cell: Measurement) -> None:
        seconds = _time(cell)
        if (
            cell.stages
        ):  # the sum of its column: medians of stages, which are not that of their sums
            seconds = quantity(sum(median_stages(cell).values()), "s")
        say(f"{cell.method}, {cell.setting}, {cell.n:,} nodes: {seconds}", quiet=quiet)

    cells = measure(names, sizes, shape=shape, protocol=protocol, settings=settings, log=log)
    paper = read_shipped("results", "efficiency") if shape == Shape() else None
    dimensions = f"H = {shape.heads}, d = {shape.d}, k = {shape.k}"
    what = f"{dimensions}, {shape.data}, {kind}, {counted(protocol.threads, 'thread')}"
    draw: Any = draw_sweep
    title = what
    if breakdown:
        if cells[0].n != int(NODES):
            paper = None
        rows = [row for cell in cells for row in cell.stage_rows()]
        text = [f"{_stage_table(cells, paper)}\n"]
        draw = draw_breakdown
        title = f"Time of one {settings[0]} step of attention at {sizes[0]:,} nodes\n{what}"
    else:
        rows = [cell.as_dict() for cell in cells]
        text = [
            f"{_table(each, [c for c in cells if c.setting == each], paper)}\n" for each in settings
        ]
    if prefix is not None:
        write_output(
            with_ending(prefix, ".csv"), csv_bytes([*rows[0]], (row.values() for row in rows))
        )
        draw(cells, with_ending(prefix, ".png"), title=f"{title}\n{machine_line()}", paper=paper)
    notes = [
        cell for cell in cells if cell.status != "ok" and not cell.note.startswith("not tried")
    ]
    text += [f"{cell.method}, {cell.n:,} nodes: {cell.note}" for cell in notes]
    text.append(f"{what}; median of at most {protocol.repeats} runs\n{machine_line()}")
    if paper is not None:
        text.append(f"A100: figures of the paper, not of this machine ({paper['source']})")
    show({"machine": machine_line(), "what": what, "cells": rows}, "\n".join(text), as_json=as_json)


def _table(setting: str, cells: list[Measurement], paper: Any) -> str:
    """Return methods against sizes, with growth and memory per node; the paper's figures below."""
    from kmip_data.models.profiling.measuring import growth_exponent

    sizes = sorted({cell.n for cell in cells})
    rows: list[list[Any]] = []
    for method in dict.fromkeys(cell.method for cell in cells):
        of_it = {cell.n: cell for cell in cells if cell.method == method}
        growth = growth_exponent((cell.n, cell.seconds) for cell in of_it.values() if cell.seconds)
        peaks = [cell.peak_bytes / cell.n for cell in of_it.values() if cell.peak_bytes]
        rows.append(
            [method, *(_time(of_it[n]) for n in sizes), growth, peaks[-1] if peaks else None]
        )
    for curve in paper["curve"] if paper is not None else ():
        if curve["setting"] == setting:
            seconds = {n: ms / 1e3 for n, ms in zip(curve["n"], curve["milliseconds"], strict=True)}
            memory = (
                curve["megabytes"][-1] * 2**20 / curve["n"][-1] if "megabytes" in curve else None
            )
            times = [quantity(seconds.get(n), "s") for n in sizes]
            rows.append(
                [f"A100: {curve['method']}", *times, growth_exponent(seconds.items()), memory]
            )
    for row in rows:
        growth, memory = row[-2:]
        row[-2:] = growth and f"n^{growth:.2f}", memory and f"{memory:,.0f}"
    return table([setting, *(f"{n:,}" for n in sizes), "growth", "bytes per node"], rows)


def _stage_table(cells: list[Measurement], paper: Any) -> str:
    """Return stages against methods, each with its share of the step; the paper's passes next to them."""
    from kmip_data.models.profiling.breakdown import FORWARD, LABELS, STAGES, median_stages

    columns = {cell.method: median_stages(cell) for cell in cells}
    for published in paper["split"] if paper is not None else ():
        columns[f"A100: {published['method']}"] = {
            stage: published[stage] / 1e3 for stage in (FORWARD, "backward")
        }
    rows: list[list[Any]] = []
    for seconds in columns.values():
        if seconds:
            seconds["sum"] = sum(seconds.values())
            seconds[FORWARD] = seconds["sum"] - seconds.get("backward", 0.0)
    for stage in (*STAGES[:-1], FORWARD, "backward", "sum"):
        row: list[Any] = [{FORWARD: "forward pass"}.get(stage) or LABELS.get(stage, stage)]
        row += [_with_share(each.get(stage), each.get("sum")) for each in columns.values()]
        if any(row[1:]):
            rows.append(row)
    return table([f"{cells[0].setting}, {cells[0].n:,} nodes", *columns], rows)


def _with_share(seconds: float | None, total: float | None) -> str | None:
    """Write the time of a stage and its share of the step; the step without a share."""
    if seconds is None or total is None:
        return None
    if seconds == total:
        return quantity(seconds, "s")
    return f"{quantity(seconds, 's')} ({seconds / total:.0%})"


def _time(cell: Measurement) -> str:
    return cell.status if cell.seconds is None else quantity(cell.seconds, "s")


@command.command("reading", cls=shared.Command)
@shared.json_option
def reading(as_json: bool) -> None:
    """Time single graphs at random and shuffled batches.

    Reads 256 generated graphs of S3DIS size (4,096 nodes, 32 neighbours each) from shards and from PyTorch
    Geometric's datasets on disk and in memory, in turn. A ratio above 1 means that the shards are faster.
    """
    from kmip_data.models.profiling.reading import GRAPHS, compare_reading

    found = compare_reading()
    about = {"machine": machine_line(), "graphs": GRAPHS, "rows": [row._asdict() for row in found]}
    rows = []
    for row in found:
        times = (quantity(seconds, "s") for seconds in (row.ours, row.theirs))
        rows.append([row.what, *times, f"{row.ratio:.2f}×", f"{row.least:.2f} to {row.most:.2f}"])
    shown = table(["", "kmip-data", "PyTorch Geometric", "ratio", "spread"], rows)
    show(about, f"{shown}\n{GRAPHS:,} graphs; {machine_line()}", as_json=as_json)


@command.command("train", cls=shared.Command)
@click.argument("target", type=shared.TARGET)
@click.option(
    "--model", "models", default="gps-kmip", show_default=True, metavar="LIST", help="Model names."
)
@shared.device_option()
@shared.sample_option
@shared.keys_option("Configuration key, as in `train`.")
@shared.work_options
def train(
    target: str, models: str, overrides: tuple[str, ...], home: Home, as_json: bool, quiet: bool,
    **options: Any,
) -> None:  # fmt: skip
    """Time the training steps of models.

    Runs batches of the loop of `train`, several models in turn: seconds, graphs per second, memory, hours
    for the preset's epochs. On a GPU steps are launched kernel by kernel, where `train` replays CUDA graphs.
    """
    from kmip_data.cli.train import configuration

    # Names and keys are checked before torch is imported, which takes seconds.
    names = list(dict.fromkeys(models.split(",")))
    given = {
        "variant": None,
        "epochs": None,
        "overrides": [*overrides, "system.devices=1"],
        **options,
    }
    configs = {
        name: configuration(target, {}, {}, home=home, model=name, **given) for name in names
    }
    from kmip_data.models.profiling.training import Contestant, compare_training
    from kmip_data.models.training.data.graphs import open_data
    from kmip_data.models.training.machine import choose_device

    config = configs[names[0]]
    device = choose_device(configs[names[0]].system.device)
    data = {name: open_data(each, home=home, quiet=quiet) for name, each in configs.items()}
    made = partial(Contestant, device=device)
    makers = {name: partial(made, config=each, data=data[name]) for name, each in configs.items()}
    log = partial(say, quiet=quiet)
    paces = compare_training(makers, rounds=ROUNDS, most=BATCHES, seconds=SECONDS, log=log)
    about = {"machine": machine_line(), "device": device.name, "data": data[names[0]].description}
    remark = data[names[0]].build.card.remark
    epochs = f"{config.training.epochs:,} epochs of {config.preset or 'no preset'}"
    extent = f" on these data{remark}, whose epochs are not the published set's" if remark else ""
    text = [
        pace_table(paces),
        *(f"{pace.name}: {pace.note}" for pace in paces if pace.note),
        f"hours: for the {epochs}{extent}, without evaluations; ratio: time over that of {names[0]}",
        f"data: {about['data']}\n{about['machine']}; device {device.name}",
    ]
    show({**about, "models": [asdict(pace) for pace in paces]}, "\n".join(text), as_json=as_json)


def pace_table(paces: list[Pace]) -> str:
    """Return the speed of networks as a table."""
    rows = []
    for pace in paces:
        cells = ["–"] * 5
        if pace.seconds is not None and pace.spread is not None:
            memory = "–" if pace.peak is None else f"{pace.peak / 2**20:,.0f} MiB"
            ratio = f"{pace.ratio:.2f}× ({pace.spread[0]:.2f} to {pace.spread[1]:.2f})"
            speed = quantity(pace.seconds, "s"), f"{pace.graphs / pace.seconds:.3g}"
            cells = [*speed, memory, f"{pace.hours:.3g}", ratio]
        rows.append([pace.name, *cells])
    return table(["", "a batch", "graphs/s", "memory", "hours", "ratio"], rows)


def quantity(value: float | None, unit: str) -> str:
    """Write a figure with a unit that suits its size.

    >>> quantity(0.00042, "s")
    '420 µs'
    """
    if value is None:
        return "–"
    if unit == "s" and value < 1:
        return f"{value * 1e6:.3g} µs" if value < 1e-3 else f"{value * 1e3:.3g} ms"
    return f"{value:,.0f} {unit}" if value >= 1000 else f"{value:.3g} {unit}".rstrip()


@functools.cache
def machine_line() -> str:
    """Return processor, cores this process may use, memory, system and versions."""
    import psutil

    from kmip_data.models.training.machine import processor
    from kmip_data.runtime.threads import available_cores

    memory = f"{psutil.virtual_memory().total / 2**30:.0f} GiB"
    system = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    versions = ", ".join(
        f"{name} {importlib.metadata.version(name)}" for name in ("numpy", "torch")
    )
    load = f"load {psutil.getloadavg()[0]:.1f}"
    return f"{processor()}, {available_cores()} cores, {memory}, {system}, {versions}, {load}"
