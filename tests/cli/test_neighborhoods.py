"""Samples around nodes, which ``preview`` and ``explore`` draw of a graph that is too large."""

from __future__ import annotations

import pytest
import torch
from torch_geometric.data import Data

import kmip_data
from kmip_data.builds.home import Home
from kmip_data.builds.verify import verify_build
from kmip_data.cli.preview import draw_build
from kmip_data.drawing.neighborhoods import drawable_dataset
from kmip_data.drawing.layers import NO_CLASS_LABEL
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
    """A large graph is drawn as samples that say so: edges of the graph into the nodes that are shown."""
    assert verify_build(build.path).ok, "pages are given back while a shard is read"
    dataset = kmip_data.open(build.path)
    whole = dataset[0]
    edges = set(zip(*whole.edge_index.tolist(), strict=True))
    drawn = drawable_dataset(dataset, "train")
    nodes = whole.train_mask.nonzero().flatten().tolist()
    assert len(drawn) == len(nodes) < 700
    assert drawn.keys[3] == f"sample around node {nodes[3]}"
    around = drawn[3]
    assert torch.equal(around.x[0], whole.x[nodes[3]])
    rows = [whole.x.eq(row).all(dim=1).nonzero().flatten() for row in around.x]
    assert all(len(row) == 1 for row in rows), "rows tell nodes"
    met = torch.cat(rows)
    assert set(zip(*met[around.edge_index].tolist(), strict=True)) <= edges
    assert 1 < around.num_edges <= 12 + 12 * 4
    assert torch.equal(around.y, whole.y[met])
    assert (around.y < 0).any()

    graph = graph_of_record(drawn, 3)
    assert graph.header["key"] == drawn.keys[3]
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


def test_a_graph_that_is_too_large_for_a_row_of_parquet_is_refused(build, tmp_path, monkeypatch):
    monkeypatch.setattr("kmip_data.saving.export.MEMBER_BYTES", 2**10)
    with pytest.raises(UsageError, match="row"):
        write_parquet(build, tmp_path)
