"""Explorer page: a graph, predictions and attention of a run, and learning curves, in one file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kmip_data.arrays import F32, F64, I64, U8
from kmip_data.drawing.graphs import Json, Packer, PageGraph
from kmip_data.drawing.run_predictions import distinguishing_names
from kmip_data.drawing.style import STYLES, Style
from kmip_data.files.atomic_writes import write_output
from kmip_data.files.page_templates import asset_text, page_template

ASSETS = "kmip_data.drawing"  #: package with templates, scripts and style sheets
PAGE = "explore.html"  #: in the folder of a build or run
DECADES = 4  #: levels below the strongest influence, also in ``influence.js``
#: Scripts, in loading order.
SCRIPTS = (
    "elements.js", "data.js", "drawing.js", "view.js", "ball.js", "figures.js", "legend.js", "influence.js",
    "page.js", "explore.js",
)  # fmt: skip


@dataclass(frozen=True)
class ChosenKeys:
    """Keys that the heads of one k-MIP layer chose for the S nodes in :attr:`GraphPredictions.nodes`."""

    indices: I64  #: (H, S, k) nodes of the graph, the best first; −1: none
    weights: F32  #: (H, S, k) softmax weights, 0 without a key


@dataclass(frozen=True)
class GraphPredictions:
    """Predictions of a run's best weights for one graph."""

    run: str  #: its path below ``runs/``
    split: str | None  #: split of the build with the train and val nodes that the run has seen
    classes: I64 | None  #: (N,) predicted classes; None for other tasks
    words: str  #: prediction for the graph; empty without one
    nodes: I64  #: (S,), sorted nodes whose chosen keys are in ``layers``
    layers: tuple[ChosenKeys, ...]  #: chosen keys of each k-MIP layer
    values: F32 | None = None  #: (N,) predicted values of a node regression


@dataclass(frozen=True)
class Influence:
    """Influence of all nodes of a graph on the outputs of S of them."""

    nodes: I64  #: (S,)
    values: F64  #: (S, N) sum of the absolute derivatives by the features of each node
    #: distance in hops, and influence of all nodes there relative to the node's own
    by_hop: list[tuple[int, float]]

    def log_levels(self) -> U8:
        """Return (S, N) logarithmic levels relative to the strongest other node: 255, and 0 for no influence."""
        rows = np.arange(len(self.nodes))
        others = self.values.copy()
        others[rows, self.nodes] = 0
        most = others.max(axis=1, keepdims=True)
        values = np.where(self.values > 0, self.values, 1.0)
        shares = values / np.where(most > 0, most, 1.0)
        heights = np.clip(1 + np.log10(shares) / DECADES, 0, 1)
        steps = np.rint(255 * heights).clip(1)
        return np.where(self.values > 0, steps, 0).astype(np.uint8)


def draw_explorer(
    graphs: Sequence[tuple[PageGraph, *tuple[GraphPredictions | None, ...]]],
    curves: Sequence[Json],
    path: Path,
) -> None:
    """Write a page in one file that works offline.

    The first of the ``graphs`` is shown, and the others on request. It can be moved and zoomed by
    mouse, touch and keys, and coloured by layers (initially the first) and columns; all columns of
    the node under the pointer are shown, without loss.

    A graph's answers have the predictions and attention of one run, or of two to be compared; None
    for the graph alone. ``curves`` are learning curves: runs with a ``name``, ``columns`` of pairs
    (epoch from 1, value), the ``best`` epoch, a ``group`` whose members differ only in the seed,
    and, if it belongs to this graph, an ``influence``. Two of these, if possible of different
    models, are compared.
    """
    graph = graphs[0][0]
    title = graph.title
    if curves:
        names = [run["name"].partition("/")[2] for run in runs_to_compare(curves)]
        title = f"{' and '.join(names)} on {curves[0]['name'].partition('/')[0]}"

    without_influence = []
    with_influence = []
    for run in curves:
        without_influence.append({key: run[key] for key in run if key != "influence"})
        if run.get("influence") is not None:
            with_influence.append(run)

    for shown, *run_answers in graphs:
        explore = shown.header["explore"]
        explore["curves"] = without_influence
        explore["influence"] = []
        answers = [answer for answer in run_answers if answer is not None]
        if answers:
            explore.update(_predictions_for_page(shown, answers))
        if curves:
            shown.header["about"] = shown.title
    for run in runs_to_compare(with_influence):
        influence = {
            "name": run["name"],
            "nodes": graph.packer.add(run["influence"].nodes.astype(np.uint32)),
            "values": graph.packer.add(run["influence"].log_levels()),
        }
        graph.header["explore"]["influence"].append(influence)

    following = [
        {"header": _graph_header(other), "data": other.packer.to_base64()}
        for other, *_ in graphs[1:]
    ]
    page = page_template(ASSETS, "page.html").render(
        title=title,
        credit=graph.credit,
        thing=graph.thing,
        style=page_style(),
        header=_graph_header(graph),
        following=following,
        data=graph.packer.to_base64(),
        script="\n".join(asset_text(ASSETS, name) for name in SCRIPTS),
    )
    write_output(path, page.encode())


