"""Predictions of one part of a split: by a run, as an ``.npz`` file, and the metrics of any such file."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor
from torch.nn.functional import one_hot

from kmip_data.builds.home import Build, Home
from kmip_data.errors import DamagedInput, OutOfResources, UsageError
from kmip_data.files.changes import write_output
from kmip_data.files.reading import first_fault, open_regular
from kmip_data.manifest import Strict
from kmip_data.models.training.accumulators import SplitMetrics
from kmip_data.models.training.config.presets import config_for
from kmip_data.models.training.data.graphs import open_data
from kmip_data.models.training.data.run_data import USUAL_LOSSES, RunData, sent_ahead
from kmip_data.models.training.run.evaluate import open_run
from kmip_data.models.training.run.folder import metrics_table
from kmip_data.models.training.run.module import of_part
from kmip_data.models.training.tasks import NO_PAIR, Kind, Level
from kmip_data.reading.dataset import ShardedDataset
from kmip_data.runtime.memory import free_host_memory

ARRAYS = ("logits", "pred", "key", "ptr")
Array = NDArray[Any]


class About(Strict, extra="ignore"):
    """Origin of predictions, as their file states it."""

    dataset: str
    sample: bool
    complete: bool | None
    build: str
    build_key: str
    split: str
    part: str
    level: Level
    kind: Kind
    class_names: tuple[str, ...] = ()
    run: str
    batch_size: int = Field(ge=1, description="graphs per batch, which sums of metrics follow")


@dataclass(frozen=True)
class Predictions:
    """Predictions of the records of a part, in its order."""

    #: (rows, outputs) float32: of classes and labels before softmax and sigmoid, scores of pairs of nodes;
    #: ``None`` for values. A row is a node, a graph, or a pair of nodes: of a graph of n nodes n² of them,
    #: (0, 0), (0, 1) … (n - 1, n - 1)
    logits: Array | None = None
    #: (rows,) int64 classes, (rows, outputs) bool labels, (rows, outputs) float32 values; ``None`` for links
    pred: Array | None = None
    key: Array | None = (
        None  #: keys of the records (G,), or the numbers of the nodes of one graph (rows,)
    )
    #: (G + 1,) int64: record g has the rows ``ptr[g]:ptr[g + 1]``. ``None``: one row for each key
    ptr: Array | None = None
    about: About | None = None  #: ``None`` if unknown

    @property
    def arrays(self) -> dict[str, Array]:
        """Existing arrays by name."""
        return {name: value for name in ARRAYS if (value := getattr(self, name)) is not None}


def rows_of(data: RunData, part: str) -> tuple[Array, NDArray[np.int64] | None]:
    """Return ``key`` and ``ptr`` of the predictions of a part; raise UsageError where it is empty."""
    data.check_part(part)
    if data.unit == "nodes":
        whole = ShardedDataset(data.build, split_name=data.split_name, columns=[])
        return whole.masks[f"{part}_mask"].numpy().nonzero()[0], None
    dataset = ShardedDataset(data.build, part, split_name=data.split_name, columns=[])
    keys = np.array(dataset.keys)
    if data.task.level == "graph":
        return keys, None
    each = dataset.nodes**2 if data.task.level == "link" else dataset.nodes
    return keys, np.concatenate([[0], np.cumsum(each)]).astype(np.int64)


def predict(
    run: str | os.PathLike[str],
    *,
    split: str = "test",
    target: str | None = None,
    sample: bool = False,
    home: Home | None = None,
    device: str | None = None,
) -> Predictions:
    """Predict a part of the split by the best weights of ``run``, in the batches of ``evaluate``.

    Arguments and errors are those of :func:`kmip_data.models.training.run.evaluate.evaluate`; ``UsageError``
    also where there is no such part.
    """
    opened = open_run(run, target=target, sample=sample, home=home, device=device)
    data = opened.data
    task = opened.data.task
    card = opened.data.build.card
    key, ptr = rows_of(data, split)
    found = []
    with opened.applied(f"predicting {split}") as module:
        for _, batches in data.passes((split,)):
            for batch in sent_ahead(batches, torch.device(opened.device.kind)):
                logits, target_rows = of_part(batch, split, *module(batch))
                # Pairs of nodes are padded to the largest graph: keep the real ones, row by row.
                real = logits[target_rows != NO_PAIR, None] if task.kind == "links" else logits
                found.append(real.float().cpu())
    values = torch.cat(found)
    about = About(
        **card.identity,
        build=str(data.build.path),
        split=data.split_name,
        part=split,
        level=task.level,
        kind=task.kind,
        class_names=tuple(card.class_names),
        run=str(opened.folder),
        batch_size=opened.config.training.batch_size,
    )
    scores = None if task.kind == "regression" else values.numpy()
    classes = {
        "regression": values,
        "multilabel": values > 0,
        "single-label": values.argmax(dim=-1),
    }
    pred = classes[task.kind].numpy() if task.kind in classes else None
    return Predictions(scores, pred, key, ptr, about)


def write_predictions(path: Path, predictions: Predictions) -> None:
    """Write the arrays of :class:`Predictions`, and ``about`` as JSON, to an ``.npz`` file."""
    about = (
        {}
        if predictions.about is None
        else {"about": np.array(predictions.about.model_dump_json())}
    )
    stream = io.BytesIO()
    np.savez(stream, allow_pickle=False, **predictions.arrays, **about)
    write_output(path, stream.getvalue())


def read_predictions(path: Path) -> Predictions:
    """Read such a file, or any ``.npz`` with ``logits`` or ``pred``; nothing in it is executed.

    Raises ``DamagedInput`` where it is no such file; ``OutOfResources`` where it unpacks to more than the
    memory holds.
    """
    try:
        with open_regular(path) as file, io.BufferedReader(file) as stream:
            with zipfile.ZipFile(stream) as archive:  # a few bytes may unpack to any number
                size = sum(member.file_size for member in archive.infolist())
                free = free_host_memory()
            if size > free:
                raise OutOfResources(f"{path} unpacks to {size:,} bytes; {free:,} are free.")
            stream.seek(0)
            with np.load(stream, allow_pickle=False) as arrays:
                about = (
                    About.model_validate_json(str(arrays["about"])) if "about" in arrays else None
                )
                return Predictions(
                    **{name: arrays[name] for name in ARRAYS if name in arrays}, about=about
                )
    except FileNotFoundError:
        raise
    except (OSError, ValueError, LookupError, TypeError, EOFError, zipfile.BadZipFile) as error:
        what = f"{path} cannot be read as predictions: {first_fault(error)}"
        raise DamagedInput(
            what, next="kmip-data predict RUN --output FILE, or np.savez(FILE, logits=…)"
        ) from error


@dataclass(frozen=True)
class PredictionMetrics:
    """Metrics of predictions of one part of a build."""

    build: Build
    split: str
    part: str
    metrics: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; ``metrics`` by part, as of a run."""
        place = {"build": str(self.build.path), "split": self.split}
        return {**self.build.card.identity, **place, "metrics": {self.part: self.metrics}}

    def table(self) -> str:
        """The metrics, and what was measured."""
        data = f"{self.build.card.dataset}{self.build.card.remark}, split {self.split}"
        return f"{metrics_table([{self.part: self.metrics}])}\n{data}"


