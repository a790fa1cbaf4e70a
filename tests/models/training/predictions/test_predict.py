"""Predictions of a part, and what is refused before any work."""

from __future__ import annotations

import json

import numpy as np
import pytest
from support.cli import kmip

import kmip_data
from kmip_data.models import evaluate_predictions

QUICK = ["--device", "cpu", "--epochs", "1", "--quiet", "--json", "--set", "model.layers=1"]
QUICK += ["--set", "model.hidden_dim=8", "--set", "model.parameter_budget=none"]
#: Dataset -> records, what is predicted, arrays in the file.
KINDS = {
    "s3dis": (12, ("node", "single-label"), {"logits", "pred", "key", "ptr"}),
    "helsinki": (300, ("node", "single-label"), {"logits", "pred", "key"}),
    "cifar10": (24, ("graph", "single-label"), {"logits", "pred", "key"}),
    "peptides-func": (20, ("graph", "multilabel"), {"logits", "pred", "key"}),
    "peptides-struct": (20, ("graph", "regression"), {"pred", "key"}),
    "pcqm-contact": (24, ("link", "links"), {"logits", "key", "ptr"}),
}


@pytest.mark.parametrize("dataset", [pytest.param(name, marks=pytest.mark.slow) for name in KINDS])
def test_a_file_has_exactly_the_metrics_of_its_run(dataset, tmp_path) -> None:
    limit, kind, arrays = KINDS[dataset]
    where = ["--home", tmp_path]
    data = ["--sample", "--limit", limit, *(["--k", 4] if dataset == "s3dis" else [])]
    trained = kmip("train", "--dataset", dataset, *data, *QUICK, *where)
    assert trained.code == 0, trained.err
    run, output = trained.json["run"], tmp_path / "found.npz"
    told = kmip("predict", run, "--output", output, "--json", *where)
    assert told.code == 0, told.err
    assert (told.json["level"], told.json["kind"], told.json["part"]) == (*kind, "test")
    build = kmip("evaluate", run, "--json", *where).json["build"]
    measured = kmip("evaluate", "--predictions", output, "--dataset", build, "--json", *where)
    assert measured.code == 0, measured.err
    expected = {name: value for name, value in trained.json["metrics"]["test"].items() if name != "loss"}
    assert measured.json["metrics"]["test"] == expected

    with np.load(output, allow_pickle=False) as archive:
        assert set(archive) == {*arrays, "about"}
        about = json.loads(str(archive["about"]))
        found = {name: archive[name] for name in arrays}
    part = kmip_data.open(build, split="test")
    assert about["digest"] == part.split_digest
    assert about["run"] == run
    if dataset == "helsinki":
        assert np.array_equal(found["key"], part[0].test_mask.numpy().nonzero()[0])
    else:
        assert found["key"].tolist() == part.keys
    if "ptr" in arrays:
        each = part.nodes**2 if dataset == "pcqm-contact" else part.nodes
        assert np.array_equal(np.diff(found["ptr"]), each)
    if "logits" in arrays:
        assert found["logits"].shape == (told.json["rows"], about["outputs"])
    if kind[1] == "single-label":
        assert np.array_equal(found["pred"], found["logits"].argmax(-1))
    # Of a model made elsewhere there are arrays alone; sums in other batches may round otherwise.
    alone = evaluate_predictions({name: found[name] for name in arrays - {"key", "ptr"}}, build)
    assert alone.metrics == pytest.approx(expected, rel=1e-9)


def test_names_that_say_no_kind_are_refused(home, tmp_path) -> None:
    outcome = kmip("predict", "mine", "--output", tmp_path / "a.csv", "--home", home.root)
    assert outcome.code == 2
    assert ".npz" in outcome.err


def test_what_is_printed(home, clouds, tmp_path) -> None:
    path = tmp_path / "found.npz"
    told = kmip("predict", "mine", "--output", path, "--home", home.root)
    assert told.code == 0, told.err
    assert "Next: kmip-data evaluate --predictions" in told.out
    shown = kmip("evaluate", "--predictions", path, "--dataset", clouds, "--home", home.root)
    assert shown.code == 0, shown.err
    assert "accuracy" in shown.out
    assert "loss" not in shown.out
