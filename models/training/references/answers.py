"""All reference answers of a run, fitted once for the same build, split, features and metric."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import torch

from kmip_data.errors import KmipDataError
from kmip_data.files.atomic_writes import make_folder, refuse_links_below, write_file
from kmip_data.files.small_files import json_digest, read_model
from kmip_data.models.training.config.own_defaults import is_own_data
from kmip_data.models.training.config.run_config import RunConfig
from kmip_data.models.training.data.run_data import RunData
from kmip_data.models.training.metrics import is_percent
from kmip_data.models.training.references.constant import constant_answer
from kmip_data.models.training.references.reference import (
    Reference,
    ReferenceName,
    References,
)
from kmip_data.models.training.run.result import package_versions
from kmip_data.models.training.run.run_folder import home_of_run
from kmip_data.strict_model import StrictModel

#: Largest number of node features, counted once for each node and twice for each edge.
MAX_FEATURES = 100_000_000


class CachedAnswers(StrictModel):
    """Fitted answers in the cache of a home."""

    references: References
    digest: str  #: of the references, and of all that they depend on

    @classmethod
    def seal(cls, references: References, inputs: str) -> CachedAnswers:
        """Return the references with a digest that includes ``inputs``, the digest of their run."""
        answers = {name: answer.model_dump() for name, answer in references.items()}
        return cls(references=references, digest=json_digest([inputs, answers]))

    def is_possible(self, metric: str) -> bool:
        """True unless a fraction is not between 0 and 1."""
        answers = self.references.values()
        values = [value or 0 for answer in answers for value in (answer.val, answer.test)]
        return not is_percent(metric) or all(0 <= value <= 1 for value in values)


def reference_answers(
    data: RunData, config: RunConfig, run: Path | None, log: Callable[[str], None]
) -> References:
    """Return the reference answers of a run in the folder ``run``: at least a constant, if it is known.

    Methods are fitted if ``training.references`` says so, by default for your own data.
    """
    metric = str(config.training.metric)
    constant = constant_answer(data, metric)
    references: References = {} if constant is None else {"constant": constant}
    if not _are_fitted(config, data):
        return references

    # 1. Reuse the answers of an earlier run in this home, unless they were edited.
    path = None
    if run is not None and (home := home_of_run(run)).runs in run.parents:
        path = home.cache / "references" / f"{_digest(data, config)}.json"
        with contextlib.suppress(OSError, KmipDataError):
            refuse_links_below(home.path, path)
            cached = read_model(path, CachedAnswers, "cannot be read", steps="train again")
            sealed = CachedAnswers.seal(cached.references, path.stem)
            if cached == sealed and cached.is_possible(metric):
                return references | cached.references

    # 2. Fit them.
    counts = data.build.card.counts
    features = (counts["nodes"] + 2 * counts["edges"]) * data.in_channels
    if features > MAX_FEATURES:
        log(f"reference answers: not fitted, as {features:,} features are over {MAX_FEATURES:,}")
        return references
    try:
        fitted = _fit_methods(data, metric)
    except Exception as error:  # noqa: BLE001 -- hours of training must not be lost with them
        log(f"warning: no reference answers: {type(error).__name__}: {error}")
        return references
    if path is not None:
        sealed = CachedAnswers.seal(fitted, path.stem)
        try:
            make_folder(path.parent, root=home.path)
            write_file(path, sealed.model_dump_json().encode(), root=home.path)
        except (OSError, KmipDataError) as error:
            log(f"warning: reference answers are not cached: {error}")
    return references | fitted


def _are_fitted(config: RunConfig, data: RunData) -> bool:
    """True if methods are fitted to the data of a run, which has targets of rows and one process."""
    wanted = config.training.references
    if wanted is None:
        wanted = is_own_data(data.build.card) and not data.build.card.sample
    return wanted and data.task.target_type != "links" and config.processes == 1


def _digest(data: RunData, config: RunConfig) -> str:
    """Return a digest of all that the answers depend on; the shards' digests are those of the arrays."""
    from sklearn import __version__

    return json_digest(
        [
            data.digests,
            config.data.features,
            config.data.coordinates,
            str(data.task),
            config.training.metric,
            package_versions(),
            __version__,
        ]
    )


def _fit_methods(data: RunData, metric: str) -> References:
    """Fit every method on one thread, so that its answer does not depend on the number of cores."""
    from threadpoolctl import threadpool_limits

    from kmip_data.models.training.references.features import read_parts
    from kmip_data.models.training.references.linear import linear_answer
    from kmip_data.models.training.references.propagation import propagation_answer

    with threadpool_limits(1), torch.inference_mode():
        parts = read_parts(data)
        answers: dict[ReferenceName, Reference | None] = {
            "linear": linear_answer(data.task, metric, parts, "features"),
            "linear-neighbors": linear_answer(data.task, metric, parts, "with_neighbors"),
            "label-propagation": propagation_answer(data, metric),
        }
    return {name: answer for name, answer in answers.items() if answer is not None}
