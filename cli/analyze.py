"""``kmip-data analyze``: what attention does, whom it helps, what it can tell and fit."""

from __future__ import annotations

import click

from kmip_data.cli.shared.command import LazyGroup

ANALYSES = {
    "approximation": (
        "analyses.approximation",
        "How far k-MIP attention is from full attention, for each k.",
    ),
    "cumulative-weight": (
        "analyses.cumulative_weight",
        "Share of the attention weight that the k best keys hold.",
    ),
    "classes": ("analyses.classes", "Accuracy of each class, model beside model."),
    "expressivity": ("analyses.expressivity", "Which graphs refinement and networks tell apart (Theorem 1)."),
    "influence-of-k": (
        "analyses.influence_of_k",
        "Metric and seconds of an epoch over k, beside the paper's.",
    ),
    "coverage": ("analyses.coverage", "Which keys the queries choose, and where gradients of keys go."),
    "smoothing": ("analyses.smoothing", "How alike neighbours become from layer to layer."),
    "influence": ("analyses.influence", "From how far away the output of a node is moved."),
    "universality": ("analyses.universality", "k-MIP transformers fitted to full attention (Theorem 2)."),
}


@click.group(
    cls=LazyGroup,
    commands_in=ANALYSES,
    invoke_without_command=True,
    examples=[
        "kmip-data analyze approximation --gaussian --n 2500 --d 16",
        "kmip-data analyze cumulative-weight malnet-tiny/gps-kmip/mine --min-nodes 1001",
    ],
)
@click.pass_context
def command(ctx: click.Context) -> None:
    """What attention does, on a trained run or on generated data."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
