"""``kmip-data runs``: list the runs in the home folder, their progress and how to resume them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from kmip_data.cli.shared.commands import Command, home_option, json_option
from kmip_data.cli.shared.output import Facts, annotated, show, table

if TYPE_CHECKING:
    from kmip_data.builds.home import Home


@click.command(cls=Command)
@click.option("--dataset", metavar="NAME", help="Only runs on this dataset.")
@click.option("--model", metavar="NAME", help="Only runs of this model.")
@home_option
@json_option
def command(
    dataset: str | None,
    model: str | None,
    home: Home,
) -> None:
    """List the runs in the home folder, the newest first.

    Shows finished epochs, the metric on test, and the command that resumes a stopped run. A run of
    a sweep that ended with an error is listed as failed, with that error. `report` compares
    finished runs.
    """
    from kmip_data.models.sweeps.states import list_runs

    # Runs on a sample have a folder of their own, and the name of the dataset means them, too.
    runs = []
    for run in list_runs(home):
        of_dataset = dataset in {None, run["dataset"], run["dataset"].removesuffix("-sample")}
        if of_dataset and model in {None, run["model"]}:
            runs.append(run)
    text = f"No such runs in {home.runs}: kmip-data train --dataset helsinki --epochs 20"
    if runs:
        text = runs_table(runs)
    show({"home": home.root, "runs": runs}, text)


def runs_table(runs: Sequence[Facts]) -> str:
    """Return runs with their states, and below each what it needs."""
    from kmip_data.models.training.metrics import all_metrics
    from kmip_data.models.training.run.result import with_unit

    rows = []
    notes = []
    for run in runs:
        test = ""
        if run["test"] is not None:
            metric = all_metrics().get(run["metric"])  # one of a plugin may be missing here
            title = metric.title if metric else run["metric"]
            test = f"{title} {with_unit(run['metric'], run['test'])}"
        if run["edited"]:
            test += " (edited)"
        epochs = str(run["epoch"])
        if run["epochs"] is not None:
            epochs += f" of {run['epochs']}"
        name = f"{run['dataset']}/{run['model']}/{run['name']}"
        rows.append([name, run["state"], epochs, test])

        left = None
        if run["state"] == "running" and run["left"]:
            left = f"{run['left']} left, by the epochs so far"
        notes.append([left, run["reason"], run["resume"] and f"resume: {run['resume']}"])
    return annotated(table(["run", "state", "epochs", "test"], rows), notes)
