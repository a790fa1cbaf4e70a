"""Prediction of a run for one graph, keys chosen by its k-MIP heads, and accuracy by class."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import dijkstra
from torch import Tensor

from kmip_data.arrays import F64, Array
from kmip_data.builds.home import Home
from kmip_data.drawing.page import ChosenKeys, GraphPredictions, Influence
from kmip_data.drawing.records import label_text
from kmip_data.drawing.style import (
    CURVE_HUES,
    current_style,
    format_percent,
    in_current_style,
    new_figure,
    save_figure,
)
from kmip_data.errors import UsageError
from kmip_data.format.targets import target_column
from kmip_data.models.analysis.study import Recorder, record_projections
from kmip_data.models.attention.kmip import attend_to_top_k
from kmip_data.models.layers.batch import read_batch
from kmip_data.models.training.run.evaluate import OpenedRun, open_run
from kmip_data.models.training.run.module import accumulate_metrics
from kmip_data.models.training.run.predictions import predict
from kmip_data.models.training.run.result import format_metric_with_unit
from kmip_data.models.training.tasks import Task
from kmip_data.reading.dataset import ShardedDataset

HOPS = 16  #: hops of an influence
NODES = 24  #: nodes drawn for an influence
MAX_NODES = 20_000  #: largest graph for an influence
MIN_NODES = 30  #: fewest nodes of a band that is drawn with a line
CURVE_OFFSET = 0.09  #: in steps from band to band
PAIRS = 2_000_000  #: pairs of node and key in an answer, over all heads and layers: 16 MB


def predict_record(
    run: str | os.PathLike[str] | OpenedRun,
    *,
    split: str = "test",
    position: int = 0,
    home: Home | None = None,
    device: str | None = None,
    pairs: int = PAIRS,
) -> tuple[OpenedRun, GraphPredictions]:
    """Predict one record of a part with the best weights of ``run``, in eval mode.

    A run on a single graph ignores the part. If there are more than ``pairs`` chosen keys, the keys
    of a fixed sample of nodes are returned. Raises as
    :func:`~kmip_data.models.training.run.evaluate.evaluate` does; ``UsageError`` also where there
    is no such part or record.
    """
    opened = run if isinstance(run, OpenedRun) else open_run(run, home=home, device=device)
    data = opened.data
    data.check_part(split)
    if data.task.stored is not None:
        learned = opened.config.training.task
        raise UsageError(
            f"The run was trained with training.task={learned}, and a page shows targets as stored.",
            next=f"kmip-data predict {opened.folder}, whose arrays are values",
        )
    count = 1 if data.unit == "nodes" else data.sizes[split]
    if not 0 <= position < count:
        raise UsageError(
            f"The part {split} has no record {position}.",
            next=f"a record from 0 to {count - 1}: --record {count - 1}",
        )
    batch = data.record_batch(split, position)
    with (
        opened.load_for_inference("exploring") as module,
        record_projections(module.model) as recorder,
    ):
        on_device = batch.to(opened.device.type)
        outputs = module(on_device)[0]
        logits = outputs.float().cpu()
    nodes, layers = chosen_keys(recorder, int(batch.num_nodes), pairs)

    task = data.task
    card = data.build.card
    words = ""
    classes = None
    values = None
    column = target_column(card.schema_)
    # A page colours nodes by a class or by one value; a graph's prediction is a line of text.
    if task.level == "graph" and column is not None:
        prediction = prediction_of(task, logits[0])
        words = label_text(column, prediction, card.class_names)
    if task.level == "node" and task.target_type == "classification":
        classes = logits.argmax(dim=-1).numpy()
    if (task.level, task.target_type, task.outputs) == ("node", "regression", 1):
        values = logits[:, 0].numpy()

    answer = GraphPredictions(
        "/".join(opened.folder.parts[-3:]),
        data.split_name,
        classes,
        words,
        nodes.numpy(),
        tuple(layers),
        values=values,
    )
    return opened, answer


def influence_of(opened: OpenedRun, split: str = "test", position: int = 0) -> Influence | None:
    """Return the influence of every node's features on the largest output of a fixed sample of nodes.

    Message passing reaches one hop per layer; k-MIP reaches every node. Return None for graphs of
    more than 20,000 nodes, where one derivative per output takes too long; for graphs without
    numeric features; and for graph-level tasks.
    """
    record = opened.data.record_batch(split, position)
    batch = record.to(opened.device.type)
    count = int(batch.num_nodes)
    if count > MAX_NODES or not isinstance(batch.x, Tensor) or not batch.x.is_floating_point():
        return None

    generator = np.random.Generator(np.random.PCG64(0))
    draw = generator.choice(count, min(count, NODES), replace=False)
    with opened.load_module() as module, torch.compiler.set_stance("force_eager"):
        module.activity = "exploring"
        batch.x = batch.x.clone().requires_grad_()
        outputs = module.eval()(batch)[0]
        if len(outputs) != count:  # a graph-level task
            return None
        # One backward pass a node: the largest output is the score of the predicted class.
        best = outputs.amax(1, keepdim=True)
        by_node = [node_influence(best, batch.x, node) for node in draw.tolist()]
        values = np.stack(by_node)
    # JSON has no NaN or infinity, which an overflowing network returns.
    values[~np.isfinite(values)] = 0.0

    edges = read_batch(batch).edges.index
    hops = influence_by_hop(values, edges, draw.tolist(), HOPS)
    numbered = list(enumerate(hops.tolist()))
    return Influence(draw, values, numbered[1:])


def node_influence(outputs: Tensor, x: Tensor, node: int) -> F64:
    """Return Σ |∂ outputs[node, c] / ∂ x[u, f]| over c and f for every node u: (N,) float64.

    ``outputs`` (N, C) must have been computed from ``x`` (N, F), which requires a gradient; one
    backward pass per output. k-MIP attention is differentiated as in training, through the chosen
    pairs.
    """
    total = torch.zeros(len(x), dtype=torch.float64, device=x.device)
    for output in outputs[node]:
        (gradient,) = torch.autograd.grad(output, x, retain_graph=True)
        total += gradient.abs().sum(1)
    return total.cpu().numpy()


def influence_by_hop(
    values: F64,
    edge_index: Tensor,
    nodes: list[int],
    hops: int,
) -> F64:
    """Sum influence ``values`` (S, N) on S ``nodes`` by distance against the edges: (hops + 1,).

    The sums are means over the nodes, relative to the influence of the node itself.
    """
    # Messages run from source to target: what a node depends on is reached against the edges.
    source, target = edge_index.cpu().numpy()
    count = values.shape[1]
    entries = (np.ones(len(source)), (target, source))
    backwards = coo_array(entries, (count, count)).tocsr()
    distances = np.asarray(dijkstra(backwards, indices=nodes, unweighted=True))

    totals = [float(values[distances == hop].sum()) for hop in range(hops + 1)]
    return np.array(totals) / (totals[0] or 1.0)  # 0: the output does not depend on the node


def prediction_of(task: Task, logits: Tensor) -> Array:
    """Return a row of logits (outputs,) as a prediction: a class, labels, or values."""
    if task.target_type == "classification":
        return logits.argmax().numpy()
    if task.target_type == "multilabel":
        return (logits > 0).numpy()
    return logits.numpy()


def chosen_keys(recorder: Recorder, count: int, pairs: int) -> tuple[Tensor, list[ChosenKeys]]:
    """Return nodes (S,) of the recorded graph of ``count`` nodes, and the keys that each layer chose for them.

    All nodes, or a fixed sample with at most ``pairs`` pairs over all layers.
    """
    pairs_of_node = sum(layer.heads * layer.k for layer in recorder.layers)
    size = min(count, pairs // max(1, pairs_of_node))
    generator = np.random.Generator(np.random.PCG64(0))
    draw = generator.choice(count, size, replace=False)
    nodes = torch.from_numpy(np.sort(draw))

    # Layers return only outputs, so the search runs again on their recorded inputs, one record per
    # layer.
    layers = []
    for layer, (recorded,) in zip(recorder.layers, recorder.calls, strict=True):
        queries, keys, values = recorded
        chosen = attend_to_top_k(
            queries.float(),
            keys.float(),
            values.float(),
            layer.k,
            repeat_first_key=layer.legacy_padding,
        )
        indices = chosen.indices[:, nodes]
        weights = chosen.weights[:, nodes].masked_fill(indices < 0, 0)
        layers.append(ChosenKeys(indices.numpy(), weights.numpy()))
    return nodes, layers


def counts_by_class(run: str | Path, **where: Any) -> dict[str, object]:
    """Return class ``names``, and for each part the number of ``rows`` and of ``right`` ones by class.

    Options as for :func:`~kmip_data.models.training.run.evaluate.open_run`. Raises ``UsageError``
    unless the run predicts one class per node or graph.
    """
    opened = open_run(run, **where)
    with opened.load_module() as module:
        if module.task.target_type != "classification":
            raise UsageError(f"{run} does not predict one class.", next="leave out --by-class")
        device = torch.device(opened.device.type)
        measured = accumulate_metrics(module, opened.data, opened.data.parts, device)
    rows = {}
    right = {}
    classes = 0
    for part, counted in measured.items():
        confusion = counted.rows.compute().long()  # (C, C), true class by predicted class
        rows[part] = confusion.sum(1).tolist()
        right[part] = confusion.diag().tolist()
        classes = len(confusion)

    build = opened.data.build
    names = list(build.card.class_names) or [str(number) for number in range(classes)]
    return {"names": names, "rows": rows, "right": right}


#: Smallest distance of each band: single distances within reach of a small network, then wider
#: bands.
STARTS = (1, 2, 3, 4, 5, 7, 9, 13, 19, 27, 39, 55, 79, 111)


@dataclass(frozen=True)
class ByDistance:
    """Metric of a run in each non-empty band of distances."""

    metric: str  #: ``accuracy``, a fraction; or ``mae``, in the unit of the target
    bands: tuple[str, ...]  #: distances in edges, such as ``5`` and ``9–12``
    nodes: tuple[int, ...]
    values: tuple[float, ...]

    def formatted_values(self) -> list[str]:
        """Return the formatted values; fractions in percent."""
        return [format_metric_with_unit(self.metric, value) for value in self.values]


def evaluate_by_distance(
    run: str | os.PathLike[str], *, split: str = "test", **where: Any
) -> ByDistance | None:
    """Evaluate the best weights of ``run`` on a part, grouped by the column ``distance``.

    Return None without that column. Nodes at distance 0 are left out: their target is their own
    input. Further arguments and errors as of
    :func:`~kmip_data.models.training.run.evaluate.evaluate`.
    """
    opened = open_run(run, **where).data
    build = opened.build
    columns = {column.key for column in build.card.schema_.columns}
    if "node/distance" not in columns:
        return None

    predictions = predict(run, split=split, **where)
    assert predictions.about is not None, "a run's predictions say where they come from"
    assert predictions.pred is not None, "nodes with a distance have classes or values"
    dataset = ShardedDataset(build, split, split_name=predictions.about.split)
    distance = torch.cat([data.distance for data in dataset]).numpy()
    target = torch.cat([opened.task.targets(data) for data in dataset]).numpy()

    if predictions.about.target_type == "classification":
        metric = "accuracy"
        node_values = predictions.pred == target
    else:
        metric = "mae"
        node_values = np.abs(predictions.pred - target).mean(-1)

    names = []
    nodes = []
    means = []
    # A node's band is the last that starts at its distance or before; distance 0 has none (−1).
    band = np.searchsorted(STARTS, distance, side="right") - 1
    for number in np.unique(band[band >= 0]).tolist():
        values = node_values[band == number]
        names.append(_band_name(number))
        nodes.append(len(values))
        means.append(float(values.mean()))
    return ByDistance(metric, tuple(names), tuple(nodes), tuple(means))


def _band_name(number: int) -> str:
    """Return the distances of a band: ``5``, ``9–12``, or ``111+`` for the last one."""
    first = STARTS[number]
    if number + 1 == len(STARTS):
        return f"{first}+"
    last = STARTS[number + 1] - 1
    return str(first) if last == first else f"{first}–{last}"


@in_current_style()
def draw_metric_by_distance(
    runs: Mapping[str, ByDistance],
    path: Path,
    *,
    title: str,
    chance: float | None,
) -> None:
    """Draw a curve for each run on the same data, and ``chance``, the accuracy of a guess.

    Curves are slightly offset, the first one in front, so that equal curves stay visible. Each band
    is labelled with its number of nodes; points of fewer than :data:`MIN_NODES` are hollow and not
    joined.
    """
    figure = new_figure(8, 4.5, title=title)
    axes = figure.subplots()
    first = next(iter(runs.values()))
    steps = np.arange(len(first.bands), dtype=np.float64)
    many = np.array(first.nodes) >= MIN_NODES
    for number, ((name, run), marker) in enumerate(zip(runs.items(), cycle("os^vDX"))):
        across = steps + CURVE_OFFSET * (number - (len(runs) - 1) / 2)
        values = np.array(run.values)
        color = current_style().palette[number % CURVE_HUES]
        order = 3 + len(runs) - number
        style = {"color": color, "marker": marker, "markersize": 6, "zorder": order}
        axes.plot(across[many], values[many], label=name, **style)
        axes.plot(
            across[~many],
            values[~many],
            linestyle="none",
            markerfacecolor=current_style().ground,
            **style,
        )
    labels = []
    for band, nodes in zip(first.bands, first.nodes, strict=True):
        labels.append(f"{band}\n{nodes:,}")
    axes.set_xticks(steps, labels)
    metric = first.metric
    if chance is not None:
        axes.axhline(
            chance,
            linestyle=":",
            color=current_style().quiet,
            linewidth=1,
            label="a guess",
        )
    if metric == "accuracy":
        axes.set_ylim(-0.03, 1.03)  # whole marks at both ends
        axes.yaxis.set_major_formatter(format_percent)
    xlabel = "edges between a node and the one that its target depends on, and number of nodes"
    if not many.all():
        xlabel += f"\nhollow: fewer than {MIN_NODES} nodes, where one right answer counts a lot"
    axes.set(xlabel=xlabel, ylabel=metric)
    axes.grid()
    figure.legend(loc="outside right upper", frameon=False)
    save_figure(figure, path)
