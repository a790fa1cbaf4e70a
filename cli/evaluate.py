"""``kmip-data evaluate``: the weights of a run, measured again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kmip_data.cli.command import Command
from kmip_data.cli.dataset_command import complete_dataset
from kmip_data.cli.options import home_option, json_option, sample_option
from kmip_data.cli.output import print_json

if TYPE_CHECKING:
    from kmip_data.home import Home


@click.command(
    cls=Command,
    examples=[
        "kmip-data evaluate 20261120-071806-code-seed0",
        "kmip-data evaluate runs/s3dis/gps-kmip/mine --dataset built/s3dis-k16-0123456789ab --device cpu",
    ],
)
@click.argument("run")
@click.option(
    "--dataset",
    metavar="TARGET",
    shell_complete=complete_dataset,
    help="Other data with the same features and classes.  [default: what the run learned from]",
)
@click.option(
    "--device", type=click.Choice(["auto", "cpu", "cuda"]), help="Where.  [default: as the run was trained]"
)
@sample_option
@home_option
@json_option
def command(
    run: str, dataset: str | None, device: str | None, sample: bool, home: Home, as_json: bool
) -> None:
    """Measure a trained model again.

    Takes the best weights of RUN, a run folder or the end of its path, and prints the metrics of
    every part of the split.
    """
    from kmip_data.models.training.evaluate import evaluate

    found = evaluate(run, target=dataset, sample=sample, home=home, device=device)
    if as_json:
        print_json(found.to_dict())
    else:
        click.echo(f"{found.table()}\nrun  {found.run}")
