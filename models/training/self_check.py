"""Self-check of GPU kernels and trial of search backends, in child processes that may crash or hang.

A child process is ``python -m kmip_data.models.training.self_check FEATURE DEVICE SIZES``. All
start at once, to compile in parallel. A run avoids failed features, which it adds to
``DISABLED_GPU_FEATURES`` in ``models/kernel_availability.py``; that module loads PyTorch's compiler,
so it is imported on use.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs
import torch
from torch import Tensor, nn

from kmip_data.files.small_files import json_digest
from kmip_data.models.config import ModelConfig
from kmip_data.models.search import topk
from kmip_data.models.search.backends import cuda
from kmip_data.models.search.gpu.plan import MAX_DIM, MAX_K
from kmip_data.runtime.current_folder import safe_children

if TYPE_CHECKING:
    from torch_geometric.data import Data

    from kmip_data.models.training.capture.steps import CapturedSteps

log = logging.getLogger(__name__)

OK = "ok"
TIMED_OUT = "no result within"  #: prefix of the reason for a process that was too slow
#: Pattern of success, and of errors that kernels do not cause.
PASSED_OR_UNRELATED = "^ok$|out of memory|busy or unavailable"
#: Time limits of a feature's check and of a backend's trial, including imports and compilation.
CHECK_SECONDS = 60.0
TRIAL_SECONDS = 600.0
#: Arguments of Python for a child process.
CHILD_COMMAND = ("-m", "kmip_data.models.training.self_check")
#: GPU features with a slower replacement: another search backend, PyTorch operators, uncaptured steps.
GPU_FEATURES = ("search", "attention", "edges", "capture")


def check_gpu_before_run(model: ModelConfig, device_name: str) -> None:
    """Check the GPU of a run unless switched off; replace features that fail, with a warning."""
    if os.environ.get("KMIP_DATA_SELF_CHECK") == "off":
        return
    from kmip_data.models.kernel_availability import DISABLED_GPU_FEATURES

    results = check_all_gpu_features(kernel_sizes(model))
    failed = {
        feature: reason
        for feature, reason in results.items()
        if not re.search(PASSED_OR_UNRELATED, reason)
    }
    if failed.items() <= DISABLED_GPU_FEATURES.items():
        return
    DISABLED_GPU_FEATURES.update(failed)
    log.warning(
        "the self-check of %s disables: %s. The run continues, but slower. Please report it with the "
        "output of `kmip-data doctor --json`.",
        device_name,
        "; ".join(map(": ".join, failed.items())),
    )


def kernel_sizes(model: ModelConfig) -> dict[str, int]:
    """Return the sizes of a network that determine its kernels."""
    attention = model.attention if model.attention.kind == "k-mip" else ModelConfig().attention
    sizes = attention.model_dump(include={"heads", "k", "key_dim", "value_dim"})
    sizes["k"] = int(torch.tensor(sizes["k"]).max())
    sizes["value_dim"] = sizes["value_dim"] or max(1, model.hidden_dim // sizes["heads"])
    return sizes | {"hidden_dim": model.hidden_dim}


def check_all_gpu_features(sizes: dict[str, int]) -> dict[str, str]:
    """Check all features on this GPU; return ``ok`` or the error of each. Success is cached."""
    folder = platformdirs.user_cache_dir("kmip-data", appauthor=False)
    passed = Path(folder, "self-check", _environment_digest(sizes))
    if passed.exists():
        return dict.fromkeys(GPU_FEATURES, OK)
    log.warning("compiling and checking kernels for this GPU, once: up to a minute …")
    results = check_gpu_features("cuda", sizes)
    if {*results.values()} == {OK}:
        with contextlib.suppress(OSError):  # without a cache, the next run checks again
            passed.parent.mkdir(parents=True, exist_ok=True)
            passed.touch()
    return results


def _environment_digest(sizes: dict[str, int]) -> str:
    """Return a digest of sizes, GPU, compiler versions, and the source files of models."""
    facts: list[object] = [sizes, torch.cuda.get_device_name()]
    for package in ("torch", "triton", "cuda-core", "cuda-bindings"):
        with contextlib.suppress(PackageNotFoundError):
            facts.append(f"{package} {version(package)}")
    for pattern in ("*.py", "*.cu", "*.cuh"):
        sources = sorted(Path(__file__).parents[1].rglob(pattern))
        facts += (source.read_text("utf-8") for source in sources)
    return json_digest(facts)


@safe_children()
def check_gpu_features(
    device: str, sizes: dict[str, int], features: Sequence[str] = GPU_FEATURES
) -> dict[str, str]:
    """Check features, or search backends on a small problem; return ``ok`` or the error of each."""

    def check(feature: str) -> str:
        return run_child(
            CHECK_SECONDS if feature in GPU_FEATURES else TRIAL_SECONDS,
            feature,
            device,
            json.dumps(sizes),
        )

    with ThreadPoolExecutor(len(features)) as pool:
        return dict(zip(features, pool.map(check, features), strict=True))


def run_child(timeout: float, *arguments: str) -> str:
    """Run a child process for at most ``timeout`` seconds; return ``ok`` or the reason it failed."""
    command = [sys.executable, *CHILD_COMMAND, *arguments]
    try:
        child = subprocess.run(command, capture_output=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        return f"{TIMED_OUT} {timeout:.0f} s"
    if child.returncode < 0:
        return f"its process died: {signal.Signals(-child.returncode).name}"
    last_line = child.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
    return last_line if child.returncode else OK


# ---- in a child process: checks that exit with the reason if they fail --------------------------------
#: Relative tolerances in the Euclidean norm; PyTorch's operators are up to 2e-6 and 0.2 away.
TOLERANCES = {torch.float32: 1e-3, torch.bfloat16: 0.5}
#: Rows for three code paths of the search: a batch, keys sorted by norm, warps that share keys.
BATCH_ROWS = 1_500
SORTED_ROWS = 9_000
SHARED_ROWS = 25_000
#: Graphs of each size in a batch.
GRAPHS_PER_SIZE = 8
require_same_bits = functools.partial(torch.testing.assert_close, rtol=0, atol=0, msg="other bits")


def main(feature: str, device: str, sizes: str) -> None:
    """Check a feature, if the device has kernels for it, or try a search backend."""
    check = check_layers if feature in GPU_FEATURES[1:] else check_search
    check(feature, torch.device(device), **json.loads(sizes))


def check_search(
    name: str,
    device: torch.device,
    *,
    heads: int = 1,
    k: int = 10,
    key_dim: int = 10,
    **_: int,
) -> None:
    """Check that a search backend, or the CUDA search as ``search``, returns the bits of ``dense``."""
    shapes = [(heads, 100)]
    if name == "search":
        if cuda.why_unusable(device.type) is not None:
            return
        name = "cuda"
        shapes = [(heads, BATCH_ROWS), (1, SORTED_ROWS), (4, SHARED_ROWS)]
    # The CUDA search supports only these sizes.
    k = min(k, MAX_K)
    dim = min(key_dim, MAX_DIM)
    for count, rows in shapes:
        # Ties, an empty graph, and a graph with fewer keys than k.
        queries, keys = torch.randn(2, count, rows, dim, device=device).round(decimals=1)
        ptr = torch.tensor([0, 0, 3, rows])
        expected = topk.search_op(queries, keys, k, ptr, None, "dense")
        require_same_bits(topk.search_op(queries, keys, k, ptr, None, name), expected)


def check_layers(feature: str, device: torch.device, **sizes: int) -> None:
    """Check that gradients of attention or edges are close to float64, and reproducible."""
    from kmip_data.models.kernel_availability import DISABLED_GPU_FEATURES

    if feature == "capture":
        check_cuda_graphs(device, sizes)
        return
    DISABLED_GPU_FEATURES.update(dict.fromkeys(GPU_FEATURES, "another feature"))
    del DISABLED_GPU_FEATURES[feature]
    for (dtype, tolerance), table in itertools.product(TOLERANCES.items(), (True, False)):
        step = functools.partial(train_layers, device, sizes, table=table)
        require_near(step(dtype), step(torch.float64), tolerance)
        # PyTorch's operators drop other elements, so compare with a repetition instead.
        require_same_bits(step(dtype, dropout=0.5), step(dtype, dropout=0.5))


def check_cuda_graphs(device: torch.device, sizes: dict[str, int]) -> None:
    """Compare captured training steps with uncaptured ones."""
    from kmip_data.models.training.capture import cuda_graphs, steps

    # Searches other than the CUDA one wait for the GPU, which cannot be captured.
    search = "auto" if cuda.why_unusable(device.type) is None else None
    captured = steps.CapturedSteps(cuda_graphs.CudaGraphs(device), sys.exit)
    # Of six steps, two warm up, one is captured and replayed, and three are replayed.
    train = functools.partial(train_layers, device, sizes, steps=6, search=search)
    require_near(train(captured=captured), train(), 1e-3)


def train_layers(
    device: torch.device,
    sizes: dict[str, int],
    dtype: torch.dtype = torch.float32,
    *,
    table: bool = True,
    dropout: float = 0.0,
    steps: int = 1,
    captured: CapturedSteps | None = None,
    search: str | None = "dense",
) -> list[Tensor]:
    """Run training steps of a network with two layers; return the last one's logits and gradients."""
    from kmip_data.models.network import build_model
    from kmip_data.models.training.capture.cuda_graphs import StepOutput

    attention_settings = {**sizes, "search": search, "output_projection": True, "dropout": dropout}
    settings = {"layers": 2, "hidden_dim": attention_settings.pop("hidden_dim"), "dropout": dropout}
    attention = {"kind": "none"} if search is None else attention_settings
    config = ModelConfig.model_validate(settings | {"attention": attention})
    precision = torch.promote_types(dtype, torch.float32)
    torch.manual_seed(0)
    model = build_model(config, in_channels=6, out_channels=4).to(device, precision)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2, eps=1e-2, fused=True)

    def step(batch: Data, *_: object, **__: object) -> StepOutput:
        optimizer.zero_grad(set_to_none=False)
        with torch.autocast(device.type, torch.bfloat16, enabled=dtype != precision):
            logits = model(batch)
        loss = nn.functional.cross_entropy(logits, batch.y)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return StepOutput(logits.detach(), batch.y, loss.detach(), loss.detach())

    for seed in range(steps):
        batch = _make_batch(sizes["k"], table=table, seed=seed).to(device)
        batch.x = batch.x.to(precision)
        if captured is not None:
            output = captured(step, batch, optimizer, starts_step=True, ends_step=True)
        else:
            output = step(batch)
    gradients = (weight.grad for weight in model.parameters())
    return [output.logits, *filter(torch.is_tensor, gradients)]


