"""``kmip-data bench``: the speed table, every row measured here and now."""

from __future__ import annotations

import importlib.util
import pkgutil
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kmip_data.cli.shared.command import Command, LazyGroup
from kmip_data.cli.shared.options import json_option, quiet_option
from kmip_data.cli.shared.output import print_json, table

if TYPE_CHECKING:
    from kmip_data.cli.benchmarks import Row

PACKAGE = "kmip_data.cli.benchmarks"
quick_option = click.option(
    "--quick", is_flag=True, help="Small sizes and few repeats: shows that it runs, not how fast."
)
markdown_option = click.option(
    "--markdown", is_flag=True, help="Print the table as docs/performance.md has it."
)


def topics() -> dict[str, str]:
    """`all` and each module of ``cli/benchmarks`` with the first line of its text, which imports none."""
    from kmip_data.cli import benchmarks

    found = {"all": "Every topic."}
    names = (module.name for module in pkgutil.iter_modules(benchmarks.__path__))
    for name in sorted(name for name in names if name[0] != "_"):
        spec = importlib.util.find_spec(f"{PACKAGE}.{name}")
        assert spec is not None
        assert spec.origin is not None
        first = Path(spec.origin).read_text("utf-8").partition("\n")[0]
        found[name] = first.strip('"').replace("``", "`")
    return found


class Topics(LazyGroup):
    """The topics as commands.

    A topic exports ``rows(quick=...)``, and ``command`` where it has options of its own; one that must
    be told a dataset has the latter alone, and `all` leaves it out.
    """

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The topic's own command, or one that prints its rows."""
        if cmd_name not in self.commands_in:
            return None
        own: click.Command | None = None if cmd_name == "all" else getattr(_topic(cmd_name), "command", None)
        return own or _rows_command(cmd_name)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take `all` where no topic is named, and look again which there are."""
        self.commands_in = topics()
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = ["all", *args]
        return super().parse_args(ctx, args)


def _topic(name: str) -> Any:
    return importlib.import_module(f"{PACKAGE}.{name}")


@click.group(
    cls=Topics,
    package=PACKAGE,
    commands_in=topics(),
    examples=[
        "kmip-data bench all",
        "kmip-data bench reading --quick",
        "kmip-data bench attention --max-n 1e4 --methods auto,naive,symbolic --save attention",
    ],
)
def command() -> None:
    """Measure speed against the usual alternatives.

    Name `all` or one topic; both sides of a row run in turn in the same process, so that a busy
    machine slows both. A target is met where the ratio is not below it. `kmip-data bench attention
    --help` has options of its own. In a checkout `make bench` measures all else that the docs compare.
    """


def _rows_command(what: str) -> click.Command:
    """Return the command that measures and prints the rows of one topic, or of all."""

    @click.command(what, cls=Command, examples=[f"kmip-data bench {what}", f"kmip-data bench {what} --quick"])
    @quick_option
    @markdown_option
    @json_option
    @quiet_option
    def rows_of_topic(quick: bool, markdown: bool, as_json: bool, quiet: bool) -> None:
        """Measure and print the rows of the table."""
        machine = machine_line()
        found: list[tuple[str, Row]] = []
        every = [topic for topic in [*topics()][1:] if hasattr(_topic(topic), "rows")]
        for topic in every if what == "all" else [what]:
            if not quiet:
                click.echo(f"{topic} …", err=True)
            found += measured(topic, _topic(topic).rows(quick=quick), quiet=quiet)
        print_rows(found, machine, quick=quick, markdown=markdown, as_json=as_json)

    return rows_of_topic


def measured(topic: str, rows: Iterable[Row], *, quiet: bool) -> list[tuple[str, Row]]:
    """Return rows with their topic; each is told on stderr once it is there, for some take minutes."""
    found = []
    for row in rows:
        if not quiet:
            what, against, ours, theirs, ratio = _cells(row)[:5]
            click.echo(f"  {what}: {ours}; {against}: {theirs}; {ratio}", err=True)
        found.append((topic, row))
    return found


def print_rows(
    found: list[tuple[str, Row]], machine: str, *, quick: bool, markdown: bool, as_json: bool
) -> None:
    """Print (topic, row) pairs as a table, as lines of docs/performance.md, or as JSON."""
    if as_json:
        rows = [{"topic": topic, **asdict(row)} for topic, row in found]
        print_json({"machine": machine, "quick": quick, "rows": rows})
    elif markdown:
        click.echo(markdown_table(found, machine))
    else:
        header = ["what", "against", "ours", "theirs", "ratio", "spread", "target", "met"]
        lines = [_cells(row) for _, row in found]
        if any(row.captured is not None for _, row in found):
            header.insert(3, "captured")
            for line, (_, row) in zip(lines, found, strict=True):
                line.insert(3, quantity(row.captured, row.unit))
        click.echo(table(header, lines))
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
        return f"{value * 1e6:.3g} µs" if value < 1e-3 else f"{value * 1e3:.3g} ms"
    space = " " if unit not in ("", "×") else ""
    return (f"{value:,.0f}" if value >= 1000 else f"{value:.3g}") + space + unit


def markdown_table(rows: list[tuple[str, Row]], machine: str) -> str:
    """Return the rows as docs/performance.md has them."""
    lines = ["| what | against | target | measured | command |", "|---|---|---|---|---|"]
    for topic, row in rows:
        ours, theirs, ratio, spread = _cells(row)[2:6]
        measured = f"**{ratio}** ({spread}); {ours} against {theirs}" if row.ratio is not None else ours
        measured += "" if row.captured is None else f"; captured {quantity(row.captured, row.unit)}"
        lines.append(
            f"| {row.what} | {row.against or '–'} | {row.target or '–'} | {measured} "
            f"| `{_command_of(topic)}` |"
        )
    return "\n".join([*lines, "", f"Machine: {machine}."])


def _command_of(topic: str) -> str:
    """Return the command that measures a topic: those beside the tests need a development environment."""
    place = importlib.util.find_spec(f"{PACKAGE}.{topic}")
    inside = place is not None and Path(__file__).parent in Path(place.origin or "").parents
    return f"kmip-data bench {topic}" if inside else f"make bench TOPIC={topic}"


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
