"""``kmip-data analyze expressivity``: Theorems 1 and 2 of the paper, tried."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kmip_data.cli.analyses.shared import save_option, save_paths
from kmip_data.cli.shared.command import Command
from kmip_data.cli.shared.options import file_option, json_option, quiet_option
from kmip_data.cli.shared.output import print_json, table

if TYPE_CHECKING:
    from kmip_data.models.analysis.graph_pairs import Pair
    from kmip_data.models.analysis.refinement import Refinement

DRAWN = 8  #: pairs in the picture


@click.command(
    cls=Command,
    examples=[
        "kmip-data analyze expressivity",
        "kmip-data analyze expressivity --brec brec_v3.npy",
    ],
)
@file_option("--brec", help="Pairs of this file instead: BREC's brec_v3.npy, or graph6 lines, pair by pair.")
@click.option("--full", is_flag=True, help="Fit up to 16 blocks with 1,000 steps each: minutes, not seconds.")
@save_option
@json_option
@quiet_option
def command(brec: Path | None, full: bool, save: str | None, as_json: bool, quiet: bool) -> None:
    """Graphs that networks tell apart, and functions they fit (Theorems 1 and 2).

    First, 1-WL and S-SEG-WL refine colours on pairs of graphs, and networks of every attention with random
    weights compare the same pairs: none may tell apart what S-SEG-WL does not. Second, k-MIP transformers of
    2 heads of size 1 and 4 hidden channels, ever deeper, are fitted to a larger one with full attention: the
    error by depth and k, relative to that of the identity.
    """
    from kmip_data.files.changes import csv_bytes, write_output
    from kmip_data.models.analysis.drawing import draw_refinement
    from kmip_data.models.analysis.expressivity import ENCODINGS, check_networks
    from kmip_data.models.analysis.graph_pairs import known_pairs, read_pairs
    from kmip_data.models.analysis.refinement import all_tests
    from kmip_data.models.config import ATTENTION
    from kmip_data.runtime.progress import Progress

    saved = save_paths("expressivity", save)
    pairs = known_pairs() if brec is None else read_pairs(brec)
    tests = {name: all_tests(pair) for name, pair in pairs.items()}
    header = ["separated in iteration", "nodes", *next(iter(tests.values()))]
    rows = [[n, len(pairs[n][0]), *(one.separated for one in of.values())] for n, of in tests.items()]
    checks = []
    with Progress("attentions", len(ENCODINGS) * len(ATTENTION), unit="networks", quiet=quiet) as progress:
        for check in check_networks(pairs, draws=4 if brec is None else 1):
            checks.append(check)
            progress.update(1)
    depths, errors, copies = _fitted(full, quiet)
    draw_refinement(dict(islice(pairs.items(), DRAWN)), tests, saved[0])
    write_output(saved[1], csv_bytes(header, rows))
    if as_json:
        networks = [{**check._asdict(), "verdict": check.verdict} for check in checks]
        refined = {name: dict(zip(header[2:], row[1:], strict=True)) for name, *row in rows}
        fits = {"depths": depths, "errors": errors, "copied": {k: one for k, (one, _) in copies.items()}}
        print_json({"separated": refined, "networks": networks, "fits": fits, "saved": saved})
        return
    if brec is None:
        shown = [[*row[:2], *("never" if x is None else x for x in row[2:])] for row in rows]
    else:
        header, shown = ["pairs separated", "pairs", "nodes", *header[2:]], _by_family(pairs, tests)
    click.echo(table(header, shown) + "\n")
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
    names = [*depths, "copied"]
    figures = zip(*([*found, copies[k][0]] for k, found in errors.items()), strict=True)
    fitted = ([name, *(f"{error:.4f}" for error in row)] for name, row in zip(names, figures, strict=True))
    click.echo("\n" + table(["blocks", *(f"k = {k}" for k in errors)], fitted))
    most = max(errors)
    click.echo(f"copied weights, k = N = {most}: within {copies[most][1]:.0e} of full attention")
    click.echo("saved  " + "  ".join(map(str, saved)))


def _fitted(
    full: bool, quiet: bool
) -> tuple[tuple[int, ...], dict[int, list[float]], dict[int, tuple[float, float]]]:
    """Return depths, the errors of fitted transformers by k and depth, and those of copied weights by k."""
    from kmip_data.models.analysis.universality import NODES, copied, fit
    from kmip_data.runtime.progress import Progress

    depths, steps = ((1, 2, 4, 8, 16), 1000) if full else ((1, 2, 4), 150)
    errors: dict[int, list[float]] = {k: [] for k in ((1, 2, 4, NODES) if full else (1, NODES))}
    with Progress("fit", len(errors) * len(depths), unit="networks", quiet=quiet) as progress:
        for k, found in errors.items():
            for error in fit(k, depths, steps=steps):
                found.append(error)
                progress.update(1)
    return depths, errors, {k: copied(k) for k in errors}


def _by_family(pairs: Mapping[str, Pair], tests: Mapping[str, Mapping[str, Refinement]]) -> list[list[Any]]:
    """Return the number of pairs that each test separates, by family and in total."""
    families = [(family, [*names]) for family, names in groupby(pairs, lambda name: name.rpartition(" ")[0])]
    rows = []
    for family, names in [*families, ("all", [*pairs])]:
        sizes = [len(pairs[name][0]) for name in names]
        apart = [[one.separated is not None for one in tests[name].values()] for name in names]
        nodes = f"{min(sizes)} to {max(sizes)}" if min(sizes) < max(sizes) else sizes[0]
        rows.append([family, len(names), nodes, *map(sum, zip(*apart, strict=True))])
    return rows
