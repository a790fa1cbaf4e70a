"""The normalisations by name: what each averages over, and the edge cases of batch norm."""

from __future__ import annotations

import itertools
from functools import partial

import pytest
import torch
from support.cases import check_each
from torch_geometric.nn.norm import GraphNorm, LayerNorm

from kmip_data.models.layers.adjacency import Adjacency, sum_lists
from kmip_data.models.layers.batch import EdgeList, GraphBatch, Rows
from kmip_data.models.layers.norms import NORMS, BatchNorm

PTR = [0, 5, 6, 20]
X = torch.randn(20, 4, generator=torch.Generator().manual_seed(0)) * 3 + 1


def batch_of(ptr: list[int]) -> GraphBatch:
    ptr = torch.tensor(ptr)
    graph = torch.arange(len(ptr) - 1).repeat_interleave(ptr.diff())
    none = graph[:0]
    return GraphBatch(torch.zeros(len(graph), 1), EdgeList(none, none, len(graph)), None, ptr, graph)


def standardised(rows: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
    mean = rows.mean(dims, keepdim=True)
    return (rows - mean) / ((rows - mean).square().mean(dims, keepdim=True) + 1e-5).sqrt()


def test_what_is_averaged() -> None:
    def holds(case) -> None:
        name, dims, by_graph = case
        parts = [X[a:b] for a, b in itertools.pairwise(PTR)] if by_graph else [X]
        expected = torch.cat([standardised(part, dims) for part in parts])
        norm = NORMS[name](4)
        found = norm(X) if name == "batch" else norm(X, batch_of(PTR))
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
        assert sum(p.numel() for p in NORMS[name](4).parameters()) == (12 if name == "graph" else 8)

    check_each(
        holds,
        [
            ("batch", (0,), False),
            ("graph-layer", (0, 1), True),
            ("layer", (1,), False),
            ("graph", (0,), True),
        ],
    )


def test_no_graph_depends_on_another() -> None:
    def holds(name) -> None:
        norm = NORMS[name](4)
        torch.testing.assert_close(norm(X, batch_of(PTR))[6:], norm(X[6:], batch_of([0, 14])))

    check_each(holds, ["graph-layer", "layer", "graph"])


def test_norms_of_graphs_are_those_of_pytorch_geometric() -> None:
    """Bit for bit on a CPU in float32; and in float64, by the sums of a GPU too; with empty graphs."""

    def holds(case) -> None:
        name, ptr, dtype, on_a_gpu = case
        oracle = {"graph-layer": partial(LayerNorm, mode="graph"), "graph": GraphNorm}[name](3).to(dtype)
        norm, batch = NORMS[name](3).to(dtype), batch_of(ptr)
        with torch.no_grad():
            for parameter, other in zip(norm.parameters(), oracle.parameters(), strict=True):
                other.copy_(parameter.copy_(torch.rand(3) + 0.5))
        rows = torch.randn(ptr[-1], 3, dtype=dtype) * 3 + 10
        x, y, pull = rows.clone().requires_grad_(), rows.clone().requires_grad_(), torch.randn_like(rows)
        with pytest.MonkeyPatch.context() as patch:
            if on_a_gpu:
                patch.setattr(Adjacency, "sum", by_lists)
            found, expected = norm(x, batch), oracle(y, batch.graph, batch.num_graphs)
            (found * pull).sum().backward()
        (expected * pull).sum().backward()
        pairs = [(found, expected), (x.grad, y.grad)]
        pairs += [(a.grad, b.grad) for a, b in zip(norm.parameters(), oracle.parameters(), strict=True)]
        for a, b in pairs:
            tolerance = 0.0 if dtype == torch.float32 else 1e-11
            torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)

    several, one = [0, 5, 5, 6, 300, 300], [0, 5_000]
    check_each(
        holds,
        itertools.chain(
            itertools.product(["graph-layer", "graph"], [several, one], [torch.float32], [False]),
            itertools.product(["graph-layer", "graph"], [several, one], [torch.float64], [False, True]),
        ),
    )


def by_lists(self: Adjacency, values: torch.Tensor, *, targets: bool) -> torch.Tensor:
    """Sum as on a GPU."""
    bags = self.incoming if targets else self.outgoing
    return sum_lists(values, bags.start, bags.edge)


def test_half_precision_counts_in_float32() -> None:
    """300 nodes: a count in bfloat16 stops at 256, and a sum of ones with it."""
    x, batch = X.repeat(15, 1).bfloat16(), batch_of([0, 300])
    for name in ("graph-layer", "graph"):
        torch.testing.assert_close(NORMS[name](4)(x, batch), NORMS[name](4)(x.float(), batch))
    assert batch.sizes.tolist() == [[300]]
    assert batch.members.sum_at_target(torch.ones(300, 1, dtype=torch.bfloat16)).tolist() == [[300.0]]


def test_batch_norm_in_eval_treats_every_row_alone() -> None:
    norm = BatchNorm(4)
    norm(X)
    norm.eval()
    torch.testing.assert_close(norm(X)[3:4], norm(X[3:4]))


def test_batch_norm_without_rows_and_with_one() -> None:
    norm = BatchNorm(4)
    assert norm(X[:0]).shape == (0, 4)
    torch.testing.assert_close(norm(X[:1]), X[:1] / (1 + 1e-5) ** 0.5)
    assert torch.equal(norm.running_mean, torch.zeros(4))
    assert int(norm.num_batches_tracked) == 0


def test_statistics_of_a_padded_batch_have_all_digits() -> None:
    exact = X[:7].double()
    padded = torch.cat([exact, torch.ones(2, 4)])
    norms = [BatchNorm(4).double() for _ in range(2)]
    found = norms[0](padded, Rows(torch.tensor([7])))[:7]
    torch.testing.assert_close(found, norms[1](exact), rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(norms[0].running_var, norms[1].running_var, rtol=1e-14, atol=0)


def test_unchanged_statistics() -> None:
    norm, other = BatchNorm(4), BatchNorm(4)
    expected = other(X)
    torch.testing.assert_close(norm(X, Rows(repeated=True)), expected)
    assert torch.equal(norm.running_mean, torch.zeros(4))
    assert int(norm.num_batches_tracked) == 0
    norm(X)
    assert torch.equal(norm.running_mean, other.running_mean)


def test_statistics_from_elsewhere_are_taken_up_as_its_own() -> None:
    norm, other = BatchNorm(4), BatchNorm(4)
    other(X)
    norm.note(X.mean(0), X.var(0, unbiased=False), len(X), repeated=False)
    for name, value in other.state_dict().items():
        torch.testing.assert_close(norm.state_dict()[name], value)
    norm.note(X.mean(0), X.var(0), len(X), repeated=True)
    torch.testing.assert_close(norm.running_mean, other.running_mean)
