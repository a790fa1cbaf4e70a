"""``demo``: every step, smaller."""

from __future__ import annotations

from pathlib import Path

from support.cli import done, kmip

from kmip_data.cli import demo

KEYS = ("model.parameter_budget=none", "model.layers=1", "model.hidden_dim=8", "training.batch_size=1")
SMALL = ("--as", "small-city", "--epochs", "1", *(word for key in KEYS for word in ("--set", key)))


def test_the_city_is_real_data(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "SETTINGS", SMALL)
    monkeypatch.setattr(demo, "SEEDS", 2)
    outcome = done("demo", "--full", "--home", tmp_path / "d", "--json")
    found = outcome.json
    assert Path(found["page"]).is_file()
    assert (Path(found["run"]) / "map.png").is_file()
    assert set(found["models"]["gcn"][0]) == {"train", "val", "test"}
    assert {model: len(each) for model, each in found["models"].items()} == dict.fromkeys(demo.MODELS, 2)
    assert outcome.err.count("$ kmip-data") == 10
    for words in ("© OpenStreetMap contributors, ODbL 1.0", "1,578–2,473 m", "2,526"):
        assert words in outcome.err  # 1,578–2,473 m: accuracy by eccentricity
    assert "Δ gcn: over the seeds that both rows have (2), with 95 % intervals." in outcome.err
    assert f"kmip-data runs --home {tmp_path / 'd'}" in outcome.err


def test_without_full_each_model_has_one_run():
    runs = {model: [f"{model}/x"] for model in demo.MODELS}
    steps = [step for _, step in demo._steps(runs, "x", full=False)]
    assert sum(step[0] == "train" for step in steps) == 3
    assert not any("--seeds" in step for step in steps)
    assert ["evaluate", "gps-kmip/x", "--by-class"] in steps


def test_a_failed_step_is_the_json_error_of_the_demo(home):
    home.mkdir()
    (home / "built").write_text("in the way")
    outcome = kmip("demo", "--json")  # in the home of the environment
    error = outcome.json["error"]
    assert (outcome.code, error["class"], error["exit_code"]) == (2, "UsageError", 2)
    assert outcome.err.count("Error: ") == 1
    assert "[1/" in outcome.err
