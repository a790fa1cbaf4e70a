"""The combination of each axis's winner: which it is, when, and that nothing but the results decides."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.runs.stand_in_train import format_result
from support.runs.sweeps import write_plan

from kmip_data.errors import DamagedInput
from kmip_data.models.sweeps.cells import (
    Cell,
    Plan,
    best_on_val,
    combined_change_cells,
    expand_plan,
    read_plan,
)

CHANGES = [
    {"name": "start"},
    {"name": "deep", "set": ["model.layers=9"]},
    {"name": "flat", "set": ["model.layers=2"]},
    {"name": "fast", "set": ["optimizer.lr=0.1"]},
    {"name": "k5", "set": ["model.attention.k=5"], "models": ["gps-kmip"]},
]


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    keys = {"changes": CHANGES, "choose": "validation", "then": "best-of-each", "seeds": [0, 1]}
    return read_plan(str(write_plan(tmp_path / "search.toml", **keys)))


def finish(cells: list[Cell], **values: float) -> None:
    """Results whose mean over seeds is the change's."""
    for cell in cells:
        cell.folder.mkdir(parents=True)
        value = values[cell.change] + (0.01 if cell.seed else -0.01)
        (cell.folder / "result.json").write_text(
            format_result(cell.folder.name, cell.seed, value, cell.model)
        )


def test_the_winner_of_each_axis_is_taken(home, plan):
    cells = expand_plan(plan, home)
    finish(cells, start=0.5, deep=0.6, flat=0.7, fast=0.4, k5=0.55)
    best = combined_change_cells(plan, cells, home)
    assert [(cell.model, cell.change, cell.seed) for cell in best] == [
        ("gps-kmip", "best-of-each", 0),
        ("gps-kmip", "best-of-each", 1),
    ]  # one axis alone gained with the other model: "flat" is the combination
    config, start = best[0].config, cells[0].config
    assert (config.model.layers, config.model.attention.k) == (2, 5)
    assert config.optimizer.lr == start.optimizer.lr
    assert best[0].folder.name.startswith("search-best-of-each-")
    assert combined_change_cells(plan, cells, home) == best


def test_ties_are_won_by_the_first_cell_of_the_plan(home, plan):
    cells = expand_plan(plan, home)
    finish(cells, start=0.5, deep=0.6, flat=0.6, fast=0.5, k5=0.8)
    [first, _] = combined_change_cells(plan, cells, home)
    assert (first.config.model.layers, first.config.optimizer.lr) == (
        9,
        cells[0].config.optimizer.lr,
    )


def test_best_of_each_waits_for_last_cell_of_model(home, plan):
    cells = expand_plan(plan, home)
    finish(cells, start=0.5, deep=0.6, flat=0.7, fast=0.9, k5=0.55)
    last = next(cell for cell in cells if cell.model == "gps-kmip")
    (last.folder / "result.json").unlink()
    assert {cell.model for cell in combined_change_cells(plan, cells, home)} == {"gps-none"}


def test_an_edited_result_is_not_used_to_choose_the_best(home, plan):
    cells = expand_plan(plan, home)
    finish(cells, start=0.5, deep=0.6, flat=0.7, fast=0.4, k5=0.55)
    path = cells[0].folder / "result.json"
    path.write_text(path.read_text().replace('"seed": ', '"seed": 1', 1))
    for choose in (lambda: combined_change_cells(plan, cells, home), lambda: best_on_val(cells)):
        with pytest.raises(DamagedInput, match=r"result\.json .*edited"):
            choose()
