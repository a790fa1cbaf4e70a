"""Records as the explorer shows them: colours of their own, the nodes that count, what can be turned."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from support.browser import act_in_node
from support.builds.learnable import streets, streets_build
from torch_geometric.data import Data

import kmip_data
from kmip_data.drawing.explorer_page import GraphPredictions, write_explorer_page
from kmip_data.drawing.layers import rgb_layer
from kmip_data.drawing.page_graph import graph_of_record
from kmip_data.drawing.plottable_record import element_layer
from kmip_data.errors import UsageError
from kmip_data.format.color_fields import CHANNELS
from kmip_data.graphs.molecule_fields import ATOM_FIELDS
from kmip_data.reading.dataset import ShardedDataset


def test_colours_match_the_features():
    shades = np.array([[0, 0.5, 1], [1, 1, 1], [0, 0, 0], [0, 0.5, 1]], np.float32)
    for top, form in itertools.product((1, 255, 65_535), ("{} [0-1]", "mean {} [0-1]", "{}")):
        columns = {f"deviation of {color}": shades[:, 0] for color in CHANNELS}
        columns |= {form.format(color): shades[:, i] * top for i, color in enumerate(CHANNELS)}
        layer = rgb_layer(columns)
        colors = [layer.colors[code] for code in layer.codes]
        assert colors == ["#0088ff", "#ffffff", "#000000", "#0088ff"], (top, form)
        columns.pop(form.format("green"))
        assert rgb_layer(columns) is None
        layer = rgb_layer({form.format("grey"): shades[:, 1] * top})
        assert [layer.colors[code] for code in layer.codes[:3]] == ["#888888", "#ffffff", "#000000"]


def test_atoms_are_coloured_by_element():
    layer = element_layer(ATOM_FIELDS[:1], np.array([[5, 5, 33, 7, 5]], np.float32).T)
    assert [layer.labels[code] for code in layer.codes] == ["C", "C", "Se", "O", "C"]
    assert not layer.note, "a charge stands in its label, and there is none here"
    salt = np.zeros((3, len(ATOM_FIELDS)))
    salt[:, 0] = (10, 7, 7)
    salt[:, 3] = (6, 4, 5)
    layer = element_layer(ATOM_FIELDS, salt)
    assert [layer.labels[code] for code in layer.codes] == ["Na⁺", "O⁻", "O"]
    assert element_layer(["degree"], np.zeros((3, 1))) is None


def test_a_single_graph_marks_its_test_nodes(tmp_path):
    graph = graph_of_record(ShardedDataset(streets_build(tmp_path / "build")), 0)
    _, split, _ = graph.header["layers"]
    assert [layer["name"] for layer in graph.header["layers"]] == [
        "class",
        "split",
        "edges of a node",
    ]
    sizes = [int(streets()[f"{part}_mask"].sum()) for part in ("train", "val", "test")]
    assert (split["labels"][:3], split["counts"][:3]) == (("train", "val", "test"), sizes)
    with pytest.raises(UsageError):
        graph_of_record(ShardedDataset(streets_build(tmp_path / "again")), 1)


def test_a_page_does_not_say_when_a_split_was_drawn(tmp_path):
    """It may be older or younger than the build: training also draws splits."""
    graph = Data(edge_index=torch.tensor([[0, 1], [1, 0]]), num_nodes=40, y=torch.arange(40) % 2)
    dataset = ShardedDataset(kmip_data.save([graph], tmp_path / "build"))
    split = dataset.split_name
    answer = GraphPredictions("any/gcn/a", split, graph.y.numpy(), "", np.arange(0), ())
    page = graph_of_record(dataset, 0, [(answer.run, answer.classes)])
    write_explorer_page([(page, answer)], (), tmp_path / "page.html")
    texts = act_in_node(tmp_path / "page.html", "return [...texts];")
    assert any(text.endswith(f"; drawn split {split}") for text in texts)
    assert "split (drawn)" in texts
    assert not any(" at build" in text for text in texts)


def test_a_run_is_judged_by_test_nodes_alone(tmp_path):
    dataset = ShardedDataset(streets_build(tmp_path / "build"))
    test = streets().test_mask.numpy()
    truth = streets().y.numpy()
    guess = np.where(test, truth, truth + 1)  # wrong in training, right on test
    guess[np.flatnonzero(test)[0]] += 1
    graph = graph_of_record(dataset, 0, [("streets/gcn/a", guess)])
    (note,) = (
        layer["note"] for layer in graph.header["layers"] if layer["name"] == "right or wrong"
    )
    count = test.sum()
    expected = f"train 0.0%, val 0.0%, test {(count - 1) / count:.1%}"
    assert note == f"streets/gcn/a: right in {expected}"
