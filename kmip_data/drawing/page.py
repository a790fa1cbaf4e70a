"""The explorer's page: a graph, what a run predicts and attends to, and learning curves, in one file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from kmip_data.arrays import F32, F64, I64, U8
from kmip_data.drawing.graphs import Facts, Graph, Packer
from kmip_data.drawing.style import STYLES, Style
from kmip_data.files.changes import write_output

PAGE = "explore.html"  #: in the folder of a build or run
DECADES = 4  #: distinguished below the strongest influence, also in ``influence.js``
#: Scripts, in the order in which they are read.
SCRIPTS = (
    "elements.js", "data.js", "drawing.js", "view.js", "ball.js", "figures.js", "legend.js", "influence.js",
    "page.js", "explore.js",
)  # fmt: skip


@dataclass(frozen=True)
class ChosenKeys:
    """Keys that the heads of one k-MIP layer chose for the S nodes in :attr:`Answer.nodes`."""

    indices: I64  #: (H, S, k) nodes of the graph, the best first; −1: none
    weights: F32  #: (H, S, k) of the softmax, 0 if none


@dataclass(frozen=True)
class Answer:
    """Predictions of a run's best weights for one graph."""

    run: str  #: its path below ``runs/``
    split: str | None  #: one of the build's, whose train and val nodes the run has seen
    classes: I64 | None  #: (N,) as predicted; None where the run classifies no nodes
    words: str  #: prediction for the graph; empty without one
    nodes: I64  #: (S,), sorted: those whose chosen keys are in ``layers``
    layers: tuple[ChosenKeys, ...]  #: of each k-MIP layer; none where the network has none
    values: F32 | None = None  #: (N,) as predicted, where the run predicts one number for each node


@dataclass(frozen=True)
class Influence:
    """Influence of all nodes of a graph on the outputs of S of them."""

    nodes: I64  #: (S,)
    values: F64  #: (S, N) sum of the absolute derivatives by the features of each node
    #: distance in hops, and what all nodes there have of a node's own
    by_hop: list[tuple[int, float]]

    def levels(self) -> U8:
        """Return (S, N) logarithms relative to the strongest other node: 255, and 0 for none at all."""
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
    graph: Graph,
    answer: Answer | None,
    curves: Sequence[Any],
    path: Path,
    others: Sequence[tuple[Graph, Answer | None]] = (),
) -> None:
    """Write one file that needs no network.

    The graph can be moved and zoomed by mouse, fingers and keys, coloured by its layers (the first
    when it opens) and by every column, and shows all columns, without loss, of the node that is
    pointed at.

    ``answer`` is what a run predicts and attends to; None for the graph alone. ``curves`` are
    learning curves: runs with a ``name``, ``columns`` of pairs (epoch from 1, value), a ``group``
    whose members differ in the seed alone, and, where it is of this very graph, an ``influence``.
    Two of these, if possible of two models, are shown next to each other. ``others`` are records
    that follow, each with its answer.
    """
    compared = [_name(run["name"]) for run in _compared(curves)]
    title = graph.title
    if compared:
        graph.header["about"] = graph.title
        title = f"{' and '.join(compared)} on {curves[0]['name'].split('/')[0]}"

    explore = graph.header["explore"]
    without_influence = []
    with_influence = []
    for run in curves:
        without_influence.append({key: run[key] for key in run if key != "influence"})
        if run.get("influence") is not None:
            with_influence.append(run)

    explore["curves"] = without_influence
    if answer is not None:
        explore.update(_answered(graph, answer))
    explore["influence"] = [
        {
            "name": run["name"],
            "nodes": graph.packer.add(run["influence"].nodes.astype(np.uint32)),
            "values": graph.packer.add(run["influence"].levels()),
        }
        for run in _compared(with_influence)
    ]

    following = []
    for other, said in others:
        about = other.header["explore"]
        about["curves"] = without_influence
        about["influence"] = []
        if said is not None:
            about.update(_answered(other, said))
            other.header["about"] = other.title
        header = _header(other)
        following.append(
            f'<script type="application/json" class="header">{header}</script>'
            f'<script type="text/plain" class="data">{other.packer.text()}</script>'
        )
    fields = {
        "title": escape(title),
        "credit": escape(graph.credit),
        "thing": graph.thing,
        "style": page_style(),
        "header": _header(graph),
        "following": "\n".join(following),
        "data": graph.packer.text(),
        "script": "\n".join(map(asset, SCRIPTS)),
    }
    write_output(path, filled("page.html", fields).encode())


