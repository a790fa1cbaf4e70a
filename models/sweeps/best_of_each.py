"""Combine the best value of every changed key in one more run."""

from __future__ import annotations

from itertools import product

from kmip_data.builds.home import Home
from kmip_data.models.sweeps.cells import Cell, cells_of
from kmip_data.models.sweeps.plan import Change, Plan
from kmip_data.models.sweeps.state import is_done
from kmip_data.models.sweeps.table import rows_of
from kmip_data.models.training.objective.metrics import is_better


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
