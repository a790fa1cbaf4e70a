"""Explorer page: one file with graphs, predictions and attention of runs, and learning curves."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from kmip_data.arrays import F32, F64, I64, U8
from kmip_data.drawing.layers import Scale
from kmip_data.drawing.page_graph import PageGraph
from kmip_data.drawing.page_layers import ArrayPacker, Json
from kmip_data.drawing.style import (
    FONT,
    STYLES,
    Style,
    colors_by_background,
    diverging_colors,
    sequential_colors,
)
from kmip_data.files.atomic_writes import write_output
from kmip_data.files.page_templates import asset_text, page_template

ASSETS = "kmip_data.drawing"  #: package with templates, scripts and style sheets
EXPLORER_NAME = "explore.html"  #: file name in the folder of a build or run
DECADES = 4  #: decades shown below the strongest influence, as in ``influence.js``
#: Scripts, in loading order.
SCRIPTS = (
    "elements.js", "data.js", "drawing.js", "view.js", "ball.js", "routes.js", "figures.js", "legend.js",
    "influence.js", "labels.js", "cells.js", "share.js", "page.js", "explore.js",
)  # fmt: skip


@dataclass(frozen=True)
class ChosenKeys:
    """Keys chosen by the heads of one k-MIP layer for the S nodes in :attr:`GraphPredictions.nodes`."""

    indices: I64  #: (H, S, k) chosen nodes, best first; −1 for none
    weights: F32  #: (H, S, k) softmax weights; 0 without a key


@dataclass(frozen=True)
class GraphPredictions:
    """Predictions of a run's best weights for one graph."""

    run: str  #: path below ``runs/``
    split: str | None  #: split of the build that the run was trained with
    classes: I64 | None  #: (N,) predicted classes; None for other tasks
    prediction_text: str  #: formatted prediction for the graph, or empty
    nodes: I64  #: (S,) sorted nodes whose chosen keys are in ``attention_layers``
    attention_layers: tuple[ChosenKeys, ...]  #: chosen keys of each k-MIP layer
    values: F32 | None = None  #: (N,) predicted values of a node regression

    def of_nodes(self, nodes: I64) -> GraphPredictions:
        """Return the predictions for ``nodes`` (n,) of the graph, without attention."""
        classes = None if self.classes is None else self.classes[nodes]
        values = None if self.values is None else self.values[nodes]
        return replace(self, classes=classes, values=values, attention_layers=())


@dataclass(frozen=True)
class Influence:
    """Influence of all nodes of a graph on the outputs of S nodes."""

    nodes: I64  #: (S,)
    values: F64  #: (S, N) sum of absolute derivatives with respect to each node's features
    #: distance in hops, and influence of all nodes there relative to the node itself
    by_hop: list[tuple[int, float]]

    def log_levels(self) -> U8:
        """Return logarithmic levels (S, N): 255 for the strongest other node, 0 for no influence."""
        rows = np.arange(len(self.nodes))
        without_self = self.values.copy()
        without_self[rows, self.nodes] = 0
        strongest = without_self.max(axis=1, keepdims=True)
        values = np.where(self.values > 0, self.values, 1.0)
        ratios = values / np.where(strongest > 0, strongest, 1.0)
        heights = np.clip(1 + np.log10(ratios) / DECADES, 0, 1)
        levels = np.rint(255 * heights).clip(1)
        return np.where(self.values > 0, levels, 0).astype(np.uint8)


def write_explorer_page(
    graphs: Sequence[tuple[PageGraph, *tuple[GraphPredictions | None, ...]]],
    curves: Sequence[Json],
    path: Path,
) -> None:
    """Write a page in one file that works offline.

    The page shows the first of the ``graphs``, and the others on request. A graph can be moved and
    zoomed by mouse, touch and keys, and coloured by layer (initially the first) or column. All
    columns of the node under the pointer are shown, without loss.

    Each graph comes with the predictions and attention of one run, of two runs to compare, or None.
    ``curves`` are learning curves: runs with a ``name``, ``columns`` of pairs (epoch from 1, value),
    the ``best`` epoch, rows of ``answers`` on test (name, value), a ``group`` whose members differ
    only in the seed, and, for the first graph, an optional ``influence``. Of these, two are
    compared, from different models if possible.
    """
    graph = graphs[0][0]
    graph.header["ramp"] = colors_by_background(lambda: sequential_colors(32))
    graph.header["diverging"] = colors_by_background(lambda: diverging_colors(33))
    for page_graph, *run_predictions in graphs:
        explore = page_graph.header["explore"]
        explore["curves"] = [{key: run[key] for key in run if key != "influence"} for run in curves]
        predictions = [entry for entry in run_predictions if entry]
        if predictions:
            explore.update(_predictions_for_page(page_graph, predictions))
    with_influence = [run for run in curves if run.get("influence")]
    graph.header["explore"]["influence"] = [
        {
            "name": run["name"],
            "nodes": graph.packer.add(run["influence"].nodes.astype(np.uint32)),
            "values": graph.packer.add(run["influence"].log_levels()),
        }
        for run in runs_to_compare(with_influence)
    ]

    for following, *_ in graphs[1:]:
        for text in ("about", "docs", "options"):
            following.header.pop(text, None)  # as of the first
    records = [
        {"header": _graph_header(shown), "data": shown.packer.to_base64()} for shown, *_ in graphs
    ]
    script = "\n".join(asset_text(ASSETS, name) for name in SCRIPTS)
    page = page_template(ASSETS, "page.html").render(
        title=graph.title,
        credit=graph.credit,
        style=page_style(),
        records=records,
        script=re.sub(r"(?m)(^| )// .*", "", script),  # without comments
    )
    write_output(path, page.encode())


