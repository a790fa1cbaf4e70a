"""``kmip-data sweep``: a plan of runs, as processes, gone on with until every cell has its result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
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
    from kmip_data.models.sweeps.cells import cells_of
    from kmip_data.models.sweeps.plan import read_plan
    from kmip_data.models.sweeps.running import run_cells
    from kmip_data.models.sweeps.state import state_of

    whole = _with_choices(read_plan(plan), **chosen)
    cells, folder = cells_of(whole, home), home.root / "sweeps" / whole.name
    if not (dry_run or status):
        options: dict[str, Any] = {"archives": archives, "offline": offline, "accept_license": accept_license}
        run_cells(cells, home=home, folder=folder, jobs=jobs, quiet=quiet, **options)
    states = [state_of(cell, folder) for cell in cells]
    _print(whole, cells, states, form, progress=dry_run or status, results=not dry_run)
    failed = [cell for cell, state in zip(cells, states, strict=True) if state.kind == "failed"]
    if failed and not (dry_run or status):
        raise CheckFailed(
            f"{len(failed)} of {counted(len(cells), 'run')} failed.",
            expected="a result of each",
            found=states[cells.index(failed[0])].reason,
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


def _print(
    plan: Plan, cells: list[Cell], states: list[State], form: str, *, progress: bool, results: bool
) -> None:
    """Print the cells, the results, or with ``text`` and ``json`` both."""
    from kmip_data.models.sweeps.table import rows_of, texts

    rows = rows_of(plan, cells) if results else []
    listed = [
        {
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
        for cell, state in zip(cells, states, strict=True)
    ]
    if form == "json":
        print_json({"sweep": plan.name, "runs": listed, "results": [asdict(row) for row in rows]})
        return
    if form == "csv":
        _print_csv([asdict(row) for row in rows] or listed)
        return
    if progress and (form == "text" or not results):
        count = Counter(state.kind for state in states)
        click.echo(_table(listed, form))
        click.echo("\n" + ", ".join(f"{number:,} {kind}" for kind, number in count.items()) + "\n")
    if results:
        click.echo(_table([texts(row) for row in rows], form))


def _print_csv(rows: list[dict[str, Any]]) -> None:
    from kmip_data.files.changes import csv_bytes

    click.echo(csv_bytes([*rows[0]], (row.values() for row in rows)).decode(), nl=False)


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
