"""What the runs of a sweep found: a row for each dataset, model and change, over the seeds that are done."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, replace

from kmip_data.format.card import remark
from kmip_data.models.sweeps.cells import Cell
from kmip_data.models.sweeps.plan import Plan
from kmip_data.models.training.objective.metrics import METRICS, is_better
from kmip_data.models.training.run.folders import RESULT_NAME
from kmip_data.models.training.run.result import RunResult, mean_std, read_result


@dataclass(frozen=True)
class Row:
    """Mean and deviation (ddof 0, as upstream) over the seeds that are done; shares, not percent."""

    dataset: str
    model: str
    change: str
    runs: int
    of: int
    metric: str = ""
    val: float | None = None
    val_std: float | None = None
    test: float | None = None
    test_std: float | None = None
    seconds_epoch: float | None = None  #: without evaluation
    seconds_run: float | None = None
    parameters: int | None = None
    remark: str = ""  #: what is to be said after the dataset's name
    chosen: bool = False  #: whether its change is the best on val


def rows_of(plan: Plan, cells: Iterable[Cell]) -> list[Row]:
    """Return the rows of a sweep in the order of its cells.

    Raises
    ------
    DamagedInput
        A result cannot be read.
    """
    groups: dict[tuple[str, str, str], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.dataset, cell.model, cell.change), []).append(cell)
    rows = []
    for key, group in groups.items():
        done = [read_result(cell.folder) for cell in group if (cell.folder / RESULT_NAME).is_file()]
        row = Row(*key, runs=len(done), of=len(group))
        rows.append(_measured(row, done) if done else row)
    return [replace(row, chosen=True) if plan.choose and row in _best(rows) else row for row in rows]


def _measured(row: Row, done: list[RunResult]) -> Row:
    first, metric = done[0], done[0].metric
    mean, std = mean_std([result.metrics for result in done])
    said = remark(first.sample, first.complete)
    if len({(result.build_key, result.config["training"]["epochs"]) for result in done}) > 1:
        said += " (runs on different builds)"
    return replace(
        row,
        metric=metric,
        **{part: mean[part][metric] for part in ("val", "test") if part in mean},
        **{f"{part}_std": std[part][metric] for part in ("val", "test") if part in std},
        seconds_epoch=statistics.fmean(result.seconds.train_epoch for result in done),
        seconds_run=statistics.fmean(result.seconds.total for result in done),
        parameters=first.num_parameters,
        remark=said,
    )


def _best(rows: list[Row]) -> list[Row]:
    """The row of each dataset and model that is best on val, the first of equals."""
    best: dict[tuple[str, str], Row] = {}
    for row in rows:
        place = (row.dataset, row.model)
        if row.val is not None and is_better(row.metric, row.val, best[place].val if place in best else None):
            best[place] = row
    return list(best.values())


def texts(row: Row) -> dict[str, object]:
    """The row for people: title of a column -> text or number."""
    metric = METRICS.get(row.metric)
    title = "" if metric is None else f"{metric.title} [%]" if metric.percent else metric.title

    def cell(mean: float | None, std: float | None) -> str | None:
        if mean is None or std is None:
            return None
        scale, digits = (100, 2) if metric is not None and metric.percent else (1, 4)
        return f"{scale * mean:.{digits}f} ± {scale * std:.{digits}f}"

    return {
        "dataset": f"{row.dataset}{row.remark}",
        "model": row.model,
        "change": f"{row.change}{' (best on val)' if row.chosen else ''}",
        "metric": title,
        "val": cell(row.val, row.val_std),
        "test": cell(row.test, row.test_std),
        "runs": f"{row.runs} of {row.of}",
        "s/epoch": None if row.seconds_epoch is None else f"{row.seconds_epoch:.3g}",
        "s/run": None if row.seconds_run is None else f"{row.seconds_run:.0f}",
        "parameters": row.parameters,
    }
