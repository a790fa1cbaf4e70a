"""GatedGCN's kernels for a GPU against a formula in float64: interpreted, or on a GPU where there is one.

``tests/models/test_kernels_without_a_gpu.py`` runs it in a process of its own.
"""

from __future__ import annotations

import contextlib
import itertools

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from support.cases import check_each
from support.kernels.allocations import saved_for_backward
from support.kernels.layer_kernels import DEVICE, draw, draw_on_cpu, make_batch, make_norm
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from kmip_data.models.layers import gated_gcn as layers
from kmip_data.models.layers.batch import EdgeList, Edges, NeighborTable
from kmip_data.models.layers.cpu import gated_edges as cpu
from kmip_data.models.layers.gated_gcn import GatedGCN
from kmip_data.models.layers.gpu import gated_edges as gpu
from kmip_data.models.layers.gpu.gate_kernels import channels_per_tile, keep_mask
from kmip_data.models.layers.norms import BatchNorm
from kmip_data.models.network import apply_checkpointed

N, SEED = 13, 6


def long(*values):
    """A case that takes the interpreter many seconds."""
    return pytest.param(*values, marks=pytest.mark.torture)


NAMES = ("quotient", "new", "at_target", "at_source", "message", "old", "weight", "scale", "shift")


def gated_edges(edges, *arguments):
    return gpu.gated_edges(make_batch(edges), *arguments)


def on_cpu(edges, *arguments):
    return cpu.gated_edges(make_batch(edges), *arguments)


def table(k: int = 4, nodes: int = N, dtype: torch.dtype = torch.int64) -> NeighborTable:
    generator = torch.Generator().manual_seed(4)
    return NeighborTable(
        torch.randint(0, nodes, (nodes, k), generator=generator, dtype=dtype).to(DEVICE)
    )


def edge_list(count: int = 40, nodes: int = N, hub: str = "") -> EdgeList:
    """Edges in any order, some of them twice; no node ≥ 9 is a target, none ≤ 1 is a source."""
    generator = torch.Generator().manual_seed(5)
    source = torch.randint(min(2, nodes - 1), nodes, (count,), generator=generator)
    target = torch.randint(0, min(9, nodes), (count,), generator=generator)
    if hub:
        (source if hub == "source" else target)[: count - 3] = 3
    return EdgeList(source.to(DEVICE), target.to(DEVICE), nodes)


def inputs(edges: Edges, d: int, *, shared: bool, far: float = 0.0) -> list[Tensor]:
    """Node tensors, old edges and weight."""
    generator = torch.Generator().manual_seed(d)
    shape = edges.neighbor.shape if isinstance(edges, NeighborTable) else edges.source.shape
    nodes = shape[0] if isinstance(edges, NeighborTable) else edges.num_nodes
    shapes = [*[(nodes, d)] * 3, (1, d) if shared else (*shape, d), (d, d)]
    tensors = [torch.randn(each, generator=generator) for each in shapes]
    tensors[4] /= d**0.5
    tensors[0][:, 0] += far
    return [each.to(DEVICE) for each in tensors]


