"""Self-check of a GPU: each part that has kernels of its own against plain PyTorch, once a device.

A part is a child process, ``python -m kmip_data.models.training.self_check PART DEVICE SIZES``, so that an
illegal address or a hang ends there; all begin at once, which compiles in parallel. A part that fails is left
out of this process (``LEFT_OUT`` of ``models/context.py``).
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
from kmip_data.models.attention import operators
from kmip_data.models.config import ModelConfig
from kmip_data.models.context import LEFT_OUT, ForwardContext, triton_runs
from kmip_data.models.network import build_model
from kmip_data.models.search.backends import cuda
from kmip_data.models.search.gpu.launch import nvrtc_version
from kmip_data.models.search.gpu.plan import MOST_DIM, MOST_K
from kmip_data.models.search.trial import LATE, ended
from kmip_data.models.training.capture import graphs, steps
from kmip_data.models.training.machine import Device
from kmip_data.models.training.tasks import PADDING

log = logging.getLogger(__name__)

OK = "ok"
BUSY = (
    "out of memory",
    "busy or unavailable",
)  #: of another process: they say nothing about kernels
LIMIT = 60.0  #: seconds of all parts together, with compiling
CHILD = ("-m", "kmip_data.models.training.self_check")  #: arguments of Python that begin a child
KERNELS = "14 Triton kernels and 4 search programs"
#: Parts, and what takes the place of one that fails.
INSTEAD = dict.fromkeys(("attention", "edges", "norms"), "PyTorch operators")
INSTEAD |= {"search": "the next search backend", "capture": "plain steps"}


def sizes_of(model: Any) -> dict[str, int]:
    """Return the sizes in a :class:`~kmip_data.models.config.ModelConfig` that decide its kernels."""
    attention = model.attention if model.attention.kind == "k-mip" else ModelConfig().attention
    found = attention.model_dump(include={"heads", "k", "key_dim", "value_dim"})
    found["k"] = found["k"] if isinstance(found["k"], int) else max(found["k"])
    found["value_dim"] = found["value_dim"] or max(1, model.hidden_dim // found["heads"])
    return found | {"hidden_dim": model.hidden_dim}


def before_run(model: Any, device: Device) -> None:
    """Check the GPU of a run, unless that is done or switched off; leave out what fails, with one warning."""
    if os.environ.get("KMIP_DATA_SELF_CHECK", "").lower() == "off":
        return
    found = found_on(sizes_of(model)).items()
    failed = {
        part: why for part, why in found if why != OK and not any(map(why.__contains__, BUSY))
    }
    if not failed.items() <= LEFT_OUT.items():
        LEFT_OUT.update(failed)
        parts = "; ".join(
            f"{part} ({why}), instead {INSTEAD[part]}" for part, why in failed.items()
        )
        advice = "The run continues, slower. Please report it with the output of `kmip-data doctor --json`."
        log.warning("the self-check of %s leaves out: %s. %s", device.name, parts, advice)


def found_on(sizes: dict[str, int]) -> dict[str, str]:
    """Return ``ok`` or the reason of each part on this GPU, from the cache where it was checked before."""
    folder = Path(platformdirs.user_cache_dir("kmip-data", appauthor=False), "self-check")
    path = folder / f"{_key(sizes)}.json"
    with contextlib.suppress(OSError, ValueError):
        return dict(json.loads(path.read_text("utf-8")))
    log.warning("compiling and checking %s for this GPU, once: up to %.0f s …", KERNELS, LIMIT)
    found = check("cuda", sizes)
    # A busy machine may only have been slow to compile, or had no memory left.
    if not any(words in why for words in (LATE, *BUSY) for why in found.values()):
        with contextlib.suppress(OSError, KmipDataError):  # else it is checked again
            folder.mkdir(parents=True, exist_ok=True)
            write_file(path, json.dumps(found).encode())
    return found


def _key(sizes: dict[str, int]) -> str:
    """Digest of GPU, driver, versions, sizes, and the sources of models."""
    facts: list[Any] = [sizes, torch.cuda.get_device_name(), torch.cuda.get_device_capability()]
    with contextlib.suppress(OSError):
        facts.append(Path("/proc/driver/nvidia/version").read_text("utf-8"))
    with contextlib.suppress(KmipDataError):
        facts.append(nvrtc_version())
    for package in ("torch", "triton", "cuda-core", "cuda-bindings"):
        facts += (each.version for each in importlib.metadata.distributions(name=package))
    key = hashlib.sha256(json.dumps(facts).encode())
    for source in sorted(Path(__file__).parents[1].rglob("*")):
        if source.suffix in {".py", ".cu", ".cuh"}:
            key.update(source.read_bytes())
    return key.hexdigest()


def check(
    device: str, sizes: dict[str, int], parts: Sequence[str] = tuple(INSTEAD)
) -> dict[str, str]:
    """Return ``ok`` or the reason of each part, checked by child processes that begin all at once."""
    commands = [(*CHILD, part, device, json.dumps(sizes)) for part in parts]
    with ThreadPoolExecutor(len(parts)) as pool:
        reasons = pool.map(lambda command: ended(command, LIMIT) or OK, commands)
    return dict(zip(parts, reasons, strict=True))


# ---- in a child process: the parts, each of which raises SystemExit with a reason --------------------------
PRECISIONS = {torch.float32: 5e-5, torch.bfloat16: 2e-2}  #: tolerances by Euclidean norm
#: Rows of a ragged batch, of keys that are ordered by norm, and of four heads whose warps share keys.
RAGGED = 1_500
ORDERED = 9_000
STAGED = 25_000
NODES = 100  #: least number of a batch of networks


def search(device: torch.device, sizes: dict[str, int]) -> None:
    """Check the CUDA search against ``dense``: the same bits, twice, and in a CUDA graph."""

    def pair(
        heads: int, rows: int, change: Callable[[Tensor], Tensor] = torch.clone
    ) -> list[Tensor]:
        return [change(torch.randn(heads, rows, dim)).to(device) for _ in "qk"]

    def run(rows: list[Tensor], k: int, ptr: list[int], backend: str, hint: Any = None) -> Any:
        return operators.search(*rows, k, torch.tensor(ptr), None, backend, hint)

    # else ``dense`` searches
    dim = min(sizes["key_dim"], MOST_DIM)
    most = min(sizes["k"], MOST_K)
    ragged = [0, 0, 3, RAGGED // 2, RAGGED]  # an empty graph, and one of fewer keys than k
    scale = 10.0 ** (60 * torch.rand(RAGGED, 1) - 30)
    cases = {
        "the run's sizes": (pair(sizes["heads"], RAGGED), most, ragged),
        **{f"k = {k}": (pair(2, RAGGED), k, ragged) for k in (10, 30, 100)},
        "ties": (pair(2, RAGGED, torch.round), 10, ragged),
        "1e±30": (pair(2, RAGGED, scale.mul), 10, ragged),
        "keys in order": (pair(1, ORDERED), 10, [0, ORDERED]),
        "shared keys": (pair(4, STAGED), 10, [0, STAGED]),
    }
    for name, case in cases.items():
        expected = run(*case, "dense")
        for hint, again in (None, ""), (expected[1], ", hinted"), (None, ", again"):
            _same(f"search, {name}{again}", run(*case, "cuda", hint), expected)
    case = cases["k = 10"]
    recorder = graphs.CudaGraphs(device)
    recorder.run(lambda _: run(*case, "cuda"))
    replay, found = recorder.record(lambda _: run(*case, "cuda"))
    for tensor in case[0]:
        tensor.copy_(torch.randn(tensor.shape))
    replay()
    _same("search in a CUDA graph", found, run(*case, "dense"))


def layers(part: str, device: torch.device, sizes: dict[str, int]) -> None:
    """Check attention, edges or norms in a network: logits and gradients, near float64 and twice the same."""
    LEFT_OUT.update(dict.fromkeys(INSTEAD, "another part"))

    def run(batch: Any, dtype: torch.dtype, *, fused: bool = True) -> list[Tensor]:
        torch.manual_seed(3)
        LEFT_OUT.pop(part, None) if fused else LEFT_OUT.update({part: "for comparison"})
        batch = copy.copy(batch)
        batch.x = batch.x.to(torch.promote_types(dtype, torch.float32))
        with torch.autocast(device.type, torch.bfloat16, enabled=dtype == torch.bfloat16):
            logits = model.to(batch.x.dtype)(batch)[: len(plain.x)].double()
        weights = [each for each in model.parameters() if each.requires_grad]
        slopes = torch.arange(logits.numel(), device=device).double().sin().view_as(logits)
        return [logits, *torch.autograd.grad(logits, weights, slopes)]

    for dropout, table in itertools.product((0.0, 0.5), (True, False)):
        model = _network(sizes, device, dropout)
        plain = _batch(sizes["k"], device, table=table)
        exact = run(plain, torch.float64)
        for dtype, batch in itertools.product(PRECISIONS, (plain, graphs.padded(plain))):
            found = run(batch, dtype)
            name = f"{part}, {dtype}"
            if dropout:  # of which PyTorch draws other chances
                _same(f"{name}: a repetition", run(batch, dtype), found)
            else:
                _near(name, found, exact, run(plain, dtype, fused=False), PRECISIONS[dtype])


def capture(device: torch.device, sizes: dict[str, int]) -> None:
    """Check captured training steps of padded batches against plain ones without padding."""

    def train(captured: Any = lambda step, *given, **_: step(*given)) -> list[Tensor]:
        model = _network(sizes, device, search="auto")
        losses = []
        optimiser = torch.optim.AdamW(model.parameters(), 1e-2, eps=1e-2, fused=True)

        def step(batch: Any, *_: Any, keep: list[Any] | None = None, **__: Any) -> graphs.Learned:
            optimiser.zero_grad(set_to_none=False)
            logits = model(batch, ForwardContext(keep=keep))
            loss = torch.nn.functional.cross_entropy(
                logits, batch.y, ignore_index=PADDING, reduction="sum"
            )
            (loss / 100).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            return graphs.Learned(logits.detach(), batch.y, loss.detach(), loss.detach())

        for seed in range(6):  # two warm up, one is recorded and replayed, three are replayed
            batch = _batch(sizes["k"], device, table=True, seed=seed)
            losses.append(captured(step, batch, optimiser, first=True, steps=True).loss)
        return [torch.stack(losses), *model.parameters()]

    expected = train()
    found = train(steps.CapturedSteps(graphs.CudaGraphs(device), sys.exit, pad=True))
    _near("captured steps", found, expected, expected, 1e-3)


def _network(
    sizes: dict[str, int], device: torch.device, dropout: float = 0, search: str = "dense"
) -> Any:
    """Two layers with weights that bfloat16 holds, and norms far from ReLU's corner, where gradients jump."""
    attention: dict[str, Any] = {
        **sizes,
        "kind": "k-mip",
        "output_projection": True,
        "search": search,
    }
    dim = attention.pop("hidden_dim")
    attention["dropout"] = dropout
    if (
        search == "auto" and cuda.unusable(device.type) is not None
    ):  # another search waits for the GPU
        attention = {"kind": "none"}
    given = {"layers": 2, "hidden_dim": dim, "dropout": dropout, "attention": attention}
    torch.manual_seed(0)
    model = build_model(ModelConfig.model_validate(given), in_channels=6, num_classes=4).to(device)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if any(layer in name for layer in ("norm", "linear_in", "hidden")):  # what ReLU follows
                weight.copy_(
                    6.0 - 12 * (torch.arange(len(weight)) % 2) if "bias" in name else weight / 6
                )
            weight.copy_(weight.bfloat16())
    return model


