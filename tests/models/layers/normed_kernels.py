"""Norms of nodes on a GPU against a formula in float64: interpreted, or on a GPU where there is one.

``tests/models/test_kernels_without_a_gpu.py`` runs it in a process of its own.
"""

from __future__ import annotations

import itertools

import pytest
import torch
from support.cases import check_each
from support.kernels.allocations import saved_for_backward
from support.kernels.layer_kernels import DEVICE, drawn_on_the_cpu, norm_of
from torch import Tensor

from kmip_data.models import context
from kmip_data.models.layers.gpu.norms import normed
from kmip_data.models.layers.norms import BatchNorm

SEED = 6
NAMES = ("out", "rows", "more", "residual", "scale", "shift", "mean", "variance", "batches")


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch) -> None:
    """The interpreter's tensors are the CPU's, which the layers would not hand to a GPU's kernels."""
    monkeypatch.setattr(context, "triton_runs", lambda _: True)


def dropped(rows: Tensor, p: float) -> Tensor:
    """Apply the kernels' dropout to (N, d), with the next seed."""
    if not p:
        return rows
    seed = int(torch.empty(1, dtype=torch.int64, device=DEVICE).random_())
    mask = drawn_on_the_cpu(seed, *rows.shape, p).to(rows)
    return rows * mask * (1 / (1 - round(p * 2**32) / 2**32))


def formula(
    norm: BatchNorm, rows: Tensor, more: Tensor | None, residual: Tensor | None, *, relu: bool, before: float,
    after: float,
) -> Tensor:  # fmt: skip
    """Compute the definition of the kernels in any dtype."""
    rows = rows if more is None else rows + dropped(more, before)
    out = torch.nn.functional.batch_norm(
        rows,
        norm.running_mean,
        norm.running_var,
        norm.weight,
        norm.bias,
        True,
        norm.momentum,
        norm.eps,
    )
    norm.num_batches_tracked += 1
    out = dropped(out.relu(), after) if relu else out
    return out if residual is None else residual + out


def step(
    function, n: int, d: int, dtype: torch.dtype, *, more: bool, residual: bool, far=0.0, **options
):
    """Output, all gradients and statistics, as float64."""
    generator = torch.Generator().manual_seed(d)
    tensors = [torch.randn(n, d, generator=generator) for _ in range(3)]
    tensors[0][:, 0] += far
    rows, *others = (each.to(DEVICE, dtype).requires_grad_() for each in tensors)
    given = [
        each if wanted else None for each, wanted in zip(others, (more, residual), strict=True)
    ]
    norm = norm_of(d, dtype, training=True)
    torch.manual_seed(SEED)
    out = function(norm, rows, *given, **options)
    slopes = torch.randn(n, d, generator=torch.Generator().manual_seed(1)).to(out)
    weights = [rows, *others, norm.weight, norm.bias]
    grads = torch.autograd.grad(
        (out * slopes).sum(), weights, allow_unused=True, materialize_grads=True
    )
    return [each.detach().double() for each in (out, *grads, *norm.buffers())]


def check(n: int, d: int, **options) -> None:
    """As near to the formula in float64 as the formula in float32 is, and a rounding."""
    kinds = ((normed, torch.float32), (formula, torch.float32), (formula, torch.float64))
    found, other, exact = (step(function, n, d, dtype, **options) for function, dtype in kinds)
    for name, a, b, c in zip(NAMES, found, other, exact, strict=True):
        scale = float(c.abs().max())
        error, of_formula = (float((each - c).abs().max()) for each in (a, b))
        assert error <= 4 * of_formula + 3e-6 * scale + 1e-6, (name, error, of_formula, scale)


#: Those of a layer: of message passing, of its output, of attention's beside it, of the
#: feed-forward part.
PLACES = {
    "norm_x": {"more": True, "residual": True, "relu": True, "before": 0.0, "after": 0.3},
    "norm_local": {"more": False, "residual": False, "relu": False, "before": 0.0, "after": 0.0},
    "norm_global": {"more": True, "residual": True, "relu": False, "before": 0.3, "after": 0.0},
    "norm_out": {"more": True, "residual": False, "relu": False, "before": 0.0, "after": 0.0},
}


@pytest.mark.parametrize("length", ["short", pytest.param("long", marks=pytest.mark.torture)])
def test_equals_the_formula(length: str) -> None:
    """Few rows, several tiles of rows and of channels, and channels far from zero."""
    places = list(PLACES)
    sizes = [(600, 5), (2, 5), (20, 19), (65, 14)]
    cases = [*zip(sizes, places, strict=True)]
    if length == "long":
        cases = itertools.product([(70, 5), (70, 14), (70, 76), (300, 64), (600, 5)], places)
    check_each(
        lambda case: check(*case[0], **PLACES[case[1]], far=1000.0 * (case[0][0] == 600)), cases
    )


@pytest.mark.parametrize(
    "place",
    [
        "norm_x",
        *(pytest.param(place, marks=pytest.mark.torture) for place in PLACES if place != "norm_x"),
    ],
)
def test_the_same_bits_twice(place: str) -> None:
    first, second = (step(normed, 130, 5, torch.float32, **PLACES[place]) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize(
    "types",
    [
        (torch.float32, torch.bfloat16),
        pytest.param((torch.bfloat16, torch.float32), marks=pytest.mark.torture),
        pytest.param((torch.bfloat16, torch.bfloat16), marks=pytest.mark.torture),
    ],
)
def test_types_are_torchs(types: tuple[torch.dtype, torch.dtype]) -> None:
    x, y = (torch.randn(40, 19, device=DEVICE).to(kind).requires_grad_() for kind in types)
    results = []
    for function in (normed, formula):
        norm = norm_of(19, torch.float32, training=True)
        out = function(norm, x, y, None, relu=True, before=0.0, after=0.0)
        results.append([out.detach(), *torch.autograd.grad(out.float().sin().sum(), (x, y))])
    for ours, theirs in zip(*results, strict=True):
        assert ours.dtype == theirs.dtype
        assert float((ours - theirs).norm()) <= 0.02 * float(theirs.norm())


def test_one_tensor_of_the_rows_lives_from_forward_to_backward() -> None:
    x, y = (torch.randn(40, 16, device=DEVICE).requires_grad_() for _ in range(2))
    with saved_for_backward() as sizes:
        norm = norm_of(16, torch.float32, training=True)
        normed(norm, x, y, x, relu=True, before=0.2, after=0.2)
    assert sum(size >= x.nbytes for size in sizes.values()) == 1