def _graph_header(graph: PageGraph) -> str:
    """Return the JSON of a graph for the page."""
    header = json.dumps({**graph.header, "thing": graph.thing}, separators=(",", ":"))
    return header.replace("<", "\\u003c")  # no "</script>" in a name ends the element


def page_style() -> str:
    """Return the style sheet for light and dark mode, with the colours and fonts of plots."""
    light = _css_variables(STYLES["light"])
    dark = _css_variables(STYLES["dark"])
    return f"{light}\n@media (prefers-color-scheme: dark) {{ {dark} }}\n{asset_text(ASSETS, 'page.css')}"


def _css_variables(style: Style) -> str:
    """Return the rule that sets the variables of the style sheet."""
    variables = {
        "ground": style.ground,
        "ink": style.ink,
        "pale": style.quiet,
        "line": style.faint,
        "missing": style.missing,
        "link": style.palette[0],
        "font": f'"{style.font}"',
    }
    for number, color in enumerate(style.palette):
        variables[f"hue-{number}"] = color
    lines = [f"--{name}: {value};" for name, value in variables.items()]
    return f":root {{ {' '.join(lines)} }}"


def _predictions_for_page(graph: PageGraph, answers: Sequence[GraphPredictions]) -> Json:
    """Return the predictions of one or two runs, and the keys that the first with k-MIP layers chose."""
    suffixes = [""]
    if len(answers) > 1:
        _, second = distinguishing_names(answers[0].run, answers[1].run)
        suffixes.append(f" ({second})")
    runs = []
    for answer, suffix in zip(answers, suffixes, strict=True):
        run: Json = {"run": answer.run, "words": answer.words, "suffix": suffix}
        if answer.classes is not None and graph.truth is not None:
            measured = graph.test & (graph.truth >= 0)
            truth = graph.truth[measured]
            predicted = answer.classes[measured]
            run["names"] = graph.names
            run["measured"] = "all" if graph.test.all() else "test"
            run["confusion"] = confusion_matrix(truth, predicted, len(graph.names)).tolist()
        runs.append(run)
    shown: Json = {"runs": runs, "split": answers[0].split}

    for answer in answers:
        if answer.layers:
            _add_attention(graph, answer)
            shown["keys"] = {
                **_pack_chosen_keys(answer, len(graph.test), graph.packer),
                "run": answer.run,
            }
            break
    return shown


def runs_to_compare(runs: Sequence[Json]) -> Sequence[Json]:
    """Return the first run and one of another model, else the second."""
    models = [run["name"].split("/")[-2:-1] for run in runs]
    for run, model in zip(runs, models, strict=True):
        if model != models[0]:
            return [runs[0], run]
    return runs[:2]


def _add_attention(graph: PageGraph, answer: GraphPredictions) -> None:
    """Add the attention that each node receives as a key, as a layer of colour."""
    count = len(graph.test)
    heads = 0
    received = np.zeros(count)
    for layer in answer.layers:
        heads += len(layer.indices)
        chosen = layer.indices >= 0
        received += np.bincount(layer.indices[chosen], layer.weights[chosen], count)
    queries = max(1, len(answer.nodes))
    values = (received * count / (heads * queries)).astype(np.float32)

    layer_facts = {
        "name": "attention",
        "note": "received by a node as a key, mean over layers and heads; 1 if evenly distributed",
        "unit": "",
    }
    column_facts = {"name": "attention", **graph.packer.add_column(values)}
    graph.header["layers"].append(layer_facts)
    graph.header["columns"].insert(0, column_facts)


def _pack_chosen_keys(answer: GraphPredictions, count: int, packer: Packer) -> Json:
    """Pack chosen keys, (S, H, k) of each layer, so that a node's keys are contiguous.

    Keys have the narrowest dtype for ``count`` nodes, and ``count`` means none. Weights are in
    65,535ths.
    """
    narrow = np.uint16 if count < 2**16 else np.uint32
    layers = []
    for layer in answer.layers:
        heads, _, k = layer.indices.shape
        indices = layer.indices.transpose(1, 0, 2)
        keys = packer.add(np.where(indices < 0, count, indices).astype(narrow))

        shares = np.rint(layer.weights.transpose(1, 0, 2) * 65_535)
        weights = packer.add(shares.astype(np.uint16))
        layers.append(
            {
                "heads": heads,
                "k": k,
                "indices": keys,
                "weights": weights,
            }
        )
    nodes = packer.add(answer.nodes.astype(np.uint32))
    return {"nodes": nodes, "all": len(answer.nodes) == count, "layers": layers}


def confusion_matrix(truth: I64, predicted: I64, count: int) -> I64:
    """Return the confusion matrix (C, C), true class by predicted class."""
    cells = np.bincount(truth * count + predicted, minlength=count * count)
    return cells.reshape(count, count)
