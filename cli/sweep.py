"""``kmip-data sweep``: train a plan of runs, each in a process that can be resumed."""

from __future__ import annotations

import itertools
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from kmip_data.cli.shared.command_classes import ClickCommand
from kmip_data.cli.shared.options import (
    long_running_options,
    number_option,
    offline_option,
    parse_distinct_numbers,
    plugin_option,
    set_option,
    typed_words,
)
from kmip_data.cli.shared.output import Json, add_row_notes, format_table, print_result
from kmip_data.cli.shared.targets import BUILD, SWEEP
from kmip_data.errors import SAME_AGAIN, CheckFailed, Command
from kmip_data.runtime.progress import print_status
from kmip_data.text import count_with_noun

if TYPE_CHECKING:
    from collections.abc import Callable

    from kmip_data.builds.home import Home
    from kmip_data.models.sweeps.plans import SweepPlan, SweepRun
    from kmip_data.models.training.run.run_status import RunState, RunStatus


@click.command(cls=ClickCommand)
@click.argument("plan", metavar="[SWEEP]", required=False, type=SWEEP)
@click.option(
    "--dataset",
    metavar="LIST",
    help="Datasets or build folders, separated by commas.  [default: the plan's]",
)
@click.option(
    "--model",
    metavar="LIST",
    help="Models, separated by commas.  [default: the plan's, else the dataset's]",
)
@click.option(
    "--seeds", metavar="LIST", help="Seeds, such as 0..4 or 0,5.  [default: the plan's, else 0]"
)
@number_option("--epochs", "Epochs of every run.")
@set_option("Configuration key for every run; KEY=A,B runs a grid of values.")
@number_option("--jobs", "Parallel runs; on a CPU they share its cores.", 1)
@click.option(
    "--gpus", metavar="LIST", help="GPUs to use, such as 0,1,3; one run at a time on each."
)
@offline_option
@plugin_option
@click.option("--dry-run", is_flag=True, help="Check and list the runs without starting any.")
@click.option(
    "--status", is_flag=True, help="Show state and results of the runs without starting any."
)
@long_running_options
def command(
    plan: str | None,
    jobs: int,
    gpus: str | None,
    dry_run: bool,
    status: bool,
    offline: bool,
    home: Home,
    quiet: bool,
    **axes: Any,
) -> None:
    """Train a plan of runs: datasets × models × changes × seeds.

    SWEEP is a shipped plan or a file NAME.toml. Without it, the options define the plan. Each run is
    a process of `kmip-data train` with its own folder. The same command resumes a sweep that was
    stopped. A failed run is listed with its error. Prints mean and standard deviation over seeds.
    """
    from kmip_data.models.sweeps.plans import read_sweep_plan

    sweep = _override_plan(read_sweep_plan(plan), axes)
    start_runs = None
    if not (dry_run or status):
        from kmip_data.models.sweeps.running import run_sweep

        devices = list(filter(None, dict.fromkeys((gpus or "").split(","))))
        start_runs = partial(
            run_sweep,
            jobs=len(devices) or jobs,
            gpus=devices,
            home=home,
            folder=home.path / "sweeps" / sweep.name,
            options={"quiet": quiet, "offline": offline},
        )
    runs: list[SweepRun] = []
    if sweep.datasets or not status:  # without a plan, --status lists existing runs
        runs = _plan_and_start_runs(sweep, home, start_runs)
    _print_plan(sweep, runs, home, dry_run=dry_run, status=status)


def _override_plan(plan: SweepPlan, axes: Json) -> SweepPlan:
    """Return a plan with the datasets, models, seeds, epochs and keys of the command line."""
    from kmip_data.models.sweeps.plans import add_grid

    plan = add_grid(plan, axes["overrides"])
    update: Json = {"epochs": axes["epochs"] or plan.epochs}
    for option in ("dataset", "model"):
        if axes[option]:
            update[f"{option}s"] = tuple(axes[option].split(","))
    for dataset in update.get("datasets", ()):
        BUILD.convert(dataset, None, click.get_current_context())
    if axes["seeds"] is not None:
        update["seeds"] = tuple(parse_distinct_numbers("--seeds", axes["seeds"]))
        update["seeds_of"] = {}
    return plan.model_copy(update=update)


def _plan_and_start_runs(
    plan: SweepPlan, home: Home, start_runs: Callable[..., None] | None
) -> list[SweepRun]:
    """Return the planned runs, after starting them by ``start_runs`` unless it is None."""
    from kmip_data.models.sweeps.plans import MAX_RUNS, combined_change_runs, expand_plan
    from kmip_data.plugins import import_installed_plugins

    # Looking for plugins takes 5 ms per name. `expand_plan` refuses larger plans.
    if plan.max_runs <= MAX_RUNS:
        for dataset, model in itertools.zip_longest(plan.datasets, plan.models):
            import_installed_plugins(dataset, model)
    runs = expand_plan(plan, home)
    if start_runs is not None:
        start_runs(runs)
    if plan.then:  # one more run, which depends on the results of the others
        combined = combined_change_runs(plan, runs, home)
        if combined and start_runs is not None:
            start_runs(combined)
        runs += combined
    return runs


