"""The page itself: a graph, what a run says about it, and the learning curves of several runs."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from kmip_data.drawing.explorer.answer import Answer, confusion, error_by
from kmip_data.drawing.explorer.graphs import Graph
from kmip_data.drawing.maps.page import Packer, write_page


def draw_explorer(graph: Graph, answer: Answer | None, curves: Sequence[Any], path: Path) -> None:
    """Write one file that needs no network.

    ``curves`` are runs: ``name``, and ``columns``, each a list of pairs of epoch (from 1) and value.
    """
    explore = graph.header["explore"]
    explore["curves"] = list(curves)
    if answer is not None:
        explore |= _answered(graph, answer)
    assets = files("kmip_data.drawing.explorer") / "assets"
    texts = {name: (assets / name).read_text("utf-8") for name in ("ball.js", "figures.js", "explore.js")}
    write_page(
        graph.header,
        graph.packer,
        path,
        title=graph.title,
        credit=graph.credit,
        thing=graph.thing,
        added={
            "style": "\n" + (assets / "explore.css").read_text("utf-8"),
            "panel": (assets / "explore.html").read_text("utf-8"),
            "script": "\n".join(texts.values()),
        },
    )


def _answered(graph: Graph, answer: Answer) -> dict[str, Any]:
    found: dict[str, Any] = {"run": answer.run, "words": answer.words}
    if answer.classes is not None and graph.truth is not None:
        measured = graph.test
        truth, predicted = graph.truth[measured], answer.classes[measured]
        found["names"] = graph.names
        found["measured"] = "test" if not measured.all() else "all"
        found["confusion"] = confusion(truth, predicted, len(graph.names)).tolist()
        if graph.eccentricity is not None:
            found["errors"] = error_by(graph.eccentricity[measured], truth != predicted)
    if answer.layers:
        found["keys"] = _keys(answer, len(graph.test), graph.packer)
    return found


def _keys(answer: Answer, count: int, packer: Packer) -> dict[str, Any]:
    """Chosen keys, (S, H, k) of each layer: those of a node lie together.

    A key is a number as narrow as ``count`` nodes allow, ``count`` for none; a weight a 65,535th, which is
    finer than what the page shows of it.
    """
    narrow = np.uint16 if count < 2**16 else np.uint32
    layers = []
    for layer in answer.layers:
        heads, _, k = layer.indices.shape
        indices, weights = (values.transpose(1, 0, 2) for values in (layer.indices, layer.weights))
        keys = packer.add(np.where(indices < 0, count, indices).astype(narrow))
        shares = packer.add(np.rint(weights * 65_535).astype(np.uint16))
        layers.append({"heads": heads, "k": k, "indices": keys, "weights": shares})
    nodes = packer.add(answer.nodes.astype(np.uint32))
    return {"nodes": nodes, "all": len(answer.nodes) == count, "layers": layers}
