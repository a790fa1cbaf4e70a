"""The Triton backend without a GPU: interpreted in one process, compiled for real GPUs in another."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from kmip_data.errors import UsageError
from kmip_data.models.search import backend_status, topk_inner_product
from kmip_data.models.search.backends import triton as backend
from kmip_data.models.search.problem import check_problem

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
needs_triton = pytest.mark.skipif(
    "not installed" in (backend.unusable("cpu") or ""), reason="triton is not installed (Linux only)"
)


def child(*command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")]), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *command],
        env=environment | variables,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@needs_triton
@pytest.mark.slow
def test_kernels_in_the_interpreter() -> None:
    done = child(
        *(
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:xdist",
            "-p",
            "no:cacheprovider",
            "-o",
            "addopts=--import-mode=importlib",
        ),
        str(HERE / "triton_interpreted.py"),
        TRITON_INTERPRET="1",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (passed,) = re.findall(r"(\d+) passed", done.stdout)
    assert int(passed) >= 20


COMPILE = """
import json
from support import triton_resources as resources
found = {{}}
for target, configurations in {sizes}.items():
    found[target] = [vars(each) for each in resources.packing_resources(target)]
    for dim, k, nodes, fused in configurations:
        found[target].append(vars(resources.search_resources(target, dim, k, nodes, fused=fused)))
print(json.dumps(found))
"""


@needs_triton
@pytest.mark.slow
def test_kernels_compile_without_a_gpu_and_hardly_spill() -> None:
    papers = (10, 10, 100_000, False)
    sizes = {  # the others compile for half a minute a target: each for one
        80: [papers, (10, 100, 100_000, False), (5, 4, 8, False)],
        90: [papers, (256, 10, 100_000, False), (10, 10, 100_000, True)],
    }
    done = child("-c", COMPILE.format(sizes=sizes))
    assert done.returncode == 0, done.stderr
    found: dict[str, list[dict[str, Any]]] = json.loads(done.stdout)
    assert {target: kernels[2]["tensor_cores"] for target, kernels in found.items()} == {
        "80": "mma.sync",
        "90": "wgmma",
    }
    for target, kernels in found.items():
        assert len(kernels) == 2 + len(sizes[int(target)])
        assert max(kernel["spilled"] for kernel in kernels) <= 48, target  # docs/triton.md has each
        for kernel in kernels[:3]:  # packing, and the search of the paper's size
            assert kernel["spilled"] == 0
            assert 16 < kernel["registers"] <= 255
            assert kernel["shared"] <= 48 * 1024


def test_it_says_why_it_cannot_run_here(monkeypatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    (row,) = (row for row in backend_status(("cpu",)) if row.name == "triton")
    assert not row.usable
    assert "CUDA only" in row.reason or "not installed" in row.reason
    rows = torch.ones(1, 4, 2)
    with pytest.raises(UsageError, match="search backend 'triton' cannot"):
        topk_inner_product(rows, rows, 2, backend="triton")


def test_it_refuses_what_it_cannot_take() -> None:
    def refusal(rows: torch.Tensor, k: int) -> str | None:
        return backend.refuses(check_problem(rows, rows, k))

    assert refusal(torch.ones(1, 2, 2), 2) is None
    assert "float32" in str(refusal(torch.ones(1, 2, 2, dtype=torch.float64), 2))
    assert "d = 256" in str(refusal(torch.ones(1, 2, 257), 2))
    assert "1024" in str(refusal(torch.ones(1, 2, 2), 1025))


def test_naming_it_loads_no_kernel() -> None:
    program = (
        "import sys, kmip_data.models.search as s; s.backend_status(('cpu', 'cuda'))\n"
        "print([name for name in sys.modules if 'search.gpu' in name])"
    )
    assert (
        child("-c", program)
        .stdout.strip()
        .endswith("['kmip_data.models.search.gpu', 'kmip_data.models.search.gpu.tiling']")
    )


@pytest.mark.skipif(
    not torch.cuda.is_available(), reason="no CUDA device: kernels were only interpreted and compiled"
)
@pytest.mark.parametrize("dim", [3, 10, 64, 256])
@pytest.mark.parametrize("k", [1, 10, 100, 1000])
def test_on_a_gpu(dim: int, k: int) -> None:
    generator = torch.Generator().manual_seed(3)
    queries, keys = (torch.randn(2, 20_000, dim, generator=generator).cuda() for _ in range(2))
    ptr = [0, 500, 501, 15_000, 20_000]
    expected = topk_inner_product(queries, keys, k, query_ptr=ptr, backend="dense")
    found = topk_inner_product(queries, keys, k, query_ptr=ptr, backend="triton")
    assert torch.equal(found[1], expected[1])
    assert torch.equal(found[0] + 0.0, expected[0] + 0.0)
