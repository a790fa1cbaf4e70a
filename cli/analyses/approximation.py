"""``kmip-data analyze approximation``: distance of k-MIP attention to full attention."""

from __future__ import annotations

from typing import Any

import click

from kmip_data.cli.analyses.shared import analyse, analysis_options
from kmip_data.cli.shared.command import Command


@click.command(
    cls=Command,
    examples=[
        "kmip-data analyze approximation --gaussian 2500x16",
        "kmip-data analyze approximation --gaussian 2500x16 --as-published --k 1,5,11,95,198",
        "kmip-data analyze approximation malnet-tiny/gps-kmip/mine --nodes 1001..5000",
    ],
)
@analysis_options
@click.option(
    "--as-published", is_flag=True, help="Also show what the published code computed: the k smallest scores."
)
def command(as_published: bool, **options: Any) -> None:
    """Distance of k-MIP attention to full attention, for each k.

    Mean Euclidean distance of their outputs for the queries, keys and values of RUN, a file or a normal
    distribution. The picture and the CSV file have the right computation and the published one, which sorted
    the keys in the wrong order.
    """
    from kmip_data.models.analysis.drawing import APPROXIMATION_LINES
    from kmip_data.models.analysis.study import approximation

    analyse(
        "approximation",
        options,
        approximation,
        APPROXIMATION_LINES,
        title="k-MIP against full attention",
        ylabel="mean L2 distance to the output of full attention",
        columns={
            **({"as published": "as published"} if as_published else {}),
            "k-MIP": "distance",
            "random": "normal outputs",
        },
    )
