"""``kmip-data analyze``: the paper's analyses of attention."""

from __future__ import annotations

import click

from kmip_data.cli.shared.command import LazyGroup

ANALYSES = {
    "approximation": "Distance of k-MIP attention to full attention, for each k.",
    "cumulative-weight": "Share of the attention weight on the k best keys.",
    "influence-of-k": "Metric and seconds per epoch over k, with the paper's.",
    "expressivity": "Graphs that networks tell apart, and functions they fit (Theorems 1 and 2).",
}


@click.group(
    cls=LazyGroup,
    package="kmip_data.cli.analyses",
    commands_in=ANALYSES,
    invoke_without_command=True,
    examples=[
        "kmip-data analyze approximation --gaussian 2500x16",
        "kmip-data analyze cumulative-weight malnet-tiny/gps-kmip/mine --nodes 1001..5000",
    ],
)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Study attention, on a trained run or on generated data."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
