"""``kmip-data bench``: the speed table, every row measured here and now."""

from __future__ import annotations

import ast
import importlib.util
import pkgutil
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kmip_data.cli.shared.command import Command
from kmip_data.cli.shared.options import json_option, quiet_option
from kmip_data.cli.shared.output import print_json, table

if TYPE_CHECKING:
    from kmip_data.cli.benchmarks import Row

quick_option = click.option(
    "--quick", is_flag=True, help="Small sizes and few repeats: shows that it runs, not how fast."
)
markdown_option = click.option(
    "--markdown", is_flag=True, help="Print the table as docs/performance.md has it."
)


class Topics(Command, click.Group):
    """`all` and each module of ``cli/benchmarks`` as a command.

    A topic exports ``rows(quick=...)``; one with options of its own exports ``command`` besides.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """`all` first."""
        return ["all", *topic_names()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The topic's own command, or one that prints its rows."""
        if cmd_name not in self.list_commands(ctx):
            return None
        if cmd_name != "all":
            own: click.Command | None = getattr(_topic(cmd_name), "command", None)
            if own is not None:
                return own
        return _rows_command(cmd_name)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take `all` where no topic is named."""
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = ["all", *args]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the topic, or raise an error that names the nearest one."""
        from kmip_data.manifest import unknown_name

        names = self.list_commands(ctx)
        if args[0] not in names:
            raise unknown_name("benchmark", args[0], names, command="kmip-data bench --help")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the topics and what each compares, without importing any."""
        with formatter.section("Topics"):
            formatter.write_dl([("all", "Every topic."), *((name, about(name)) for name in topic_names())])

    def shell_complete(
        self, ctx: click.Context, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        """Complete the names of topics; a Tab imports none."""
        from click.shell_completion import CompletionItem

        names = [CompletionItem(name) for name in self.list_commands(ctx) if name.startswith(incomplete)]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]


def topic_names() -> list[str]:
    """Topics there are, sorted."""
    from kmip_data.cli import benchmarks

    return sorted(module.name for module in pkgutil.iter_modules(benchmarks.__path__))


def about(topic: str) -> str:
    """What a topic compares: the first line of its module, which is read, not imported."""
    spec = importlib.util.find_spec(f"kmip_data.cli.benchmarks.{topic}")
    assert spec is not None
    assert spec.origin is not None
    text = ast.get_docstring(ast.parse(Path(spec.origin).read_text("utf-8"))) or ""
    return text.partition("\n")[0].replace("``", "`")


def _topic(name: str) -> Any:
    return importlib.import_module(f"kmip_data.cli.benchmarks.{name}")


@click.group(
    cls=Topics,
    examples=[
        "kmip-data bench all",
        "kmip-data bench reading --quick",
        "kmip-data bench attention --max-n 1e4 --methods auto,naive,symbolic --save attention",
    ],
)
def command() -> None:
    """Speed against the usual ways, as ratios measured here.

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
        for topic in topic_names() if what == "all" else [what]:
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
    space = " " if unit not in ("", "×") else ""
    return (f"{value:,.0f}" if value >= 1000 else f"{value:.3g}") + space + unit


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
            f"| `{_command_of(topic)}` |"
        )
    return "\n".join([*lines, "", f"Machine: {machine}."])


def _command_of(topic: str) -> str:
    """Return the command that measures a topic: those beside the tests need a development environment."""
    place = importlib.util.find_spec(f"kmip_data.cli.benchmarks.{topic}")
    inside = place is not None and Path(__file__).parent in Path(place.origin or "").parents
    return f"kmip-data bench {topic}" if inside else f"make bench TOPIC={topic}"


def machine_line() -> str:
    """Return processor, cores this process may use, memory, system and versions."""
    import importlib.metadata
    import os
    import platform
    from pathlib import Path

    import psutil

    from kmip_data.runtime.threads import available_cores

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
