"""Layers of the predictions of one or two runs for nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from kmip_data.arrays import Array
from kmip_data.drawing.layers import (
    NO_CLASS_LABEL,
    PART_NAMES,
    Categories,
    Layer,
    Scale,
    cast_to_smallest_dtype,
    class_layer,
)
from kmip_data.drawing.style import class_colors, current_style, sequential_colors
from kmip_data.format.split_files import PART_CODES
from kmip_data.text import count_with_noun

RIGHT_WRONG = ("right (test)", "wrong (test)", "right (train, val)", "wrong (train, val)")
OUTCOMES = 4  #: both runs right, only the first, only the second, both wrong
TEST = PART_CODES["test"]  #: code of the nodes that runs are judged by


def layers_of_runs(
    truth: Layer | None, runs: Sequence[tuple[str, Array]], parts: Categories | None
) -> list[Layer]:
    """Return layers of the predictions (N,) of each run, behind a comparison of two runs.

    ``truth`` has the classes or targets, and ``parts`` the split that the runs were trained with;
    None if they have seen no node. Runs are judged by test nodes alone.
    """
    if truth is None:
        return []
    by_run = [_prediction_layers(truth, name, predicted, parts) for name, predicted in runs]
    if len(runs) != 2:
        return by_run[0] if runs else []
    is_test = np.ones(len(runs[0][1]), bool) if parts is None else parts.codes == TEST
    names = distinguishing_names(runs[0][0], runs[1][0])
    predictions = (runs[0][1], runs[1][1])
    if isinstance(truth, Scale):
        comparison = _error_difference(truth, predictions, names)
    else:
        comparison = _correctness_layer(_classes(truth), predictions, names, is_test)
    second = [replace(layer, name=f"{layer.name} ({names[1]})") for layer in by_run[1]]
    return [comparison, *by_run[0], *second]


def _prediction_layers(
    truth: Layer, run: str, predicted: Array, parts: Categories | None
) -> list[Layer]:
    """Return layers of the correctness or error of a run, and of its predictions."""
    by_run = f"by {run}"
    if isinstance(truth, Scale):
        error = np.abs(predicted - truth.values)
        judged = error[np.isfinite(error) & (True if parts is None else parts.codes == TEST)]
        nodes = count_with_noun(len(judged), "node" if parts is None else "test node")
        mean = f"mean {judged.mean():.3g} of " if len(judged) else ""
        note = f"{run}: {mean}{nodes}"
        return [
            Scale("absolute error", error, truth.unit, note),
            replace(truth, name="prediction", values=predicted, note=by_run),
        ]

    layers: list[Layer] = [_right_or_wrong(_classes(truth), run, predicted, parts)]
    codes = cast_to_smallest_dtype(predicted, len(truth.labels))
    layers.append(replace(truth, name="predicted class", codes=codes, note=by_run))
    if truth.is_ordered:
        classes = len(truth.labels)
        labels = ("none", "1 class", *(f"{number} classes" for number in range(2, classes)))
        layers.append(
            Categories(
                "error",
                np.abs(predicted - truth.codes).astype(np.uint8),
                labels[:classes],
                lambda: sequential_colors(classes),
                f"distance of the predicted class from the true one, {by_run}",
            )
        )
    return layers


def _classes(truth: Categories) -> Array:
    """Return the class of each node (N,), −1 for none."""
    has_class = np.array([label != NO_CLASS_LABEL for label in truth.labels])
    return np.where(has_class[truth.codes], truth.codes.astype(np.int64), -1)


def _right_or_wrong(
    truth: Array, run: str, predicted: Array, parts: Categories | None
) -> Categories:
    is_known = truth >= 0
    is_right = predicted == truth
    if parts is None:
        known = is_right[is_known]
        accuracy = known.mean() if len(known) else 0.0
        codes = np.where(is_known, ~is_right, -1)
        labels: tuple[str, ...] = ("right", "wrong")
        note = f"{run}: {accuracy:.1%} right of {count_with_noun(len(known), 'node')}"
    else:
        # 0 for right, 1 for wrong, plus 2 for nodes that the run has seen; 4 in no part.
        codes = np.where(parts.codes < TEST, 2, 0) + ~is_right
        codes[parts.codes > TEST] = len(RIGHT_WRONG)
        codes[~is_known] = -1
        labels = RIGHT_WRONG + parts.labels[TEST + 1 :]
        accuracies = []
        for number, part in enumerate(PART_NAMES[: TEST + 1]):
            members = is_right[is_known & (parts.codes == number)]
            if len(members):
                accuracies.append(f"{part} {members.mean():.1%}")
        note = f"{run}: right in {', '.join(accuracies)}"
    return class_layer(
        "right or wrong", codes, labels, note, lambda: right_wrong_colors(len(labels))
    )


def right_wrong_colors(count: int) -> Sequence[str]:
    """Return ``count`` colours for right and wrong nodes, followed by those for nodes seen in training."""
    return class_colors(2) if count == 2 else current_style().outcome_colors[:count]


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


def _correctness_layer(
    truth: Array, predicted: tuple[Array, Array], names: tuple[str, str], is_test: Array
) -> Layer:
    """Return a layer that shows which of two runs are right for test nodes, which its note counts."""
    first_right, second_right = (classes == truth for classes in predicted)
    outcome = np.select(
        [~is_test, truth < 0, first_right & second_right, first_right, second_right],
        [OUTCOMES, -1, 0, 1, 2],
        default=3,
    )
    labels = ("both right", f"only {names[0]} right", f"only {names[1]} right", "both wrong")
    note = f"of {count_with_noun(int((is_test & (truth >= 0)).sum()), 'test node')}"

    def colors() -> Sequence[str]:
        hues = class_colors(OUTCOMES)
        return [hues[0], hues[2], hues[3], hues[1], current_style().missing]

    return class_layer("both runs", outcome, (*labels, "not in test"), note, colors)


def _error_difference(
    truth: Scale, predicted: tuple[Array, Array], names: tuple[str, str]
) -> Layer:
    """Return a layer with the error (N,) of the first run minus the error of the second."""
    first, second = (np.abs(values - truth.values) for values in predicted)
    difference = first - second
    known = difference[np.isfinite(difference)]
    first_better = np.mean(known < 0) if len(known) else 0.0
    note = f"absolute error of {names[0]} minus that of {names[1]}: {first_better:.1%} negative"
    return Scale("both runs", difference, truth.unit, note, center=0)