def formula(
    edges: Edges, at_target: Tensor, at_source: Tensor, message: Tensor, old: Tensor, weight: Tensor | None,
    norm: BatchNorm | None, dropout: float,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """Compute the definition of the kernels in any dtype."""
    source, target = edges.index
    d = at_target.shape[1]
    z = at_target[target] + at_source[source]
    if weight is not None:
        z = z + old.view(-1, d) @ weight.t()
    gate = torch.sigmoid(z)
    none = torch.zeros_like(at_target)
    above, below = (none.index_add(0, target, rows) for rows in (gate * message[source], gate))
    if norm is None:
        return above / (below + 1e-6), None
    active = norm(z).relu()
    if dropout:
        seed = int(torch.empty(1, dtype=torch.int64, device=DEVICE).random_())
        mask = draw_on_cpu(seed, len(z), d, dropout).to(z)
        active = active * mask * (1 / (1 - round(dropout * 2**32) / 2**32))
    new = old.reshape(-1, d) + active
    return above / (below + 1e-6), new.view(*edges.neighbor.shape, d) if hasattr(
        edges, "neighbor"
    ) else new


def step(
    function, edges: Edges, d: int, dtype: torch.dtype, *, update: bool = True, shared: bool = False,
    training: bool = True, dropout: float = 0.0, use: str = "both", far: float = 0.0,
) -> list[Tensor]:  # fmt: skip
    """Outputs, all gradients and statistics, as float64."""
    tensors = [each.to(dtype).requires_grad_() for each in inputs(edges, d, shared=shared, far=far)]
    norm = make_norm(d, dtype, training=training)
    weights = [*tensors, norm.weight, norm.bias]
    torch.manual_seed(SEED)
    *arguments, weight = tensors
    kernel_weight = None if shared else weight
    quotient, new = function(edges, *arguments, kernel_weight, norm if update else None, dropout)
    loss = 0.0
    for name, output in zip(("nodes", "edges"), (quotient, new), strict=True):
        if output is not None and use in (name, "both"):
            slopes = torch.randn(output.shape, generator=torch.Generator().manual_seed(1))
            loss = loss + (output * slopes.to(output)).sum()
    grads = torch.autograd.grad(loss, weights, allow_unused=True, materialize_grads=True)
    outputs = quotient, quotient if new is None else new
    return [each.detach().double() for each in (*outputs, *grads, *norm.buffers())]


def check(edges: Edges, d: int, **options) -> None:
    """Assert that the kernel's error against float64 is at most four times the float32 formula's."""
    results = step(gated_edges, edges, d, torch.float32, **options)
    exact = step(formula, edges, d, torch.float64, **options)
    other = step(formula, edges, d, torch.float32, **options)
    for name, a, b, c in zip(
        (*NAMES, "mean", "variance", "count"), results, other, exact, strict=True
    ):
        scale = float(c.abs().max())
        error, of_formula = (float((each - c).abs().max()) for each in (a, b))
        assert error <= 4 * of_formula + 3e-6 * scale + 1e-5, (name, error, of_formula, scale)


def hubs(form: str) -> Edges:
    if form != "table":
        return edge_list(50, hub=form)
    edges = table()
    edges.neighbor[:, :3] = 7
    return edges


@pytest.mark.parametrize("length", ["short", long("long")])
def test_equals_the_formula(length: str) -> None:
    """Dropout, new edges, training and outputs on and off; hubs, and means far from zero."""
    cases = [
        (table, 19, {}),
        (edge_list, 5, {"dropout": 0.2}),
        (edge_list, 5, {"use": "edges", "dropout": 0.2}),
        (table, 14, {"use": "nodes", "shared": True, "far": 1000.0}),
        (table, 5, {"update": False, "use": "nodes"}),
        (edge_list, 20, {"training": False}),
        (lambda: hubs("source"), 5, {}),
        (lambda: hubs("table"), 5, {}),
        (lambda: table(k=1, nodes=1), 5, {}),
        (lambda: edge_list(1, 2), 5, {}),
        (lambda: table(k=2, nodes=40, dtype=torch.int32), 5, {}),  # more than a tile
    ]
    if length == "long":
        shapes = itertools.product((table, edge_list), (5, 14, 19, 76), ({}, {"dropout": 0.2}))
        cases = [
            *shapes,
            (lambda: hubs("target"), 5, {"dropout": 0.2}),
            (edge_list, 14, {"far": 1000.0}),
        ]
        cases += [(lambda: table(k=3, nodes=1), 16, {}), (lambda: edge_list(90, 40), 5, {})]
        cases += [
            (table, 20, {"training": False}),
            (edge_list, 20, {"update": False, "use": "nodes"}),
        ]
    check_each(lambda case: check(case[0](), case[1], **case[2]), cases)


def test_tiles_pad_to_the_next_sixteen_channels() -> None:
    for d in range(1, 257):
        tile = channels_per_tile(d)
        assert -(-d // tile) * tile == -(-d // 16) * 16
    assert [channels_per_tile(d) for d in (56, 64, 76, 128)] == [64, 64, 16, 64]


@pytest.mark.skipif(DEVICE.type == "cuda", reason="the two devices draw other seeds")
def test_gpu_kernels_equal_the_cpu_kernels() -> None:
    ours, theirs = (
        step(each, table(), 19, torch.float32, dropout=0.3) for each in (gated_edges, on_cpu)
    )
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


@triton.jit
def keeps(out, seed, first, dropped, SIZE: tl.constexpr):
    within = tl.arange(0, SIZE)
    number = tl.load(first) + within.to(tl.int64)
    tl.store(out + within, keep_mask(seed, number, within, dropped).to(tl.int32))


def test_dropout_draws_what_the_cpu_draws() -> None:
    def check_case(case) -> None:
        expected, dropped = np.empty(128, np.float32), round(0.4 * 2**32)
        draw(*case, dropped, expected)
        draws = torch.empty(128, dtype=torch.int32, device=DEVICE)
        keeps[(1,)](
            draws, *(torch.tensor([number], device=DEVICE) for number in case), dropped, SIZE=128
        )
        assert np.array_equal(draws.cpu().numpy(), expected)

    seeds, firsts = (0, 77, 2**40 + 5, -3), (0, 48, 2**32 - 64, 2**32 - 8, 2**35 + 16)
    check_each(check_case, itertools.product(seeds, firsts))


@pytest.mark.parametrize("form", [edge_list, long(table)])
def test_bfloat16_under_autocast(form) -> None:
    """Z and the edges are rounded to 8 bits; what is summed over nodes and edges is not."""
    edges, d = form(), 19

    def mixed(*arguments):
        with torch.autocast(DEVICE.type, torch.bfloat16):
            quotient, new = gated_edges(*arguments)
        assert (quotient.dtype, new.dtype) == (torch.float32, torch.bfloat16)
        return quotient, new

    results, exact = step(mixed, edges, d, torch.float32), step(formula, edges, d, torch.float64)
    for name, a, c in zip((*NAMES, "mean", "variance"), results, exact, strict=False):
        # In norm: a z next to 0 may have its gradient or not.
        assert float((a - c).norm()) <= 0.04 * float(c.norm()), name


def stack(
    edges: Edges, d: int, inputs: list[Tensor], precision: str, *, p: float = 0.0, recompute=False
):
    """Three layers that hand their edges on, and all gradients; ``float64``: in torch."""
    torch.manual_seed(3)
    exact = precision == "float64"
    layers_ = torch.nn.ModuleList(
        GatedGCN(d, dropout=p, residual=True, update_edges=number < 2) for number in range(3)
    ).to(DEVICE, torch.float64 if exact else torch.float32)
    x, e = (each.to(layers_[0].A.weight.dtype).requires_grad_() for each in inputs)
    rows, values = x, e
    torch.manual_seed(SEED)
    weights = [each for each in layers_.parameters() if each.requires_grad]
    batch = make_batch(edges)
    with torch.autocast(DEVICE.type, torch.bfloat16, enabled=precision == "bf16-mixed"):
        for layer in layers_:
            rows, values = (apply_checkpointed if recompute else GatedGCN.__call__)(
                layer, rows, values, batch
            )
    grads = torch.autograd.grad(rows.double().sin().sum(), [x, e, *weights])
    return [each.detach().double() for each in (rows, *grads, *layers_.buffers())]


@pytest.fixture
def by_kernels(monkeypatch) -> None:
    """Layers take the kernels, but for float64."""
    monkeypatch.setattr(
        layers,
        "_find_kernel",
        lambda _, x, *__: None if x.dtype == torch.float64 else gpu.gated_edges,
    )


@pytest.mark.usefixtures("by_kernels")
@pytest.mark.parametrize("d", [5, *map(long, (14, 19, 76, 136))])
def test_stacked_layers_that_pass_edges_on_agree_with_float64(d: int) -> None:
    edges = table(k=1) if d % 2 else edge_list(hub="source")
    x, _, _, e, _ = inputs(edges, d, shared=False)
    results = stack(edges, d, [x, e], "32")
    exact = stack(edges, d, [x, e], "float64")
    for number, (a, b) in enumerate(zip(results, exact, strict=True)):
        assert float((a - b).norm()) <= 3e-5 * float(b.norm()) + 2e-5, number


@pytest.mark.usefixtures("by_kernels")
@pytest.mark.parametrize("precision", ["32", long("bf16-mixed")])
@pytest.mark.parametrize(("form", "shared"), [long(table, True), (edge_list, False)])
def test_dropout_and_shared_rows_of_edges_that_are_handed_on(
    form, shared: bool, precision: str
) -> None:
    """The same bits twice, and in recomputed layers."""
    edges, d = form(), 5
    x, _, _, e, _ = inputs(edges, d, shared=shared)
    results, again = (stack(edges, d, [x, e], precision, p=0.3) for _ in range(2))
    other = stack(edges, d, [x, e], precision, p=0.3, recompute=True)
    for repetition in (again, other):
        assert all(torch.equal(a, b) for a, b in zip(results, repetition, strict=True))


@pytest.mark.usefixtures("by_kernels")
def test_evaluation_computes_edges_in_place_of_z() -> None:
    edges, d = edge_list(), 19
    x, _, _, e, _ = inputs(edges, d, shared=False)
    results = []
    for dtype in (torch.float32, torch.float64):
        torch.manual_seed(3)
        pair = [GatedGCN(d, dropout=0.3, residual=True).eval().to(DEVICE, dtype) for _ in "12"]
        rows, values = x.to(dtype), e.to(dtype)
        with torch.inference_mode():
            for layer in pair:
                rows, values = layer(rows, values, make_batch(edges))
            results.append([rows, values])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a.double(), b, atol=1e-4, rtol=1e-4)


@pytest.mark.usefixtures("by_kernels")
def test_two_edge_tensors_of_each_layer_live_where_edges_are_handed_on() -> None:
    edges, d = table(k=8), 5
    x, _, _, e, _ = inputs(edges, d, shared=False)
    with saved_for_backward() as sizes:
        stack(edges, d, [x, e], "32")
    assert sum(size >= e.nbytes for size in sizes.values()) == 2 * 3


class InTF32(TorchDispatchMode):
    """Matrix products of operands rounded to 11 significant bits, as tensor cores take them."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default):
            bits = [(each.contiguous().view(torch.int32) + 0x1000) & -0x2000 for each in args[-2:]]
            args = (*args[:-2], *(each.view(torch.float32) for each in bits))
        return func(*args, **(kwargs or {}))


#: Most that new nodes, new edges and gradients are off, in norm; docs/fidelity.md has these
#: figures.
ERRORS = {
    "32": (3e-7, 3e-7, 1e-6),
    "tf32": (1e-3, 1e-3, 3e-2),
    "bf16-mixed": (1e-2, 1e-2, 5e-2),
}


@pytest.mark.torture
@pytest.mark.parametrize("precision", ERRORS)
def test_errors_stay_within_the_bound_of_each_precision(precision: str, monkeypatch) -> None:
    """Against float64; products are computed on the GPU, or emulated where there is none."""
    d, edges = 56, table(k=6, nodes=16)
    monkeypatch.setattr(
        layers, "_find_kernel", lambda _, x, *__: None if x.dtype == torch.float64 else gated_edges
    )
    emulated = contextlib.nullcontext()
    if DEVICE.type == "cpu" and precision == "tf32":
        emulated = InTF32()
    x, _, _, e, _ = inputs(edges, d, shared=False)
    results = []
    for dtype in (torch.float64, torch.float32):
        torch.manual_seed(2)
        layer = GatedGCN(d, dropout=0.0, residual=False).to(DEVICE, dtype)
        rows = [each.to(dtype).requires_grad_() for each in (x, e)]
        with emulated if dtype == torch.float32 else contextlib.nullcontext():
            mixed = dtype == torch.float32 and precision == "bf16-mixed"
            with torch.autocast(DEVICE.type, torch.bfloat16, enabled=mixed):
                x_new, e_new = layer(*rows, make_batch(edges))
            loss = (x_new.double().sin().sum() + e_new.double().cos().sum()).to(dtype)
            grads = torch.autograd.grad(loss, [*rows, *layer.parameters()])
        results.append([x_new, e_new, torch.cat([each.flatten() for each in grads])])
    errors = [
        float((b.double() - a).detach().norm() / a.detach().norm())
        for a, b in zip(*results, strict=True)
    ]
    assert all(error <= most for error, most in zip(errors, ERRORS[precision], strict=True)), errors