def _cell_rows(runs: list[SweepRun]) -> list[Json]:
    """Return seeds, sizes and the paper's result of each dataset, model and change."""
    from kmip_data.models.training.config.paper_comparison import compare_with_paper

    rows: dict[tuple[str, str, str], Json] = {}
    for run in runs:
        key = (run.dataset, run.model, run.change)
        if key in rows:
            rows[key]["seeds"].append(run.seed)
            continue
        model = run.config.model
        paper_value = None
        source = None
        comparison = compare_with_paper(run.config)
        if comparison is not None and not (comparison.differing_keys or comparison.sample):
            paper_value = comparison.paper_value
            source = comparison.paper_result.source
        rows[key] = {
            "dataset": run.dataset,
            "model": run.model,
            "change": run.change,
            "variant": run.config.variant,
            "seeds": [run.seed],
            "layers": model.layers,
            "hidden_dim": None if model.parameter_budget else model.hidden_dim,
            "parameter_budget": model.parameter_budget,
            "paper": paper_value,
            "paper_source": source,
        }
    return list(rows.values())


def _cells_text(rows: list[Json]) -> str:
    """Return a table of the planned runs; below each, the paper's result if known."""
    lines = []
    notes = []
    sources: dict[str, None] = {}
    for row in rows:
        name = "/".join(filter(None, [row["dataset"], row["model"], row["change"]]))
        width = row["hidden_dim"] or f"{row['parameter_budget']:,} parameters"
        size = [row["variant"], len(row["seeds"]), row["layers"], width]
        lines.append([name, *size])
        notes.append([row["paper"] and f"paper: {row['paper']}"])
        if row["paper"]:
            source, _, _ = row["paper_source"].partition(", row k")
            sources[f"source: {source}"] = None
    table = format_table(["cell", "variant", "seeds", "layers", "hidden_dim"], lines)
    return "\n".join([add_row_notes(table, notes), *sources, ""])


def _print_plan(
    plan: SweepPlan,
    planned_runs: list[SweepRun],
    home: Home,
    *,
    dry_run: bool,
    status: bool,
) -> None:
    """Print the runs and results of a plan; raise CheckFailed if runs failed just now."""
    from kmip_data.cli.shared.printed_tables import report_text, runs_table
    from kmip_data.models.sweeps.plans import best_on_val
    from kmip_data.models.sweeps.runs_by_name import find_plan_runs
    from kmip_data.models.training.run.run_status import read_run_status

    planned = {run.folder: run for run in planned_runs}
    folders = dict.fromkeys(planned)
    if status and not dry_run:
        folders |= dict.fromkeys(find_plan_runs(plan, home))  # also runs with other options

    # 1. Read the state of each run.
    runs = []
    by_state: dict[RunState, list[RunStatus]] = {}
    for folder in folders:
        run = read_run_status(folder, home)
        # A waiting run has no folder yet: take its seed, length and data from the plan.
        if folder in planned:
            run.seed = planned[folder].seed
            run.epochs = planned[folder].config.training.epochs
            run.sample = planned[folder].config.data.sample
        runs.append(run)
        by_state.setdefault(run.state, []).append(run)
    failed = by_state.get("failed", [])
    result: Json = {
        "sweep": plan.name,
        "runs": [run.as_json() for run in runs],
        "results": [],
        "chosen": [],
    }

    text = []
    if not runs:
        text.append(f"The sweep {plan.name} has no run yet.")
    if dry_run:
        result["cells"] = _cell_rows(planned_runs)
        text.append(_cells_text(result["cells"]))

    # 2. List the runs; after a training only failed ones, as results follow.
    shown = runs if dry_run or status else failed
    if shown:
        count = ", ".join(f"{len(matches):,} {state}" for state, matches in by_state.items())
        if dry_run and plan.then:
            count += "; then best-of-each"
        text.append(f"{runs_table(shown)}\n\n{count}\n")

    # 3. Show results, and the best change on val for each dataset and model.
    if not dry_run:
        from kmip_data.models.reports.result_tables import read_finished_runs, tables_of_runs

        finished, notices = read_finished_runs([run.path for run in by_state.get("done", ())])
        tables, left_out = tables_of_runs(finished)
        for notice in notices + left_out:
            print_status(notice)
        result["results"] = list(itertools.chain(*(results.all_rows for results in tables)))
        if tables:
            text.append(report_text(tables))
    if plan.choose and not dry_run:
        for (dataset, model), change in best_on_val(planned_runs).items():
            result["chosen"].append({"dataset": dataset, "model": model, "change": change})
            text.append(f"Best on val: {change} of {model} on {dataset}")
    steps = _next_steps(plan, has_results=bool(result["results"]), dry_run=dry_run)
    print_result(result, *text, steps=steps)

    if failed and not (dry_run or status):
        message = f"{len(failed)} of {count_with_noun(len(planned_runs), 'run')} failed: {failed[0].reason}"
        left = f"their logs in {home.path / 'sweeps' / plan.name}, and their checkpoints"
        raise CheckFailed(message, left=left, steps=["try them again", SAME_AGAIN])


def _next_steps(plan: SweepPlan, *, has_results: bool, dry_run: bool) -> list[Command]:
    """Return the next command, if there is one."""
    if dry_run:
        return [Command("kmip-data", *(word for word in typed_words() if word != "--dry-run"))]
    if not has_results:
        return []
    return [Command("kmip-data report {} --output", plan.name, f"{plan.name}.html")]
