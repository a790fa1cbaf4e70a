"""Predictions for one part of a split: compute with a run, store as ``.npz``, and measure."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack, get_args

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import one_hot

from kmip_data.arrays import I64, Array
from kmip_data.builds.home import Build, Home
from kmip_data.columns.column_roles import column_roles_on_card
from kmip_data.columns.labels import TaskName
from kmip_data.errors import Command, DamagedInput, OutOfResources, UsageError
from kmip_data.files.atomic_writes import write_output
from kmip_data.files.small_files import csv_bytes, first_problem, open_regular_file
from kmip_data.format.card import Card
from kmip_data.format.schema import NODE_ID
from kmip_data.format.targets import TargetType, target_column
from kmip_data.models.config import ModelConfig
from kmip_data.models.training.accumulators import PartMetrics
from kmip_data.models.training.config.presets import config_for_data
from kmip_data.models.training.data.open_data import open_data
from kmip_data.models.training.data.run_data import ALL_RECORDS, RunData, prefetch_to_device
from kmip_data.models.training.metrics import all_metrics
from kmip_data.models.training.run.finished_run import RunOptions, open_run
from kmip_data.models.training.run.training_module import select_part_rows
from kmip_data.models.training.tasks import NO_PAIR, Level
from kmip_data.reading.dataset import ShardedDataset
from kmip_data.runtime.memory import free_host_memory
from kmip_data.strict_model import StrictModel

ARRAY_NAMES = ("logits", "pred", "key", "ptr")


class PredictionOrigin(StrictModel, extra="ignore"):
    """Origin of predictions, stored in their file."""

    dataset: str
    sample: bool
    complete: bool | None
    build: str
    build_key: str
    split: str
    part: str
    level: Level
    target_type: TargetType
    class_names: tuple[str, ...] = ()
    target_names: tuple[str, ...] = ()  #: names of regression targets or labels
    run: str
    batch_size: int = Field(ge=1, description="graphs per batch, which decides the order of sums")
    #: metric of the run, as some are computed only on request; ``None`` without targets
    metric: str | None = None


@dataclass(frozen=True)
class Predictions:
    """Predictions for the records of a part, in order."""

    #: (rows, outputs) float32: scores of classes before softmax, of labels before sigmoid, or of
    #: pairs of nodes; ``None`` for regression. A row is a node, a graph, or a pair of nodes: n²
    #: pairs for a graph of n nodes, (0, 0), (0, 1) … (n - 1, n - 1).
    logits: Array | None = None
    #: (rows,) int64 classes, (rows, outputs) bool labels, (rows, outputs) float32 values; ``None``
    #: for links
    pred: Array | None = None
    #: keys of the records (G,); for a single graph the ids or numbers of its nodes (rows,)
    key: Array | None = None
    #: (G + 1,) int64: record g has the rows ``ptr[g]:ptr[g + 1]``; ``None``: one row per key
    ptr: Array | None = None
    #: origin; ``None`` if unknown
    origin: PredictionOrigin | None = None

    @property
    def arrays(self) -> dict[str, Array]:
        """Arrays that are not ``None``, by name."""
        return {
            name: getattr(self, name) for name in ARRAY_NAMES if getattr(self, name) is not None
        }


def record_keys_and_pointers(data: RunData, part: str) -> tuple[Array, I64 | None]:
    """Return ``key`` and ``ptr`` of the predictions for a part; raise ``UsageError`` if it is empty."""
    data.check_part(part)
    if data.task.level == "node" and data.build.card.counts["graphs"] == 1:
        ids = _node_ids(data.build)
        if part == ALL_RECORDS or data.part_members != "nodes":
            return ids, None
        graph = ShardedDataset(data.build, split_name=data.split_name, columns=[])
        return ids[graph.masks[f"{part}_mask"].numpy()], None
    part_or_all = None if part == ALL_RECORDS else part
    dataset = ShardedDataset(data.build, part_or_all, split_name=data.split_name, columns=[])
    keys = np.array(dataset.keys)
    if data.task.level == "graph":
        return keys, None
    rows = dataset.nodes**2 if data.task.level == "link" else dataset.nodes
    return keys, np.concatenate([[0], np.cumsum(rows)]).astype(np.int64)


def _node_ids(build: Build) -> Array:
    """Return the node ids of a single graph (N,), int64 or strings; node numbers if it stores none."""
    if all(column.key != NODE_ID for column in build.card.schema_.columns):
        return np.arange(build.card.counts["nodes"])
    dataset = ShardedDataset(build, columns=["node_id"])
    ids: Array = dataset.node_id.numpy()
    if ids.ndim == 1:
        return ids
    encoded = ids.view(f"S{ids.shape[1]}").reshape(-1)
    return np.char.decode(encoded, "utf-8", "replace")


def predict(
    run: str | os.PathLike[str],
    *,
    split: str | None = None,
    **options: Unpack[RunOptions],
) -> Predictions:
    """Predict records with the best weights of ``run``, in the batches of ``evaluate``.

    ``split`` is ``train``, ``val``, ``test`` or ``all``. The default is test, or all records of
    another ``dataset``, which needs no targets. Other arguments and errors as for
    :func:`kmip_data.models.training.run.evaluate_run.evaluate`; also raises ``UsageError`` for a missing
    part.
    """
    part = split or ("test" if options.get("dataset") is None else ALL_RECORDS)
    opened = open_run(run, targets=False, command="predict", **options)
    data = opened.data
    task = data.task
    card = data.build.card
    key, ptr = record_keys_and_pointers(data, part)
    rows = []
    with opened.load_for_inference(f"predicting {part}") as module:
        for _, batches in data.evaluation_passes((part,)):
            for batch in prefetch_to_device(batches, torch.device(opened.device.type)):
                logits, target_rows = select_part_rows(batch, part, *module(batch))
                # Pairs of nodes are padded to the largest graph: drop the padding.
                if task.target_type == "links":
                    logits = logits[target_rows != NO_PAIR, None]
                rows.append(logits.float().cpu())
    values = torch.cat(rows)

    origin = PredictionOrigin(
        **card.identity,
        build=str(data.build.path),
        split=data.split_name,
        part=part,
        level=task.level,
        target_type=task.target_type,
        class_names=tuple(card.class_names) or opened.result.class_names,
        target_names=() if task.target_type == "classification" else _target_names(card),
        run=str(opened.folder),
        batch_size=opened.config.training.batch_size,
        metric=None if target_column(card.schema_) is None else opened.config.training.metric,
    )
    scores = None if task.target_type == "regression" else values.numpy()
    pred: Array | None = None
    match task.target_type:
        case "regression":
            pred = values.numpy()
        case "multilabel":
            pred = (values > 0).numpy()
        case "classification":
            pred = values.argmax(dim=-1).numpy()
    return Predictions(scores, pred, key, ptr, origin)


def _target_names(card: Card) -> tuple[str, ...]:
    """Return the names of a build's targets, even if a build of your own tables lacks the values."""
    described = column_roles_on_card(card.statistics)
    if described is not None:
        return tuple(role.column for role in described.columns if role.use == "label")
    column = target_column(card.schema_)
    return () if column is None else tuple(column.fields)


