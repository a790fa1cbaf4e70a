"""Self-check of a GPU: each part with custom kernels against PyTorch's operators, once a device.

A part is a child process, ``python -m kmip_data.models.training.self_check PART DEVICE SIZES``, so
that an illegal address or a hang ends there; all begin at once, which compiles in parallel. This
process does not use a part that fails (``LEFT_OUT`` of ``models/context.py``).
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import importlib.metadata
import itertools
import json
import logging
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import platformdirs
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from kmip_data.errors import KmipDataError
from kmip_data.files.changes import write_file
from kmip_data.models.config import ModelConfig
from kmip_data.models.context import LEFT_OUT, triton_runs
from kmip_data.models.network import build_model
from kmip_data.models.search import topk
from kmip_data.models.search.backends import cuda
from kmip_data.models.search.gpu.launch import nvrtc_version
from kmip_data.models.search.gpu.plan import MOST_DIM, MOST_K
from kmip_data.models.search.trial import LATE, ended
from kmip_data.models.training.capture import graphs, steps
from kmip_data.models.training.machine import Device

log = logging.getLogger(__name__)

OK = "ok"
#: Errors caused by other processes, not by kernels.
BUSY = ("out of memory", "busy or unavailable")
#: Seconds of all parts together, with compiling.
LIMIT = 60.0
#: Arguments of Python that begin a child.
CHILD = ("-m", "kmip_data.models.training.self_check")
KERNELS = "9 Triton kernels and 4 search programs"
#: Parts, and the replacement of one that fails.
INSTEAD = dict.fromkeys(("attention", "edges"), "PyTorch operators")
INSTEAD |= {"search": "the next search backend", "capture": "plain steps"}


def sizes_of(model: Any) -> dict[str, int]:
    """Return the sizes in a :class:`~kmip_data.models.config.ModelConfig` that decide its kernels."""
    attention = model.attention if model.attention.kind == "k-mip" else ModelConfig().attention
    sizes = attention.model_dump(include={"heads", "k", "key_dim", "value_dim"})
    if not isinstance(sizes["k"], int):
        sizes["k"] = max(sizes["k"])
    if not sizes["value_dim"]:
        sizes["value_dim"] = max(1, model.hidden_dim // sizes["heads"])
    return sizes | {"hidden_dim": model.hidden_dim}


def before_run(model: Any, device: Device) -> None:
    """Check the GPU of a run, unless that is done or switched off.

    Replace parts that fail, with a warning.
    """
    if os.environ.get("KMIP_DATA_SELF_CHECK", "").lower() == "off":
        return

    def has_failed(result: str) -> bool:
        return result != OK and not any(words in result for words in BUSY)

    results = found_on(sizes_of(model)).items()
    failed = {part: result for part, result in results if has_failed(result)}
    if failed.items() <= LEFT_OUT.items():
        return
    LEFT_OUT.update(failed)
    parts = [f"{part} ({reason}), instead {INSTEAD[part]}" for part, reason in failed.items()]
    log.warning(
        "the self-check of %s leaves out: %s. The run continues, slower. Please report it with the "
        "output of `kmip-data doctor --json`.",
        device.name,
        "; ".join(parts),
    )


def found_on(sizes: dict[str, int]) -> dict[str, str]:
    """Return ``ok`` or the error of each part on this GPU, from the cache if it was checked before."""
    folder = Path(platformdirs.user_cache_dir("kmip-data", appauthor=False), "self-check")
    path = folder / f"{_key(sizes)}.json"
    with contextlib.suppress(OSError, ValueError):
        return dict(json.loads(path.read_text("utf-8")))
    log.warning("compiling and checking %s for this GPU, once: up to %.0f s …", KERNELS, LIMIT)
    results = check("cuda", sizes)
    # A busy machine may only have been slow to compile, or had no memory left.
    reasons = " ".join(results.values())
    if not any(words in reasons for words in (LATE, *BUSY)):
        with contextlib.suppress(OSError, KmipDataError):  # then it is checked again
            folder.mkdir(parents=True, exist_ok=True)
            write_file(path, json.dumps(results).encode())
    return results


def _key(sizes: dict[str, int]) -> str:
    """Digest of GPU, driver, versions, sizes, and the sources of models."""
    facts: list[Any] = [sizes, torch.cuda.get_device_name(), torch.cuda.get_device_capability()]
    with contextlib.suppress(OSError):
        facts.append(Path("/proc/driver/nvidia/version").read_text("utf-8"))
    with contextlib.suppress(KmipDataError):
        facts.append(nvrtc_version())
    for package in ("torch", "triton", "cuda-core", "cuda-bindings"):
        installed = importlib.metadata.distributions(name=package)
        facts += (distribution.version for distribution in installed)
    key = hashlib.sha256(json.dumps(facts).encode())
    for source in sorted(Path(__file__).parents[1].rglob("*")):
        if source.suffix in {".py", ".cu", ".cuh"}:
            key.update(source.read_bytes())
    return key.hexdigest()


def check(
    device: str, sizes: dict[str, int], parts: Sequence[str] = tuple(INSTEAD)
) -> dict[str, str]:
    """Return ``ok`` or the error of each part, checked by child processes that begin all at once."""
    commands = [(*CHILD, part, device, json.dumps(sizes)) for part in parts]
    with ThreadPoolExecutor(len(parts)) as pool:
        reasons = pool.map(lambda command: ended(command, LIMIT) or OK, commands)
    return dict(zip(parts, reasons, strict=True))


# ---- in a child process: the parts, each of which raises SystemExit with a reason --------------------------
#: Tolerances by Euclidean norm.
PRECISIONS = {torch.float32: 5e-5, torch.bfloat16: 2e-2}
#: Rows of a ragged batch, of keys that are ordered by norm, and of four heads whose warps share
#: keys.
RAGGED = 1_500
ORDERED = 9_000
STAGED = 25_000
#: Least number of nodes of a batch.
NODES = 100


def search(device: torch.device, sizes: dict[str, int]) -> None:
    """Check the CUDA search against ``dense``: the same bits, twice, and in a CUDA graph."""

    def pair(
        heads: int, rows: int, change: Callable[[Tensor], Tensor] = torch.clone
    ) -> list[Tensor]:
        return [change(torch.randn(heads, rows, dim)).to(device) for _ in "qk"]

    def run(case: Any, backend: str) -> Any:
        rows, k, ptr = case
        return topk.search(*rows, k, torch.tensor(ptr), None, backend)

    # 1. Sizes that the CUDA search takes: any larger ``dense`` would search.
    dim = min(sizes["key_dim"], MOST_DIM)
    most = min(sizes["k"], MOST_K)
    ragged = [0, 0, 3, RAGGED // 2, RAGGED]  # an empty graph, and one of fewer keys than k
    scale = 10.0 ** (60 * torch.rand(RAGGED, 1) - 30)
    cases = {
        "the run's sizes": (pair(sizes["heads"], RAGGED), most, ragged),
        "k = 10": (pair(2, RAGGED), 10, ragged),
        "k = 30": (pair(2, RAGGED), 30, ragged),
        "k = 100": (pair(2, RAGGED), 100, ragged),
        "ties": (pair(2, RAGGED, torch.round), 10, ragged),
        "1e±30": (pair(2, RAGGED, scale.mul), 10, ragged),
        "keys in order": (pair(1, ORDERED), 10, [0, ORDERED]),
        "shared keys": (pair(4, STAGED), 10, [0, STAGED]),
    }
    for name, case in cases.items():
        expected = run(case, "dense")
        _same(f"search, {name}", run(case, "cuda"), expected)
        _same(f"search, {name}, again", run(case, "cuda"), expected)

    # 2. Recorded, then replayed on other rows.
    case = cases["k = 10"]
    recorder = graphs.CudaGraphs(device)
    recorder.run(lambda _: run(case, "cuda"))
    replay, results = recorder.record(lambda _: run(case, "cuda"))
    for tensor in case[0]:
        tensor.copy_(torch.randn(tensor.shape))
    replay()
    _same("search in a CUDA graph", results, run(case, "dense"))


def layers(part: str, device: torch.device, sizes: dict[str, int]) -> None:
    """Check attention or edges in a network: logits and gradients, near float64 and twice the same."""
    LEFT_OUT.update(dict.fromkeys(INSTEAD, "another part"))

    def run(batch: Any, dtype: torch.dtype, *, fused: bool = True) -> list[Tensor]:
        torch.manual_seed(3)
        if fused:
            LEFT_OUT.pop(part, None)
        else:
            LEFT_OUT[part] = "for comparison"
        batch = copy.copy(batch)
        batch.x = batch.x.to(torch.promote_types(dtype, torch.float32))
        with torch.autocast(device.type, torch.bfloat16, enabled=dtype == torch.bfloat16):
            logits = model.to(batch.x.dtype)(batch)
        logits = logits.double()
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        numbers = torch.arange(logits.numel(), device=device)
        slopes = numbers.double().sin().view_as(logits)
        return [logits, *torch.autograd.grad(logits, weights, slopes)]

    for dropout, table in itertools.product((0.0, 0.5), (True, False)):
        model = _network(sizes, device, dropout)
        batch = _batch(sizes["k"], device, table=table)
        exact = run(batch, torch.float64)
        for dtype, tolerance in PRECISIONS.items():
            results = run(batch, dtype)
            name = f"{part}, {dtype}"
            # PyTorch drops other elements, so a repetition is compared.
            if dropout:
                _same(f"{name}: a repetition", run(batch, dtype), results)
            else:
                usual = run(batch, dtype, fused=False)
                _near(name, results, exact, usual, tolerance)


def capture(device: torch.device, sizes: dict[str, int]) -> None:
    """Check captured training steps against plain ones."""

    def train(captured: steps.CapturedSteps | None = None) -> list[Tensor]:
        model = _network(sizes, device, search="auto")
        losses = []
        optimiser = torch.optim.AdamW(model.parameters(), 1e-2, eps=1e-2, fused=True)

        def step(batch: Any, *_: Any, **__: Any) -> graphs.Learned:
            optimiser.zero_grad(set_to_none=False)
            logits = model(batch)
            loss = torch.nn.functional.cross_entropy(logits, batch.y)
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            loss = loss.detach()
            return graphs.Learned(logits.detach(), batch.y, loss, loss)

        # Two warm up, one is recorded and replayed, three are replayed.
        for seed in range(6):
            batch = _batch(sizes["k"], device, table=True, seed=seed)
            if captured is None:
                learned = step(batch)
            else:
                learned = captured(step, batch, optimiser, first=True, steps=True)
            losses.append(learned.loss)
        return [torch.stack(losses), *model.parameters()]

    expected = train()
    results = train(steps.CapturedSteps(graphs.CudaGraphs(device), sys.exit))
    _near("captured steps", results, expected, expected, 1e-3)


def _network(
    sizes: dict[str, int], device: torch.device, dropout: float = 0, search: str = "dense"
) -> Any:
    """Two layers with weights that bfloat16 holds, and norms far from ReLU's corner, where gradients jump."""
    attention: dict[str, Any] = {
        **sizes,
        "kind": "k-mip",
        "output_projection": True,
        "search": search,
        "dropout": dropout,
    }
    hidden_dim = attention.pop("hidden_dim")
    # Any search but the CUDA one waits for the GPU.
    if search == "auto" and cuda.unusable(device.type) is not None:
        attention = {"kind": "none"}
    config = ModelConfig.model_validate(
        {"layers": 2, "hidden_dim": hidden_dim, "dropout": dropout, "attention": attention}
    )
    torch.manual_seed(0)
    model = build_model(config, in_channels=6, num_classes=4).to(device)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            # Weights in front of a ReLU: biases of ±6, small factors.
            if any(layer in name for layer in ("norm", "linear_in", "hidden")):
                if "bias" in name:
                    weight.copy_(6.0 - 12 * (torch.arange(len(weight)) % 2))
                else:
                    weight.copy_(weight / 6)
            weight.copy_(weight.bfloat16())
    return model


