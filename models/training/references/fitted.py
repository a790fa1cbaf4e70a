"""Fitted reference answers: linear models and boosted trees on the features of the rows.

A linear model is a ridge regression, or a logistic regression for classes and labels. Trees are
scikit-learn's histogram gradient boosting with its default settings, which val does not tune.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from kmip_data.arrays import F64, Array
from kmip_data.models.training.references.choice import EVALUATED_PARTS, choose_on_val
from kmip_data.models.training.references.features import PartFeatures
from kmip_data.models.training.references.reference import Reference
from kmip_data.models.training.tasks import Task

#: Strengths of the penalty, per train row, from which val chooses.
STRENGTHS = (1.0, 0.1, 0.01, 1e-3, 1e-4)
MAX_ITERATIONS = 100  #: of a logistic regression
ROUNDS = 100  #: of boosting; a tree for each output in each round
#: Largest product of train rows, columns and outputs, which bounds the time of all fits.
MAX_NUMBERS = 4_000_000
FeatureSet = Literal["features", "with_neighbors"]
MISSING_CLASS = -1e30  #: score of a class that train lacks


class Method(NamedTuple):
    """Estimators of a method with one setting; both take the number of train rows."""

    note: str
    regressor: Callable[[int], Any]
    classifier: Callable[[int], Any]


def linear_methods() -> list[Method]:
    """Return a linear model for each strength of its penalty."""
    from sklearn.linear_model import LogisticRegression, Ridge

    def with_strength(strength: float) -> Method:
        return Method(
            f"strength {strength:g}",
            lambda rows: Ridge(strength * rows),
            lambda rows: LogisticRegression(C=1 / (strength * rows), max_iter=MAX_ITERATIONS),
        )

    return [with_strength(strength) for strength in STRENGTHS]


def tree_methods() -> list[Method]:
    """Return boosted trees; all rows train them, since a class of one row cannot be held out."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    settings = {"max_iter": ROUNDS, "early_stopping": False, "random_state": 0}
    return [
        Method(
            f"{ROUNDS} rounds",
            lambda _: HistGradientBoostingRegressor(**settings),
            lambda _: HistGradientBoostingClassifier(**settings),
        )
    ]


def fitted_answer(
    task: Task,
    metric: str,
    parts: Mapping[str, PartFeatures],
    features: FeatureSet,
    methods: Iterable[Method],
) -> Reference | None:
    """Return the metric of the method that is best on val; ``None`` if train has a single class."""
    evaluated = [part for part in EVALUATED_PARTS if part in parts]
    targets_of_parts = {part: parts[part].targets for part in evaluated}
    fits = fits_of_methods(task, parts, features, methods)
    return choose_on_val(task, metric, targets_of_parts, fits)


def fits_of_methods(
    task: Task,
    parts: Mapping[str, PartFeatures],
    features: FeatureSet,
    methods: Iterable[Method],
) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Yield a note and the outputs (N, C) on each evaluated part for each method.

    There is none if train has a single class.
    """
    from sklearn.preprocessing import StandardScaler

    # 1. Draw train rows, and standardise the columns by them.
    train = parts["train"]
    matrices: dict[str, F64] = {part: getattr(rows, features) for part, rows in parts.items()}
    rows = np.arange(len(train.targets))
    most = max(2, MAX_NUMBERS // (task.outputs * matrices["train"].shape[1]))
    drawn_note = ""
    if len(rows) > most:
        rows = np.sort(np.random.default_rng(0).choice(rows, most, replace=False))
        drawn_note = f", fitted on {most:,} drawn of {len(train.targets):,} train {task.level}s"
    scaler = StandardScaler().fit(matrices["train"][rows])
    scaled = {part: scaler.transform(matrix) for part, matrix in matrices.items()}
    targets = train.targets[torch.from_numpy(rows)]
    if task.target_type == "classification" and len(torch.unique(targets)) < 2:
        return

    # 2. Fit each method.
    evaluated = [part for part in EVALUATED_PARTS if part in parts]
    others = [scaled[part] for part in evaluated]
    for method in methods:
        outputs = fit_and_apply(task, method, scaled["train"][rows], targets, others)
        yield method.note + drawn_note, dict(zip(evaluated, outputs, strict=True))


def fit_and_apply(
    task: Task, method: Method, rows: F64, targets: Tensor, others: list[F64]
) -> list[Tensor]:
    """Fit a method to ``rows`` (N, c) and ``targets``, (N,) or (N, T), and apply it to ``others``.

    Return the outputs (n, outputs) for each matrix (n, c), in the form of a network's.
    """
    if task.target_type == "classification":
        return _class_scores(task.outputs, method, rows, targets.numpy(), others)
    fit = _label_scores if task.target_type == "multilabel" else _numbers
    columns = []
    for target in targets.numpy().T:
        known = ~np.isnan(target)
        columns.append(fit(method, rows[known], target[known], others))
    return [torch.from_numpy(np.stack(outputs, axis=1)) for outputs in zip(*columns, strict=True)]


def _numbers(method: Method, rows: F64, target: Array, others: list[F64]) -> list[F64]:
    """Return the predictions (n,) of a regression for each matrix."""
    if not len(target):
        return [np.zeros(len(other)) for other in others]
    model = method.regressor(len(target)).fit(rows, target.astype(float))
    return [model.predict(other) for other in others]


def _label_scores(method: Method, rows: F64, target: Array, others: list[F64]) -> list[F64]:
    """Return the log-odds (n,) of a label for each matrix; 0 if train has only one value."""
    if len({*target}) < 2:
        return [np.zeros(len(other)) for other in others]
    model = _fit_classes(method, rows, target)
    return [model.decision_function(other) for other in others]


def _class_scores(
    classes: int, method: Method, rows: F64, target: Array, others: list[F64]
) -> list[Tensor]:
    """Return the scores of the classes before a softmax, (n, C) for each matrix."""
    model = _fit_classes(method, rows, target)
    scores = []
    for other in others:
        decision = model.decision_function(other)
        if decision.ndim == 1:  # log-odds of the second of two classes
            decision = np.stack([np.zeros_like(decision), decision], axis=1)
        score = torch.full((len(other), classes), MISSING_CLASS, dtype=torch.float64)
        score[:, torch.from_numpy(model.classes_)] = torch.from_numpy(decision)
        scores.append(score)
    return scores


def _fit_classes(method: Method, rows: F64, target: Array) -> Any:
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        # A fit that ends at the last iteration is an answer, too.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return method.classifier(len(target)).fit(rows, target)
