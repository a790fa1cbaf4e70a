"""``kmip-data runs``: list the runs in the home folder, their progress and how to resume them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kmip_data.cli.shared.command_classes import ClickCommand
from kmip_data.cli.shared.options import home_option, json_option
from kmip_data.cli.shared.output import print_result
from kmip_data.cli.shared.printed_tables import runs_table
from kmip_data.errors import Command
from kmip_data.format.card import SAMPLE_NOTE

if TYPE_CHECKING:
    from kmip_data.builds.home import Home


@click.command(cls=ClickCommand)
@home_option
@json_option
def command(home: Home) -> None:
    """List the runs in the home folder, newest first.

    Shows finished epochs, the metric on test, and the command that resumes a stopped run. A run of
    a sweep that ended with an error is listed as failed, with that error. A run on a sample is
    listed as NAME-sample. `report` compares finished runs.
    """
    from kmip_data.models.training.run.run_status import list_runs

    runs = list_runs(home)
    text = f"No runs yet in {home.runs}"
    steps = [] if runs else [Command("kmip-data train NAME"), Command("kmip-data list --all")]
    if runs:
        text = runs_table(runs)
        if any(run.sample for run in runs):
            text += f"\n\n{SAMPLE_NOTE}"
    print_result({"home": home.path, "runs": [run.as_json() for run in runs]}, text, steps=steps)
