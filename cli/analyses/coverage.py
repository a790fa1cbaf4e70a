"""``kmip-data analyze coverage``: which keys the queries choose, and where gradients of keys go."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kmip_data.cli.analyses.shared import finish, part_option, runs_argument, save_option, save_paths
from kmip_data.cli.shared.command import Command
from kmip_data.cli.shared.options import as_trained_option, number_option, work_options
from kmip_data.wording import counted

if TYPE_CHECKING:
    from kmip_data.builds.home import Home

COLUMNS = {
    "chosen keys": "chosen",
    "nodes no query chose": "unused",
    "links to hubs": "hubs",
    "entropy of key gradients": "entropy",
}


@click.command(
    cls=Command, examples=["kmip-data analyze coverage helsinki/gps-kmip/fixed helsinki/gps-kmip/falling"]
)
@runs_argument
@part_option("train")
@number_option("--graphs", "Take the first N graphs.", 50)
@save_option
@as_trained_option
@work_options
def command(
    runs: tuple[str, ...], part: str, graphs: int, save: str | None, device: str | None, home: Home,
    as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """Which keys the queries choose, and where gradients of keys go.

    For each k-MIP layer, by each of the weights that a run has kept: the share of keys that any query
    chose, nodes that none chose, the share of links that go to the hubs (the most chosen hundredth of the
    keys), and how evenly the loss's gradient is spread over keys. Runs stand side by side, such as one with
    a fixed k and one with a schedule.
    """
    from kmip_data.models.analysis.coverage import coverage
    from kmip_data.models.analysis.drawing import Panel
    from kmip_data.runtime.progress import Progress

    saved, rows = save_paths("coverage", save, runs[0], home), []
    with Progress("coverage", None, unit="layers", quiet=quiet) as progress:
        for run in runs:
            for row in coverage(run, part=part, graphs=graphs, home=home, device=device):
                curve = f"{run}, {row['weights']}, epoch {row['epoch'] + 1}, k = {row['k']}"
                rows.append({"curve": curve, **row})
                progress.update(1)
    panels = [
        Panel("layer", figure, title, rows, percent=figure != "entropy") for title, figure in COLUMNS.items()
    ]
    note = f"Means over {counted(rows[0]['graphs'], 'graph')} of the part {part}; all weights that are kept."
    finish(
        "coverage", rows, {"run": "curve", "layer": "layer", **COLUMNS}, panels=panels,
        title=f"Coverage of keys, part {part}", notes=[note], saved=saved, as_json=as_json,
    )  # fmt: skip
