"""``make bench``: measure the topics next to this file, all or one."""

from __future__ import annotations

import importlib
from pathlib import Path

import click
from benchmarks.table import Row, cells_of, markdown_table, print_rows

from kmip_data.cli.bench import machine_line, quantity

TOPICS = sorted({path.stem for path in Path(__file__).parent.glob("*.py")} - {"__main__", "table"})


@click.command()
@click.argument("topics", nargs=-1, type=click.Choice(TOPICS))
@click.option("--quick", is_flag=True, help="Small sizes and few repeats: shows that it runs, not how fast.")
@click.option("--markdown", is_flag=True, help="Print the table as docs/performance.md has it.")
@click.option(
    "--alone", is_flag=True, help="Of attention_gpu only our searches, without what they are compared with."
)
def main(topics: tuple[str, ...], quick: bool, markdown: bool, alone: bool) -> None:
    """Measure the rows of TOPICS, by default of all that need no GPU."""
    found: list[tuple[str, Row]] = []
    for topic in topics or [name for name in TOPICS if not name.endswith("_gpu")]:
        click.echo(f"{topic} …", err=True)
        more = {"alone": True} if alone and topic == "attention_gpu" else {}
        for row in importlib.import_module(f"benchmarks.{topic}").rows(quick=quick, **more):
            what, against, ours, theirs, ratio = cells_of(row)[:5]
            captured = "" if row.captured is None else f", captured {quantity(row.captured, row.unit)}"
            click.echo(f"  {what}: {ours}{captured}; {against}: {theirs}; {ratio}", err=True)
            found.append((topic, row))
    if markdown:
        click.echo(markdown_table(found, machine_line()))
    else:
        print_rows(found, machine_line(), quick=quick)


main(prog_name="make bench")