def _batch(k: int, device: torch.device, *, table: bool, seed: int = 0) -> Any:
    """Graphs of at most k nodes, where rounding cannot change which keys are chosen."""
    torch.manual_seed(seed)
    most = max(2, k)
    sizes = (most, 1, most // 2 + 1)
    repetitions = 1 + NODES // (2 * most)
    batch = []
    for nodes in sizes * repetitions:
        sources, targets = torch.randint(0, nodes, (2, nodes, 4))
        graph = Data(x=torch.randn(nodes, 6), y=torch.arange(nodes) % 4, num_nodes=nodes)
        if table:
            graph.neighbor = sources.to(torch.uint16)
        else:
            graph.edge_index = torch.stack([sources.flatten(), targets.flatten()])
        batch.append(graph)
    return Batch.from_data_list(batch).to(device)


def _same(name: str, results: Iterable[Tensor], expected: Iterable[Tensor]) -> None:
    for result, other in zip(results, expected, strict=True):
        if not torch.equal(_bits(result), _bits(other)):
            sys.exit(f"{name}: other bits")


def _bits(tensor: Tensor) -> Tensor:
    return tensor.detach().contiguous().view(torch.uint8)


def _near(name: str, results: Any, exact: Any, usual: Any, tolerance: float) -> None:
    """Compare tensors in norm.

    Four times the error of PyTorch's ``usual`` kernels is allowed in addition.
    """

    def size(tensor: Tensor) -> float:
        return float(tensor.detach().double().square().mean().sqrt())

    most = max(map(size, exact))
    triples = zip(results, exact, usual, strict=True)
    for number, (result, expected, other) in enumerate(triples):
        error = size(result - expected)
        # A gradient that is zero but for rounding, as of a bias before a norm, has no scale of its
        # own.
        scale = size(expected) + most / 50
        allowed = tolerance * scale + 4 * size(other - expected)
        if not error <= allowed:  # also for NaN
            sys.exit(f"{name}: result {number} is {error / most:.1e} away from float64")


def main(part: str, device: str, sizes: str) -> None:
    """Check one part, where the device has kernels for it; raise ``SystemExit`` with a reason."""
    target = torch.device(device)
    values = json.loads(sizes)
    if part == "capture":
        capture(target, values)
    elif part == "search":
        if cuda.unusable(device) is None:
            search(target, values)
    elif device == "cpu" or triton_runs(target):
        layers(part, target, values)
    if device == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main(*sys.argv[1:])
