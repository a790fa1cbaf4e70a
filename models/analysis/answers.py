"""Prediction of a run for one graph, the keys that its k-MIP heads chose, and its accuracy by class."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import dijkstra
from torch import Tensor, nn

from kmip_data.builds.home import Home
from kmip_data.drawing.maps import read_city_map
from kmip_data.drawing.page import Answer, ChosenKeys
from kmip_data.drawing.pictures import label_words
from kmip_data.errors import UsageError
from kmip_data.graphs.city_columns import is_city
from kmip_data.models.analysis.projections import check_part
from kmip_data.models.attention.kmip import KMIPAttention, attend_to_best
from kmip_data.models.layers.batch import GraphBatch, read_batch
from kmip_data.models.training.machine import autocast
from kmip_data.models.training.run.evaluate import OpenedRun, open_run
from kmip_data.models.training.run.module import measure_parts
from kmip_data.models.training.tasks import Task, target_column

HOPS, NODES, MOST_NODES = 16, 4, 20_000  #: influence is measured so far, of so many nodes, up to this size
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
            next=f"--record 0 to {count - 1}, or another --split",
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
        words = label_words(column, prediction_of(task, logits[0]), data.build.card.class_names)
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
    return list(enumerate(by_hop(values, read_batch(batch).edges.index, draw.tolist(), HOPS).tolist()))[1:]


def node_influence(outputs: Tensor, x: Tensor, node: int) -> NDArray[np.float64]:
    """Return Σ |∂ outputs[node, c] / ∂ x[u, f]| over c and f for every node u: (N,) float64.

    ``outputs`` (N, C) must have been computed from ``x`` (N, F), which requires a gradient; one backward pass
    per output. k-MIP attention is differentiated as in training, through the chosen pairs.
    """
    total = torch.zeros(len(x), dtype=torch.float64, device=x.device)
    for output in outputs[node]:
        (gradient,) = torch.autograd.grad(output, x, retain_graph=True)
        total += gradient.abs().sum(1)
    return total.cpu().numpy()


def by_hop(
    values: NDArray[np.float64], edge_index: Tensor, nodes: list[int], hops: int
) -> NDArray[np.float64]:
    """Sum influence ``values`` (S, N) on S ``nodes`` by distance against the edges: (hops + 1,).

    The sums are means over the nodes, relative to the influence of the node itself.
    """
    source, target = edge_index.cpu().numpy()
    backwards = coo_array((np.ones(len(source)), (target, source)), (values.shape[1],) * 2).tocsr()
    distances = np.asarray(dijkstra(backwards, indices=nodes, unweighted=True))
    totals = [float(values[distances == hop].sum()) for hop in range(hops + 1)]
    return np.array(totals) / totals[0]


def prediction_of(task: Task, logits: Tensor) -> np.ndarray[Any, Any]:
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
    """Repeat the layer's attention, and record the chosen keys."""
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


@dataclass(frozen=True)
class ClassAccuracy:
    """Nodes or graphs of each class, and how many of them a run gets right, by part."""

    names: list[str]
    rows: dict[str, list[int]]  #: part -> number of each class
    right: dict[str, list[int]]  #: part -> correct ones of each class


def class_accuracy(run: str | Path, **where: Any) -> ClassAccuracy:
    """Measure the best weights of ``run`` on each class of every part.

    Options are those of :func:`.evaluate.open_run`. Raises ``UsageError`` if the run does not predict one
    class for each node or graph.
    """
    opened = open_run(run, **where)
    with opened.working() as module:
        if module.task.kind != "single-label":
            raise UsageError(f"{run} does not predict one class.", next="leave out --by-class")
        device = torch.device(opened.device.kind)
        found = {
            part: counted.rows.compute().long()  # (C, C) confusion: true class by predicted class
            for part, counted in measure_parts(module, opened.data, opened.data.parts, device).items()
        }
    build = opened.data.build
    names = list(build.card.class_names)
    if is_city(build.card):
        names = read_city_map(build).class_ranges()
    rows = {part: confusion.sum(1).tolist() for part, confusion in found.items()}
    names = names or [str(number) for number in range(len(next(iter(rows.values()))))]
    return ClassAccuracy(names, rows, {part: confusion.diag().tolist() for part, confusion in found.items()})
