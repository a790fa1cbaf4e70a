"""Every method computes the attention that its name says."""

import pytest
import torch
from support.cases import check_each

from kmip_data.models.attention.reference import attend_in_graph
from kmip_data.models.benchmarking.methods import (
    WorkloadOptions,
    default_methods,
    get_method,
    method_names,
    paper_sizes_up_to,
    random_workload,
)
from kmip_data.models.search.backends import keops
from kmip_data.models.search.topk import backend_names

pytestmark = pytest.mark.usefixtures("one_thread")
EXACT = ["auto", "cpu", "dense", "naive"]


def attend(name, work):
    method = get_method(name)
    if method.why_unusable("cpu"):
        pytest.skip(method.why_unusable("cpu"))
    return method.attend(work, 2**10)  # several chunks


def test_every_method_computes_the_attention_of_its_name():
    def check(name):
        k = 5 if name in EXACT else 99
        work = random_workload(WorkloadOptions(heads=2, d=4, k=5), 30)
        expected, *_ = attend_in_graph(*work.tensors, k)
        torch.testing.assert_close(attend(name, work), expected, atol=1e-5, rtol=1e-4)

    check_each(check, [*EXACT, "full", "sdpa"])


@pytest.mark.slow
def test_symbolic_matrices_compute_the_same():
    """Reuses the kernel of ``tests/models/search/test_backends.py``, as each takes nine seconds to compile."""
    work = random_workload(WorkloadOptions(heads=2, d=3, k=8), 60)
    with keops._one_compiler_at_a_time(("cpu", 3, 8)):
        out = attend("symbolic", work)
    expected, *_ = attend_in_graph(*work.tensors, 8)
    torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-4)


def test_gradients_of_methods_equal_the_dense_method():
    def check(name):
        work = random_workload(WorkloadOptions(d=4, k=40 if name == "full" else 6), 40)
        gradients = []
        for method in ("dense", name):
            leaves = [tensor.clone().requires_grad_() for tensor in work.tensors]
            out = attend(method, type(work)(*leaves, work.k))
            gradients.append(torch.autograd.grad((out * out).sum(), leaves))
        for ours, theirs in zip(*gradients, strict=True):
            torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-3)

    check_each(check, ["naive", "full"])


def test_methods_have_names_inputs_and_sizes():
    assert set(backend_names()) <= set(method_names())
    assert default_methods("cpu")[0] == "auto"
    assert "flash" not in default_methods("cpu")
    assert "CUDA" in get_method("flash").why_unusable("cpu")
    sphere = random_workload(WorkloadOptions(d=5, data="sphere"), 20)
    torch.testing.assert_close(sphere.keys.norm(dim=-1), torch.ones(1, 20))
    one, again, other = (random_workload(WorkloadOptions(), 10, seed=seed) for seed in (3, 3, 4))
    assert torch.equal(one.keys, again.keys)
    assert not torch.equal(one.keys, other.keys)
    assert paper_sizes_up_to(1e5) == [100, 316, 1000, 3162, 10000, 31622, 100000]
    assert paper_sizes_up_to(999) == paper_sizes_up_to(316) == [100, 316]
