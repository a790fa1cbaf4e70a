"""Views of a build and the records that they show."""

from __future__ import annotations

import pytest
import torch
from support.builds.written import s3dis_records, s3dis_schema, write_build
from torch_geometric.data import Data

import kmip_data
from kmip_data.builds.home import Home
from kmip_data.cli.preview import draw_build, parse_record_positions
from kmip_data.errors import UsageError


def test_three_records_are_drawn_by_their_index_in_the_build(tmp_path):
    build = write_build(tmp_path / "b", s3dis_records(9), s3dis_schema(4))
    facts = draw_build(build, tmp_path / "p", Home(tmp_path / "home"))
    assert [record["position"] for record in facts["records"]] == [0, 5, 6]
    assert (tmp_path / "p").read_bytes().startswith(b"\x89PNG")


def test_records_have_different_classes_if_there_are(tmp_path):
    classes = [0, 1, 2, 0, 1, 2, 0, 1, 1]
    x = torch.zeros(2, 1)
    graphs = [Data(x=x, edge_index=torch.tensor([[0], [1]]), y=number) for number in classes]
    build = kmip_data.save(graphs, tmp_path / "b")
    facts = draw_build(build, tmp_path / "p.png", Home(tmp_path / "home"))
    drawn = [record["position"] for record in facts["records"]]
    assert sorted(classes[position] for position in drawn) == [0, 1, 2]


def test_of_records_whose_nodes_have_classes_those_with_most_are_drawn(tmp_path):
    """Twelve graphs of six nodes, of which three have more classes than two."""
    count = [2, 2, 4, 2, 2, 2, 3, 2, 2, 2, 2, 5]
    edges = torch.zeros(2, 0, dtype=torch.long)
    graphs = [
        Data(x=torch.zeros(6, 1), edge_index=edges, y=torch.arange(6) % classes)
        for classes in count
    ]
    build = kmip_data.save(graphs, tmp_path / "b")
    facts = draw_build(build, tmp_path / "p.png", Home(tmp_path / "home"))
    assert [record["position"] for record in facts["records"]] == [2, 6, 11]


def test_records_have_a_typical_size_and_few_nodes_if_there_are_any(tmp_path):
    for sizes, expected in (
        ([9, 2, 9, 9, 90, 9, 1, 9, 9], {0, 2, 3, 5, 7, 8}),
        ([9_000, 80, 9_000, 9_000, 90, 9_000, 110, 9_000, 9_000], {1, 4, 6}),
    ):
        edges = torch.zeros(2, 0, dtype=torch.long)
        graphs = [Data(edge_index=edges, num_nodes=size) for size in sizes]
        build = kmip_data.save(graphs, tmp_path / f"{max(sizes)}")
        facts = draw_build(build, tmp_path / "p.png", Home(tmp_path / "home"))
        assert {record["position"] for record in facts["records"]} <= expected
        assert len(facts["records"]) == 3


def test_records_have_different_labels_or_small_and_large_targets(tmp_path):
    edges = torch.zeros(2, 0, dtype=torch.long)
    several = torch.eye(3)[[0] * 7 + [1, 2]]
    for name, y, expected in (
        ("targets", torch.arange(9.0)[:, None], [{0, 1, 2}, {3, 4, 5}, {6, 7, 8}]),
        ("labels", several, [{0, 1, 2, 3, 4, 5, 6}, {7}, {8}]),
        ("classes", torch.tensor([0] * 7 + [1, 2]), [{0, 1, 2, 3, 4, 5, 6}, {7}, {8}]),
    ):
        graphs = [Data(edge_index=edges, num_nodes=5, y=y[graph : graph + 1]) for graph in range(9)]
        task = "multilabel" if name == "labels" else None
        build = kmip_data.save(graphs, tmp_path / name, task=task)
        facts = draw_build(build, tmp_path / "p.png", Home(tmp_path / "home"))
        shown = [record["position"] for record in facts["records"]]
        assert all(graph in group for graph, group in zip(shown, expected, strict=True)), name


def test_records_are_drawn_once_and_more_than_a_picture_shows_are_refused():
    assert parse_record_positions("3, 1,2..4,1", 12) == [3, 1, 2, 4]
    assert parse_record_positions("0..9,0..9,10", 12) == list(range(11))
    with pytest.raises(UsageError) as caught:
        parse_record_positions("0..16", 17)
    assert caught.value.found == "17 positions"
