"""Results of a sweep: one row for each dataset, model and change, over the seeds that are done."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import Any

from kmip_data.format.card import remark
from kmip_data.models.sweeps.cells import Cell
from kmip_data.models.sweeps.plan import Plan
from kmip_data.models.training.objective.metrics import is_better
from kmip_data.models.training.run.folder import (
    RESULT_NAME,
    RunResult,
    mean_std,
    read_result,
    title_of,
    value_text,
)

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
        done = [read_result(cell.folder) for cell in group if (cell.folder / RESULT_NAME).is_file()]
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
