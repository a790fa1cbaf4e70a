"""Batches as networks read them, in both edge forms; sums over edges against a loop."""

from __future__ import annotations

import itertools

import pytest
import torch
from support.cases import check_each
from support.raises import raises
from torch_geometric.data import Batch, Data

from kmip_data.errors import UsageError
from kmip_data.models.layers.batch import NeighborTable, read_batch
from kmip_data.models.layers.edge_list import EdgeList, neighbor_sum, sum_segments
from kmip_data.reading.batching import pointers_on_cpu

EDGES = torch.tensor([[0, 1], [1, 2]])


def graph(nodes: int = 3, **more) -> Data:
    return Data(x=torch.randn(nodes, 2), edge_index=EDGES, **more)


def test_reading_a_batch_on_another_device_copies_nothing() -> None:
    """Reading a batch on another device copies nothing from it: tensors on ``meta`` have no values."""
    batch = Batch.from_data_list([graph(), graph(4)])
    assert pointers_on_cpu(batch, 7) == [0, 3, 7]
    assert read_batch(batch.to("meta")).ptr.tolist() == [0, 3, 7]
    batch.neighbor = torch.zeros(7, 2, dtype=torch.uint16, device="meta")  # as the loader gives it
    assert read_batch(batch).edges.neighbor.shape == (7, 2)
    assert pointers_on_cpu(batch, 6) is None  # nodes were taken away since
    assert pointers_on_cpu(graph(), 3) is None


def test_pointers_and_graph_numbers_are_derived_from_each_other() -> None:
    def check_case(case) -> None:
        nodes, attributes, ptr, graph = case
        batch = read_batch(Data(x=torch.ones(nodes, 1), edge_index=EDGES, **attributes))
        assert (batch.ptr.tolist(), batch.graph_index.tolist()) == (ptr, graph)

    numbers = {"batch": torch.tensor([0, 2, 2, 3])}
    check_each(
        check_case,
        [
            (3, {}, [0, 3], [0, 0, 0]),
            (3, {"ptr": torch.tensor([0, 1, 1, 3])}, [0, 1, 1, 3], [0, 2, 2]),
            (4, numbers, [0, 1, 1, 3, 4], [0, 2, 2, 3]),
        ],
    )


def test_graph_numbers_that_mix_graphs_are_refused() -> None:
    def check_case(case) -> None:
        graph, more = case
        with raises(UsageError, naming=["batch", *more]):
            read_batch(Data(x=torch.ones(4, 1), edge_index=EDGES, batch=graph, **more))

    check_each(
        check_case,
        [
            (torch.tensor([0, 1, 0, 1]), {}),
            (torch.tensor([-1, 0, 0, 1]), {}),
            (torch.tensor([0, 0, 1]), {}),
            (torch.tensor([0.0, 0.0, 1.0, 1.0]), {}),
            (torch.tensor([0, 0, 1, 1]), {"ptr": torch.tensor([0, 4])}),
            (torch.tensor([0, 1, 0, 1]), {"ptr": torch.tensor([0, 2, 4])}),
        ],
    )


def test_a_neighbour_table_may_carry_edge_features() -> None:
    neighbor = torch.tensor([[1, 2], [0, 2], [0, 1]], dtype=torch.int32)
    batch = read_batch(
        Data(x=torch.ones(3, 1), neighbor=neighbor, edge_attr=torch.arange(6.0)[:, None])
    )
    assert isinstance(batch.edges, NeighborTable)
    assert batch.edge_attr.shape == (3, 2, 1)
    assert (
        batch.edges.at_source(torch.arange(3.0)[:, None]).squeeze(-1).tolist() == neighbor.tolist()
    )


@pytest.mark.parametrize(
    "graphs",
    [{"ptr": torch.tensor([0, 3, 5])}, {"batch": torch.tensor([0, 0, 0, 1, 1])}],
    ids=["ptr", "batch"],
)
def test_a_stored_neighbour_table_is_used_unchanged(graphs) -> None:
    stored = torch.tensor([[1, 2], [0, 2], [0, 1], [1, 1], [0, 0]], dtype=torch.uint16)
    batch = read_batch(Data(x=torch.ones(5, 1), neighbor=stored, **graphs))
    sources = batch.edges.at_source(torch.arange(5.0)[:, None]).squeeze(-1)
    assert sources.tolist() == [[1, 2], [0, 2], [0, 1], [4, 4], [3, 3]]


def test_batches_that_cannot_be_read_are_named() -> None:
    def check_case(case) -> None:
        batch, value = case
        with raises(UsageError, naming=value):
            read_batch(batch)

    check_each(
        check_case,
        [
            (Data(edge_index=EDGES), "NoneType"),
            (Data(x=torch.ones(3), edge_index=EDGES), "(3,)"),
            (Data(x=torch.ones(3, 1)), ["neighbor", "edge_index"]),
            (Data(x=torch.ones(3, 1), edge_index=EDGES.float()), "torch.float32"),
            (Data(x=torch.ones(3, 1), edge_index=EDGES[:1]), "(1, 2)"),
            (Data(x=torch.ones(3, 1), neighbor=torch.zeros(2, 4, dtype=torch.int32)), "(2, 4)"),
            (Data(x=torch.ones(3, 1), edge_index=EDGES, ptr=torch.tensor([0, 2])), "ptr"),
        ],
    )


