"""Batches as networks read them, in both edge forms, and refusals."""

from __future__ import annotations

import pytest
import torch
from support.cases import check_each
from torch_geometric.data import Batch, Data

from kmip_data.errors import UsageError
from kmip_data.models.layers.batch import EdgeList, NeighborTable, read_batch
from kmip_data.reading.batching import pointers_on_cpu

EDGES = torch.tensor([[0, 1], [1, 2]])


def graph(nodes: int = 3, **more) -> Data:
    return Data(x=torch.randn(nodes, 2), edge_index=EDGES, **more)


def test_a_batch() -> None:
    batch = read_batch(Batch.from_data_list([graph(), graph(4)]))
    assert batch.ptr.tolist() == [0, 3, 7]
    assert batch.num_graphs == 2
    assert batch.graph.tolist() == [0, 0, 0, 1, 1, 1, 1]
    assert isinstance(batch.edges, EdgeList)
    assert batch.edges.source.tolist() == [0, 1, 3, 4]


def test_a_batch_on_another_device() -> None:
    """Without a look at it: tensors of this device have no numbers."""
    batch = Batch.from_data_list([graph(), graph(4)])
    assert pointers_on_cpu(batch, 7) == [0, 3, 7]
    assert read_batch(batch.to("meta")).ptr.tolist() == [0, 3, 7]
    batch.neighbor = torch.zeros(7, 2, dtype=torch.uint16, device="meta")  # as the loader gives it
    assert read_batch(batch).edges.neighbor.shape == (7, 2)
    assert pointers_on_cpu(batch, 6) is None  # nodes were taken away since
    assert pointers_on_cpu(graph(), 3) is None


def test_pointers_and_graph_numbers_follow_from_each_other() -> None:
    def holds(case) -> None:
        nodes, given, ptr, graph = case
        found = read_batch(Data(x=torch.ones(nodes, 1), edge_index=EDGES, **given))
        assert (found.ptr.tolist(), found.graph.tolist()) == (ptr, graph)

    numbers = {"batch": torch.tensor([0, 2, 2, 3])}
    check_each(
        holds,
        [
            (3, {}, [0, 3], [0, 0, 0]),
            (3, {"ptr": torch.tensor([0, 1, 1, 3])}, [0, 1, 1, 3], [0, 2, 2]),
            (4, numbers, [0, 1, 1, 3, 4], [0, 2, 2, 3]),
        ],
    )


def test_graph_numbers_that_would_let_attention_cross_graphs() -> None:
    def holds(case) -> None:
        graph, more, word = case
        with pytest.raises(UsageError) as caught:
            read_batch(Data(x=torch.ones(4, 1), edge_index=EDGES, batch=graph, **more))
        assert word in str(caught.value)

    check_each(
        holds,
        [
            (torch.tensor([0, 1, 0, 1]), {}, "fall"),
            (torch.tensor([-1, 0, 0, 1]), {}, "fall"),
            (torch.tensor([0, 0, 1]), {}, "whole numbers"),
            (torch.tensor([0.0, 0.0, 1.0, 1.0]), {}, "the graph of each node"),
            (torch.tensor([0, 0, 1, 1]), {"ptr": torch.tensor([0, 4])}, "contradict"),
            (torch.tensor([0, 1, 0, 1]), {"ptr": torch.tensor([0, 2, 4])}, "contradict"),
        ],
    )


def test_a_neighbour_table_with_edge_features() -> None:
    neighbor = torch.tensor([[1, 2], [0, 2], [0, 1]], dtype=torch.int32)
    batch = read_batch(Data(x=torch.ones(3, 1), neighbor=neighbor, edge_attr=torch.arange(6.0)[:, None]))
    assert isinstance(batch.edges, NeighborTable)
    assert batch.edge_attr.shape == (3, 2, 1)
    assert batch.edges.at_source(torch.arange(3.0)[:, None]).squeeze(-1).tolist() == neighbor.tolist()


@pytest.mark.parametrize(
    "graphs",
    [{"ptr": torch.tensor([0, 3, 5])}, {"batch": torch.tensor([0, 0, 0, 1, 1])}],
    ids=["ptr", "batch"],
)
def test_neighbour_table_as_it_is_stored(graphs) -> None:
    stored = torch.tensor([[1, 2], [0, 2], [0, 1], [1, 1], [0, 0]], dtype=torch.uint16)
    batch = read_batch(Data(x=torch.ones(5, 1), neighbor=stored, **graphs))
    sources = batch.edges.at_source(torch.arange(5.0)[:, None]).squeeze(-1)
    assert sources.tolist() == [[1, 2], [0, 2], [0, 1], [4, 4], [3, 3]]


def test_refusals() -> None:
    def holds(case) -> None:
        batch, word = case
        with pytest.raises(UsageError) as caught:
            read_batch(batch)
        assert word in str(caught.value)

    check_each(
        holds,
        [
            (Data(edge_index=EDGES), "x of shape"),
            (Data(x=torch.ones(3), edge_index=EDGES), "(N, channels)"),
            (Data(x=torch.ones(3, 1)), "neighbor (N, k) or edge_index (2, E)"),
            (Data(x=torch.ones(3, 1), edge_index=EDGES.float()), "int64"),
            (Data(x=torch.ones(3, 1), edge_index=EDGES[:1]), "(2, …)"),
            (Data(x=torch.ones(3, 1), neighbor=torch.zeros(2, 4, dtype=torch.int32)), "(3, …)"),
            (Data(x=torch.ones(3, 1), edge_index=EDGES, ptr=torch.tensor([0, 2])), "ptr"),
        ],
    )
