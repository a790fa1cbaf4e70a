"""``kmip-data analyze smoothing``: how alike neighbours become from layer to layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from kmip_data.cli.analyses.shared import finish, part_option, runs_argument, save_option, save_paths
from kmip_data.cli.shared.command import Command
from kmip_data.cli.shared.options import as_trained_option, home_option, json_option, number_option
from kmip_data.wording import counted

if TYPE_CHECKING:
    from kmip_data.builds.home import Home
    from kmip_data.models.analysis.drawing import Line


@click.command(cls=Command, examples=["kmip-data analyze smoothing helsinki/gps-kmip/mine helsinki/gcn/mine"])
@runs_argument
@part_option("test")
@number_option("--graphs", "Take the first N graphs.", 50)
@save_option
@as_trained_option
@home_option
@json_option
def command(
    runs: tuple[str, ...],
    part: str,
    graphs: int,
    save: str | None,
    device: str | None,
    home: Home,
    as_json: bool,
) -> None:
    """How alike neighbours become from layer to layer.

    Dirichlet energy, cosine distance between neighbours (MAD) and norms of the nodes' states: before the
    first layer (0) and after each. Any model; runs stand side by side.
    """
    from kmip_data.models.analysis.drawing import Panel, draw_panels
    from kmip_data.models.analysis.smoothing import FIGURES, smoothing

    saved = save_paths("smoothing", save, runs[0], home)
    found = {run: smoothing(run, part=part, graphs=graphs, home=home, device=device) for run in runs}
    panels = [
        Panel("layer", figure, {run: _line(of, figure) for run, of in found.items()}) for figure in FIGURES
    ]
    draw_panels(panels, saved[0], title=f"Smoothing, part {part}")
    rows = [row for of in found.values() for row in of]
    shown = [{name: row[name] for name in ("run", "layer", *FIGURES)} for row in rows]
    note = f"Means over {counted(rows[0]['graphs'], 'graph')} of the part {part}; the best weights."
    finish("smoothing", rows, shown, notes=[note], saved=saved, as_json=as_json)


def _line(rows: Sequence[Mapping[str, Any]], figure: str) -> Line:
    from kmip_data.models.analysis.drawing import Line

    layers, values, spread = ([row[name] for row in rows] for name in ("layer", figure, f"{figure}_std"))
    return Line(layers, values, spread)
