"""Explanations of a run's predictions: chosen keys, influence of nodes, accuracy by class and distance."""

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
from kmip_data.drawing.explorer_page import ChosenKeys, GraphPredictions, Influence
from kmip_data.drawing.style import CURVE_HUES, current_style, in_current_style, new_figure
from kmip_data.errors import Command, Setting, UsageError
from kmip_data.format.label_texts import label_text
from kmip_data.format.targets import target_column
from kmip_data.models.analysis.projections import Projections, collect_projections
from kmip_data.models.attention.kmip import KMIPAttention, kmip_attention_with_weights
from kmip_data.models.layers.batch import read_batch
from kmip_data.models.training.data.run_data import ALL_RECORDS
from kmip_data.models.training.metric_text import format_metric_with_unit
from kmip_data.models.training.run.finished_run import OpenedRun, open_run
from kmip_data.models.training.run.predictions import predict
from kmip_data.models.training.run.training_module import accumulate_metrics
from kmip_data.models.training.tasks import Task
from kmip_data.reading.dataset import ShardedDataset
from kmip_data.saving.image_files import save_figure

INFLUENCE_HOPS = 16  #: largest distance for which influence is summed
NUM_INFLUENCE_NODES = 24  #: sampled nodes whose outputs are differentiated
MAX_INFLUENCE_GRAPH_NODES = 20_000  #: nodes of the largest graph for which influence is computed
MIN_BAND_NODES = 30  #: fewest nodes of a distance band whose point is joined by a line
CURVE_OFFSET = 0.09  #: horizontal offset between curves, as a fraction of the band spacing
MAX_CHOSEN_PAIRS = 2_000_000  #: returned (node, key) pairs over all heads and layers: 16 MB


def predict_record(
    run: str | os.PathLike[str] | OpenedRun,
    *,
    split: str = "test",
    position: int = 0,
    home: Home | None = None,
    device: str | None = None,
    max_pairs: int = MAX_CHOSEN_PAIRS,
) -> tuple[OpenedRun, GraphPredictions]:
    """Predict one record of a part with the best weights of ``run``, in eval mode.

    A run on a single graph ignores the part. If there are more than ``max_pairs`` chosen keys, only
    the keys of a fixed sample of nodes are returned. Raises the errors of
    :func:`~kmip_data.models.training.run.evaluate_run.evaluate`, and ``UsageError`` if the part or the
    record does not exist.
    """
    opened = run if isinstance(run, OpenedRun) else open_run(run, home=home, device=device)
    data = opened.data
    data.check_part(split)
    if data.task.stored_type is not None:
        trained_task = opened.config.training.task
        raise UsageError(
            f"The run was trained with training.task={trained_task}, but a page shows targets as stored.",
            steps=Command("kmip-data predict", opened.folder),
        )
    count = 1 if data.part_members == "nodes" else data.sizes[split]
    if not 0 <= position < count:
        raise UsageError(
            f"The part {split} has no record {position}: give a record from 0 to {count - 1}.",
            steps=Setting(record=count - 1),
        )
    batch = data.record_batch(split, position)
    with (
        opened.load_for_inference("exploring") as module,
        collect_projections(module.model) as projections,
    ):
        on_device = batch.to(opened.device.type)
        outputs = module(on_device)[0]
        logits = outputs.float().cpu()
    nodes, layers = search_chosen_keys(projections, int(batch.num_nodes), max_pairs)

    # A page colours nodes by class or value, and prints a graph's prediction as text.
    task = data.task
    card = data.build.card
    graph_label = ""
    classes = None
    values = None
    column = target_column(card.schema_)
    if task.level == "graph" and column is not None:
        prediction = prediction_from_logits(task, logits[0])
        graph_label = label_text(column, prediction, card.class_names)
    if task.level == "node" and task.target_type == "classification":
        classes = logits.argmax(dim=-1).numpy()
    if (task.level, task.target_type, task.outputs) == ("node", "regression", 1):
        values = logits[:, 0].numpy()

    predictions = GraphPredictions(
        "/".join(opened.folder.parts[-3:]),
        data.split_name,
        classes,
        graph_label,
        nodes.numpy(),
        tuple(layers),
        values=values,
    )
    return opened, predictions


