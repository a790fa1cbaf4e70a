"""The normalisations by name: what each averages over, and the edge cases of batch norm."""

from __future__ import annotations

import itertools

import torch
from support.cases import check_each

from kmip_data.models.layers.batch import Rows
from kmip_data.models.layers.norms import NORMS, BatchNorm

PTR = [0, 5, 6, 20]
GRAPH = torch.tensor([0] * 5 + [1] + [2] * 14)
X = torch.randn(20, 4, generator=torch.Generator().manual_seed(0)) * 3 + 1


def standardised(rows: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
    mean = rows.mean(dims, keepdim=True)
    return (rows - mean) / ((rows - mean).square().mean(dims, keepdim=True) + 1e-5).sqrt()


def test_what_is_averaged() -> None:
    def holds(case) -> None:
        name, dims, by_graph = case
        parts = [X[a:b] for a, b in itertools.pairwise(PTR)] if by_graph else [X]
        expected = torch.cat([standardised(part, dims) for part in parts])
        norm = NORMS[name](4)
        found = norm(X) if name == "batch" else norm(X, GRAPH, 3)
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
        torch.testing.assert_close(norm(X, GRAPH, 3)[6:], norm(X[6:], GRAPH[6:] - 2, 1))

    check_each(holds, ["graph-layer", "layer", "graph"])


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
