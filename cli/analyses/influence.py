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
    runs: tuple[str, ...], part: str, hops: int, save: str | None, home: Home, as_json: bool, quiet: bool,
    **options: Any,
) -> None:  # fmt: skip
    """From how far away the output of a node is moved.

    Of runs on a city: the sum of |∂ output / ∂ feature| of all nodes at each distance, on the whole graph, in
    units of that of the node itself; and City-Networks' R, the mean distance that influence comes from.
    """
    from kmip_data.models.analysis.drawing import Panel
    from kmip_data.models.analysis.influence import influence

    saved, rows, notes = save_paths("influence", save, runs[0], home), [], []
    for run in runs:
        found = influence(run, part=part, hops=hops, home=home, quiet=quiet, **options)
        rows += [{"curve": run, **row} for row in found["rows"]]
        notes.append(
            f"{run}: R = {found['R']:.3f} within {hops} hops, {found['R_all']:.3f} over all;"
            f" {found['beyond']:.1%} of the influence from farther away, {found['unreached']:.1%} from other"
            f" components; means over {counted(found['sampled'], 'node')} of the part {part}"
        )
    panels = [
        Panel(
            "hop", column, f"influence of {words}", rows, scales=("linear", "log"), across="distance [hops]"
        )
        for column, words in (("influence", "all nodes at a distance"), ("each", "one of them"))
    ]
    finish(
        "influence", rows, {"run": "curve", "hop": "hop", "nodes": "nodes", "influence": "influence"},
        panels=panels, title=f"Influence by distance, that of the node itself being 1; part {part}",
        notes=notes, saved=saved, as_json=as_json,
    )  # fmt: skip
