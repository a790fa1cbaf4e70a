"""The normalisations by name: what each averages over, and the edge cases of batch norm."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import pytest
import torch
from support.cases import check_each
from torch import Tensor, nn
from torch_geometric.nn.norm import GraphNorm, LayerNorm

from kmip_data.models.layers import norms as layers
from kmip_data.models.layers.batch import GraphBatch
from kmip_data.models.layers.edge_list import EdgeList, sum_segments
from kmip_data.models.layers.norms import BatchNorm
from kmip_data.models.registries import NORMS
from kmip_data.runtime import parallel

X = torch.randn(20, 4, generator=torch.Generator().manual_seed(0)) * 3 + 1


def batch_of(ptr: list[int]) -> GraphBatch:
    ptr = torch.tensor(ptr)
    graph = torch.arange(len(ptr) - 1).repeat_interleave(ptr.diff())
    none = graph[:0]
    return GraphBatch(
        torch.zeros(len(graph), 1), EdgeList(none, none, len(graph)), None, ptr, graph
    )


def test_graph_norms_equal_pytorch_geometric() -> None:
    """Bit for bit on a CPU in float32 and float64, by the sums of a GPU too; with empty graphs.

    Gradients of the compiled norm are rounded otherwise.
    """

    def check_case(case) -> None:
        name, ptr, dtype, on_a_gpu = case
        oracle = {"graph-layer": partial(LayerNorm, mode="graph"), "graph": GraphNorm}[name](3).to(
            dtype
        )
        norm, batch = NORMS[name](3).to(dtype), batch_of(ptr)
        with torch.no_grad():
            for parameter, other in zip(norm.parameters(), oracle.parameters(), strict=True):
                other.copy_(parameter.copy_(torch.rand(3) + 0.5))
        rows = torch.randn(ptr[-1], 3, dtype=dtype) * 3 + 10
        x, y, pull = (
            rows.clone().requires_grad_(),
            rows.clone().requires_grad_(),
            torch.randn_like(rows),
        )
        with pytest.MonkeyPatch.context() as patch:
            if on_a_gpu:
                patch.setattr(EdgeList, "sum", by_lists)
            out, expected = norm(x, batch), oracle(y, batch.graph_index, batch.num_graphs)
            (out * pull).sum().backward()
        (expected * pull).sum().backward()
        pairs = [(out, expected), (x.grad, y.grad)]
        pairs += [
            (a.grad, b.grad) for a, b in zip(norm.parameters(), oracle.parameters(), strict=True)
        ]
        exact = dtype == torch.float32
        for number, (a, b) in enumerate(pairs):
            tolerance = 0.0 if exact else 1e-11
            if exact and number and name == "graph-layer":
                tolerance = 2e-4
            torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)

    several, one = [0, 5, 5, 6, 300, 300], [0, 5_000]
    check_each(
        check_case,
        itertools.chain(
            itertools.product(["graph-layer", "graph"], [several, one], [torch.float32], [False]),
            itertools.product(
                ["graph-layer", "graph"], [several, one], [torch.float64], [False, True]
            ),
        ),
    )


def test_the_compiled_graph_norm_agrees_with_float64() -> None:
    """Graphs of several parts, of one node and of none; with bits that do not depend on threads."""
    batch = batch_of([0, 300, 300, 301, 5_000])
    norm = NORMS["graph-layer"](72)
    exact = LayerNorm(72, mode="graph").double()
    for parameter in norm.parameters():
        nn.init.uniform_(parameter, 0.5, 1.5)
    exact.load_state_dict(norm.state_dict())
    rows = torch.randn(5_000, 72) * 3 + 10
    pull = torch.randn_like(rows)

    def learnt(norm: nn.Module, rows: Tensor, pull: Tensor, *batch: Any) -> list[Tensor]:
        norm.zero_grad()
        rows = rows.clone().requires_grad_()
        out = norm(rows, *batch)
        out.backward(pull)
        return [out, rows.grad, norm.weight.grad, norm.bias.grad]

    results = learnt(norm, rows, pull, batch)
    expected = learnt(exact, rows.double(), pull.double(), batch.graph_index, batch.num_graphs)
    for result, value in zip(results, expected, strict=True):
        torch.testing.assert_close(result.double(), value, rtol=1e-4, atol=1e-4)

    with parallel.restore_thread_limit():
        parallel.set_num_threads(1)
        alone = learnt(norm, rows, pull, batch)
    assert all(map(torch.equal, results, alone))


def by_lists(self: EdgeList, values: torch.Tensor, *, targets: bool) -> torch.Tensor:
    """Sum as on a GPU."""
    bags = self.incoming if targets else self.outgoing
    return sum_segments(values, bags.start, bags.edge)


def test_half_precision_counts_in_float32() -> None:
    """300 nodes: a count in bfloat16 stops at 256, and a sum of ones with it."""
    x, batch = X.repeat(15, 1).bfloat16(), batch_of([0, 300])
    for name in ("graph-layer", "graph"):
        torch.testing.assert_close(NORMS[name](4)(x, batch), NORMS[name](4)(x.float(), batch))
    assert batch.graph_sizes.tolist() == [[300]]
    assert batch.nodes_to_graphs.sum_at_target(
        torch.ones(300, 1, dtype=torch.bfloat16)
    ).tolist() == [[300.0]]


def test_batch_norm_of_no_rows_and_one_row_uses_running_statistics() -> None:
    norm = BatchNorm(4)
    assert norm(X[:0]).shape == (0, 4)
    torch.testing.assert_close(norm(X[:1]), X[:1] / (1 + 1e-5) ** 0.5)
    assert torch.equal(norm.running_mean, torch.zeros(4))
    assert int(norm.num_batches_tracked) == 0


def test_batch_norm_updates_from_given_statistics() -> None:
    norm, other = BatchNorm(4), BatchNorm(4)
    other(X)
    norm.update_running_statistics(X.mean(0), X.var(0, unbiased=False), len(X))
    for name, value in other.state_dict().items():
        torch.testing.assert_close(norm.state_dict()[name], value)


@pytest.mark.parametrize("activation", ["relu", "gelu", None])
def test_a_norm_block_equals_its_steps(activation) -> None:
    rows, more, residual = torch.randn(3, 9, 5).unbind()
    torch.manual_seed(1)
    out = layers.apply_norm_block(
        BatchNorm(5),
        rows,
        more,
        dropout_before=0.3,
        activation=activation,
        dropout_after=0.2,
        residual=residual,
    )
    torch.manual_seed(1)
    expected = BatchNorm(5)(rows + torch.nn.functional.dropout(more, 0.3))
    if activation is not None:
        activate = getattr(torch.nn.functional, activation)
        expected = torch.nn.functional.dropout(activate(expected), 0.2)
    assert torch.equal(out, residual + expected)
    assert torch.equal(layers.apply_norm_block(torch.nn.Identity(), rows), rows)
