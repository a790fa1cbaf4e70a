"""``kmip-data sweep``: a plan of runs, as processes, gone on with until every cell has its result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kmip_data.cli.shared.command import Command
from kmip_data.cli.shared.options import home_option, number_list, quiet_option, raw_options
from kmip_data.cli.shared.output import print_json, table
from kmip_data.errors import CheckFailed
from kmip_data.wording import counted

if TYPE_CHECKING:
    from kmip_data.builds.home import Home
    from kmip_data.builds.options import BuildArguments
    from kmip_data.models.sweeps.cells import Cell
    from kmip_data.models.sweeps.plan import Plan
    from kmip_data.models.sweeps.state import State


@click.command(
    cls=Command,
    examples=[
        "kmip-data sweep small-cities --dry-run",
        "kmip-data sweep small-cities --model gps-kmip,gcn --seeds 0..1 --epochs 20 --jobs 2",
        "kmip-data sweep small-cities --status",
        "kmip-data sweep paper-city --dataset helsinki --format markdown",
    ],
)
@click.argument("plan", metavar="SWEEP")
@click.option("--dataset", "datasets", metavar="A,B", help="Datasets or build folders instead of the plan's.")
@click.option("--model", "models", metavar="M,N", help="Models instead of the plan's.")
@click.option("--seeds", metavar="LIST", help="Such as 0..4 or 0,5, instead of the plan's.")
@click.option("--epochs", type=click.IntRange(min=1), metavar="N", help="Epochs of every run.")
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="A key for every run, after the plan's own.",
)
@click.option(
    "--jobs", "-j", type=click.IntRange(min=1), default=1, show_default=True, metavar="N",
    help="Runs at a time; on a CPU they share its cores.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Check every run and list them; start none.")
@click.option("--status", is_flag=True, help="How far the runs are, and the results so far; start none.")
@click.option(
    "--format", "form", type=click.Choice(["text", "markdown", "csv", "json"]), default="text",
    show_default=True, help="Of the tables.",
)  # fmt: skip
@raw_options
@home_option
@quiet_option
def command(
    plan: str,
    jobs: int,
    dry_run: bool,
    status: bool,
    form: str,
    home: Home,
    quiet: bool,
    archives: Sequence[Path],
    offline: bool,
    accept_license: bool | None,
    **chosen: Any,
) -> None:
    """Run a plan: datasets by models by changes by seeds.

    SWEEP is a shipped plan, or a file NAME.toml. Each run is a process of `kmip-data train` with a folder
    of its own, so that a sweep that was stopped, however, goes on with the same command. What fails is a row
    with its reason. Prints mean and standard deviation over seeds.
    """
    from kmip_data.files.changes import csv_bytes
    from kmip_data.models.sweeps.cells import cells_of
    from kmip_data.models.sweeps.plan import read_plan
    from kmip_data.models.sweeps.running import run_cells
    from kmip_data.models.sweeps.state import state_of
    from kmip_data.models.sweeps.table import for_people, rows_of

    chosen_plan = _with_choices(read_plan(plan), **chosen)
    cells, folder = cells_of(chosen_plan, home), home.root / "sweeps" / chosen_plan.name
    starts = not (dry_run or status)
    if starts:
        options: BuildArguments = {"archives": archives, "offline": offline, "accept_license": accept_license}
        run_cells(cells, home=home, folder=folder, jobs=jobs, options={**options, "quiet": quiet})
    states = [state_of(cell, folder) for cell in cells]
    rows = [] if dry_run else rows_of(chosen_plan, cells)
    listed = [_listed(cell, state) for cell, state in zip(cells, states, strict=True)]
    if form == "json":
        print_json({"sweep": chosen_plan.name, "runs": listed, "results": rows})
    elif form == "csv":
        found = rows or listed
        click.echo(csv_bytes([*found[0]], (row.values() for row in found)).decode(), nl=False)
    else:
        if dry_run or (status and form == "text"):
            count = Counter(state.kind for state in states)
            click.echo(_table(listed, form))
            click.echo("\n" + ", ".join(f"{number:,} {kind}" for kind, number in count.items()) + "\n")
        if rows:
            click.echo(_table([for_people(row) for row in rows], form))
    reasons = [state.reason for state in states if state.kind == "failed"]
    if starts and reasons:
        raise CheckFailed(
            f"{len(reasons)} of {counted(len(cells), 'run')} failed.",
            expected="a result of each",
            found=reasons[0],
            left=f"their logs in {folder}, and the checkpoints that they have",
            next=f"kmip-data sweep {plan} --status lists the reasons; the same command tries them again",
        )


def _with_choices(
    plan: Plan,
    *,
    datasets: str | None,
    models: str | None,
    seeds: str | None,
    epochs: int | None,
    overrides: Sequence[str],
) -> Plan:
    """Return the plan with what was given on the line."""
    given = {
        "datasets": datasets and tuple(datasets.split(",")),
        "models": models and tuple(models.split(",")),
        "seeds": seeds and tuple(number_list("--seeds", seeds)),
        "epochs": epochs,
        "set": (*plan.set, *overrides),
    }
    return plan.model_copy(update={name: value for name, value in given.items() if value})


def _listed(cell: Cell, state: State) -> dict[str, Any]:
    """A cell and how far it is, as a row."""
    return {
        "dataset": cell.dataset,
        "model": cell.model,
        "change": cell.change,
        "seed": cell.seed,
        "state": state.kind,
        "epoch": f"{state.epoch}/{cell.config.training.epochs}",
        "left": state.left,
        "run": cell.folder.name,
        "reason": state.reason,
    }


def _table(rows: list[dict[str, Any]], form: str) -> str:
    """Rows as a table, without the columns that are empty in all."""
    header = [name for name in rows[0] if any(row[name] not in {"", None} for row in rows)]
    cells = [[row[name] for name in header] for row in rows]
    if form == "text":
        return table(header, cells)
    lines = [header, ["---"] * len(header), *cells]
    return "\n".join(
        f"| {' | '.join('–' if cell is None else str(cell) for cell in line)} |" for line in lines
    )
