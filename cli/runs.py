"""``kmip-data runs``: list the runs in the home folder, their progress and how to resume them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kmip_data.cli.shared.command_classes import Command
from kmip_data.cli.shared.names import check_name_among_runs
from kmip_data.cli.shared.options import home_option, json_option
from kmip_data.cli.shared.output import print_result
from kmip_data.cli.shared.printed_tables import runs_table

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
    from kmip_data.models.training.run.run_status import list_runs

    # The name of a dataset also selects the runs on its sample.
    runs = []
    all_runs = list_runs(home)
    for run in all_runs:
        is_on_dataset = dataset in {None, run.dataset, run.dataset.removesuffix("-sample")}
        if is_on_dataset and model in {None, run.model}:
            runs.append(run)
    if runs:
        text = runs_table(runs)
    elif all_runs:
        filters = (
            ("dataset", dataset, {run.dataset for run in all_runs}),
            ("model", model, {run.model for run in all_runs}),
        )
        for kind, name, names in filters:
            check_name_among_runs(
                kind, name, {*names, *(known.removesuffix("-sample") for known in names)}
            )
        of_model = f" of {model}" if model else ""
        on_dataset = f" on {dataset}" if dataset else ""
        text = f"No run{of_model}{on_dataset} in {home.runs}\nNext: kmip-data runs, which lists all"
    else:
        text = f"No runs yet in {home.runs}\nNext: kmip-data train NAME, with a name of kmip-data list --all"
    print_result({"home": home.path, "runs": [run.as_json() for run in runs]}, text)
