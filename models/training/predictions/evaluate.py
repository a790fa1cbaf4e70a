"""Metrics of predictions, by whichever model they were made."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from kmip_data.builds.home import Build, Home
from kmip_data.errors import UsageError
from kmip_data.format.splits import keys_digest
from kmip_data.models.training.config.presets import config_for, folder_of
from kmip_data.models.training.objective.choices import USUAL, task_of
from kmip_data.models.training.objective.links import NO_PAIR
from kmip_data.models.training.objective.metrics import SplitMetrics
from kmip_data.models.training.objective.tasks import Task, is_class, target_column
from kmip_data.models.training.predictions.file import About, Array, Predictions, read_predictions
from kmip_data.models.training.predictions.predict import Rows
from kmip_data.models.training.run.module import of_part
from kmip_data.models.training.run.result import metrics_table
from kmip_data.pipelines.find import obtain, split_name
from kmip_data.reading.dataset import ShardedDataset
from kmip_data.reading.loader import GraphLoader

BATCH = 64  #: graphs measured together, where the predictions do not say how many


@dataclass(frozen=True)
class PredictionMetrics:
    """Metrics of predictions of one part of a build."""

    build: Build
    split: str
    part: str
    metrics: dict[str, float]
    about: About | None  #: origin of the predictions, where the file has it

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; ``metrics`` by part, as of a run."""
        return {
            **self.build.card.identity,
            "build": str(self.build.path),
            "split": self.split,
            "metrics": {self.part: self.metrics},
            "run": self.about and self.about.run,
        }

    def table(self) -> str:
        """The metrics, and what was measured."""
        card = self.build.card
        return (
            f"{metrics_table([{self.part: self.metrics}])}\n{card.dataset}{card.remark}, split {self.split}"
        )


def evaluate_predictions(
    predictions: str | os.PathLike[str] | Mapping[str, Any] | Predictions,
    target: str,
    *,
    part: str | None = None,
    sample: bool = False,
    home: Home | None = None,
) -> PredictionMetrics:
    """Measure predictions of a part, as ``evaluate`` measures those of a run.

    The loss is not among the metrics: it belongs to a way of training.

    Parameters
    ----------
    predictions
        A file that ``kmip-data predict`` wrote, an ``.npz`` file, or arrays by name: ``logits``, or
        ``pred`` for classes and values, in the order of the part, shaped as in
        :class:`~kmip_data.models.training.predictions.file.Predictions`. ``key`` and ``ptr`` are checked
        where they are there, and the split is the one of the build with these keys.
    target
        A dataset or build folder.
    part
        ``train``, ``val`` or ``test``; default: what the file says, else test.
    sample
        With the name of a dataset: its sample.

    Raises
    ------
    UsageError
        There is no such finished build or part, or keys, shapes or values do not fit it.
    DamagedInput
        The file cannot be read.

    Examples
    --------
    >>> from kmip_data.models import evaluate_predictions
    >>> found = evaluate_predictions({"logits": logits}, "peptides-func")  # doctest: +SKIP
    >>> found.metrics["ap"]  # doctest: +SKIP
    """
    if isinstance(predictions, Mapping):
        predictions = Predictions.of(**predictions)
    elif not isinstance(predictions, Predictions):
        predictions = read_predictions(predictions)
    about, home = predictions.about, home or Home.locate()
    build = obtain(folder_of(target) or target, home=home, sample=sample, build=False)
    task = _task(build, target, about, home)
    part = part or (about.part if about is not None else "test")
    name = _split(build, part, predictions.key)
    rows = Rows.of(build, name, part, task)
    _check_keys(predictions, rows)
    values = _values(predictions, rows, task)
    metrics, start = SplitMetrics(task), 0
    for target_rows in _targets(rows, part, task, about.batch_size if about is not None else BATCH):
        there = target_rows != NO_PAIR if task.kind == "links" else None
        count = len(target_rows) if there is None else int(there.sum())
        chosen = values[start : start + count]
        if there is not None:
            chosen = chosen.new_zeros(there.shape).masked_scatter(there, chosen)
        elif task.kind == "single-label" and chosen.ndim == 1:  # classes alone
            chosen = one_hot(chosen, task.outputs)
        metrics.update(chosen, target_rows, torch.zeros(()))
        start += count
    found = {metric: value for metric, value in metrics.compute().items() if metric != "loss"}
    return PredictionMetrics(build, name, part, found, about)


