"""``kmip-data analyze expressivity``: Theorem 1 of the paper on pairs of graphs."""

from __future__ import annotations

import click

from kmip_data.cli.analyses.shared import save_option, save_paths, seed_option
from kmip_data.cli.shared.command import Command
from kmip_data.cli.shared.options import json_option, number_option, quiet_option
from kmip_data.cli.shared.output import print_json, table


@click.command(cls=Command, examples=["kmip-data analyze expressivity"])
@number_option("--draws", "Draws of the networks' weights.", 4)
@seed_option
@save_option
@json_option
@quiet_option
def command(draws: int, seed: int, save: str | None, as_json: bool, quiet: bool) -> None:
    """Which graphs refinement and networks tell apart (Theorem 1).

    1-WL and S-SEG-WL refine colours on pairs of graphs; then networks of every attention, with random
    weights, are asked the same. No network may tell apart what S-SEG-WL does not.
    """
    from kmip_data.files.changes import csv_bytes, write_output
    from kmip_data.models.analysis.drawing import draw_refinement
    from kmip_data.models.analysis.expressivity import check_networks
    from kmip_data.models.analysis.graph_pairs import known_pairs
    from kmip_data.models.analysis.refinement import all_tests
    from kmip_data.models.training.run.logs import teller

    saved, tell, pairs = save_paths("expressivity", save), teller(quiet), known_pairs()
    tests = {name: all_tests(pair) for name, pair in pairs.items()}
    header = ["separated in iteration", "nodes", *tests["2 C3, C6"]]
    rows = [[n, len(pairs[n][0]), *(one.separated for one in of.values())] for n, of in tests.items()]
    tell("networks of every attention, without an encoding and with RWSE and LapPE …")
    checks = list(check_networks(pairs, draws=draws, seed=seed))
    draw_refinement(pairs, tests, saved[0])
    write_output(saved[1], csv_bytes(header, rows))
    if as_json:
        networks = [{**check._asdict(), "verdict": check.verdict} for check in checks]
        refined = {name: dict(zip(header[2:], row[1:], strict=True)) for name, *row in rows}
        print_json({"analysis": "expressivity", "separated": refined, "networks": networks, "saved": saved})
        return
    click.echo(
        table(header, ([*row[:2], *("never" if x is None else x for x in row[2:])] for row in rows)) + "\n"
    )
    cells = (
        [c.attention, c.positional, f"{c.gap:.0e}", f"{c.relabelled:.0e}",
         f"{min(c.by_encoding.values()):.0e}" if c.by_encoding else "–", c.verdict]
        for c in checks
    )  # fmt: skip
    columns = ["attention", "encoding", "not separated", "relabelled", "separated by encoding", "verdict"]
    click.echo(table(columns, cells))
    click.echo(
        "Figures are differences of outputs. order of nodes: a graph differs from itself with its nodes in"
        " another order, so that a premise of the theorem is not met."
    )
    click.echo("saved  " + "  ".join(map(str, saved)))
