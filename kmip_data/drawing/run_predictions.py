"""Layers of a run's predictions for nodes, and of two runs compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from kmip_data.arrays import F32, I64, Array
from kmip_data.drawing.layers import Layer, Scale, class_layer
from kmip_data.drawing.style import class_colors, current_style
from kmip_data.text import count_with_noun

OUTCOMES = 4  #: both runs right, the first alone, the second alone, both wrong


def right_wrong_colors(count: int) -> Sequence[str]:
    """Return ``count`` colours: of right and wrong nodes and, beyond two, of nodes that the run has seen."""
    return class_colors(2) if count == 2 else current_style().verdicts[:count]


def class_layers(truth: I64, names: tuple[str, ...], predicted: Array, run: str) -> list[Layer]:
    """Return correctness and predicted class of nodes whose classes (N,) are ``truth``, −1: none."""
    known = truth >= 0
    wrong = predicted != truth
    share = 1 - wrong[known].mean() if known.any() else 0.0
    return [
        class_layer(
            "right or wrong",
            np.where(known, wrong, -1),
            ("right", "wrong"),
            f"{run}: {share:.1%} right",
            lambda: right_wrong_colors(2),
        ),
        class_layer("predicted class", predicted, names, f"by {run}"),
    ]


def value_layers(truth: F32, unit: str, predicted: Array, run: str) -> list[Layer]:
    """Return absolute error and prediction of nodes whose targets (N,) are ``truth``, NaN: none."""
    error = np.abs(predicted - truth)
    mean = error[np.isfinite(error)].mean() if np.isfinite(error).any() else np.nan
    return [
        Scale("absolute error", error, unit, f"{run}: mean {mean:.3g}"),
        Scale("prediction", predicted, unit, f"by {run}"),
    ]


def distinguishing_names(first: str, second: str) -> tuple[str, str]:
    """Return what tells two runs apart: their models, else also their names.

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
    """Return the layers of the second of two runs under its name."""
    return [replace(layer, name=f"{layer.name} ({name})") for layer in layers]


def outcome_layer(
    truth: I64,
    predicted: tuple[Array, Array],
    names: tuple[str, str],
    test: Array,
) -> Layer:
    """Return where both runs are right, only one of them, or neither; the note counts ``test`` (N,) nodes."""
    right = [classes == truth for classes in predicted]
    outcome = np.where(truth < 0, -1, 3 - 2 * right[1] - right[0])
    # 3 − 2b − a: 0 both, 1 only the second, 2 only the first, 3 neither.
    outcome = np.select([outcome == 1, outcome == 2], [2, 1], outcome)
    labels = ("both right", f"only {names[0]} right", f"only {names[1]} right", "both wrong")
    counts = np.bincount(outcome[test & (outcome >= 0)], minlength=OUTCOMES).tolist()
    told = ", ".join(f"{count:,} {label}" for count, label in zip(counts, labels, strict=True))
    note = f"of {count_with_noun(sum(counts), 'test node')}: {told}"

    def colors() -> Sequence[str]:
        hues = class_colors(OUTCOMES)
        return [hues[0], hues[2], hues[3], hues[1]]

    return class_layer("both runs", outcome, labels, note, colors)


def error_difference(
    truth: F32, unit: str, predicted: tuple[Array, Array], names: tuple[str, str]
) -> Layer:
    """Return how much larger the error (N,) of the first run is than the second run's."""
    first, second = (np.abs(values - truth) for values in predicted)
    difference = first - second
    nearer = np.mean(difference[np.isfinite(difference)] < 0) if len(difference) else 0.0
    note = f"absolute error of {names[0]} less the error of {names[1]}: {nearer:.1%} negative"
    return Scale("both runs", difference, unit, note)