def evaluate_predictions(
    predictions: str | os.PathLike[str] | Mapping[str, Any] | Predictions,
    target: str,
    *,
    split: str | None = None,
    sample: bool = False,
    home: Home | None = None,
) -> PredictionMetrics:
    """Measure predictions of a part, as ``evaluate`` measures those of a run, but for the loss.

    Parameters
    ----------
    predictions
        A file of ``kmip-data predict``, an ``.npz`` file, or arrays by name: ``logits``, or ``pred`` for
        classes and values, in the order of the part, shaped as in :class:`Predictions`; ``key`` and ``ptr``
        are checked where they are there.
    target
        A dataset or build folder; its split is that of the file, or the default.
    split
        ``train``, ``val`` or ``test``; default: that of the file, else test.
    sample
        With the name of a dataset: its sample.

    Raises
    ------
    UsageError
        There is no such finished build or part, or keys, shapes or values do not fit it.
    DamagedInput
        The file cannot be read.
    """
    if isinstance(predictions, Mapping):
        given: dict[str, Any] = {name: np.asarray(value) for name, value in predictions.items()}
        predictions = Predictions(**given)
    elif not isinstance(predictions, Predictions):
        predictions = read_predictions(Path(predictions))
    about = predictions.about
    home = home or Home.locate()
    config = config_for(target, home=home)
    own = {"dataset": target, "sample": sample, "parameters": {}, "split": {}}
    changes: dict[str, Any] = {"data": config.data.model_copy(update=own)}
    if about is not None:  # it knows if numbers are values or labels; batches set the order of sums
        training = {
            "batch_size": about.batch_size,
            "loss": USUAL_LOSSES[about.kind],
            "metric": None,
        }
        changes["training"] = config.training.model_copy(update=training)
    config = config.model_copy(update=changes)
    own_split = None if about is None else about.split
    data = open_data(config, home=home, required=(), build=False, split=own_split)
    part = split or ("test" if about is None else about.part)
    values = _values(predictions, data, part)
    links = data.task.kind == "links"
    metrics = SplitMetrics(data.task)
    start = 0
    for batch in data.passes((part,))[0][1]:
        targets = data.task.targets(batch)
        targets = of_part(batch, part, targets, targets)[1]
        real = targets != NO_PAIR
        end = start + (int(real.sum()) if links else len(targets))
        chosen = values[start:end]
        if links:  # back to the largest graph of the batch
            chosen = chosen.new_zeros(real.shape).masked_scatter(real, chosen)
        metrics.update(chosen, targets, torch.zeros(()))
        start = end
    measured = {metric: value for metric, value in metrics.compute().items() if metric != "loss"}
    return PredictionMetrics(data.build, data.split_name, part, measured)


