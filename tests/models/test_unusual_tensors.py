"""Tensors that a search or a layer cannot take end in our error; lazy signs are applied."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from kmip_data.errors import KmipDataError
from kmip_data.models import (
    BigBirdAttention,
    ExphormerAttention,
    ExphormerInitialState,
    KMIPAttention,
    KMIPMultiheadAttention,
    PerformerAttention,
    TransformerAttention,
    kmip_attention,
    read_batch,
    topk_inner_product,
)

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # PyTorch's about such tensors
Call = Callable[..., Any]
#: Objects that a program may pass where a dense tensor belongs; each may refuse to be made of some dtypes.
ANY: dict[str, Call] = {
    "sparse": Tensor.to_sparse,
    "sparse CSR": Tensor.to_sparse_csr,
    "meta": lambda x: x.to("meta"),
    "complex, lazily conjugated": lambda x: x.cfloat().conj(),
    "MKL-DNN": Tensor.to_mkldnn,
    "nested": lambda x: torch.nested.nested_tensor([x, x]),
    "jagged": lambda x: torch.nested.nested_tensor(list(x), layout=torch.jagged),
    "quantised": lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),
    "8-bit float": lambda x: x.to(torch.float8_e4m3fn),
    "text": lambda _: "036",
    "one axis": Tensor.flatten,
    "an axis more": lambda x: x[..., None].expand(*x.shape, 2),
    "a column more": lambda x: torch.cat([x, x[..., :1]], -1),
}
FLOATING: dict[str, Call] = ANY | {
    "integers": Tensor.long,
    "bool": lambda x: x > 0,
    "double": Tensor.double,
    "missing": lambda _: None,
    "list": Tensor.tolist,
    "numpy": Tensor.numpy,
}
BACKENDS = (None, 3, b"cpu", ["cpu"], "", "nothing")


def k_mip(**options: Any) -> KMIPAttention:
    return KMIPAttention(8, heads=2, key_dim=3, k=2, **options)


def exphormer(x: Tensor) -> Any:
    batch = read_batch(Data(x=torch.ones(6, 8), edge_index=torch.tensor([[0, 1], [1, 2]])))
    (carried,) = ExphormerInitialState(8, expander=False)(torch.ones(1, 8), batch)
    return ExphormerAttention(8, heads=2)(x, batch, carried)


def calls() -> dict[str, tuple[Call, dict[str, Tensor]]]:
    """Functions with tensors that they take."""
    torch.manual_seed(0)
    rows = {name: torch.randn(2, 6, 4) for name in ("queries", "keys", "values")}
    pair = {name: rows[name] for name in ("queries", "keys")}
    sequences = {name: torch.randn(5, 2, 8) for name in ("query", "key", "value")}
    ptr, nodes = torch.tensor([0, 3, 6]), torch.randn(6, 8)
    modules = {
        "KMIPAttention": k_mip,
        "with legacy padding": partial(k_mip, legacy_padding=True),
        "BigBirdAttention": partial(BigBirdAttention, 8, heads=2),
        "PerformerAttention": partial(PerformerAttention, 8, heads=2, head_dim=4),
        "TransformerAttention": partial(TransformerAttention, 8, heads=2),
    }
    cases: dict[str, tuple[Call, dict[str, Tensor]]] = {
        "topk_inner_product": (lambda **t: topk_inner_product(k=3, **t), pair | {"query_ptr": ptr}),
        "kmip_attention": (lambda **t: kmip_attention(k=3, **t), rows | {"query_ptr": ptr}),
        "with gradient": (
            lambda **t: kmip_attention(k=3, **t),
            {name: each.clone().requires_grad_() for name, each in rows.items()},
        ),
        "multihead": (
            KMIPMultiheadAttention(8, 2, 2),
            sequences | {"key_padding_mask": torch.zeros(2, 5)},
        ),
        "one sequence": (
            KMIPMultiheadAttention(8, 2, 2),
            {n: s[:, 0] for n, s in sequences.items()},
        ),
        "exphormer": (exphormer, {"x": nodes}),
        "read_batch": (
            lambda **t: read_batch(Data(**t)),
            {
                "edge_index": torch.tensor([[0, 1], [1, 2]]),
                "x": nodes,
                "edge_attr": torch.ones(2, 3),
            },
        ),
        "read_batch of a table": (
            lambda **t: read_batch(Data(x=nodes, **t)),
            {"neighbor": torch.zeros(6, 3).long()},
        ),
    }
    cases |= {
        name: (lambda m=make, **t: m()(**t), {"x": nodes, "ptr": ptr})
        for name, make in modules.items()
    }
    return cases


def unusual(name: str, tensors: dict[str, Tensor]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The arguments of a call with one of them, or all rows, made unusual."""
    for argument, tensor in tensors.items():
        for kind, change in (FLOATING if tensor.is_floating_point() else ANY).items():
            try:
                changed = change(tensor.detach())
            except (
                RuntimeError,
                TypeError,
                IndexError,
            ):  # PyTorch makes no such tensor of integers
                continue
            yield f"{name}, {argument}: {kind}", tensors | {argument: changed}
            if argument in {"queries", "query"}:
                alike = [other for other in tensors if other in {"keys", "values", "key", "value"}]
                yield (
                    f"{name}, all rows: {kind}",
                    tensors | dict.fromkeys((argument, *alike), changed),
                )


def failure(call: Call, arguments: dict[str, Any]) -> str | None:
    """The error of another library that a call ends in, or None."""
    try:
        call(**arguments)
    except KmipDataError:
        return None
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return None


def test_unusual_tensors_and_shapes_end_in_our_error() -> None:
    cases = [
        (what, failure(call, changed))
        for name, (call, tensors) in calls().items()
        for what, changed in unusual(name, tensors)
    ]
    failed = [f"{what}: {why}" for what, why in cases if why]
    assert not failed, f"{len(failed)} of {len(cases)}:\n" + "\n".join(failed)


def test_a_backend_of_another_type_ends_in_our_error() -> None:
    rows, nodes, sequence = torch.randn(2, 6, 4), torch.randn(6, 8), torch.randn(5, 1, 8)
    functions: dict[str, Call] = {
        "topk": lambda backend: topk_inner_product(rows, rows, 3, backend=backend),
        "attention": lambda backend: kmip_attention(rows, rows, rows, 3, backend=backend),
        "module": lambda backend: k_mip(backend=backend)(nodes),
        "multihead": lambda backend: KMIPMultiheadAttention(8, 2, 2, backend=backend)(
            *[sequence] * 3
        ),
    }
    failed = [
        f"{name}, {backend!r}: {why}"
        for name, call in functions.items()
        for backend in BACKENDS
        if (why := failure(call, {"backend": backend}))
    ]
    assert not failed, "\n".join(failed)


def test_lazily_negated_tensors_give_the_usual_result() -> None:
    """The imaginary part of a conjugated tensor: a view with torch's negative bit."""
    failed = []
    for name, (call, tensors) in calls().items():
        for argument, tensor in tensors.items():
            negated = torch._neg_view(-tensor.detach())
            assert negated.is_neg()
            results = []
            for value in (tensor, negated):
                torch.manual_seed(0)
                try:
                    results.append(call(**{**tensors, argument: value}))
                except RuntimeError as error:
                    failed.append(f"{name}, {argument}: {error}")
            if name.startswith("read_batch") or len(results) < 2:
                continue
            firsts = [r if isinstance(r, Tensor) else r[0] for r in results]
            if not torch.equal(*firsts):
                failed.append(f"{name}, {argument}: another result")
    assert not failed, "\n".join(failed)