N, K, D = 9, 3, 4


def edges(form: str) -> EdgeList | NeighborTable:
    generator = torch.Generator().manual_seed(3)
    if form == "table":
        return NeighborTable(torch.randint(0, N, (N, K), generator=generator))
    return EdgeList(
        *torch.randint(0, N - 2, (2, 30), generator=generator), N
    )  # two nodes without edges


def numbers(*shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, dtype=torch.float64, generator=generator, requires_grad=True)


@pytest.mark.parametrize("form", ["table", "list"])
@pytest.mark.parametrize("weighted", [False, True])
def test_sums_and_their_gradients_equal_the_oracle(form: str, weighted: bool) -> None:
    graph = edges(form)
    source, target = graph.index
    x, weight = numbers(N, D), numbers(len(source)) if weighted else None
    rows = [torch.zeros(D, dtype=torch.float64) for _ in range(N)]
    for edge, (j, i) in enumerate(zip(source.tolist(), target.tolist(), strict=True)):
        rows[i] = rows[i] + (x[j] if weight is None else weight[edge] * x[j])
    slow, fast = torch.stack(rows), neighbor_sum(graph.edge_list, x, weight)
    torch.testing.assert_close(fast, slow, atol=1e-12, rtol=0)
    wanted = [x] if weight is None else [x, weight]
    pull = numbers(N, D).detach().sin()
    for a, b in zip(
        torch.autograd.grad(fast, wanted, pull),
        torch.autograd.grad(slow, wanted, pull),
        strict=True,
    ):
        torch.testing.assert_close(a, b, atol=1e-12, rtol=0)


def test_neighbour_sums_accept_no_edges_and_inputs_without_gradient() -> None:
    empty = torch.zeros(0, dtype=torch.int64)
    x = numbers(3, D)
    out = neighbor_sum(EdgeList(empty, empty, 3).edge_list, x, numbers(0))
    out.sum().backward()
    assert out.tolist() == [[0.0] * D] * 3
    assert x.grad is not None
    assert not x.grad.any()
    graph = edges("list")
    weight = numbers(30)
    neighbor_sum(graph.edge_list, numbers(N, D).detach(), weight).sum().backward()
    assert weight.grad is not None
    x = numbers(N, D)
    neighbor_sum(graph.edge_list, x, weight.detach()).sum().backward()
    assert x.grad is not None


def test_half_precision_is_summed_in_float32() -> None:
    ring = EdgeList(torch.arange(1, 300), torch.zeros(299, dtype=torch.int64), 300)
    x = torch.ones(300, 1, dtype=torch.bfloat16, requires_grad=True)
    out = neighbor_sum(ring.edge_list, x)
    assert out[0] == 299  # bfloat16 stops at 256
    out.sum().backward()
    assert x.grad.dtype == torch.bfloat16


def test_lists_are_summed_in_one_order_however_long() -> None:
    """Short and long ones, empty ones, and one that is all: in tiles, and in tiles of tiles."""

    def check_case(case) -> None:
        sizes, ordered = case
        generator = torch.Generator().manual_seed(sum(sizes))
        start = torch.tensor([0, *sizes]).cumsum(0)
        rows = torch.randn(sum(sizes), 2, dtype=torch.float64, generator=generator)
        order = None if ordered else torch.randperm(len(rows), generator=generator)
        lists = rows if order is None else rows[order]
        expected = torch.stack([each.sum(0) for each in lists.split(sizes)])
        torch.testing.assert_close(sum_segments(rows, start, order), expected, atol=1e-11, rtol=0)

    lengths = [[3, 0, 7], [40, 70, 200], [0, 9000, 1], [9000, 2, 0, 3, 8000], [5000]]
    check_each(check_case, itertools.product(lengths, [True, False]))


def test_gradients_of_list_sums_equal_index_add(monkeypatch) -> None:
    """The GPU's sums over lists of edges, run on the CPU, have the gradients of ``index_add``."""
    graph = edges("list")
    source, target = graph.index
    x, values, pull = numbers(N, D), numbers(30, D), numbers(30, D).detach().sin()

    def by_lists(self, values, *, targets):
        bags = self.incoming if targets else self.outgoing
        return sum_segments(values, bags.start, bags.edge)

    monkeypatch.setattr(EdgeList, "sum", by_lists)
    ((graph.at_source(x) + graph.at_target(x)) * pull).sum().backward()
    expected = (
        torch.zeros(N, D, dtype=torch.float64).index_add(0, source, pull).index_add(0, target, pull)
    )
    torch.testing.assert_close(x.grad, expected, atol=1e-12, rtol=0)
    sums = graph.sum_at_target(values)
    torch.testing.assert_close(sums, torch.zeros_like(sums).index_add(0, target, values))
    (sums * pull[:N]).sum().backward()
    torch.testing.assert_close(values.grad, pull[:N][target])