def _batch(k: int, device: torch.device, *, table: bool, seed: int = 0) -> Any:
    """Graphs of at most k nodes, where rounding cannot change which keys are chosen."""
    torch.manual_seed(seed)
    found = []
    most = max(2, k)
    for nodes in (most - seed % 2, 1, most // 2 + 1) * (1 + NODES // (2 * most)):
        sources, targets = torch.randint(0, nodes, (2, nodes, 4))
        pairs = torch.stack([sources.flatten(), targets.flatten()])
        ends = {"neighbor": sources.to(torch.uint16)} if table else {"edge_index": pairs}
        found.append(
            Data(x=torch.randn(nodes, 6), y=torch.arange(nodes) % 4, num_nodes=nodes, **ends)
        )
    return Batch.from_data_list(found).to(device)


def _same(name: str, found: Iterable[Tensor], expected: Iterable[Tensor]) -> None:
    for pair in zip(found, expected, strict=True):
        if not torch.equal(*(each.detach().contiguous().view(torch.uint8) for each in pair)):
            sys.exit(f"{name}: other bits")


def _near(name: str, found: Any, exact: Any, own: Any, tolerance: float) -> None:
    """Compare tensors in norm; four times the error of PyTorch's ``own`` kernels is allowed besides."""

    def size(tensor: Tensor) -> float:
        return float(tensor.detach().double().square().mean().sqrt())

    most = max(map(size, exact))
    for number, (one, other, usual) in enumerate(zip(found, exact, own, strict=True)):
        away = size(one - other)
        # A gradient that is zero but for rounding, as of a bias before a norm, has no scale of its own.
        if not away <= tolerance * (size(other) + most / 50) + 4 * size(
            usual - other
        ):  # NaN is not
            sys.exit(f"{name}: result {number} is {away / most:.1e} away from float64")


def main(part: str, device: str, sizes: str) -> None:
    """Check one part, where the device has kernels for it; raise ``SystemExit`` with a reason."""
    given = torch.device(device), json.loads(sizes)
    if part == "capture":
        capture(*given)
    elif part == "search" and cuda.unusable(device) is None:
        search(*given)
    elif part != "search" and (device == "cpu" or triton_runs(given[0])):
        layers(part, *given)
    if device == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main(*sys.argv[1:])
