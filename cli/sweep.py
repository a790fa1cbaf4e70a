"""``kmip-data sweep``: datasets × models × changes × seeds, each run a process that can be resumed."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from kmip_data.cli.shared.commands import (
    SWEEP,
    Command,
    keys_option,
    number_list,
    number_option,
    work_options,
)
from kmip_data.cli.shared.output import show, table
from kmip_data.errors import CheckFailed, UsageError
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
        "kmip-data sweep --dataset helsinki --model gps-kmip,gcn --seeds 0..4 --jobs 2",
        "kmip-data sweep small-cities --dry-run",
        "kmip-data sweep small-cities --status",
        "kmip-data sweep influence-of-k --gpus 0,1,2,3",
        "kmip-data sweep influence-of-k --submit slurm --slurm partition=gpu",
    ],
)
@click.argument("plan", metavar="[SWEEP]", required=False, type=SWEEP)
@click.option(
    "--dataset", "datasets", metavar="A,B", help="Datasets or build folders.  [default: the plan's]"
)
@click.option("--model", "models", metavar="M,N", help="Models.  [default: the plan's; without: gps-kmip]")
@click.option(
    "--seeds", metavar="LIST", help="Seeds, such as 0..4 or 0,5.  [default: the plan's; without: 0]"
)
@number_option("--epochs", "Epochs of every run.")
@keys_option("Configuration key of every run.")
@number_option("--jobs", "Runs at a time; on a CPU they share its cores.", 1)
@click.option(
    "--gpus", metavar="LIST", help="GPUs, such as 0,1,3: one run at a time on each, instead of --jobs."
)
@click.option("--submit", type=click.Choice(["slurm"]), help="Submit the runs as one array job, and return.")
@click.option("--slurm", multiple=True, metavar="KEY=VALUE", help="SLURM option, such as partition=gpu.")
@click.option("--dry-run", is_flag=True, help="Check every run and list them; start none.")
@click.option("--status", is_flag=True, help="Show the state and results of every run; start none.")
@work_options
def command(
    plan: str | None, dry_run: bool, status: bool, home: Home, as_json: bool, quiet: bool, **chosen: Any
) -> None:
    """Run a plan: datasets by models by changes by seeds.

    SWEEP is a shipped plan or a file NAME.toml; without it, the options alone are the plan. Each run is a
    process of `kmip-data train` with its own folder: the same command resumes a sweep that was stopped. A run
    that fails is a row with its reason. Prints mean and standard deviation over seeds.
    """
    from kmip_data.models.sweeps.plan import read_plan

    ways = {name: chosen.pop(name) for name in ("jobs", "gpus", "submit", "slurm")}
    ways["gpus"] = list(filter(None, dict.fromkeys((ways["gpus"] or "").split(","))))
    if ways["gpus"] and ways["submit"]:
        raise UsageError(
            "--gpus is for runs on this machine, and --submit is for a cluster.",
            next="leave out --gpus: each submitted run has a GPU, unless system.device=cpu",
        )
    sweep = _with_choices(read_plan(plan), chosen)
    folder = home.root / "sweeps" / sweep.name
    cells: list[Cell] = []
    if sweep.datasets or not status:  # a sweep without a plan is listed by its runs alone
        cells = _run(sweep, home, folder, None if dry_run or status else {"quiet": quiet}, ways)
    _print(
        sweep, cells, home, folder, dry_run=dry_run, status=status or bool(ways["submit"]), as_json=as_json
    )


def _with_choices(plan: Plan, chosen: Mapping[str, Any]) -> Plan:
    """Return the plan with the options of the command line."""
    given = {name: tuple(chosen[name].split(",")) for name in ("datasets", "models") if chosen[name]}
    if chosen["seeds"] is not None:
        given["seeds"] = tuple(number_list("--seeds", chosen["seeds"]))
    epochs = chosen["epochs"] or plan.epochs
    return plan.model_copy(update={**given, "epochs": epochs, "set": (*plan.set, *chosen["overrides"])})


def _run(plan: Plan, home: Home, folder: Path, options: Any, ways: Mapping[str, Any]) -> list[Cell]:
    """Run a plan, unless ``options`` is None, and return its cells."""
    from kmip_data.models.sweeps.cells import cells_of
    from kmip_data.models.sweeps.running import run_cells

    begin: Callable[..., object] = partial(
        run_cells, jobs=len(ways["gpus"]) or ways["jobs"], gpus=ways["gpus"]
    )
    if ways["submit"]:
        from kmip_data.models.sweeps.running import submit_cells
        from kmip_data.runtime.presence import require_extra

        require_extra("slurm", "--submit slurm")
        pairs = [item.partition("=") for item in ways["slurm"]]
        if wrong := [key for key, equals, _ in pairs if not equals]:
            raise click.BadParameter(f"{wrong[0]!r} is not KEY=VALUE", param_hint="--slurm")
        settings = {key: int(value) if value.isdecimal() else value for key, _, value in pairs}
        begin = partial(submit_cells, settings=settings)
    cells = cells_of(plan, home)
    if options is not None:
        begin(cells, home=home, folder=folder, options=options)
    if plan.then:
        from kmip_data.models.sweeps.table import best_of_each

        combined = best_of_each(plan, cells, home)
        if combined and options is not None:
            begin(combined, home=home, folder=folder, options=options)
        cells += combined
    return cells


def _print(
    plan: Plan, cells: list[Cell], home: Home, folder: Path, *, dry_run: bool, status: bool, as_json: bool
) -> None:
    """Print the runs and the results; raise CheckFailed if runs failed that were to be run."""
    from kmip_data.models.sweeps.cells import other_cells
    from kmip_data.models.sweeps.state import state_of

    if status and not dry_run:
        cells = [*cells, *other_cells(plan, cells, home)]
    states = [state_of(cell, folder) for cell in cells]
    listed = [_listed(cell, state) for cell, state in zip(cells, states, strict=True)]
    rows: list[dict[str, Any]] = []
    if cells and not dry_run:
        from kmip_data.models.sweeps.table import for_people, rows_of

        rows = rows_of(plan, cells)
    runs = listed if dry_run or status else [row for row in listed if row["state"] == "failed"]
    text = [] if cells else [f"The sweep {plan.name} has no run yet."]
    if runs:
        count = Counter(state.kind for state in states)
        then = "; then best-of-each" * bool(dry_run and plan.then)
        text += [
            _table(runs),
            "\n" + ", ".join(f"{number:,} {kind}" for kind, number in count.items()) + then,
        ]
        text.append("")
    if rows:
        text.append(_table([for_people(row) for row in rows]))
    show({"sweep": plan.name, "runs": listed, "results": rows}, "\n".join(text), as_json=as_json)
    reasons = [state.reason for state in states if state.kind == "failed"]
    if reasons and not (dry_run or status):
        raise CheckFailed(
            f"{len(reasons)} of {counted(len(cells), 'run')} failed: {reasons[0]}",
            left=f"their logs in {folder}, and their checkpoints",
            next="the same command tries them again",
        )


def _listed(cell: Cell, state: State) -> dict[str, Any]:
    """Return a cell and its state as a row."""
    named = {name: getattr(cell, name) for name in ("dataset", "model", "change", "seed")}
    far = {"state": state.kind, "epoch": f"{state.epoch}/{cell.config.training.epochs}", "left": state.left}
    return {**named, **far, "run": cell.folder.name, "reason": state.reason}


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the columns that are not empty in all rows."""
    header = [name for name in rows[0] if any(row[name] not in {"", None} for row in rows)]
    return table(header, ([str(row[name]) or "–" for name in header] for row in rows))
