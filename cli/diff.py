"""``kmip-data diff``: compare two datasets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from kmip_data.cli.shared.command_classes import Command
from kmip_data.cli.shared.options import home_option, json_option
from kmip_data.cli.shared.output import print_result
from kmip_data.errors import CheckFailed
from kmip_data.text import one_line

if TYPE_CHECKING:
    from kmip_data.builds.home import Home
    from kmip_data.saving.tallies import Difference


@click.command(cls=Command)
@click.argument("a")
@click.argument("b")
@home_option
@json_option
def command(a: str, b: str, home: Home) -> None:
    """Compare two datasets; exit with code 1 if they differ.

    A and B are builds, or files, folders and archives as `build graphs` reads them, such as
    processed/data.pt of PyTorch Geometric. Prints, of A / B: counts, columns, graphs in one only,
    another order, then values, edges and splits with the first examples.
    """
    from kmip_data.saving.diff import diff

    comparison = diff(a, b, home=home)
    text = [
        "Equal: {graphs:,} graphs, {nodes:,} nodes, {edges:,} edges.".format(**comparison.counts)
    ]
    if not comparison.equal:
        text = [line for difference in comparison.differences for line in _lines(difference)]
    result = {
        "equal": comparison.equal,
        "counts": comparison.counts,
        "differences": list(map(asdict, comparison.differences)),
    }
    print_result(result, *map(one_line, text))
    if not comparison.equal:
        click.get_current_context().exit(CheckFailed.exit_code)


def _lines(difference: Difference) -> Iterator[str]:
    """Yield a line with the numbers of a difference, and one for each example."""
    yield f"{difference.column or difference.kind}: {_joined(difference.numbers)}"
    for example in difference.examples:
        yield f"    {_joined(example)}"


def _joined(facts: Mapping[str, object]) -> str:
    """Join names and values; a pair is of A / B."""
    return ", ".join(
        f"{name} {' / '.join(map(_shown, value if isinstance(value, list) else [value]))}"
        for name, value in facts.items()
    )


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