def _task(build: Build, target: str, about: About | None, home: Home) -> Task:
    """Return the task that the build poses; numbers may be values or labels, as the predictions say."""
    column, config = target_column(build.card.schema_), config_for(target, home=home)
    if column is None or not build.card.splits or column.level not in {"node", "graph"}:
        raise UsageError(
            f"{build.card.dataset} has no targets of nodes, graphs or links to compare with, or no split.",
            next=f"kmip-data info {build.path}",
        )
    if about is not None and about.kind in {"multilabel", "regression"} and column.shape:
        training = config.training.model_copy(update={"loss": USUAL[about.kind][0], "metric": None})
        config = config.model_copy(update={"training": training})
    classes = ShardedDataset(build, columns=[column.attribute]).num_classes if is_class(column) else 0
    task = task_of(column, config, num_classes=classes)
    names = tuple(build.card.class_names)
    if about is not None and (about.level, about.kind, about.class_names) != (task.level, task.kind, names):
        raise _refusal(
            f"These are not predictions for {build.card.dataset}.",
            f"{task.kind} predictions of a {task.level}{_listed(names)}",
            f"{about.kind} predictions of a {about.level}, on {about.dataset}{_listed(about.class_names)}",
        )
    return task


def _listed(names: tuple[str, ...]) -> str:
    return f" ({', '.join(names[:3])} …)" if names else ""


def _split(build: Build, part: str, key: Array | None) -> str:
    """Return the name of the split whose part has these keys, else the default."""
    if key is not None:
        digest = keys_digest([str(name) for name in key.ravel().tolist()])
        for name, entry in build.card.splits.items():
            if part in entry.parts and entry.parts[part].digest == digest:
                return name
    return split_name(build)


def _check_keys(predictions: Predictions, rows: Rows) -> None:
    for name, expected in (("key", rows.key), ("ptr", rows.ptr)):
        given = predictions.arrays.get(name)
        if given is None:
            continue
        if expected is None or given.shape != expected.shape:
            shape = "no such array" if expected is None else f"shape {expected.shape}"
            raise _refusal(f"{name} does not fit the part.", shape, f"shape {given.shape}")
        differing = np.flatnonzero(given.astype(str) != expected.astype(str))  # keys may be text or objects
        if differing.size:
            first = f"{expected[differing[0]]} at position {differing[0]:,}"
            raise _refusal(f"{name} is not that of the part, in its order.", first, f"{given[differing[0]]}")


def _values(predictions: Predictions, rows: Rows, task: Task) -> Tensor:
    """Return checked values for the metrics: (rows, outputs); scores of links, or classes alone, (rows,)."""
    logits, pred = predictions.logits, predictions.pred
    if task.kind == "regression":
        logits, pred = (pred if pred is not None else logits), None
    if logits is not None:
        shapes = [(len(rows), task.outputs), *([(len(rows),)] if task.outputs == 1 else [])]
        if logits.shape not in shapes or logits.dtype.kind not in "fiu":
            raise _refusal(
                "The predictions do not fit the part.",
                f"numbers of shape {' or '.join(map(str, shapes))}",
                f"{logits.dtype} of shape {logits.shape}",
            )
        if np.isnan(logits).any():
            raise _refusal("Predictions are NaN.", "numbers", f"{int(np.isnan(logits).sum()):,} NaN")
        values = torch.from_numpy(logits.astype(np.float32 if logits.dtype == np.float32 else np.float64))
        return values.reshape(-1) if task.kind == "links" else values.reshape(len(rows), task.outputs)
    if task.kind != "single-label" or pred is None:
        wanted = {"single-label": "logits or pred", "regression": "pred"}
        raise _refusal(
            "The predictions lack what the metrics are computed from.",
            wanted.get(task.kind, "logits, to rank by"),
            ", ".join(predictions.arrays) or "nothing",
        )
    fits = pred.shape == (len(rows),) and pred.dtype.kind in "iu"
    if not fits or pred.min() < 0 or pred.max() >= task.outputs:
        raise _refusal(
            "The predicted classes do not fit the part.",
            f"whole numbers from 0 to {task.outputs - 1} of shape {(len(rows),)}",
            f"{pred.min()} to {pred.max()}" if fits else f"{pred.dtype} of shape {pred.shape}",
        )
    return torch.from_numpy(pred.astype(np.int64))


def _targets(rows: Rows, part: str, task: Task, batch_size: int) -> Iterator[Tensor]:
    """Yield the targets of the part, batch by batch."""
    for batch in [rows.targets[0]] if rows.one_graph else GraphLoader(rows.targets, batch_size):
        target = task.targets(batch)
        yield of_part(batch, part, target, target)[1]


def _refusal(what: str, expected: str, found: str) -> UsageError:
    order = "predictions in the order of the part: kmip_data.open(TARGET, split=…).keys"
    return UsageError(what, expected=expected, found=found, next=order)
