"""``kmip-data bench reading``: shards compared with PyTorch Geometric's datasets."""

from __future__ import annotations

import click

from kmip_data.cli.benchmarks import machine_line, quantity
from kmip_data.cli.shared.commands import Command
from kmip_data.cli.shared.options import json_option, number_option
from kmip_data.cli.shared.output import print_json, table


@click.command(
    "reading", cls=Command, examples=["kmip-data bench reading", "kmip-data bench reading --graphs 32"]
)
@number_option("--graphs", "Generated graphs of S3DIS size: 4,096 nodes, 32 neighbours each.", 256)
@json_option
def command(graphs: int, as_json: bool) -> None:
    """Time single graphs at random and shuffled batches.

    Reads generated graphs from shards and from PyTorch Geometric's datasets on disk and in memory, in turn.
    A ratio above 1 means that the shards are faster.
    """
    from kmip_data.models.profiling.reading import compare_reading

    found = compare_reading(graphs)
    if as_json:
        print_json({"machine": machine_line(), "graphs": graphs, "rows": [row._asdict() for row in found]})
        return
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
    click.echo(f"{table(header, rows)}\n{graphs:,} graphs; {machine_line()}")
