"""Wrong arguments are refused with a ``ValueError`` that names them."""

from __future__ import annotations

import math

import torch
from support.cases import check_each
from support.raises import raises

from kmip_data.errors import OutOfResources, UsageError
from kmip_data.models.search import topk_inner_product
from kmip_data.models.search.problem import make_problem
from kmip_data.models.search.topk import search_checked

ROWS = torch.ones(2, 5, 3)


def changed(value: float) -> torch.Tensor:
    rows = ROWS.clone()
    rows[1, 4, 2] = value
    return rows


def test_wrong_arguments_of_the_search_are_named() -> None:
    def check_case(case) -> None:
        arguments, options, named = case
        with raises(UsageError, naming=named):
            topk_inner_product(*arguments, **options)

    def pointers(ptr, *named):
        return (ROWS, ROWS, 1), {"query_ptr": ptr}, ["query_ptr", *named]

    check_each(
        check_case,
        [
            ((ROWS[0], ROWS, 1), {}, ["queries", "(5, 3)"]),
            ((ROWS, ROWS[..., :0], 1), {}, ["keys", "(2, 5, 0)"]),
            ((ROWS.numpy(), ROWS, 1), {}, ["queries", "ndarray"]),
            ((ROWS.int(), ROWS, 1), {}, ["queries", "float32", "int32"]),
            ((ROWS, ROWS.to("meta"), 1), {}, ["keys", "meta"]),
            ((ROWS, ROWS.double(), 1), {}, ["torch.float32", "torch.float64"]),
            ((ROWS, ROWS[:1], 1), {}, ["(2, 5, 3)", "(1, 5, 3)"]),
            ((ROWS, ROWS[..., :2], 1), {}, ["(2, 5, 3)", "(2, 5, 2)"]),
            ((ROWS, ROWS, 0), {}, ["k", 0]),
            ((ROWS, ROWS, True), {}, ["k", True]),
            pointers([0, 3, 2, 5], "query_ptr[2] = 2"),
            pointers([0, 4], 5, 4),
            pointers([1, 5], 1),
            pointers([]),
            pointers(torch.tensor([0.0, 5.0]), "float32"),
            pointers(torch.tensor([[0, 5]]), "(1, 2)"),
            pointers([0, 2.5, 5], "float64"),
            pointers([[0], [2, 5]]),
            ((ROWS, ROWS, 1), {"key_ptr": [0, 2, 5]}, ["query_ptr", "key_ptr", 3]),
            ((ROWS, ROWS[:, :4], 1), {"query_ptr": [0, 2, 5]}, ["query_ptr", "key_ptr"]),
            ((changed(math.nan), ROWS, 1), {}, ["queries", math.nan, [1, 4, 2]]),
            ((ROWS, changed(-math.inf), 1), {}, ["keys", -math.inf, [1, 4, 2]]),
            ((ROWS, ROWS, 1), {"backend": "kepos"}, "'keops'"),
            ((ROWS.double(), ROWS.double(), 1), {"backend": "cpu"}, ["cpu", "torch.float64"]),
        ],
    )


def test_narrow_indices_are_the_same_numbers() -> None:
    def check_case(case) -> None:
        backend, rows = case
        scores, indices = search_checked(
            make_problem(rows, rows, 4, [0, 2, len(rows[0])], has_int32_indices=True), backend
        )
        assert indices.dtype == torch.int32
        expected = topk_inner_product(rows, rows, 4, query_ptr=[0, 2, len(rows[0])])
        assert torch.equal(scores, expected[0])
        assert torch.equal(indices.long(), expected[1])

    rows = torch.randn(2, 600, 3, generator=torch.Generator().manual_seed(0))
    check_each(check_case, [("cpu", rows), ("dense", rows), ("dense", rows[:, :9].double())])


def test_out_of_memory_names_the_required_memory() -> None:
    rows = torch.ones(1, 1, 1).expand(1, 2**20, 1)
    with raises(OutOfResources, naming=2**20):
        topk_inner_product(rows, rows, 2**40)
