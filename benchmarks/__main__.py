"""``make bench``: measure topics, by default all, and print rows of docs/performance.md."""

from __future__ import annotations

import importlib
from pathlib import Path

import click

from benchmarks.table import describe_machine

TOPICS = sorted(
    path.stem
    for path in Path(__file__).parent.glob("*.py")
    if "\ndef rows(" in path.read_text("utf-8")
)


@click.command()
@click.argument("topics", nargs=-1, type=click.Choice(TOPICS))
@click.option(
    "--quick", is_flag=True, help="Small sizes and few repeats, to check that a topic runs."
)
def main(topics: tuple[str, ...], quick: bool) -> None:
    """Measure the rows of TOPICS, by default all."""
    notes: dict[str, None] = {}
    click.echo("| topic | what | ours | peer | ratio, target |\n|---|---|---|---|---|")
    for topic in topics or TOPICS:
        for row in importlib.import_module(f"benchmarks.{topic}").rows(quick=quick):
            click.echo(row.markdown(topic))
            notes[row.note] = None
    click.echo("\n".join([*notes, f"Machine: {describe_machine()}{', quick' * quick}."]))


if __name__ == "__main__":
    main(prog_name="make bench")
