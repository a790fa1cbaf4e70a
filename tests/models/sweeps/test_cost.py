"""What a sweep will cost: counted, measured, or said to be unknown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.stand_in_train import result
from support.sweeps import write_plan
from support.training_data import learnable_build

from kmip_data.builds.home import Home
from kmip_data.models.sweeps.cells import Cell, cells_of
from kmip_data.models.sweeps.cost import BYTES_PARAMETER, BYTES_RUN, Benched, cost_of, keep_benched
from kmip_data.models.sweeps.plan import read_plan


@pytest.fixture
def cells(tmp_path: Path) -> list[Cell]:
    """Two models, two seeds, thirty epochs."""
    home = Home.locate(tmp_path / "home")
    learnable_build(home.built / "clouds")
    plan = write_plan(tmp_path / "plan.toml", epochs=30, set=["system.device=cpu"])
    return cells_of(read_plan(str(plan)), home)


def finish(cell: Cell, **changes: object) -> None:
    cell.folder.mkdir(parents=True)
    values = json.loads(result(cell.folder.name, cell.seed, 0.5, cell.model))
    (cell.folder / "result.json").write_text(json.dumps(values | changes))


def test_without_a_finished_run_it_is_unknown(cells):
    cost = cost_of(cells, 1)
    assert (cost.runs, cost.seconds) == (4, 0)
    assert cost.unknown == [("clouds", "gps-kmip"), ("clouds", "gps-none")]
    assert str(cost).endswith(
        "hours unknown; to measure: kmip-data bench train clouds --model gps-kmip;"
        " kmip-data bench train clouds --model gps-none."
    )


def test_finished_runs_of_the_model_tell(cells):
    finish(cells[0])  # 1.5 seconds for 3 epochs, 1234 parameters
    cost = cost_of(cells, 2)
    assert (cost.runs, cost.seconds, cost.unknown) == (3, 30 * 0.5 / 2, [("clouds", "gps-none")])
    assert cost.bytes == 3 * BYTES_RUN + BYTES_PARAMETER * (1234 + 2 * 500_000)
    assert "3 runs to go" in str(cost)


def test_bench_train_tells_where_no_run_is_finished(cells, tmp_path):
    values = {"machine": "a test", "parameters": 99, "preset": "", "measured": "now"}
    home = Home.locate(tmp_path / "home")
    for model, device in (("gps-kmip", "cpu"), ("gps-none", "NVIDIA A100")):
        keep_benched(home, "clouds", model, Benched(device=device, seconds_epoch=2.0, **values))
    cost = cost_of(cells, 1)
    assert (cost.seconds, cost.ran, cost.benched) == (2 * 30 * 2.0, 0, 2)
    assert cost.unknown == [("clouds", "gps-none")]  # measured on another device
    assert "; about 2 min by bench train on this machine, without evaluations; the others" in str(cost)
    assert cost.bytes == 4 * BYTES_RUN + BYTES_PARAMETER * (2 * 99 + 2 * 500_000)
    finish(cells[0])  # and is believed before it
    assert (cost_of(cells, 1).seconds, cost_of(cells, 1).benched) == (30 * 0.5, 0)
    finish(cells[2], model="gps-none")
    keep_benched(home, "clouds", "gps-kmip", Benched(device="cpu", seconds_epoch=2.0, **values)).write_text(
        "{"
    )
    assert cost_of(cells, 1).unknown == []


def test_both_sources_are_named(cells, tmp_path):
    values = {"device": "cpu", "machine": "a test", "parameters": 99, "preset": "", "measured": "now"}
    keep_benched(Home.locate(tmp_path / "home"), "clouds", "gps-none", Benched(seconds_epoch=2.0, **values))
    finish(cells[0])
    said = "by finished runs of this device and bench train on this machine (2 of them), without evaluations."
    assert str(cost_of(cells, 1)).endswith(said)


def test_runs_of_another_device_or_that_cannot_be_read_do_not(cells):
    finish(cells[0], device="NVIDIA A100")
    finish(cells[1], version=7)
    assert cost_of(cells, 1).seconds == 0
