"""Layers for a run's predictions of nodes, and for the comparison of two runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from kmip_data.arrays import F32, I64, Array
from kmip_data.drawing.layers import Layer, Scale, class_layer
from kmip_data.drawing.style import class_colors, current_style
from kmip_data.text import count_with_noun

OUTCOMES = 4  #: both runs right, only the first, only the second, both wrong


def right_wrong_colors(count: int) -> Sequence[str]:
    """Return ``count`` colours for right and wrong nodes, followed by those for nodes seen in training."""
    return class_colors(2) if count == 2 else current_style().outcome_colors[:count]


def class_layers(
    truth: I64, names: tuple[str, ...], predicted: Array, run: str, test: Array
) -> list[Layer]:
    """Return layers of correctness and predicted class, given the true classes (N,), −1 for none.

    A run is judged by the ``test`` (N,) nodes alone.
    """
    is_known = truth >= 0
    is_wrong = predicted != truth
    judged = is_wrong[is_known & test]
    accuracy = 1 - judged.mean() if len(judged) else 0.0
    return [
        class_layer(
            "right or wrong",
            np.where(is_known, is_wrong, -1),
            ("right", "wrong"),
            f"{run}: {accuracy:.1%} right of {_judged_nodes(len(judged), test)}",
            lambda: right_wrong_colors(2),
        ),
        class_layer("predicted class", predicted, names, f"by {run}"),
    ]


def value_layers(truth: F32, unit: str, predicted: Array, run: str, test: Array) -> list[Layer]:
    """Return layers of absolute error and prediction, given the true values (N,), NaN for none.

    A run is judged by the ``test`` (N,) nodes alone.
    """
    error = np.abs(predicted - truth)
    judged = error[np.isfinite(error) & test]
    mean = judged.mean() if len(judged) else np.nan
    nodes = _judged_nodes(len(judged), test)
    return [
        Scale("absolute error", error, unit, f"{run}: mean {mean:.3g} of {nodes}"),
        Scale("prediction", predicted, unit, f"by {run}"),
    ]


def _judged_nodes(count: int, test: Array) -> str:
    return count_with_noun(count, "node" if test.all() else "test node")


def distinguishing_names(first: str, second: str) -> tuple[str, str]:
    """Return the models of two runs, with the names of the runs if the models are the same.

    >>> distinguishing_names("paris/gcn/a", "paris/gps-kmip/a")
    ('gcn', 'gps-kmip')
    >>> distinguishing_names("paris/gcn/a", "paris/gcn/b")
    ('gcn/a', 'gcn/b')
    """
    models_and_names = [run.split("/")[-2:] for run in (first, second)]
    models = [name[0] for name in models_and_names]
    names = models if models[0] != models[1] else ["/".join(name) for name in models_and_names]
    return names[0], names[1]


def layers_of_second_run(layers: Sequence[Layer], name: str) -> list[Layer]:
    """Append the name of the second run to the names of its layers."""
    return [replace(layer, name=f"{layer.name} ({name})") for layer in layers]


def outcome_layer(
    truth: I64,
    predicted: tuple[Array, Array],
    names: tuple[str, str],
    test: Array,
) -> Layer:
    """Return a layer that shows which of two runs are right; its note counts ``test`` (N,) nodes."""
    first_right, second_right = (classes == truth for classes in predicted)
    outcome = np.select(
        [truth < 0, first_right & second_right, first_right, second_right],
        [-1, 0, 1, 2],
        default=3,
    )
    labels = ("both right", f"only {names[0]} right", f"only {names[1]} right", "both wrong")
    counts = np.bincount(outcome[test & (outcome >= 0)], minlength=OUTCOMES).tolist()
    summary = ", ".join(f"{count:,} {label}" for count, label in zip(counts, labels, strict=True))
    note = f"of {count_with_noun(sum(counts), 'test node')}: {summary}"

    def colors() -> Sequence[str]:
        hues = class_colors(OUTCOMES)
        return [hues[0], hues[2], hues[3], hues[1]]

    return class_layer("both runs", outcome, labels, note, colors)


def error_difference(
    truth: F32, unit: str, predicted: tuple[Array, Array], names: tuple[str, str]
) -> Layer:
    """Return a layer with the error (N,) of the first run minus the error of the second."""
    first, second = (np.abs(values - truth) for values in predicted)
    difference = first - second
    first_better = np.mean(difference[np.isfinite(difference)] < 0) if len(difference) else 0.0
    note = f"absolute error of {names[0]} minus that of {names[1]}: {first_better:.1%} negative"
    return Scale("both runs", difference, unit, note, center=0)