def predictions_table(predictions: Predictions) -> bytes:
    """Format predictions as CSV, with one line and its key for each row.

    ``row`` numbers the rows of a graph from 0. Classes are written by name if the build names them;
    ``probability`` columns are the softmax or sigmoid of the ``logit`` columns.
    """
    arrays = predictions.arrays
    origin = predictions.origin
    names = (origin.class_names or origin.target_names) if origin else ()
    keys = arrays["key"]
    columns: dict[str, Sequence[object]] = {}
    if "ptr" in arrays:
        rows = np.diff(arrays["ptr"])
        columns["key"] = np.repeat(keys, rows).tolist()
        columns["row"] = (np.arange(rows.sum()) - np.repeat(arrays["ptr"][:-1], rows)).tolist()
    else:
        columns["key"] = keys.tolist()

    def add_columns(title: str, array: Array) -> None:
        for number, column in enumerate(array.reshape(len(array), -1).T.tolist()):
            label = names[number] if number < len(names) else str(number)
            columns[title if array.ndim == 1 else f"{title} {label}"] = column

    pred = arrays.get("pred")
    if pred is not None and pred.ndim == 1 and pred.dtype.kind == "i" and names:
        columns["pred"] = [names[label] for label in pred.tolist()]
    elif pred is not None:
        add_columns("pred", pred)
    if "logits" in arrays:
        logits = arrays["logits"]
        probabilities = _probabilities(logits, predictions.origin)
        if probabilities is not None:
            add_columns("probability", probabilities)
        add_columns("logit", logits)
    return csv_bytes([*columns], zip(*columns.values(), strict=True))


