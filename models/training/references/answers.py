"""All reference answers of a run."""

from __future__ import annotations

from collections.abc import Callable

import torch

from kmip_data.models.training.config.own_defaults import is_own_data
from kmip_data.models.training.config.run_config import RunConfig
from kmip_data.models.training.data.run_data import RunData
from kmip_data.models.training.references.constant import constant_answer
from kmip_data.models.training.references.reference import (
    Reference,
    ReferenceName,
    References,
)

#: Largest number of node features, counted once for each node and twice for each edge.
MAX_FEATURES = 100_000_000


def reference_answers(data: RunData, config: RunConfig, log: Callable[[str], None]) -> References:
    """Return the reference answers of a run: at least a constant, if it is known.

    Methods are fitted if ``training.references`` says so, by default for your own data.
    """
    metric = str(config.training.metric)
    constant = constant_answer(data, metric)
    references: References = {} if constant is None else {"constant": constant}
    if not _are_fitted(config, data):
        return references

    counts = data.build.card.counts
    features = (counts["nodes"] + 2 * counts["edges"]) * data.in_channels
    if features > MAX_FEATURES:
        log(f"reference answers: not fitted, as {features:,} features are over {MAX_FEATURES:,}")
        return references
    try:
        return references | _fit_methods(data, metric)
    except Exception as error:  # noqa: BLE001 -- hours of training must not be lost with them
        log(f"warning: no reference answers: {type(error).__name__}: {error}")
        return references


def _are_fitted(config: RunConfig, data: RunData) -> bool:
    """True if methods are fitted to the data of a run, which has targets of rows and one process."""
    wanted = config.training.references
    if wanted is None:
        wanted = is_own_data(data.build.card) and not data.build.card.sample
    return wanted and data.task.target_type != "links" and config.processes == 1


def _fit_methods(data: RunData, metric: str) -> References:
    """Fit every method on one thread, so that its answer does not depend on the number of cores."""
    from threadpoolctl import threadpool_limits

    from kmip_data.models.training.references.features import read_parts
    from kmip_data.models.training.references.fitted import (
        fitted_answer,
        linear_methods,
        tree_methods,
    )
    from kmip_data.models.training.references.propagation import propagation_answer

    with threadpool_limits(1), torch.inference_mode():
        parts = read_parts(data)
        linear = linear_methods()
        trees = tree_methods()
        answers: dict[ReferenceName, Reference | None] = {
            "linear": fitted_answer(data.task, metric, parts, "features", linear),
            "linear-neighbors": fitted_answer(data.task, metric, parts, "with_neighbors", linear),
            "trees": fitted_answer(data.task, metric, parts, "features", trees),
            "trees-neighbors": fitted_answer(data.task, metric, parts, "with_neighbors", trees),
            "label-propagation": propagation_answer(data, metric),
        }
    return {name: answer for name, answer in answers.items() if answer is not None}
