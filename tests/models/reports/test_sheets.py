"""The paper's table of datasets: every difference is found, and explained."""

from __future__ import annotations

import pytest
from support.training_data import learnable_build

from kmip_data.builds.home import Home
from kmip_data.models.reports import sheets
from kmip_data.models.reports.sheets import dataset_rows, dataset_sheet

DIFFERENCES = {"shanghai": "edges", "la": "edges", "london": "edges", "s3dis": "classes"}


def test_the_manifests_differ_where_it_is_known_and_say_why(tmp_path):
    rows = dataset_rows(Home(tmp_path))
    assert len(rows) == 12
    assert {row["name"]: row["differs"] for row in rows if row["differs"]} == DIFFERENCES
    for row in rows:
        assert bool(row["why"]) == bool(row["differs"])
    [s3dis] = [row for row in rows if row["name"] == "s3dis"]
    assert (s3dis["classes"], s3dis["our_classes"]) == (12, 13)
    assert "13" in s3dis["why"]
    [london] = [row for row in dataset_sheet(rows).cells if row[0] == "london"]
    assert "759,000 → 756,502" in london
    assert "756,502 streets" in london[-1]


def test_what_is_built_stands_for_the_manifest(tmp_path, monkeypatch):
    home = Home(tmp_path)
    for name, options in {"whole": {"complete": True}, "sample": {"sample": True}, "part": {}}.items():
        learnable_build(home.built / name, **options)
    card = sheets.list_builds(home)[2].card
    own = card.model_copy(update={"dataset": "malnet-tiny"})
    builds = [
        type(build)(
            build.path, own.model_copy(update={"sample": build.card.sample, "complete": build.card.complete})
        )
        for build in sheets.list_builds(home)
    ]
    monkeypatch.setattr(sheets, "list_builds", lambda home: builds)
    [row] = [row for row in dataset_rows(home) if row["name"] == "malnet-tiny"]
    assert row["from"] == "whole"
    counts = card.counts
    assert row["our_nodes"] == pytest.approx(counts["nodes"] / counts["graphs"], abs=1e-4)
    assert (row["our_graphs"], row["our_classes"]) == (10, 4)
    assert row["differs"] == "graphs nodes edges classes"
    assert row["why"].startswith("Built with")