def _make_batch(k: int, *, table: bool, seed: int) -> Data:
    """Make graphs of at most k nodes, so that rounding cannot change the selected keys."""
    from torch_geometric.data import Batch, Data

    torch.manual_seed(seed)
    graphs = []
    for nodes in (k, 1, k // 2 + 1) * GRAPHS_PER_SIZE:
        edges = torch.randint(nodes, (2, nodes, 4))
        graph = Data(torch.randn(nodes, 6), edges.flatten(1), y=torch.arange(nodes) % 4)
        if table:
            del graph.edge_index
            graph.neighbor = edges[0].to(torch.uint16)
        graphs.append(graph)
    return Batch.from_data_list(graphs)


def require_near(results: list[Tensor], exact: list[Tensor], tolerance: float) -> None:
    """Exit with the reason if a tensor, of any shape, differs from its exact value in norm."""
    largest = max(tensor.norm() for tensor in exact)
    for result, expected in zip(results, exact, strict=True):
        error = (result - expected).norm()
        # A gradient may be zero except for rounding (a bias before a norm), so also allow for a
        # fraction of the largest norm.
        if not error <= tolerance * (expected.norm() + largest / 50):  # also for NaN
            sys.exit(f"{error / largest:.1e} away from the expected values")


if __name__ == "__main__":
    main(*sys.argv[1:])
