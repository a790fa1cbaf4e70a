"""``kmip-data sweep``: a plan of runs, as processes, gone on with until every cell has its result."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from kmip_data.cli.shared.command import Command
from kmip_data.cli.shared.options import home_option, number_list, number_option, quiet_option, raw_options
from kmip_data.cli.shared.output import print_json, table
from kmip_data.errors import CheckFailed, UsageError
from kmip_data.runtime.progress import say
from kmip_data.wording import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

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
        "kmip-data sweep influence-of-k --gpus 0,1,2,3",
        "kmip-data sweep influence-of-k --submit slurm --slurm partition=gpu",
        "kmip-data sweep small-city-tune --tune optuna --trials 30",
    ],
)
@click.argument("plan", metavar="SWEEP")
@click.option("--dataset", "datasets", metavar="A,B", help="Datasets or build folders instead of the plan's.")
@click.option("--model", "models", metavar="M,N", help="Models instead of the plan's.")
@click.option("--seeds", metavar="LIST", help="Such as 0..4 or 0,5, instead of the plan's.")
@number_option("--epochs", "Epochs of every run.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="A key of every run.")
@number_option("--jobs", "Runs at a time; on a CPU they share its cores.", 1)
@click.option("--gpus", metavar="LIST", help="Such as 0,1,3: a run on each of these GPUs, instead of --jobs.")
@click.option("--submit", type=click.Choice(["slurm"]), help="Submit the runs as one array job, and return.")
@click.option("--slurm", multiple=True, metavar="KEY=VALUE", help="Of the job: partition, time (minutes) …")
@click.option("--tune", type=click.Choice(["optuna"]), help="Search the plan's [space] for settings.")
@number_option("--trials", "Of --tune, for each dataset and model.", 20)
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
    plan: str, dry_run: bool, status: bool, form: str, home: Home, quiet: bool, **chosen: Any
) -> None:
    """Run a plan: datasets by models by changes by seeds.

    SWEEP is a shipped plan, or a file NAME.toml. Each run is a process of `kmip-data train` with a folder
    of its own, so that a sweep that was stopped, however, goes on with the same command. What fails is a row
    with its reason. Prints mean and standard deviation over seeds.
    """
    from kmip_data.files.changes import csv_bytes
    from kmip_data.models.sweeps.cost import cost_of
    from kmip_data.models.sweeps.plan import read_plan
    from kmip_data.models.sweeps.state import state_of
    from kmip_data.models.sweeps.table import for_people, rows_of

    options: Any = {name: chosen.pop(name) for name in ("archives", "offline", "accept_license")}
    ways = {name: chosen.pop(name) for name in ("jobs", "gpus", "submit", "slurm", "tune", "trials")}
    ways["gpus"] = list(filter(None, dict.fromkeys((ways["gpus"] or "").split(","))))
    here = next((name for name in ("gpus", "tune") if ways[name]), None)
    if here and ways["submit"]:
        raise UsageError(
            f"--{here} is for runs on this machine, and --submit leaves them to others.",
            expected="one of the two",
            found=f"--{here} and --submit {ways['submit']}",
            next=f"leave out --{here}: each submitted run has a GPU, unless system.device=cpu",
        )
    ways["jobs"] = len(ways["gpus"]) or ways["jobs"]
    whole = _with_choices(read_plan(plan), chosen)
    folder = home.root / "sweeps" / whole.name
    cells = _run(whole, home, folder, None if dry_run or status else options | {"quiet": quiet}, ways)
    status = status or bool(ways["submit"])
    states = [state_of(cell, folder) for cell in cells]
    rows = [] if dry_run else rows_of(whole, cells)
    listed = [_listed(cell, state) for cell, state in zip(cells, states, strict=True)]
    if form == "json":
        print_json({"sweep": whole.name, "runs": listed, "results": rows})
    elif form == "csv":
        found = rows or listed
        click.echo(csv_bytes([*found[0]], (row.values() for row in found)).decode(), nl=False)
    else:
        shown = listed if dry_run or status else [row for row in listed if row["state"] == "failed"]
        if shown and (dry_run or form == "text"):
            count = Counter(state.kind for state in states)
            click.echo(_table(shown, form))
            click.echo("\n" + ", ".join(f"{number:,} {kind}" for kind, number in count.items()) + "\n")
            if dry_run and form == "text":
                click.echo(f"{cost_of(cells, ways['jobs'])}{' Then best-of-each.' if whole.then else ''}")
        if rows:
            click.echo(_table([for_people(row) for row in rows], form))
    reasons = [state.reason for state in states if state.kind == "failed"]
    if reasons and not (dry_run or status):
        raise CheckFailed(
            f"{len(reasons)} of {counted(len(cells), 'run')} failed.",
            expected="a result of each",
            found=reasons[0],
            left=f"their logs in {folder}, and the checkpoints that they have",
            next="a larger --trials" if ways["tune"] else "the same command tries them again",
        )


def _run(plan: Plan, home: Home, folder: Path, options: Any, ways: Mapping[str, Any]) -> list[Cell]:
    """Run a plan as it was asked for, not where ``options`` is None, and return its cells."""
    from kmip_data.models.sweeps.best_of_each import best_of_each
    from kmip_data.models.sweeps.cells import cells_of
    from kmip_data.models.sweeps.cost import cost_of
    from kmip_data.models.sweeps.running import places_of, run_cells
    from kmip_data.models.sweeps.submitting import submit_cells
    from kmip_data.models.sweeps.tuning import tried, tune_cells
    from kmip_data.pipelines.raw.extras import require_extra

    jobs, gpus = ways["jobs"], ways["gpus"]
    if ways["tune"]:
        require_extra("tune", "--tune optuna")
        if options is not None:
            places, trials = places_of(jobs, gpus), ways["trials"]
            tune_cells(plan, home=home, folder=folder, places=places, trials=trials, options=options)
        return tried(plan, home=home, folder=folder) or cells_of(plan, home)
    begin: Callable[..., object] = partial(run_cells, jobs=jobs, gpus=gpus)
    if ways["submit"]:
        require_extra("slurm", "--submit slurm")
        begin = partial(submit_cells, settings=_settings(ways["slurm"]))
    cells: list[Cell] = []
    for further in (False, True) if plan.then else (False,):
        fresh = best_of_each(plan, cells, home) if further else cells_of(plan, home)
        cells = cells + fresh
        if fresh and options is not None:
            cost = cost_of(fresh, jobs)
            say(str(cost), quiet=options["quiet"] or not cost.runs)
            begin(fresh, home=home, folder=folder, options=options)
    return cells


def _settings(items: Sequence[str]) -> dict[str, int | str]:
    """Read KEY=VALUE, numbers as such."""
    pairs = [item.partition("=") for item in items]
    if wrong := [key for key, equals, _ in pairs if not equals]:
        raise click.BadParameter(f"{wrong[0]!r} is not KEY=VALUE", param_hint="--slurm")
    return {key: int(value) if value.isdecimal() else value for key, _, value in pairs}


def _with_choices(plan: Plan, chosen: Mapping[str, Any]) -> Plan:
    """Return the plan with what was given on the line."""
    given = {name: tuple(chosen[name].split(",")) for name in ("datasets", "models") if chosen[name]}
    if chosen["seeds"] is not None:
        given["seeds"] = tuple(number_list("--seeds", chosen["seeds"]))
    epochs = chosen["epochs"] or plan.epochs
    return plan.model_copy(update={**given, "epochs": epochs, "set": (*plan.set, *chosen["overrides"])})


def _listed(cell: Cell, state: State) -> dict[str, Any]:
    """A cell and how far it is, as a row."""
    named = {name: getattr(cell, name) for name in ("dataset", "model", "change", "seed")}
    epoch = f"{state.epoch}/{cell.config.training.epochs}"
    far = {"state": state.kind, "epoch": epoch, "left": state.left}
    return {**named, **far, "run": cell.folder.name, "reason": state.reason}


def _table(rows: list[dict[str, Any]], form: str) -> str:
    """Rows as a table, without the columns that are empty in all."""
    header = [name for name in rows[0] if any(row[name] not in {"", None} for row in rows)]
    cells = [["–" if row[name] is None else row[name] for name in header] for row in rows]
    if form == "text":
        return table(header, cells)
    lines = [header, ["---"] * len(header), *cells]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)
