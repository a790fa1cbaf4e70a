"""``demo``: every step of both demos, smaller."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.cli import kmip

from kmip_data.cli import demo

KEYS = ("model.parameter_budget=none", "model.layers=1", "model.hidden_dim=8", "training.batch_size=1")
SMALL = tuple(word for key in KEYS for word in ("--set", key))


def run(monkeypatch, home: Path, what: str, **changes: object):
    monkeypatch.setitem(demo.DEMOS, what, replace(demo.DEMOS[what], **changes))
    outcome = kmip("demo", what, "--home", home, "--epochs", "1", "--json")
    assert outcome.code == 0, outcome.err
    found = outcome.json
    for name in ("build", "picture", "run", "curves", "result"):
        assert Path(found[name]).exists(), name
    assert set(found["metrics"]) == {"train", "val", "test"}
    return outcome


def test_the_city_is_real_data(tmp_path, monkeypatch):
    settings = ("--as", "small-city", *SMALL)
    outcome = run(monkeypatch, tmp_path / "d", "city", settings=settings, seeds=2)
    assert outcome.json["sample"] is False
    assert "© OpenStreetMap contributors, ODbL 1.0" in outcome.err
    assert outcome.err.count("$ kmip-data") == 10
    assert {model: len(each) for model, each in outcome.json["models"].items()} == {
        "gps-kmip": 2,
        "gcn": 2,
        "mlp": 2,
    }
    assert "1,578–2,473 m" in outcome.err  # accuracy by eccentricity
    assert "Attention: gps-kmip is ahead of gcn from" in outcome.err
    for kind in ("map", "page"):
        assert Path(outcome.json[kind]).is_file()
    assert "2,526" in outcome.err


@pytest.mark.slow
def test_the_rooms_are_generated(tmp_path, monkeypatch):
    data = ("s3dis", "--sample", "--limit", "12")
    outcome = run(monkeypatch, tmp_path / "d", "point-cloud", data=data, settings=SMALL)
    assert outcome.json["sample"] is True
    assert "generated" in outcome.err
    assert outcome.err.count("$ kmip-data") == 5


@pytest.mark.parametrize("what", list(demo.DEMOS))
def test_a_step_that_fails_is_the_one_object_of_the_demo(tmp_path, what):
    (tmp_path / "built").write_text("in the way")
    outcome = kmip("demo", what, "--home", tmp_path, "--json")
    assert outcome.code == 2, outcome.err
    error = outcome.json["error"]
    assert (error["class"], error["exit_code"]) == ("UsageError", 2)
    assert outcome.err.count("Error: ") == 1
    assert "[1/" in outcome.err


def test_what_is_said_of_models_follows_from_their_seeds():
    def runs(*shares: float):
        return [SimpleNamespace(metrics={"test": {"accuracy": share}}) for share in shares]

    results = {"gps-kmip": runs(0.5, 0.4), "gcn": runs(0.3, 0.3), "mlp": runs(0.4, 0.2)}
    means, attention, messages = demo.compared(results).splitlines()
    assert means == "Test accuracy: gps-kmip 45.0 ± 5.0 %, gcn 30.0 ± 0.0 %, mlp 30.0 ± 10.0 %."
    assert attention.endswith("from 2 of 2 seeds (+15.0 points on average); it helps here.")
    assert messages.startswith("Message passing: gcn is ahead of mlp from 1 of 2 seeds")
    assert messages.endswith("these seeds do not tell.")
    worse = demo.compared({**results, "gps-kmip": runs(0.1, 0.3)})
    assert "from 0 of 2 seeds (-10.0 points on average); it does not help here." in worse


def test_another_demo_is_refused():
    outcome = kmip("demo", "weather")
    assert outcome.code == 2
    assert "point-cloud" in outcome.err
