"""``kmip-data analyze universality``: Theorem 2 of the paper, tried."""

from __future__ import annotations

from typing import Any

import click

from kmip_data.cli.analyses.shared import seed_option
from kmip_data.cli.shared.command import Command
from kmip_data.cli.shared.options import json_option, quiet_option
from kmip_data.cli.shared.output import print_json, table


@click.command(cls=Command, examples=["kmip-data analyze universality --quick"])
@click.option("--quick", is_flag=True, help="Fewer steps and depths: seconds instead of minutes.")
@seed_option
@json_option
@quiet_option
def command(quick: bool, seed: int, as_json: bool, quiet: bool) -> None:
    """k-MIP transformers fitted to full attention (Theorem 2).

    Transformers of 2 heads of size 1 and 4 hidden channels, ever deeper, learn what a larger one with full
    attention does: the error by depth and k, in units of that of the identity.
    """
    from kmip_data.models.analysis.universality import NODES, copied, fit
    from kmip_data.runtime.progress import Progress

    depths, steps = ((1, 2, 4), 150) if quick else ((1, 2, 4, 8, 16), 1000)
    errors: dict[int, list[float]] = {k: [] for k in ((1, NODES) if quick else (1, 2, 4, NODES))}
    with Progress("fit", len(errors) * len(depths), unit="networks", quiet=quiet) as progress:
        for k, found in errors.items():
            for error in fit(k, depths, steps=steps, seed=seed):
                found.append(error)
                progress.update(1)
    copies = {k: copied(k, seed) for k in errors}
    if as_json:
        figures = {"depths": depths, "errors": errors, "copied": {k: one for k, (one, _) in copies.items()}}
        print_json({"analysis": "universality", **figures, "gap": copies[NODES][1]})
        return
    rows: list[list[Any]] = [
        [depth, *(found[i] for found in errors.values())] for i, depth in enumerate(depths)
    ]
    rows.append(["copied", *(error for error, _ in copies.values())])
    cells = ([name, *(f"{error:.4f}" for error in found)] for name, *found in rows)
    click.echo(table(["blocks", *(f"k = {k}" for k in errors)], cells))
    click.echo(f"copied weights, k = N = {NODES}: within {copies[NODES][1]:.0e} of full attention")
