"""``kmip-data analyze approximation``: how far k-MIP attention is from full attention."""

from __future__ import annotations

from typing import Any

import click

from kmip_data.cli.analyses import Analysis, analysis_options, describe
from kmip_data.cli.shared.command import Command


@click.command(
    cls=Command,
    examples=[
        "kmip-data analyze approximation --gaussian --n 2500 --d 16",
        "kmip-data analyze approximation --gaussian --n 2500 --d 16 --as-published --k 1,5,11,95,198",
        "kmip-data analyze approximation malnet-tiny/gps-kmip/mine --min-nodes 1001",
    ],
)
@analysis_options
@click.option(
    "--as-published", is_flag=True, help="Show what the published code computed, too: the k smallest scores."
)
def command(as_published: bool, **options: Any) -> None:
    """How far k-MIP attention is from full attention, for each k.

    Mean Euclidean distance between the outputs of the two for the queries, keys and values of RUN, a
    file or a normal distribution. The picture and the CSV file have the right computation and the
    published one, which sorted the keys the wrong way round.
    """
    from kmip_data.files.changes import write_output
    from kmip_data.models.analysis.drawing import APPROXIMATION_LINES, draw_study
    from kmip_data.models.analysis.study import approximation, run_study
    from kmip_data.models.training.run.logs import teller

    analysis = Analysis(name="approximation", **options)
    prefix, choice, ks = analysis.prefix(), analysis.choice(), analysis.k_values()
    projections = analysis.projections()
    study = run_study(projections, approximation, choice=choice, ks=ks, tell=teller(analysis.quiet))
    about = dict(projections.about)
    picture, figures = prefix.with_name(f"{prefix.name}.png"), prefix.with_name(f"{prefix.name}.csv")
    draw_study(
        study,
        picture,
        APPROXIMATION_LINES,
        title=f"k-MIP against full attention: {describe(about)}",
        ylabel="mean L2 distance to the output of full attention",
    )
    write_output(figures, study.to_csv().encode())
    columns = {"k-MIP": "distance", "random": "normal outputs"}
    if as_published:
        columns = {"as published": "as published", **columns}
    analysis.show(study, about, columns, [picture, figures])
