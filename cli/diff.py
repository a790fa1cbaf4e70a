"""``kmip-data diff``: compare two datasets."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from kmip_data.cli.shared.command_classes import ClickCommand
from kmip_data.cli.shared.options import home_option, json_option
from kmip_data.cli.shared.output import print_result
from kmip_data.errors import CheckFailed
from kmip_data.text import one_line

if TYPE_CHECKING:
    from kmip_data.builds.home import Home


@click.command(cls=ClickCommand)
@click.argument("a")
@click.argument("b")
@home_option
@json_option
def command(a: str, b: str, home: Home) -> None:
    """Compare two datasets; exit with code 1 if they differ.

    A and B are builds, or files, folders and archives as `build graphs` reads them, such as
    processed/data.pt of PyTorch Geometric. Reads all bytes of both. Prints, of A / B, what differs in
    counts, arrays, names and splits, then the first value that differs, and the number of records
    that do.
    """
    from kmip_data.saving.diff import diff

    comparison = diff(a, b, home=home)
    if comparison.equal:
        counts = "{graphs:,} graphs, {nodes:,} nodes, {edges:,} edges".format(**comparison.counts)
        lines = [f"Equal: {counts}."]
    else:
        lines = [one_line(str(difference)) for difference in comparison.differences]
        lines.append(f"Records that differ: {comparison.differing_records:,}.")
    print_result({"equal": comparison.equal, **asdict(comparison)}, *lines)
    if not comparison.equal:
        click.get_current_context().exit(CheckFailed.exit_code)