def influence_of(opened: OpenedRun, split: str = "test", position: int = 0) -> Influence | None:
    """Return the influence of every node's features on the largest output of a fixed sample of nodes.

    Message passing reaches one hop per layer; k-MIP reaches every node. Returns None for graph-level
    tasks, for graphs without float features, and for graphs of more than 20,000 nodes, which take
    too long.
    """
    record = opened.data.record_batch(split, position)
    batch = record.to(opened.device.type)
    count = int(batch.num_nodes)
    has_float_features = isinstance(batch.x, Tensor) and batch.x.is_floating_point()
    if count > MAX_INFLUENCE_GRAPH_NODES or not has_float_features:
        return None

    generator = np.random.Generator(np.random.PCG64(0))
    sample = generator.choice(count, min(count, NUM_INFLUENCE_NODES), replace=False)
    with opened.load_module() as module, torch.compiler.set_stance("force_eager"):
        module.activity = "exploring"
        batch.x = batch.x.clone().requires_grad_()
        outputs = module.eval()(batch)[0]
        if len(outputs) != count:  # a graph-level task
            return None
        # One backward pass per node, for the score of the predicted class.
        best = outputs.amax(1, keepdim=True)
        by_node = [node_influence(best, batch.x, node) for node in sample.tolist()]
        values = np.stack(by_node)
    # JSON has no NaN or infinity, which an overflowing network returns.
    values[~np.isfinite(values)] = 0.0

    edges = read_batch(batch).edges.index
    by_hop = influence_by_hop(values, edges, sample.tolist(), INFLUENCE_HOPS)
    return Influence(sample, values, list(enumerate(by_hop.tolist()))[1:])


