"""Reference answers of runs: when they are fitted and printed, and that they change no weight."""

from __future__ import annotations

import re

import pytest
import torch
from safetensors.torch import load_file
from support.builds.learnable import rings, streets_build, tiny_config

from kmip_data.builds.home import Home
from kmip_data.models.training.data.open_data import open_data
from kmip_data.models.training.references import answers, features
from kmip_data.models.training.references.reference import Reference
from kmip_data.models.training.run.evaluate_run import evaluate
from kmip_data.models.training.run.result import read_result
from kmip_data.models.training.run.summary import RunSummary
from kmip_data.models.training.run.train import train

FITTED = {"training": {"references": None, "epochs": 1}}
FITTED_ROWS = {"linear", "linear-neighbors", "trees", "trees-neighbors"}
ALL = {"constant", "label-propagation"} | FITTED_ROWS


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("references")


@pytest.fixture(scope="module")
def streets(place):
    return streets_build(place / "streets")


@pytest.fixture(scope="module")
def run(place, streets):
    return train(tiny_config(streets, **FITTED), home=Home(place), name="with", quiet=True)


def test_own_data_have_answers_in_the_result_and_the_table(run, place) -> None:
    result = read_result(run.runs[0])
    assert result.references.keys() == ALL
    assert result.references["linear"].test > result.references["constant"].test + 0.1
    table = run.table()
    assert re.search(r"^reference answer +val +test  accuracy \[%\]$", table, re.MULTILINE)
    assert "linear model with neighbours" in table
    assert run.to_dict()["references"].keys() == ALL
    errors = result.standard_errors
    assert errors.keys() == result.metrics["test"].keys() - {"loss"}
    assert (
        f"{100 * result.metrics['test']['accuracy']:.2f} ± {100 * errors['accuracy']:.2f}" in table
    )
    assert "±: standard error over the items of the part" in table
    evaluation = evaluate(run.runs[0], home=Home(place))
    assert evaluation.standard_errors == errors
    assert "±: standard error" in evaluation.table()
    assert "The network is not better than a linear model" in run.reference_sentence


def test_they_change_no_weight(run, place, streets) -> None:
    before = torch.get_rng_state()
    plain = tiny_config(streets, training={"references": False, "epochs": 1})
    without = train(plain, home=Home(place), name="without", quiet=True)
    assert without.results[0].references.keys() == {"constant"}
    assert "than a constant answer on test" in without.reference_sentence
    assert "reference answers" not in without.table()
    weights = [load_file(summary.runs[0] / "model.safetensors") for summary in (run, without)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert torch.equal(torch.get_rng_state(), before)


def fitted_answers(build, log=print):
    config = tiny_config(build, **FITTED)
    data = open_data(config, home=Home(build.path.parent))
    return answers.reference_answers(data, data.pin_settings(config), log)


@pytest.mark.parametrize("target", ["classes", "labels", "values", "links"])
def test_graphs_of_each_kind_of_target(tmp_path, target) -> None:
    references = fitted_answers(rings(tmp_path / "build", target, unknown=target == "values"))
    expected = set() if target == "links" else FITTED_ROWS
    assert references.keys() - {"constant"} == expected
    if target == "values":
        assert references["linear"].test < references["constant"].test / 2


def test_a_failure_and_data_that_are_too_large_leave_a_constant(streets, monkeypatch) -> None:
    def fail(*_, **__):
        raise ValueError("no")

    lines = []
    monkeypatch.setattr(features, "row_features", fail)
    assert fitted_answers(streets, lines.append).keys() == {"constant"}
    monkeypatch.setattr(answers, "MAX_FEATURES", 10)
    assert fitted_answers(streets, lines.append).keys() == {"constant"}
    failure, too_large = lines
    assert failure == "warning: no reference answers: ValueError: no"
    assert too_large.endswith("features are over 10")


def test_samples_and_published_data_have_them_on_request(tmp_path, streets) -> None:
    config = tiny_config(streets, **FITTED)
    asked = tiny_config(streets, training={"references": True})
    data = type("Data", (), {"build": streets, "task": type("Task", (), {"target_type": "links"})})
    assert not answers._are_fitted(config, data)
    data.task.target_type = "regression"
    assert answers._are_fitted(config, data)
    for changes in ({"sample": True}, {"manifest": "cora", "dataset": "cora"}):
        card = streets.card.model_copy(update=changes)
        data.build = type("Build", (), {"card": card})
        assert not answers._are_fitted(config, data)
        assert answers._are_fitted(asked, data)


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        (5.4, "The network is not better than a linear model on test (5.4000 against 0.7600)."),
        (0.76, "The network is not better than a linear model on test (0.7600 against 0.7600)."),
        (0.75, ""),
    ],
)
def test_the_sentence_stands_only_if_it_is_true(run, test, expected) -> None:
    linear = Reference(val=0.8, test=0.76)
    changes = {
        "metric": "mae",
        "metrics": {"test": {"mae": test}},
        "references": {"linear": linear},
    }
    result = run.results[0].model_copy(update=changes)
    assert RunSummary(run.runs, [result]).reference_sentence == expected
    if expected:  # the error of a single run stands in the sentence, and behind ± in its tables
        measured = result.model_copy(update={"standard_errors": {"mae": 0.4}})
        summary = RunSummary(run.runs, [measured])
        assert f"({test:.4f} ± 0.4000 against" in summary.reference_sentence
    sample = result.model_copy(update={"sample": True})
    assert RunSummary(run.runs, [sample]).reference_sentence == ""
    twice = RunSummary(run.runs * 2, [result, result]).reference_sentence
    assert ("± 0.0000 against" in twice) == bool(expected)
