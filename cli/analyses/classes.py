"""``kmip-data analyze classes``: how well runs do on each class."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kmip_data.cli.analyses.shared import part_option, runs_argument
from kmip_data.cli.shared.command import Command
from kmip_data.cli.shared.options import home_option, json_option
from kmip_data.cli.shared.output import print_json, table
from kmip_data.wording import counted

if TYPE_CHECKING:
    from kmip_data.builds.home import Home


@click.command(
    cls=Command,
    examples=["kmip-data analyze classes helsinki/gps-kmip/mine helsinki/gcn/mine"],
)
@runs_argument
@part_option("test")
@home_option
@json_option
def command(runs: tuple[str, ...], part: str, home: Home, as_json: bool) -> None:
    """Accuracy of each class, model beside model.

    Classes of a city are chunks of its eccentricity, in metres or seconds: whether attention helps on
    the far ones is read here. Several runs of a model give mean ± standard deviation.
    """
    from kmip_data.models.analysis.classes import class_accuracy

    found = class_accuracy(runs, part=part, home=home)
    if as_json:
        right = {model: each.tolist() for model, each in found.right.items()}
        classes = {"names": found.names, "rows": found.rows.tolist()}
        print_json({"build": found.build.path, "part": part, "classes": classes, "right": right})
        return
    header = ["class", part, *(f"{model} [%]" for model in found.right)]
    rows = []
    for number, name in enumerate(found.names):
        cells = []
        for each in found.right.values():
            values = 100 * each[:, number] / max(found.rows[number], 1)
            cells.append(f"{values.mean():.1f}" + (f" ± {values.std():.1f}" if len(values) > 1 else ""))
        rows.append([name, int(found.rows[number]), *cells])
    click.echo(table(header, rows))
    numbers = ", ".join(f"{counted(len(each), 'run')} of {model}" for model, each in found.right.items())
    click.echo(f"{found.build.card.heading}, part {part}: {numbers}")
