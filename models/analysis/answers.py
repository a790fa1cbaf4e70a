"""Prediction of a run for one graph, and the keys that its k-MIP heads chose."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from kmip_data.builds.home import Home
from kmip_data.drawing.page import Answer, ChosenKeys
from kmip_data.drawing.pictures import label_words
from kmip_data.errors import UsageError
from kmip_data.models.analysis.influence import by_distance, hop_distances, node_influence
from kmip_data.models.analysis.recording import check_part
from kmip_data.models.attention.kmip import KMIPAttention, attend_to_best
from kmip_data.models.layers.batch import GraphBatch, read_batch
from kmip_data.models.training.machine import autocast
from kmip_data.models.training.objective.tasks import Task, target_column
from kmip_data.models.training.run.evaluate import OpenedRun, open_run

HOPS, NODES, MOST_NODES = 16, 8, 20_000  #: influence is measured so far, of so many nodes, up to this size
PAIRS: Final = 2_000_000  #: of node and key, over all heads and layers, in an answer: 16 MB


def ask(
    run: str | os.PathLike[str],
    *,
    part: str = "test",
    position: int = 0,
    home: Home | None = None,
    device: str | None = None,
    pairs: int = PAIRS,
) -> tuple[OpenedRun, Answer]:
    """Return what the best weights of ``run`` predict for one record of a part, in eval mode.

    A run on one graph has that one, whatever the part. If the chosen keys would be more than ``pairs``, only
    those of a fixed draw of nodes are returned. Raises as
    :func:`~kmip_data.models.training.run.evaluate.evaluate` does; ``UsageError`` also where there is no such
    part or record.
    """
    opened = open_run(run, home=home, device=device)
    data, where = opened.data, opened.device.kind
    check_part(data, part)
    count = 1 if data.unit == "nodes" else data.sizes[part]
    if not 0 <= position < count:
        raise UsageError(
            f"The part {part} has no record {position}.",
            expected=f"0 to {count - 1}",
            found=str(position),
            next="another --record or --split",
        )
    batch = data.record(part, position)
    with (
        opened.working() as module,
        choosing(module.eval().model, int(batch.num_nodes), pairs) as (nodes, layers),
        torch.compiler.set_stance("force_eager"),  # compiled code skips the hooks
        torch.inference_mode(),
        autocast(opened.config.training.precision, where),
    ):
        module.doing = "exploring"
        logits = module(batch.to(where))[0].float().cpu()
    task, column = data.task, target_column(data.build.card.schema_)
    named = task.level == "node" and task.kind == "single-label"
    words = ""
    if task.level == "graph" and column is not None:
        words = label_words(column, said(task, logits[0]), data.build.card.class_names)
    return opened, Answer(
        run="/".join(opened.folder.parts[-3:]),
        split=data.split_name,
        classes=logits.argmax(dim=-1).numpy() if named else None,
        words=words,
        nodes=nodes.numpy(),
        layers=tuple(layers),
    )


def influence_by_hop(opened: OpenedRun, part: str = "test", position: int = 0) -> list[tuple[int, float]]:
    """Return how much the features of all nodes at each distance in hops change a node's output.

    The sum of absolute derivatives, relative to that by the node's own features, is the mean over a fixed
    draw of nodes. Layers of message passing reach as many hops as there are layers; k-MIP reaches all. Empty
    for graphs of more than 20,000 nodes, where a derivative for each output takes too long, and without
    numbers as features.
    """
    batch = opened.data.record(part, position).to(opened.device.kind)
    count = int(batch.num_nodes)
    if count > MOST_NODES or not isinstance(batch.x, Tensor) or not batch.x.is_floating_point():
        return []
    draw = np.random.Generator(np.random.PCG64(0)).choice(count, min(count, NODES), replace=False)
    with opened.working() as module, torch.compiler.set_stance("force_eager"):
        module.doing = "exploring"
        batch.x = batch.x.clone().requires_grad_()
        outputs = module.eval()(batch)[0]
        if len(outputs) != count:  # of the graph, not of its nodes
            return []
        values = np.stack([node_influence(outputs, batch.x, node) for node in draw.tolist()])
    distances = hop_distances(read_batch(batch).edges.index, count, draw.tolist())
    rows = by_distance(values, distances, HOPS)["rows"]
    return [(int(row["hop"]), float(row["influence"])) for row in rows[1:]]


def said(task: Task, logits: Tensor) -> np.ndarray[Any, Any]:
    """Return a row of logits (outputs,) as a prediction: a class, labels, or values."""
    if task.kind == "single-label":
        return logits.argmax().numpy()
    return (logits > 0).numpy() if task.kind == "multilabel" else logits.numpy()


@contextlib.contextmanager
def choosing(model: nn.Module, count: int, pairs: int) -> Iterator[tuple[Tensor, list[ChosenKeys]]]:
    """Give the nodes (S,) whose keys are kept, and, once ``model`` has seen a graph of ``count``, the keys.

    They are those that each :class:`KMIPAttention` attends to, found by its own search. All nodes, or as many
    as give no more than ``pairs`` over all layers.
    """
    attentions = [module for module in model.modules() if isinstance(module, KMIPAttention)]
    each = sum(module.heads * module.k for module in attentions)
    kept = min(count, pairs // max(each, 1))
    draw = np.random.Generator(np.random.PCG64(0)).choice(count, kept, replace=False)
    nodes, layers = torch.from_numpy(np.sort(draw)), list[ChosenKeys]()
    hook = partial(_choose, nodes, layers)
    hooks = [module.register_forward_pre_hook(hook, with_kwargs=True) for module in attentions]
    try:
        yield nodes, layers
    finally:
        for each_hook in hooks:
            each_hook.remove()


def _choose(
    nodes: Tensor, layers: list[ChosenKeys], module: KMIPAttention, args: tuple[Any, ...], options: Any
) -> None:
    """Attend as the layer is about to, and record what it attends to."""
    given: dict[str, Any] = {**dict(zip(("x", "ptr"), args, strict=False)), **options}
    ptr = given.get("ptr")
    found = attend_to_best(
        *module.project(given["x"]),
        module.k,
        query_ptr=ptr.ptr if isinstance(ptr, GraphBatch) else ptr,
        backend=module.backend,
        repeat_first_key=module.legacy_padding,
    )
    indices, weights = found.indices.cpu()[:, nodes], found.weights.float().cpu()[:, nodes]
    layers.append(ChosenKeys(indices.numpy(), weights.masked_fill(indices < 0, 0).numpy()))
