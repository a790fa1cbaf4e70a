"""Predictions have the metrics of the run that made them, and what does not fit is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from support.cli import kmip
from support.training_data import tiny_config

from kmip_data.builds.home import Home
from kmip_data.errors import UsageError
from kmip_data.models import evaluate_predictions
from kmip_data.models.training.predictions import file
from kmip_data.models.training.predictions.predict import predict
from kmip_data.models.training.run.evaluate import evaluate
from kmip_data.models.training.run.train import train
from kmip_data.pipelines.find import find


def test_every_part_and_the_metrics_of_classes_alone(home, clouds) -> None:
    metrics = evaluate("mine", home=home).metrics
    for part in ("train", "val", "test"):
        found = predict("mine", part=part, home=home)
        measured = evaluate_predictions(found, clouds)
        expected = {name: value for name, value in metrics[part].items() if name != "loss"}
        assert (measured.part, measured.metrics) == (part, expected)
        assert evaluate_predictions({"pred": found.pred}, clouds, part=part).metrics == expected
        tensor = torch.from_numpy(found.logits).double()
        assert evaluate_predictions({"logits": tensor}, clouds, part=part).metrics == expected


def test_half_precision_has_the_same_numbers(home, clouds) -> None:
    config = tiny_config(find("clouds", home=home), training={"epochs": 1, "precision": "bf16-mixed"})
    run = train(config, home=home, quiet=True).runs[0]
    expected = evaluate(run, home=home).metrics["test"]
    found = evaluate_predictions(predict(run, home=home), clouds).metrics
    assert found == {name: value for name, value in expected.items() if name != "loss"}


def test_the_split_is_the_one_with_the_keys_of_the_file(predictions, clouds) -> None:
    with pytest.raises(UsageError, match=r"key does not fit|key is not that"):
        evaluate_predictions(predictions, clouds, part="train")


def test_what_does_not_fit_is_refused(predictions, clouds) -> None:
    logits, pred, key, ptr = (predictions.arrays[name] for name in file.ARRAYS)
    nan = logits.copy()
    nan[3, 1] = np.nan
    for arrays, message in (
        ({"logits": logits[:-1]}, "numbers of shape"),
        ({"logits": logits[:, :-1]}, "numbers of shape"),
        ({"logits": logits.astype(str)}, "numbers of shape"),
        ({"logits": nan}, "1 NaN"),
        ({"logits": logits, "key": key[::-1]}, f"{key[0]} at position 0"),
        ({"logits": logits, "key": [f"{name}x" for name in key]}, "key is not that of the part"),
        ({"logits": logits, "key": key[:1]}, "key does not fit"),
        ({"logits": logits, "ptr": ptr + 1}, "ptr is not that of the part"),
        ({"pred": pred + 9}, "whole numbers from 0 to 3"),
        ({"pred": pred / 2}, "whole numbers from 0 to 3"),
        ({"key": key}, "logits or pred"),
        ({"logit": logits}, "not arrays of predictions"),
    ):
        with pytest.raises(UsageError, match=message) as refused:
            evaluate_predictions(arrays, clouds)
        assert all(refused.value.parts[name] for name in ("expected", "found", "next"))
    with pytest.raises(UsageError, match="nothing to predict"):
        predict("mine", part="rest", home=Home(Path(clouds).parents[1]))


def test_predictions_of_another_task_are_refused(predictions, clouds) -> None:
    other = predictions.about.model_copy(update={"kind": "links", "level": "link"})
    with pytest.raises(UsageError, match="links predictions of a link"):
        evaluate_predictions(file.Predictions(predictions.logits, about=other), clouds)
    other = predictions.about.model_copy(update={"class_names": ("b", "a")})
    with pytest.raises(UsageError, match="b, a"):
        evaluate_predictions(file.Predictions(predictions.logits, about=other), clouds)


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["--predictions", "a.npz"],
        ["mine", "--predictions", "a.npz", "--dataset", "clouds"],
        ["--predictions", "a.npz", "--dataset", "clouds", "--device", "cpu"],
        ["mine", "--split", "val"],
    ],
)
def test_what_is_measured_is_said_once(home, args) -> None:
    outcome = kmip("evaluate", *args, "--home", home.root)
    assert outcome.code == 2
    assert "--predictions" in outcome.err
