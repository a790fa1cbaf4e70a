"""Samples around nodes, which ``preview`` and ``explore`` draw of a graph that is too large."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from support.browser import act_in_node
from support.cli import expect_success
from torch_geometric.data import Data

import kmip_data
from kmip_data.builds.home import Home
from kmip_data.builds.verify import verify_build
from kmip_data.cli.preview import draw_build
from kmip_data.drawing.explorer_page import GraphPredictions
from kmip_data.drawing.layers import NO_CLASS_LABEL
from kmip_data.drawing.neighborhoods import drawable_dataset
from kmip_data.drawing.page_graph import graph_of_record
from kmip_data.errors import UsageError
from kmip_data.format import reader
from kmip_data.saving.export import write_parquet


@pytest.fixture
def build(tmp_path, monkeypatch):
    """One graph above the limits, most of whose nodes have no class."""
    monkeypatch.setattr("kmip_data.drawing.neighborhoods.MAX_NODES", 100)
    monkeypatch.setattr("kmip_data.graphs.statistics.BLOCK", 1_000)
    monkeypatch.setattr(reader, "RELEASED_MAP_BYTES", 0)
    random = torch.Generator().manual_seed(0)
    edges = torch.randint(700, (2, 10_000), generator=random)
    y = torch.arange(700) % 5
    y[torch.rand(700, generator=random) < 0.7] = -1
    known = y >= 0
    masks = {
        "train_mask": known & (torch.arange(700) < 500),
        "val_mask": known & (torch.arange(700) >= 500),
    }
    graph = Data(x=torch.rand(700, 8, generator=random), edge_index=edges, y=y, **masks)
    return kmip_data.save([graph], tmp_path / "large")


def test_a_large_graph_is_drawn_as_a_sample(build, tmp_path):
    """A node is drawn with its neighbours in either direction, and all edges between them."""
    assert verify_build(build.path).ok, "pages are given back while a shard is read"
    dataset = kmip_data.open(build.path)
    whole = dataset[0]
    drawn = drawable_dataset(dataset, "train")
    nodes = whole.train_mask.nonzero().flatten().tolist()
    assert len(drawn) == len(nodes) < 700
    assert drawn.keys[3] == f"sample around node {nodes[3]}"
    around = drawn[3]
    met = around.n_id
    assert met[0] == nodes[3]
    assert len(met) == len(met.unique()) == 1 + 24 + 36
    for name in ("x", "y", "train_mask"):
        assert torch.equal(around[name], whole[name][met])
    is_between = torch.isin(whole.edge_index, met).all(dim=0)
    edges = sorted(whole.edge_index[:, is_between].T.tolist())
    assert sorted(met[around.edge_index].T.tolist()) == edges
    assert torch.isin(
        met[1:25], whole.edge_index[:, (whole.edge_index == nodes[3]).any(dim=0)]
    ).all()
    assert (around.y < 0).any()

    graph = graph_of_record(drawn, 3)
    assert graph.header["layers"][0]["labels"][-1] == NO_CLASS_LABEL
    assert graph.header["layers"][0]["counts"][-1] == int((around.y < 0).sum())
    facts = draw_build(build, tmp_path / "preview.png", Home(tmp_path), records="0,699")
    assert [row["key"] for row in facts["records"]] == [
        "sample around node 0",
        "sample around node 699",
    ]
    assert (tmp_path / "preview.png").stat().st_size > 10_000
    rows = draw_build(build, tmp_path / "default.png", Home(tmp_path))["records"]
    assert len({row["key"] for row in rows}) == 3, "three nodes, evenly spread"


def test_a_page_of_a_large_graph_has_its_numbers_and_degrees(build, tmp_path):
    page = tmp_path / "page.html"
    expect_success("explore", build.path, "--no-open", "--output", page)
    shown = act_in_node(
        page,
        """
        const textsOf = (row) => row.nodes.map((cell) => cell.textContent);
        const rows = () => Object.fromEntries($("details").tBodies[0].nodes.map(textsOf));
        const opened = [$("chosen").textContent, rows()];
        search(String(header.numbers[5]));
        const found = [$("chosen").textContent, rows()];
        const hidden = [...Array(700).keys()].find((number) => !header.numbers.includes(number));
        let refused;
        $("query").setCustomValidity = (text) => (refused = text);
        search(String(hidden));
        const texts = ["story", "facts", "records"].map((id) => $(id).textContent);
        return { opened, found, numbers: header.numbers, texts, refused };""",
    )
    story, facts, place = shown["texts"]
    edges = kmip_data.open(build.path)[0].edge_index
    outgoing, incoming = (torch.bincount(ends, minlength=700) for ends in edges)
    middle, sixth = shown["numbers"][0], shown["numbers"][5]
    assert (outgoing + incoming)[middle] == (outgoing + incoming).median()
    for node, (title, rows), why in (
        (middle, shown["opened"], "in the middle"),
        (sixth, shown["found"], "held"),
    ):
        assert title == f"Node {node} ({why})"
        assert rows["number"] == str(node)
        assert rows["outgoing edges"] == str(int(outgoing[node]))
        assert rows["incoming edges"] == str(int(incoming[node]))
    first_line = f"700 nodes, 10,000 edges; shown: 61 around node {middle}"
    assert facts.split("; layout")[0] == first_line
    assert " neighbours shown; " in story
    assert shown["refused"] == "There is no such node."
    assert "record" not in place.lower()


def test_a_run_on_a_large_graph_is_shown_at_the_nodes_that_are_drawn(build):
    drawn = drawable_dataset(kmip_data.open(build.path), None)
    answer = GraphPredictions("any/gcn/a", None, np.arange(700) % 5, "", np.arange(0), ())
    nodes = drawn[0].n_id.numpy()
    graph = graph_of_record(drawn, 0, [("any/gcn/a", answer.of_nodes(nodes).classes)])
    layer = next(layer for layer in graph.header["layers"] if layer["name"] == "right or wrong")
    assert layer["counts"][1] == 0, "of those with a class, all are right"


def test_a_large_graph_with_positions_is_drawn_whole(build, tmp_path):
    """Positions may be features, as in a table with columns x and y."""
    nodes = pd.DataFrame({"node": range(200), "x": range(200), "y": range(200)})
    nodes["age"] = nodes.x / 7
    edges = pd.DataFrame({"source": range(199), "target": range(1, 200)})
    placed = kmip_data.save({"nodes": nodes, "edges": edges}, tmp_path / "placed", label="age")
    dataset = kmip_data.open(placed.path)
    assert drawable_dataset(dataset, None) is dataset
    assert drawable_dataset(kmip_data.open(build.path), None) is not dataset


def test_a_graph_that_is_too_large_for_a_row_of_parquet_is_refused(build, tmp_path, monkeypatch):
    monkeypatch.setattr("kmip_data.saving.export.MEMBER_BYTES", 2**10)
    with pytest.raises(UsageError):
        write_parquet(build, tmp_path)
