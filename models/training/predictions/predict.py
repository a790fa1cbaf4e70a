"""Predictions of each record of a part, by the best weights of a run."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from kmip_data.builds.home import Build, Home
from kmip_data.errors import UsageError
from kmip_data.format.splits import read_split
from kmip_data.models.training.data.on_card import sent_ahead
from kmip_data.models.training.machine import autocast
from kmip_data.models.training.objective.links import NO_PAIR
from kmip_data.models.training.objective.tasks import Task, target_column
from kmip_data.models.training.predictions.file import About, Array, Predictions
from kmip_data.models.training.run.evaluate import open_run
from kmip_data.models.training.run.module import of_part
from kmip_data.reading.dataset import ShardedDataset


@dataclass(frozen=True)
class Rows:
    """Rows of the predictions of a part, and their targets."""

    targets: ShardedDataset  #: the part, or the one graph whose nodes are split, with its targets alone
    key: Array  #: as in :class:`Predictions`
    ptr: NDArray[np.int64] | None  #: likewise
    one_graph: bool
    digest: str

    def __len__(self) -> int:
        return len(self.key) if self.ptr is None else int(self.ptr[-1])

    @classmethod
    def of(cls, build: Build, split: str, part: str, task: Task) -> Rows:
        """Rows of a part of a split of ``build``; raises UsageError where it is empty."""
        column, entry = target_column(build.card.schema_), build.card.splits[split]
        code = read_split(build.path / entry.file, records=build.card.split_records).node_code
        sizes = {name: found.graphs if code is None else found.nodes for name, found in entry.parts.items()}
        if column is None or not sizes.get(part):
            raise UsageError(
                f"There is nothing to predict in the part {part!r} of {build.card.dataset}.",
                expected=" or ".join(name for name, size in sizes.items() if size),
                found=part,
                next="another --split",
            )
        dataset = ShardedDataset(build, part, split_name=split, columns=[column.attribute])
        digest = entry.parts[part].digest
        if code is not None:
            node = dataset[0][f"{part}_mask"].numpy().nonzero()[0]
            return cls(dataset, node, None, one_graph=True, digest=digest)
        ptr = None
        if task.level != "graph":
            each = dataset.nodes**2 if task.level == "link" else dataset.nodes
            ptr = np.concatenate([[0], np.cumsum(each)]).astype(np.int64)
        return cls(dataset, np.array(dataset.keys), ptr, one_graph=False, digest=digest)


def predict(
    run: str | os.PathLike[str],
    *,
    part: str = "test",
    target: str | None = None,
    sample: bool = False,
    home: Home | None = None,
    device: str | None = None,
) -> Predictions:
    """Predict a part by the best weights of ``run``, in the batches in which ``evaluate`` measures it.

    Arguments and errors are those of :func:`kmip_data.models.training.run.evaluate.evaluate`; ``UsageError``
    also where there is no such part.
    """
    opened = open_run(run, target=target, sample=sample, home=home, device=device)
    data, config, where = opened.data, opened.config, opened.device.kind
    task, card = data.task, data.build.card
    rows = Rows.of(data.build, data.split_name, part, task)
    found = []
    with opened.working() as module, torch.inference_mode(), autocast(config.training.precision, where):
        module.eval()
        module.doing = f"predicting {part}"
        for _, batches in data.passes((part,)):
            for batch in sent_ahead(batches, torch.device(where)):
                logits, target_rows = of_part(batch, part, *module(batch))
                # Pairs of nodes are padded to the largest graph: keep the real ones, row by row.
                real = logits[target_rows != NO_PAIR, None] if task.kind == "links" else logits
                found.append(real.float().cpu())
    values = torch.cat(found)
    about = About(
        **card.identity,
        build=str(data.build.path),
        split=data.split_name,
        part=part,
        digest=rows.digest,
        level=task.level,
        kind=task.kind,
        outputs=task.outputs,
        class_names=tuple(card.class_names),
        run=str(opened.folder),
        model=opened.result.model,
        seed=opened.result.seed,
        best_epoch=opened.result.best_epoch,
        batch_size=config.training.batch_size,
    )
    if task.kind == "regression":
        return Predictions(None, values.numpy(), rows.key, rows.ptr, about)
    pred: Array | None = None
    if task.kind == "single-label":
        pred = values.argmax(dim=-1).numpy()
    elif task.kind == "multilabel":
        pred = (values > 0).numpy()
    return Predictions(values.numpy(), pred, rows.key, rows.ptr, about)
