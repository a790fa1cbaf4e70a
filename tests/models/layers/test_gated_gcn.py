"""GatedGCN: both edge forms agree, and who takes the edges.

Its formula is in test_whole_networks.py.
"""

from __future__ import annotations

import pytest
import torch
from support.kernels.layer_kernels import make_batch
from torch._subclasses.fake_tensor import FakeTensorMode

from kmip_data.models import kernel_availability
from kmip_data.models.layers import gated_gcn as layers
from kmip_data.models.layers.batch import EdgeList, GraphBatch, NeighborTable
from kmip_data.models.layers.gated_gcn import GatedGCN

N, K, D = 12, 3, 5


def make(**options) -> GatedGCN:
    torch.manual_seed(2)
    return GatedGCN(D, **{"dropout": 0.0, "residual": False, **options})


def features(*shape: int) -> torch.Tensor:
    return torch.randn(
        *shape, generator=torch.Generator().manual_seed(sum(shape)), requires_grad=True
    )


@pytest.mark.parametrize("training", [True, False])
def test_gated_gcn_accepts_graph_without_edges(training: bool) -> None:
    none = torch.zeros(0, dtype=torch.int64)
    layer, x = make().train(training), features(N, D)
    x_out, e_out = layer(x, torch.zeros(1, D), make_batch(EdgeList(none, none, N)))
    torch.testing.assert_close(x_out, make().train(training).norm_x(layer.A(x)).relu())
    assert e_out.shape == (0, D)
    x_out.sum().backward()


def chosen(
    device: str,
    form: str,
    dtype: torch.dtype = torch.float32,
    autocast: torch.dtype | None = None,
    **options,
) -> str:
    """The folder of the function that takes it.

    Tensors are fake, so that a GPU need not be there.
    """
    count = options.pop("edges", 12)
    layer = GatedGCN(5, dropout=0.0, residual=False, **options)
    for linear in (layer.B, layer.C, layer.D, layer.E):
        linear.to(dtype)
    with FakeTensorMode(), torch.device(device), pytest.MonkeyPatch.context() as patch:
        # Not torch.autocast, which needs the device.
        patch.setattr(
            torch, "is_autocast_enabled", lambda kind: kind == device and autocast is not None
        )
        patch.setattr(torch, "get_autocast_dtype", lambda kind: autocast)
        table = NeighborTable(torch.empty(count // 3, 3, dtype=torch.int64))
        edges = (
            table if form == "table" else EdgeList(*(torch.empty(count, dtype=torch.int64),) * 2, 4)
        )
        batch = GraphBatch(None, edges, None, torch.empty(3), None)
        kernel = layers._find_kernel(
            batch, *(torch.empty(rows, 5, dtype=dtype) for rows in (4, 12)), layer
        )
    return "torch" if kernel is None else kernel.__module__.split(".")[-2]


@pytest.mark.parametrize("form", ["table", "list"])
def test_device_and_precision_choose_the_kernel_of_the_edges(form: str, monkeypatch) -> None:
    monkeypatch.setattr(kernel_availability, "is_triton_available", lambda _: True)
    assert chosen("cpu", form) == ("cpu" if form == "table" else "torch")
    assert chosen("cuda", form) == "gpu"
    assert chosen("cuda", form, autocast=torch.bfloat16) == "gpu"
    assert chosen("cpu", form, autocast=torch.bfloat16) == "torch"
    assert chosen("cuda", form, autocast=torch.float16) == "torch"
    for device in ("cpu", "cuda"):
        assert chosen(device, form, torch.float64) == "torch"
        assert chosen(device, form, torch.bfloat16) == "torch"
        assert chosen(device, form, edges=0) == "torch"
        assert chosen(device, form, activation="gelu") == "torch"
        assert chosen(device, form, by_distance=True) == "torch"
    monkeypatch.setattr(kernel_availability, "is_triton_available", lambda _: False)
    assert chosen("cuda", form) == "torch"


def test_triton_needs_its_package_a_recent_gpu_and_a_compiler(monkeypatch) -> None:
    there = {"triton": object(), "capability": (8, 0), "cc": "/usr/bin/cc"}
    monkeypatch.setattr(kernel_availability.importlib.util, "find_spec", lambda name: there[name])
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: there["capability"])
    monkeypatch.setattr(kernel_availability.shutil, "which", lambda _: there["cc"])
    assert kernel_availability.is_triton_available.__wrapped__(torch.device("cuda"))
    for name, gone in (("triton", None), ("capability", (7, 5)), ("cc", None)):
        with monkeypatch.context() as patch:
            patch.setitem(there, name, gone)
            assert not kernel_availability.is_triton_available.__wrapped__(torch.device("cuda"))