def node_influence(outputs: Tensor, x: Tensor, node: int) -> F64:
    """Return Σ |∂ outputs[node, c] / ∂ x[u, f]| over c and f for every node u: (N,) float64.

    ``outputs`` (N, C) must be computed from ``x`` (N, F), which requires a gradient. Each output
    takes one backward pass. k-MIP attention is differentiated through the chosen pairs, as in
    training.
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
    """Sum influence ``values`` (S, N) on S ``nodes`` by distance: (hops + 1,).

    Sums are relative to the influence of the nodes on themselves.
    """
    # Messages pass from source to target, so distances are counted against the edges.
    source, target = edge_index.cpu().numpy()
    count = values.shape[1]
    entries = (np.ones(len(source)), (target, source))
    backwards = coo_array(entries, (count, count)).tocsr()
    distances = np.asarray(dijkstra(backwards, indices=nodes, unweighted=True))

    totals = [float(values[distances == hop].sum()) for hop in range(hops + 1)]
    return np.array(totals) / (totals[0] or 1.0)  # 0: the output does not depend on the node


def prediction_from_logits(task: Task, logits: Tensor) -> Array:
    """Convert logits (outputs,) to a prediction: a class, labels, or values."""
    if task.target_type == "classification":
        return logits.argmax().numpy()
    if task.target_type == "multilabel":
        return (logits > 0).numpy()
    return logits.numpy()


def search_chosen_keys(
    projections: Mapping[KMIPAttention, list[Projections]], count: int, max_pairs: int
) -> tuple[Tensor, list[ChosenKeys]]:
    """Return nodes (S,) of a graph of ``count`` nodes, and the keys that each layer chose for them.

    Returns all nodes, or a fixed sample with at most ``max_pairs`` pairs over all layers.
    """
    pairs_per_node = sum(layer.heads * layer.k for layer in projections)
    size = min(count, max_pairs // max(1, pairs_per_node))
    generator = np.random.Generator(np.random.PCG64(0))
    sample = generator.choice(count, size, replace=False)
    nodes = torch.from_numpy(np.sort(sample))

    # Layers do not return chosen keys: repeat the search with the collected projections.
    layers = []
    for layer, ((queries, keys, values),) in projections.items():
        attended = kmip_attention_with_weights(
            queries.float(),
            keys.float(),
            values.float(),
            layer.k,
            repeat_first_key=layer.legacy_padding,
        )
        indices = attended.indices[:, nodes]
        weights = attended.weights[:, nodes].masked_fill(indices < 0, 0)
        layers.append(ChosenKeys(indices.numpy(), weights.numpy()))
    return nodes, layers


def counts_by_class(run: str | Path, **options: Any) -> dict[str, object]:
    """Return class ``names``, and per part the number of ``rows`` and of ``right`` predictions by class.

    ``options`` are passed to :func:`~kmip_data.models.training.run.finished_run.open_run`. Raises
    ``UsageError`` unless the run predicts one class per node or graph.
    """
    opened = open_run(run, **options)
    with opened.load_module() as module:
        if module.task.target_type != "classification":
            raise UsageError(f"{run} does not predict one class.", steps=Setting(by_class=None))
        device = torch.device(opened.device.type)
        metrics = accumulate_metrics(module, opened.data, opened.parts, device)
    rows = {}
    right = {}
    classes = 0
    for part, part_metrics in metrics.items():
        confusion = (
            part_metrics.accumulator.compute().long()
        )  # (C, C), true class by predicted class
        rows[part] = confusion.sum(1).tolist()
        right[part] = confusion.diag().tolist()
        classes = len(confusion)

    build = opened.data.build
    names = list(build.card.class_names) or [str(index) for index in range(classes)]
    return {"names": names, "rows": rows, "right": right}


#: Smallest distance of each band: single distances up to the reach of a small network, then ranges.
BAND_STARTS = (1, 2, 3, 4, 5, 7, 9, 13, 19, 27, 39, 55, 79, 111)


@dataclass(frozen=True)
class MetricByDistance:
    """Metric of a run in each non-empty band of distances."""

    metric: str  #: ``accuracy``, a fraction; or ``mae``, in the unit of the target
    bands: tuple[str, ...]  #: distances in edges, such as ``5`` and ``9–12``
    nodes: tuple[int, ...]  #: number of nodes in each band
    values: tuple[float, ...]  #: metric of each band

    def formatted_values(self) -> list[str]:
        """Format the values, fractions in percent."""
        return [format_metric_with_unit(self.metric, value) for value in self.values]


def evaluate_by_distance(
    run: str | os.PathLike[str], *, split: str = "test", **options: Any
) -> MetricByDistance | None:
    """Evaluate the best weights of ``run`` on a part, grouped by the column ``distance``.

    Returns None without that column. Nodes at distance 0 are left out, as their target is their own
    input. Takes the options, and raises the errors, of
    :func:`~kmip_data.models.training.run.evaluate_run.evaluate`.
    """
    run_data = open_run(run, **options).data
    build = run_data.build
    columns = {column.key for column in build.card.schema_.columns}
    if "node/distance" not in columns:
        return None

    predictions = predict(run, split=split, **options)
    assert predictions.origin is not None, "a run's predictions record their origin"
    assert predictions.pred is not None, "nodes with a distance have classes or values"
    part = None if split == ALL_RECORDS else split
    dataset = ShardedDataset(build, part, split_name=predictions.origin.split)
    distance = torch.cat([data.distance for data in dataset]).numpy()
    target = torch.cat([run_data.task.targets(data) for data in dataset]).numpy()

    if predictions.origin.target_type == "classification":
        metric = "accuracy"
        node_values = predictions.pred == target
    else:
        metric = "mae"
        node_values = np.abs(predictions.pred - target).mean(-1)

    names = []
    nodes = []
    means = []
    # A node belongs to the last band that starts at or below its distance; −1: distance 0.
    node_bands = np.searchsorted(BAND_STARTS, distance, side="right") - 1
    for band in np.unique(node_bands[node_bands >= 0]).tolist():
        values = node_values[node_bands == band]
        names.append(_band_name(band))
        nodes.append(len(values))
        means.append(float(values.mean()))
    return MetricByDistance(metric, tuple(names), tuple(nodes), tuple(means))


def _band_name(band: int) -> str:
    """Return the distances of a band: ``5``, ``9–12``, or ``111+`` for the last one."""
    first = BAND_STARTS[band]
    if band + 1 == len(BAND_STARTS):
        return f"{first}+"
    last = BAND_STARTS[band + 1] - 1
    return str(first) if last == first else f"{first}–{last}"


@in_current_style()
def draw_metric_by_distance(
    runs: Mapping[str, MetricByDistance],
    path: Path,
    *,
    title: str,
    chance: float | None,
) -> None:
    """Draw a curve for each run on the same data, and a line at ``chance``, the accuracy of guessing.

    Curves are slightly offset, with the first one in front, so that equal curves stay visible. Each
    band is labelled with its number of nodes; points of fewer than :data:`MIN_BAND_NODES` are hollow
    and not joined.
    """
    figure = new_figure(8, 4.5, title=title)
    axes = figure.subplots()
    first = next(iter(runs.values()))
    steps = np.arange(len(first.bands), dtype=np.float64)
    is_large = np.array(first.nodes) >= MIN_BAND_NODES
    for index, ((name, run), marker) in enumerate(zip(runs.items(), cycle("os^vDX"))):
        x = steps + CURVE_OFFSET * (index - (len(runs) - 1) / 2)
        values = np.array(run.values)
        color = current_style().palette[index % CURVE_HUES]
        order = 3 + len(runs) - index
        style = {"color": color, "marker": marker, "markersize": 6, "zorder": order}
        axes.plot(x[is_large], values[is_large], label=name, **style)
        axes.plot(
            x[~is_large],
            values[~is_large],
            linestyle="none",
            markerfacecolor=current_style().background_color,
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
            color=current_style().secondary_color,
            linewidth=1,
            label="a guess",
        )
    if metric == "accuracy":
        axes.set_ylim(-0.03, 1.03)  # do not clip markers at 0 and 1
        axes.yaxis.set_major_formatter(lambda fraction, _: f"{100 * fraction:g} %")
    xlabel = "edges between a node and the node that its target depends on, and number of nodes"
    if not is_large.all():
        xlabel += f"\nhollow: fewer than {MIN_BAND_NODES} nodes, so one prediction counts a lot"
    axes.set(xlabel=xlabel, ylabel=metric)
    axes.grid()
    figure.legend(loc="outside right upper", frameon=False)
    save_figure(figure, path)
