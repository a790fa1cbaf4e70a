"""Results of a sweep: a row for each dataset, model and change, and the best value of every key."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from itertools import product
from typing import Any

from kmip_data.builds.home import Home
from kmip_data.format.card import remark
from kmip_data.models.sweeps.cells import Cell, cells_of
from kmip_data.models.sweeps.plan import Change, Plan
from kmip_data.models.sweeps.state import is_done
from kmip_data.models.training.metrics import is_better
from kmip_data.models.training.run.folder import RunResult, mean_std, read_result, title_of, value_text

Row = dict[str, Any]  #: keys as in docs/sweeps.md; shares, not percent


def rows_of(plan: Plan, cells: Iterable[Cell]) -> list[Row]:
    """Return the rows of a sweep in the order of its cells.

    Seeds of one configuration are a row. Raises ``DamagedInput`` if a result cannot be read.
    """
    groups: dict[object, list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.dataset, cell.series, cell.settings), []).append(cell)
    rows = []
    for group in groups.values():
        done = [read_result(cell.folder) for cell in group if is_done(cell)]
        row: Row = {name: getattr(group[0], name) for name in ("dataset", "model", "change", "settings")}
        rows.append(row | {"runs": len(done), "of": len(group)} | _measured(done))
    best: dict[tuple[str, str], Row] = {}
    for row in rows if plan.choose else ():
        if row["settings"]:
            continue
        first = best.get((row["dataset"], row["model"]))
        if row["runs"] and is_better(row["metric"], row["val"], first["val"] if first else None):
            best[row["dataset"], row["model"]] = row
    return [row | {"chosen": any(row is one for one in best.values())} for row in rows]


def _measured(done: list[RunResult]) -> Row:
    """Return means and deviations (ddof 0, as upstream) over the seeds that are done; None without any."""
    names = ("metric", "val", "val_std", "test", "test_std", "seconds_epoch", "seconds_run", "parameters")
    if not done:
        return {**dict.fromkeys(names), "remark": ""}
    mean, std = mean_std([result.metrics for result in done])
    first, metric = done[0], done[0].metric
    shares = [values.get(part, {}).get(metric) for part in ("val", "test") for values in (mean, std)]
    times = [
        statistics.fmean(getattr(result.seconds, of) for result in done) for of in ("train_epoch", "total")
    ]
    mixed = " (runs on different builds)" if len({result.build_key for result in done}) > 1 else ""
    values = (metric, *shares, *times, first.num_parameters)
    return {
        **dict(zip(names, values, strict=True)),
        "remark": f"{remark(first.sample, first.complete)}{mixed}",
    }


def for_people(row: Row) -> Row:
    """Return a row for people: column title -> text or number."""
    metric = row["metric"]

    def cell(part: str) -> str | None:
        return None if row[part] is None else value_text(metric, row[part], row[f"{part}_std"])

    return {
        "dataset": f"{row['dataset']}{row['remark']}",
        "model": row["model"],
        "change": f"{row['change']}{' (best on val)' if row['chosen'] else ''}",
        "settings": row["settings"],
        "metric": metric and title_of(metric),
        **{part: cell(part) for part in ("val", "test")},
        "runs": f"{row['runs']} of {row['of']}",
        "s/epoch": row["seconds_epoch"] and f"{row['seconds_epoch']:.3g}",
        "s/run": row["seconds_run"] and f"{row['seconds_run']:,.1f}",
        "parameters": row["parameters"] and f"{row['parameters']:,}",
    }


def best_of_each(plan: Plan, cells: list[Cell], home: Home) -> list[Cell]:
    """Return the cells of the combined change, for each dataset and model whose cells are all done.

    Changes of the same keys are one axis. On each axis the best mean on val wins, among its changes and the
    run without any; of equal ones the first in the plan. Only results on disk decide, so that a sweep that
    was killed makes the same choice. If at most one axis gains, the combination exists already: no cells.
    """
    found = []
    for dataset, model in dict.fromkeys((cell.dataset, cell.model) for cell in cells):
        own = [cell for cell in cells if (cell.dataset, cell.model) == (dataset, model)]
        if all(map(is_done, own)) and (change := _combined(plan, own)):
            one = plan.model_copy(update={"datasets": (dataset,), "models": (model,), "changes": (change,)})
            found += cells_of(one, home)
    return found


def _combined(plan: Plan, cells: list[Cell]) -> Change | None:
    """Return the change that combines the winners of the axes; ``cells`` are of one dataset and model."""
    dataset, model = cells[0].dataset, cells[0].model
    changes = [
        change
        for change in plan.changes
        if model in (change.models or (model,)) and dataset in (change.datasets or (dataset,))
    ]
    winners: dict[frozenset[str], tuple[Change, float]] = {}
    axes = dict.fromkeys(map(_axis, changes))
    for (row, change), axis in product(zip(rows_of(plan, cells), changes, strict=True), axes):
        best = winners[axis][1] if axis in winners else None
        if _axis(change) in {axis, frozenset()} and is_better(row["metric"], row["val"], best):
            winners[axis] = change, row["val"]
    best_ones = [change for change, _ in winners.values()]
    gained = [change for change in changes if change.set and any(change is one for one in best_ones)]
    if len(gained) < 2:
        return None
    return Change(name=str(plan.then), set=tuple(item for change in gained for item in change.set))


def _axis(change: Change) -> frozenset[str]:
    return frozenset(item.partition("=")[0].strip() for item in change.set)