def _graph_header(graph: PageGraph) -> str:
    """Return the JSON header of a graph for the page."""
    header = json.dumps(graph.header, separators=(",", ":"))
    return header.replace("<", "\\u003c")  # "</script>" in a name must not end the element


def page_style() -> str:
    """Return the style sheet for light and dark mode, with the plots' colours and fonts."""
    light = _css_variables(STYLES["light"])
    dark = _css_variables(STYLES["dark"])
    return f"{light}\n@media (prefers-color-scheme: dark) {{ {dark} }}\n{asset_text(ASSETS, 'page.css')}"


def _css_variables(style: Style) -> str:
    """Return the CSS rule that sets the variables of the style sheet."""
    variables = {
        "ground": style.background_color,
        "ink": style.text_color,
        "pale": style.secondary_color,
        "green": style.green_color,
        "water": style.water_color,
        "line": style.line_color,
        "missing": style.missing,
        "font": f'"{FONT}"',
    }
    variables |= {f"hue-{number}": color for number, color in enumerate(style.palette)}
    lines = [f"--{name}: {value};" for name, value in variables.items()]
    return f":root {{ {' '.join(lines)} }}"


def _predictions_for_page(graph: PageGraph, predictions: Sequence[GraphPredictions]) -> Json:
    """Return the predictions of one or two runs, and the chosen keys of the first with k-MIP layers."""
    runs: list[Json] = [
        {"run": prediction.run, "words": prediction.prediction_text} for prediction in predictions
    ]
    result: Json = {"runs": runs, "split": predictions[0].split}

    for prediction in predictions:
        if prediction.attention_layers:
            _add_attention(graph, prediction)
            result["keys"] = {
                **_pack_chosen_keys(prediction, graph.header["x"]["count"], graph.packer),
                "run": prediction.run,
            }
            break
    return result


def runs_to_compare(runs: Sequence[Json]) -> Sequence[Json]:
    """Return the first run and one of another model, or else the first two."""
    models = [run["name"].split("/")[-2:-1] for run in runs]
    for run, model in zip(runs, models, strict=True):
        if model != models[0]:
            return [runs[0], run]
    return runs[:2]


def _add_attention(graph: PageGraph, predictions: GraphPredictions) -> None:
    """Add a layer with the attention that each node receives as a key."""
    count = graph.header["x"]["count"]
    heads = 0
    received = np.zeros(count)
    for layer in predictions.attention_layers:
        heads += len(layer.indices)
        is_chosen = layer.indices >= 0
        received += np.bincount(layer.indices[is_chosen], layer.weights[is_chosen], count)
    queries = max(1, len(predictions.nodes))
    values = (received * count / (heads * queries)).astype(np.float32)

    note = "received by a node as a key, mean over layers and heads; even: the same for all"
    attention = Scale("attention", values, "× even", note, center=1)
    graph.header["layers"].append(graph.packer.add_layer(attention))


def _pack_chosen_keys(predictions: GraphPredictions, count: int, packer: ArrayPacker) -> Json:
    """Pack the chosen keys of each layer as (S, H, k), so that a node's keys are contiguous.

    Keys have the narrowest dtype for ``count`` nodes, where ``count`` means none. Weights are in
    units of 1/65,535.
    """
    key_dtype = np.uint16 if count < 2**16 else np.uint32
    layers = []
    for layer in predictions.attention_layers:
        heads, _, k = layer.indices.shape
        indices = layer.indices.transpose(1, 0, 2)
        keys = packer.add(np.where(indices < 0, count, indices).astype(key_dtype))

        scaled_weights = np.rint(layer.weights.transpose(1, 0, 2) * 65_535)
        weights = packer.add(scaled_weights.astype(np.uint16))
        layers.append(
            {
                "heads": heads,
                "k": k,
                "indices": keys,
                "weights": weights,
            }
        )
    nodes = packer.add(predictions.nodes.astype(np.uint32))
    return {"nodes": nodes, "all": len(predictions.nodes) == count, "layers": layers}
