"""``kmip-data analyze smoothing``: how alike neighbours become from layer to layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kmip_data.cli.analyses.shared import finish, part_option, runs_argument, save_option, save_paths
from kmip_data.cli.shared.command import Command
from kmip_data.cli.shared.options import as_trained_option, number_option, work_options
from kmip_data.wording import counted

if TYPE_CHECKING:
    from kmip_data.builds.home import Home


@click.command(cls=Command, examples=["kmip-data analyze smoothing helsinki/gps-kmip/mine helsinki/gcn/mine"])
@runs_argument
@part_option("test")
@number_option("--graphs", "Take the first N graphs.", 50)
@save_option
@as_trained_option
@work_options
def command(
    runs: tuple[str, ...], part: str, save: str | None, home: Home, as_json: bool, **options: Any
) -> None:
    """How alike neighbours become from layer to layer.

    Dirichlet energy, cosine distance between neighbours (MAD) and norms of the nodes' states: before the
    first layer (0) and after each. Any model; runs stand side by side.
    """
    from kmip_data.models.analysis.drawing import Panel
    from kmip_data.models.analysis.smoothing import FIGURES, smoothing

    saved = save_paths("smoothing", save, runs[0], home)
    rows = [{"curve": run, **row} for run in runs for row in smoothing(run, part=part, home=home, **options)]
    columns = {"run": "curve", **{name: name for name in ("layer", *FIGURES)}}
    note = f"Means over {counted(rows[0]['graphs'], 'graph')} of the part {part}; the best weights."
    panels = [Panel("layer", figure, words, rows) for figure, words in FIGURES.items()]
    finish(
        "smoothing", rows, columns, panels=panels,
        title=f"How alike neighbours are after each layer, part {part}", notes=[note], saved=saved,
        as_json=as_json,
    )  # fmt: skip
