"""``kmip-data bench``: the speed table, every row measured here and now."""

from __future__ import annotations

import pkgutil
from typing import TYPE_CHECKING, Any

import click

from kmip_data.cli.command import Command
from kmip_data.cli.options import json_option, quiet_option
from kmip_data.cli.output import print_json, table

if TYPE_CHECKING:
    from kmip_data.cli.benchmarks import Row


@click.command(cls=Command, examples=["kmip-data bench all", "kmip-data bench knn --quick"])
@click.argument("what", default="all")
@click.option("--quick", is_flag=True, help="Small sizes and few repeats: shows that it runs, not how fast.")
@click.option("--markdown", is_flag=True, help="Print the table as docs/performance.md has it.")
@json_option
@quiet_option
def command(what: str, quick: bool, markdown: bool, as_json: bool, quiet: bool) -> None:
    """Speed against the usual ways, as ratios measured here.

    WHAT is `all` or one topic; both sides of a row run in turn in the same process, so that a
    busy machine slows both. Ratios above the target are met.
    """
    import importlib

    from kmip_data.cli import benchmarks
    from kmip_data.manifest import unknown_name

    topics = sorted(module.name for module in pkgutil.iter_modules(benchmarks.__path__))
    if what != "all" and what not in topics:
        raise unknown_name("benchmark", what, ["all", *topics], command="kmip-data bench --help")
    machine = machine_line()
    found: list[tuple[str, Row]] = []
    for topic in topics if what == "all" else [what]:
        if not quiet:
            click.echo(f"{topic} …", err=True)
        module = importlib.import_module(f"kmip_data.cli.benchmarks.{topic}")
        found += [(topic, row) for row in module.rows(quick=quick)]
    if as_json:
        rows = [{"topic": topic, **row.as_dict()} for topic, row in found]
        print_json({"machine": machine, "quick": quick, "rows": rows})
    elif markdown:
        click.echo(markdown_table(found, machine))
    else:
        header = ["what", "against", "ours", "theirs", "ratio", "spread", "target", "met"]
        click.echo(table(header, [_cells(row) for _, row in found]))
        for note in dict.fromkeys(row.note for _, row in found if row.note):
            click.echo(note)
        click.echo(f"{machine}{' (quick: not the figures of a full run)' if quick else ''}")


def _cells(row: Row) -> list[str]:
    return [
        row.what,
        row.against,
        quantity(row.ours, row.unit),
        quantity(row.theirs, row.unit),
        f"{row.ratio:.2f}×" if row.ratio is not None else "–",
        f"{row.spread[0]:.2f} to {row.spread[1]:.2f}" if row.spread is not None else "–",
        row.target or "–",
        {True: "yes", False: "NO", None: "–"}[row.met],
    ]


def quantity(value: float | None, unit: str) -> str:
    """Write a figure with a unit that suits its size.

    >>> quantity(0.00042, "s")
    '420 µs'
    """
    if value is None:
        return "–"
    if unit == "s" and value < 1:
        return f"{value * 1e6:.0f} µs" if value < 1e-3 else f"{value * 1e3:.3g} ms"
    return f"{value:,.0f} {unit}" if value >= 1000 else f"{value:.3g} {unit}"


def markdown_table(rows: list[tuple[str, Row]], machine: str) -> str:
    """Return the rows as docs/performance.md has them."""
    lines = [
        "| what | against | target | measured | command |",
        "|---|---|---|---|---|",
    ]
    for topic, row in rows:
        ours, theirs, ratio, spread = _cells(row)[2:6]
        measured = f"**{ratio}** ({spread}); {ours} against {theirs}" if row.ratio is not None else ours
        lines.append(
            f"| {row.what} | {row.against or '–'} | {row.target or '–'} | {measured} "
            f"| `kmip-data bench {topic}` |"
        )
    return "\n".join([*lines, "", f"Machine: {machine}."])


def machine_line() -> str:
    """Return processor, cores this process may use, memory, system and versions."""
    import importlib.metadata
    import os
    import platform
    from pathlib import Path

    import psutil

    from kmip_data.threads import available_cores

    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        models = [
            line.split(":", 1)[1]
            for line in cpuinfo.read_text().splitlines()
            if line.startswith("model name")
        ]
        name = models[0].strip() if models else name
    versions = ", ".join(f"{package} {importlib.metadata.version(package)}" for package in ("numpy", "torch"))
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    facts: list[Any] = [
        name,
        f"{available_cores()} cores",
        f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        f"{platform.system()} {platform.machine()}",
        f"Python {platform.python_version()}",
        versions + load,
    ]
    return ", ".join(facts)
