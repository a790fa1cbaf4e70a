"""Accuracy and error by distance against a loop over nodes, and as ``evaluate --by-class`` prints them."""

from __future__ import annotations

import numpy as np
import pytest
from support.cases import check_each
from support.cli import kmip

from kmip_data import LongRange
from kmip_data.builds.home import Home
from kmip_data.drawing.page_graph import graph_of_record
from kmip_data.drawing.plottable_record import read_plottable_record
from kmip_data.models.analysis.explanations import evaluate_by_distance
from kmip_data.models.training.run.predictions import predict


@pytest.mark.slow
def test_each_node_counts_in_the_band_of_its_distance(tmp_path) -> None:
    home = Home(tmp_path)

    def check(task: str) -> None:
        sizes = {"task": task, "nodes": 24, "graphs": 60}
        keys = [
            word
            for name, value in sizes.items()
            for word in ("--set", f"data.parameters.{name}={value}")
        ]
        small = ["--set", "model.layers=1", "--set", "model.hidden_dim=8", "--epochs", 1]
        order = [
            "train",
            "long-range",
            "--model",
            "gcn",
            *keys,
            *small,
            "--home",
            tmp_path,
        ]
        run = kmip(*order, "--quiet", "--json").json["run"]
        graphs = list(LongRange(root=tmp_path, split="test", **sizes))
        predicted = predict(run, home=home).pred
        wanted: dict[int, list[float]] = {}
        row = 0
        for graph in graphs:
            for distance, y in zip(graph.distance.tolist(), graph.y.numpy(), strict=True):
                guess = predicted[row]
                wanted.setdefault(distance, []).append(
                    float(guess == y) if task == "retrieval" else float(abs(guess - y).mean())
                )
                row += 1
        bands = evaluate_by_distance(run, home=home)
        for name, nodes, value in zip(bands.bands, bands.nodes, bands.values, strict=True):
            first, _, last = name.partition("–")
            of = [
                value
                for d in range(int(first), int(last or first) + 1)
                for value in wanted.get(d, [])
            ]
            assert (nodes, value) == (len(of), pytest.approx(np.mean(of), rel=1e-5))
        assert sum(bands.nodes) == sum(len(of) for distance, of in wanted.items() if distance)
        shown = kmip("evaluate", run, "--by-class", "--home", tmp_path).out
        assert all(text in shown for text in bands.formatted_values())

    check_each(check, ["retrieval", "sssp"])


def test_targets_and_errors_of_nodes_are_drawn_as_colours(tmp_path) -> None:
    dataset = LongRange(root=tmp_path, split="test", task="sssp", nodes=24, graphs=60)
    target = dataset[1].y[:, 0].numpy()
    predicted = target + np.arange(len(target), dtype=np.float32)
    header = graph_of_record(dataset, 1, [("a run", predicted)]).header
    names = [layer["name"] for layer in header["layers"]]
    assert names[:3] == ["absolute error", "prediction", "target"]
    assert header["layers"][2]["unit"] == "edges"
    mean = (len(target) - 1) / 2
    assert header["layers"][0]["note"] == f"a run: mean {mean:.3g} of {len(target)} nodes"
    assert next(layer["name"] for layer in graph_of_record(dataset, 1).header["layers"]) == "target"
    np.testing.assert_array_equal(read_plottable_record(dataset, 1).values, target)