def _header(graph: Graph) -> str:
    """Return what the page reads of a graph, as JSON."""
    header = json.dumps({**graph.header, "thing": graph.thing}, separators=(",", ":"))
    return header.replace("<", "\\u003c")  # no "</script>" in a name ends the element


def _name(run: str) -> str:
    """Return model and name of a run, from its path below ``runs/``."""
    return "/".join(str(run).split("/")[1:])


def filled(template: str, fields: Mapping[str, str]) -> str:
    """Return a template with its ``{{fields}}``."""
    # Inserted by a function, so that the text of a field is neither a pattern nor filled in again.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: fields[match[1]], asset(template))


def asset(name: str) -> str:
    """Return the text of a script, style sheet or template."""
    return (files("kmip_data.drawing") / "assets" / name).read_text("utf-8").rstrip()


def page_style() -> str:
    """Return the style sheet, with the colours and fonts of pictures, for light and dark mode."""
    light = _variables(STYLES["light"])
    dark = _variables(STYLES["dark"])
    return f"{light}\n@media (prefers-color-scheme: dark) {{ {dark} }}\n{asset('page.css')}"


def _variables(style: Style) -> str:
    """Return the rule that sets the variables of the style sheet."""
    variables = {
        "ground": style.ground,
        "ink": style.ink,
        "pale": style.quiet,
        "line": style.faint,
        "link": style.palette[0],
        "font": f'"{style.font}"',
    }
    for number, color in enumerate(style.palette):
        variables[f"hue-{number}"] = color
    lines = [f"--{name}: {value};" for name, value in variables.items()]
    return f":root {{ {' '.join(lines)} }}"


def _answered(graph: Graph, answer: Answer) -> Facts:
    shown: Facts = {
        "run": answer.run,
        "words": answer.words,
        "split": answer.split,
    }
    if answer.classes is not None and graph.truth is not None:
        measured = graph.test
        truth = graph.truth[measured]
        predicted = answer.classes[measured]
        shown["names"] = graph.names
        shown["measured"] = "all" if measured.all() else "test"
        shown["confusion"] = confusion(truth, predicted, len(graph.names)).tolist()
    if answer.layers:
        _add_attention(graph, answer)
        shown["keys"] = _keys(answer, len(graph.test), graph.packer)
    return shown


def _compared(runs: Sequence[Any]) -> Sequence[Any]:
    """Return the first run and one of another model, else the second."""
    for run in runs:
        if _model(run) != _model(runs[0]):
            return [runs[0], run]
    return runs[:2]


def _model(run: Mapping[str, Any]) -> list[str]:
    """Return the folder of a run's model, in a list; an empty one where its name has none."""
    return str(run["name"]).split("/")[-2:-1]


def _add_attention(graph: Graph, answer: Answer) -> None:
    """Add the weights that each node receives as a key, by which the page can be coloured."""
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
        "note": "that queries give a node as a key, over layers and heads; 1 is its share",
        "unit": "",
    }
    column_facts = {"name": "attention", **graph.packer.add_column(values)}
    graph.header["layers"].append(layer_facts)
    graph.header["columns"].insert(0, column_facts)


def _keys(answer: Answer, count: int, packer: Packer) -> Facts:
    """Chosen keys, (S, H, k) of each layer: those of a node lie together.

    A key is a number as narrow as ``count`` nodes allow, ``count`` for none; a weight is in
    65,535ths, of nine significant bits: within 0.2 %, and compressed to three fifths of all
    sixteen.
    """
    narrow = np.uint16 if count < 2**16 else np.uint32
    layers = []
    for layer in answer.layers:
        heads, _, k = layer.indices.shape
        indices = layer.indices.transpose(1, 0, 2)
        keys = packer.add(np.where(indices < 0, count, indices).astype(narrow))

        parts = np.rint(layer.weights.transpose(1, 0, 2).astype(np.float64) * 65_535)
        highest_bit = np.floor(np.log2(np.maximum(parts, 1)))
        steps = 2.0 ** (highest_bit - 8).clip(0)
        shares = (np.rint(parts / steps) * steps).clip(0, 65_535)
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


def confusion(truth: I64, predicted: I64, count: int) -> I64:
    """Return how many nodes of each class (row) were given each class (column), (C, C)."""
    cells = np.bincount(truth * count + predicted, minlength=count * count)
    return cells.reshape(count, count)
