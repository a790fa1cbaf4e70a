"""``kmip-data analyze cumulative-weight``: how much attention weight the k best keys hold."""

from __future__ import annotations

from typing import Any

import click

from kmip_data.cli.analyses import Analysis, analysis_options, describe
from kmip_data.cli.shared.command import Command


@click.command(
    cls=Command,
    examples=[
        "kmip-data analyze cumulative-weight --gaussian --n 1500 --d 16",
        "kmip-data analyze cumulative-weight --qk qk.safetensors --layers 1..3 --k 1,10,100",
    ],
)
@analysis_options
def command(**options: Any) -> None:
    """Share of the attention weight that the k best keys hold.

    Mean, over nodes and heads, of the sum of the k largest softmax weights, for the queries and keys
    of RUN, a file or a normal distribution.
    """
    from kmip_data.files.changes import write_output
    from kmip_data.models.analysis.drawing import WEIGHT_LINES, draw_study
    from kmip_data.models.analysis.study import run_study, weight_share
    from kmip_data.models.training.run.logs import teller

    analysis = Analysis(name="cumulative-weight", **options)
    prefix, choice, ks = analysis.prefix(), analysis.choice(), analysis.k_values()
    projections = analysis.projections()
    study = run_study(projections, weight_share, choice=choice, ks=ks, tell=teller(analysis.quiet))
    about = dict(projections.about)
    picture, figures = prefix.with_name(f"{prefix.name}.png"), prefix.with_name(f"{prefix.name}.csv")
    draw_study(
        study,
        picture,
        WEIGHT_LINES,
        title=f"Attention weight of the k best keys: {describe(about)}",
        ylabel="cumulative attention weight",
    )
    write_output(figures, study.to_csv().encode())
    analysis.show(study, about, {"k-MIP": "weight", "Gaussian": "Gaussian"}, [picture, figures])