def _values(given: Predictions, data: RunData, part: str) -> Tensor:
    """Return checked values for the metrics, (rows, outputs)."""
    (key, ptr), task = rows_of(data, part), data.task
    rows = len(key) if ptr is None else int(ptr[-1])
    columns = task.outputs
    kinds = "fiu"
    found = given.logits
    if found is None and task.kind in {"single-label", "regression"}:
        found = given.pred
    array = np.zeros(0) if found is None else found
    if classes := given.logits is None and task.kind == "single-label":
        columns = 1
        kinds = "iu"
    right = (
        array.shape[:1] == (rows,) and array.size == rows * columns and array.dtype.kind in kinds
    )
    right = right and not np.isnan(array).any()
    if right and classes:
        right = array.min() >= 0 and array.max() < task.outputs
    for name, expected in (("key", key), ("ptr", ptr)):  # keys may be text or objects
        if name in given.arrays:
            right = right and np.array_equal(
                given.arrays[name].astype(str), np.asarray(expected, str)
            )
    if not right:
        raise UsageError(
            f"The predictions do not fit the {part} part of {data.build.card.dataset}.",
            expected=f"logits, numbers without NaN of shape {(rows, task.outputs)}, or pred of classes or"
            " values; key and ptr of the part, in its order, if any",
            found=", ".join(
                f"{name} {each.dtype} {each.shape}" for name, each in given.arrays.items()
            ),
            next="predictions in the order of the part: kmip_data.open(TARGET, split=…).keys",
        )
    single = np.float32 if array.dtype == np.float32 else np.float64
    values = torch.from_numpy(array.astype(single)).view(rows, columns)
    return one_hot(values[:, 0].long(), task.outputs) if classes else values
