"""``kmip-data analyze``: what attention does, whom it helps, what it can tell and fit."""

from __future__ import annotations

import click

from kmip_data.cli.shared.command import LazyGroup

ANALYSES = {
    "approximation": "How far k-MIP attention is from full attention, for each k.",
    "cumulative-weight": "Share of the attention weight that the k best keys hold.",
    "classes": "Accuracy of each class, model beside model.",
    "expressivity": "Which graphs refinement and networks tell apart (Theorem 1).",
    "influence-of-k": "Metric and seconds of an epoch over k, beside the paper's.",
    "coverage": "Which keys the queries choose, and where gradients of keys go.",
    "smoothing": "How alike neighbours become from layer to layer.",
    "influence": "From how far away the output of a node is moved.",
    "universality": "k-MIP transformers fitted to full attention (Theorem 2).",
}


@click.group(
    cls=LazyGroup,
    package="kmip_data.cli.analyses",
    commands_in=ANALYSES,
    invoke_without_command=True,
    examples=[
        "kmip-data analyze approximation --gaussian --n 2500 --d 16",
        "kmip-data analyze cumulative-weight malnet-tiny/gps-kmip/mine --min-nodes 1001",
    ],
)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Study attention, on a trained run or on generated data."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
