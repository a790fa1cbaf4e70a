"""``kmip-data analyze cumulative-weight``: share of the attention weight on the k best keys."""

from __future__ import annotations

from typing import Any

import click

from kmip_data.cli.analyses.shared import analyse, analysis_options
from kmip_data.cli.shared.command import Command


@click.command(
    cls=Command,
    examples=[
        "kmip-data analyze cumulative-weight --gaussian 1500x16",
        "kmip-data analyze cumulative-weight --qk qk.safetensors --k 1,10,100",
    ],
)
@analysis_options
def command(**options: Any) -> None:
    """Share of the attention weight on the k best keys.

    Mean, over nodes and heads, of the sum of the k largest softmax weights, for the queries and keys
    of RUN, a file or a normal distribution.
    """
    from kmip_data.models.analysis.drawing import WEIGHT_LINES
    from kmip_data.models.analysis.study import weight_share

    analyse(
        "cumulative-weight",
        options,
        weight_share,
        WEIGHT_LINES,
        title="Attention weight of the k best keys",
        ylabel="cumulative attention weight",
        highest=1.0,
        columns={"k-MIP": "weight", "Gaussian": "Gaussian"},
    )