def _probabilities(logits: Array, origin: PredictionOrigin | None) -> Array | None:
    """Return the probabilities of classes or labels, (rows, outputs); ``None`` for other targets."""
    scores = logits.astype(np.float64)
    match origin and origin.target_type:
        case "classification":
            weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
            return np.asarray(weights / weights.sum(axis=-1, keepdims=True))
        case "multilabel":
            return np.asarray(0.5 + 0.5 * np.tanh(0.5 * scores))  # sigmoid, without overflow
    return None


def write_predictions(path: Path, predictions: Predictions) -> None:
    """Write :func:`predictions_table` to a ``.csv``, else an ``.npz`` with ``about`` as JSON."""
    if path.suffix == ".csv":
        write_output(path, predictions_table(predictions))
        return
    arrays = dict(predictions.arrays)
    if predictions.origin is not None:
        arrays["about"] = np.array(predictions.origin.model_dump_json())
    stream = io.BytesIO()
    np.savez(stream, allow_pickle=False, **arrays)
    write_output(path, stream.getvalue())


def read_predictions(path: Path) -> Predictions:
    """Read a file of :func:`write_predictions`, or any ``.npz`` with ``logits`` or ``pred``.

    This executes no code from the file. Raises ``DamagedInput`` for other files; ``OutOfResources``
    if the file unpacks to more than the free memory.
    """
    try:
        with open_regular_file(path) as file, io.BufferedReader(file) as stream:
            # Even a small file may unpack to any size.
            with zipfile.ZipFile(stream) as archive:
                size = sum(member.file_size for member in archive.infolist())
                free = free_host_memory()
            if size > free:
                raise OutOfResources(f"{path} unpacks to {size:,} bytes; {free:,} are free.")
            stream.seek(0)
            with np.load(stream, allow_pickle=False) as arrays:
                origin = None
                if "about" in arrays:
                    origin = PredictionOrigin.model_validate_json(str(arrays["about"]))
                values = {name: arrays[name] for name in ARRAY_NAMES if name in arrays}
                return Predictions(**values, origin=origin)
    except FileNotFoundError:
        raise
    except (OSError, ValueError, LookupError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise DamagedInput(
            f"{path} cannot be read as predictions: {first_problem(error)}",
            steps=[
                Command("kmip-data predict RUN --output FILE"),
                "write logits by np.savez(FILE, logits=…)",
            ],
        ) from error


@dataclass(frozen=True)
class PredictionMetrics:
    """Metrics of predictions for a part of a build."""

    build: Build
    split: str
    part: str
    metrics: dict[str, float]


def evaluate_predictions(
    predictions: str | os.PathLike[str] | Mapping[str, Any] | Predictions,
    dataset: str,
    *,
    split: str | None = None,
    sample: bool = False,
    home: str | os.PathLike[str] | Home | None = None,
) -> PredictionMetrics:
    """Measure predictions for a part, with the metrics of ``evaluate`` except the loss.

    Parameters
    ----------
    predictions
        A file of ``kmip-data predict``, an ``.npz`` file, or arrays by name: ``logits``, or
        ``pred`` for classes and values, in the order of the part, shaped as in
        :class:`Predictions`; ``key`` and ``ptr``, if given, are checked.
    dataset
        A dataset or build folder; its split is the one named in the file, or the default.
    split
        ``train``, ``val`` or ``test``; default: the part named in the file, or test.
    sample
        Use the sample of a ``dataset`` given by name.

    Raises
    ------
    UsageError
        No such finished build or part, or keys, shapes or values that do not match it.
    DamagedInput
        The file cannot be read.
    """
    # 1. Read the predictions, and make a configuration for their data.
    if isinstance(predictions, Mapping):
        arrays: dict[str, Any] = {name: np.asarray(value) for name, value in predictions.items()}
        predictions = Predictions(**arrays)
    elif not isinstance(predictions, Predictions):
        predictions = read_predictions(Path(predictions))
    origin = predictions.origin
    home = Home.locate(home)
    config = config_for_data(dataset, home=home)
    config = config.with_values("data", dataset=dataset, sample=sample, parameters={}, split={})
    # No network reads the data, so that none of its encodings is needed.
    config = config.model_copy(update={"model": ModelConfig()})
    if origin is not None:
        task = origin.target_type if origin.target_type in get_args(TaskName) else None
        # A plugin's metric is unavailable unless the plugin is loaded.
        metric = origin.metric if origin.metric in all_metrics() else None
        config = config.with_values(
            "training", batch_size=origin.batch_size, task=task, loss=None, metric=metric
        )

    # 2. Open the part, and check that the values match it.
    stored_split = None if origin is None else origin.split
    data = open_data(config, home=home, required=(), build=False, split_name=stored_split)
    part = split or ("test" if origin is None else origin.part)
    values = _checked_values(predictions, data, part)

    # 3. Compute the metrics in the batches of an evaluation.
    links = data.task.target_type == "links"
    metrics = PartMetrics(data.task, config.training.metric)
    start = 0
    for batch in data.evaluation_passes((part,))[0][1]:
        targets = data.task.targets(batch)
        _, targets = select_part_rows(batch, part, targets, targets)
        real = targets != NO_PAIR
        end = start + (int(real.sum()) if links else len(targets))
        rows = values[start:end]
        if links:  # padded to the largest graph of the batch, as targets are
            rows = rows.new_zeros(real.shape).masked_scatter(real, rows)
        metrics.update(rows, targets, torch.zeros(()))
        start = end
    measured = metrics.compute()
    del measured["loss"]
    return PredictionMetrics(data.build, data.split_name, part, measured)


def _checked_values(predictions: Predictions, data: RunData, part: str) -> Tensor:
    """Check predictions against a part, and return them as input of the metrics, (rows, outputs)."""
    # 1. Select the array: logits or, if missing, predicted classes or values.
    task = data.task
    key, ptr = record_keys_and_pointers(data, part)
    rows = len(key) if ptr is None else int(ptr[-1])
    columns = task.outputs
    dtype_kinds = "fiu"
    array: Any = predictions.logits
    if array is None and task.target_type in {"classification", "regression"}:
        array = predictions.pred
        if task.target_type == "classification":
            columns = 1
            dtype_kinds = "iu"

    # 2. Check its shape, dtype and range, and the keys.
    fits = array is not None and array.size == rows * columns and array.dtype.kind in dtype_kinds
    fits = fits and array.shape[:1] == (rows,) and not np.isnan(array).any()
    if fits and dtype_kinds == "iu":
        fits = array.min() >= 0 and array.max() < task.outputs
    for name, expected in (("key", key), ("ptr", ptr)):
        if fits and name in predictions.arrays:
            # Keys may be strings or objects.
            keys = predictions.arrays[name].astype(str)
            fits = np.array_equal(keys, np.asarray(expected, str))
    if not fits:
        shapes = [
            f"{name} {stored.dtype} {stored.shape}" for name, stored in predictions.arrays.items()
        ]
        raise UsageError(
            f"The predictions do not fit the {part} part of {data.build.card.dataset}.",
            expected=f"logits, numbers without NaN of shape {(rows, task.outputs)}, or pred of classes or"
            " values; key and ptr of the part, in its order, if any",
            found=", ".join(shapes),
            steps="write predictions in the order of the part: kmip_data.open(NAME, split=…).keys",
        )

    values = torch.from_numpy(array.astype(np.result_type(array, np.float32)))
    values = values.view(rows, columns)
    return one_hot(values[:, 0].long(), task.outputs) if dtype_kinds == "iu" else values
