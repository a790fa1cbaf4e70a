"""``kmip-data analyze influence``: from how far away the output of a node is moved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kmip_data.cli.analyses.shared import (
    finish,
    part_option,
    runs_argument,
    save_option,
    save_paths,
    seed_option,
)
from kmip_data.cli.shared.command import Command
from kmip_data.cli.shared.options import as_trained_option, number_option, work_options
from kmip_data.wording import counted

if TYPE_CHECKING:
    from kmip_data.builds.home import Home


@click.command(
    cls=Command, examples=["kmip-data analyze influence helsinki/gps-kmip/mine helsinki/gcn/mine --nodes 50"]
)
@runs_argument
@part_option("test")
@number_option("--nodes", "Random nodes whose outputs are differentiated.", 20)
@number_option("--hops", "Farthest distance of the table and of R.", 16)
@seed_option
@save_option
@as_trained_option
@work_options
def command(
    runs: tuple[str, ...], part: str, nodes: int, hops: int, seed: int, save: str | None, device: str | None,
    home: Home, as_json: bool, quiet: bool,
) -> None:  # fmt: skip
    """From how far away the output of a node is moved.

    Of runs on a city: the sum of |∂ output / ∂ feature| of all nodes at each distance, on the whole graph, in
    units of that of the node itself; and City-Networks' R, the mean distance that influence comes from.
    """
    from kmip_data.models.analysis.drawing import Line, Panel, draw_panels
    from kmip_data.models.analysis.influence import influence
    from kmip_data.models.training.run.logs import teller

    saved, tell = save_paths("influence", save, runs[0], home), teller(quiet)
    options: dict[str, Any] = {
        "part": part,
        "nodes": nodes,
        "hops": hops,
        "seed": seed,
        "home": home,
        "device": device,
    }
    rows, shown, notes, total, each = [], [], [], {}, {}
    for run in runs:
        found = influence(run, tell=tell, **options)
        of = found["rows"]
        rows += [{"run": found["run"], "R": found["R"], **row} for row in of]
        shown += [{"run": run, **{name: row[name] for name in ("hop", "nodes", "influence")}} for row in of]
        notes.append(
            f"{run}: R = {found['R']:.3f} within {hops} hops, {found['R_all']:.3f} over all;"
            f" {found['beyond']:.1%} of the influence from farther away, {found['unreached']:.1%} from other"
            f" components; means over {counted(found['sampled'], 'node')} of the part {part}"
        )
        total[run] = Line([row["hop"] for row in of], [row["influence"] for row in of])
        each[run] = Line(total[run].x, [row["influence"] / max(row["nodes"], 1) for row in of])
    panels = [
        Panel("hops", f"influence of {words}", lines, ("linear", "log"))
        for words, lines in (("all nodes there", total), ("a node there", each))
    ]
    draw_panels(
        panels, saved[0], title=f"Influence by distance, that of the node itself being 1; part {part}"
    )
    finish("influence", rows, shown, notes=notes, saved=saved, as_json=as_json)
