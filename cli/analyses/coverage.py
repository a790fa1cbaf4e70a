"""``kmip-data analyze coverage``: which keys the queries choose, and where gradients of keys go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kmip_data.cli.analyses.shared import finish, part_option, runs_argument, save_option, save_paths
from kmip_data.cli.shared.command import Command
from kmip_data.cli.shared.options import as_trained_option, number_option, work_options
from kmip_data.wording import counted

if TYPE_CHECKING:
    from kmip_data.builds.home import Home

TITLES = ("chosen keys", "nodes no query chose", "links to hubs", "entropy of key gradients")


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
    from kmip_data.models.analysis.coverage import FIGURES, coverage
    from kmip_data.models.analysis.drawing import Line, Panel, draw_panels
    from kmip_data.models.training.run.logs import teller

    saved, tell, rows, shown = save_paths("coverage", save, runs[0], home), teller(quiet), [], []
    lines: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        for row in coverage(run, part=part, graphs=graphs, home=home, device=device):
            about = {"run": run, "weights": f"{row['weights']}, epoch {row['epoch'] + 1}", "k": row["k"]}
            tell(f"{run}: layer {row['layer']} by the weights {about['weights']}")
            figures = {name: f"{row[figure]:.3f}" for figure, name in zip(FIGURES, TITLES, strict=True)}
            shown.append({**about, "layer": row["layer"], **figures})
            lines.setdefault("{run}, {weights}, k = {k}".format(**about), []).append(row)
            rows.append(row)
    layers = {name: [row["layer"] for row in some] for name, some in lines.items()}
    panels = [
        Panel(
            "layer",
            title,
            {name: Line(layers[name], [row[figure] for row in some]) for name, some in lines.items()},
        )
        for figure, title in zip(FIGURES, TITLES, strict=True)
    ]
    draw_panels(panels, saved[0], title=f"Coverage of keys, part {part}", across=2)
    note = f"Means over {counted(rows[0]['graphs'], 'graph')} of the part {part}; all weights that are kept."
    finish("coverage", rows, shown, notes=[note], saved=saved, as_json=as_json)
