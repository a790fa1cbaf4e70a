"""Parts of the self-check of a GPU, each run in a child process of :mod:`.self_check`.

``python -m kmip_data.models.training.self_check_parts PART DEVICE SIZES`` ends with exit code 0, or with the
reason in the last line that it prints.
"""

from __future__ import annotations

import copy
import itertools
import json
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from kmip_data.models.context import LEFT_OUT, ForwardContext, triton_runs
from kmip_data.models.search.backends import cuda
from kmip_data.models.search.problem import SearchProblem, check_problem
from kmip_data.models.training.self_check import Sizes

#: Tolerance of a tensor by Euclidean norm, and the bias of layers' norms. Half precision moves numbers across
#: the corner of ReLU, where gradients jump; with that bias none is near it.
PRECISIONS = ((torch.float32, 5e-5, 0.0), (torch.bfloat16, 2e-2, 6.0))
#: Rows of a ragged batch, of keys that are ordered by norm, and of four heads whose warps share keys.
RAGGED, ORDERED, STAGED = 1_500, 9_000, 25_000
GRAPHS = (40, 65, 23)  #: nodes of each graph of a batch
STEPS = 6  #: of training: two that warm up, one recorded and replayed, three replayed

Module = TypeVar("Module", bound=torch.nn.Module)

_GENERATOR = torch.Generator().manual_seed(0)


def _normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=_GENERATOR)


def search(device: torch.device, sizes: Sizes) -> None:
    """Check the CUDA search against ``dense``: the same bits."""
    from kmip_data.models.search.topk import ranked

    def pair(heads: int, rows: int) -> list[Tensor]:
        return [_normal(heads, rows, sizes.dim) for _ in "qk"]

    ragged = [0, 0, 3, RAGGED // 2, RAGGED]  # an empty graph, and one of fewer keys than k
    far = [rows * 10.0 ** (60 * torch.rand(RAGGED, 1, generator=_GENERATOR) - 30) for rows in pair(2, RAGGED)]
    cases = {
        "the run's sizes": (pair(sizes.heads, RAGGED), sizes.k, ragged),
        **{f"k = {k}": (pair(2, RAGGED), k, ragged) for k in (10, 30, 100)},
        "ties": ([rows.round() for rows in pair(2, RAGGED)], 10, ragged),
        "1e±30": (far, 10, ragged),
        "keys in order": (pair(1, ORDERED), 10, [0, ORDERED]),
        "shared keys": (pair(4, STAGED), 10, [0, STAGED]),
    }
    problems = {}
    for name, ((queries, keys), k, ptr) in cases.items():
        problem = check_problem(queries.to(device), keys.to(device), k, ptr)
        if cuda.refuses(problem) is None:  # ``auto`` gives the run's to another backend
            problems[name] = problem
    if device.type == "cuda":
        _compile(device, problems.values())
    for name, problem in problems.items():
        expected = ranked(problem, "dense")
        for hint, again in itertools.product((None, expected[1]), ("", ", again")):
            found = ranked(replace(problem, hint=hint), "cuda")
            _same(f"search, {name}{', hinted' if hint is not None else ''}{again}", found, expected)
    _captured_search(device, sizes, ragged)


def _compile(device: torch.device, problems: Iterable[SearchProblem]) -> None:
    """Compile the programs of all searches at the same time."""
    from kmip_data.models.search.gpu import launch, plan

    here = launch.device_of(device.index or 0)
    plain = {plan.plan_of(each, here.processors).program for each in problems}
    programs = plain | {replace(program, hinted=1) for program in plain}
    target = "sm_{}{}".format(*torch.cuda.get_device_capability(device))
    with ThreadPoolExecutor(len(programs)) as pool:
        list(pool.map(lambda program: launch.compiled(program, target), programs))


def _captured_search(device: torch.device, sizes: Sizes, ptr: list[int]) -> None:
    from kmip_data.models.attention import operators
    from kmip_data.models.training.capture.graphs import CudaGraphs

    rows, pointers = [_normal(sizes.heads, RAGGED, sizes.dim).to(device) for _ in "qk"], torch.tensor(ptr)

    def run(backend: str) -> tuple[Tensor, Tensor]:
        return operators.search(*rows, min(sizes.k, 100), pointers, None, backend, None)  # type: ignore[no-any-return]

    graphs = CudaGraphs(device)
    graphs.run(lambda _: run("cuda"))
    replay, found = graphs.record(lambda _: run("cuda"))
    for _ in range(2):
        for tensor in rows:
            tensor.copy_(_normal(*tensor.shape))
        replay()
        _same("search in a CUDA graph", found, run("dense"))


def attention(device: torch.device, sizes: Sizes) -> None:
    """Check attention to chosen keys, forward and backward, against PyTorch operators in float64."""
    from kmip_data.models.attention import operators
    from kmip_data.models.search.topk import topk_inner_product

    rows = sum(GRAPHS)
    shapes = (sizes.dim, sizes.dim, sizes.width)
    queries, keys, values = (_normal(sizes.heads, rows, each).to(device) for each in shapes)
    queries.abs_()
    keys[:, rows // 2] = 6  # all queries of a graph choose it
    ptr = [0, 0, 1, rows // 3, rows]
    scores, indices = topk_inner_product(queries, keys, sizes.k, query_ptr=ptr, backend="dense")
    mask = (torch.rand(scores.shape, generator=_GENERATOR) < 0.5).to(device)
    slopes = _normal(sizes.heads, rows, sizes.width).to(device)

    def run(keep: Tensor | None, dtype: torch.dtype, _: float) -> list[Tensor]:
        given = [each.to(dtype).requires_grad_() for each in (queries, keys, values)]
        work = torch.float64 if dtype == torch.float64 else torch.float32
        out, _ = operators.attend(*given, scores.to(work), indices, 0.3, keep, 2.0)
        return [out, *torch.autograd.grad(out, given, slopes.to(dtype))]

    for keep in (None, mask):
        _hold("attention", partial(run, keep))


def edges(device: torch.device, sizes: Sizes) -> None:
    """Check two layers of GatedGCN, the second of which forms the edges of the first."""
    from kmip_data.models.layers.batch import formed, read_batch
    from kmip_data.models.layers.gated_gcn import GatedGCN

    LEFT_OUT["norms"] = "a part of its own"
    torch.manual_seed(0)
    options: dict[str, Any] = {"dropout": 0.0, "residual": True}
    made = torch.nn.ModuleList(
        GatedGCN(sizes.hidden, defer_edges=first, **options) for first in (True, False)
    )
    for table in (True, False):
        plain = _batch(sizes.hidden, device, table=table)

        def run(plain: Any, batch: Any, dtype: torch.dtype, bias: float) -> list[Tensor]:
            work, generator = torch.promote_types(dtype, torch.float32), torch.Generator().manual_seed(1)
            layers = _lifted(made, bias).to(device, work)
            graphs, real = read_batch(batch), len(plain.x)
            shape = batch.neighbor.shape if "neighbor" in batch else batch.edge_index.shape[1:]
            x = batch.x.to(work).requires_grad_()
            e = torch.sin(torch.arange(shape.numel() * sizes.hidden, device=device).double())
            e = e.view(*shape, -1).to(x.dtype).requires_grad_()
            with torch.autocast(device.type, torch.bfloat16, enabled=dtype == torch.bfloat16):
                out, new = x, e
                for layer in layers:
                    out, new = layer(out, new, graphs)
            new = formed(new).reshape(-1, sizes.hidden)[: plain.num_edges_]
            results = [out[:real], new]
            slopes = [torch.randn(each.shape, generator=generator).to(each) for each in results]
            grads = torch.autograd.grad(results, [x, e, *layers.parameters()], slopes)
            of_edges = grads[1].reshape(-1, sizes.hidden)[: plain.num_edges_]
            return [*results, grads[0][:real], of_edges, *grads[2:]]

        _hold_padded(f"edges, {'table' if table else 'list'}", partial(run, plain), plain)


def norms(device: torch.device, sizes: Sizes) -> None:
    """Check each norm with what is fused around it."""
    from kmip_data.models.layers.batch import read_batch
    from kmip_data.models.layers.norms import NORMS, BatchNorm, normed

    for name, make in NORMS.items():
        plain, norm = _batch(sizes.hidden, device, table=False), make(sizes.hidden)

        def run(plain: Any, norm: Any, batch: Any, dtype: torch.dtype, bias: float) -> list[Tensor]:
            work, generator = torch.promote_types(dtype, torch.float32), torch.Generator().manual_seed(1)
            layer, graphs = _lifted(norm, bias).to(device, work), read_batch(batch)
            rows = [(batch.x * scale + 1).to(dtype).requires_grad_() for scale in (1, 0.5, 4)]
            out = normed(layer, rows[0], rows[1], graphs, activation="relu", residual=rows[2])[: len(plain.x)]
            slopes = torch.randn(out.shape, generator=generator).to(out)
            grads = torch.autograd.grad(out, [*rows, *layer.parameters()], slopes)
            return [out, *(each[: len(plain.x)] for each in grads)]

        _hold_padded(f"norms, {name}", partial(run, plain, norm), plain)
    rows, norm = _normal(sum(GRAPHS), sizes.hidden).to(device), BatchNorm(sizes.hidden).to(device)
    seeds = (torch.manual_seed(3) for _ in range(2))
    twice = [normed(norm, rows, rows, before=0.5, activation="relu", after=0.5) for _ in seeds]
    _same("dropout", twice[:1], twice[1:])


def capture(device: torch.device, sizes: Sizes) -> None:
    """Check captured training steps, padded and not, against plain ones."""
    from kmip_data.models.config import ModelConfig
    from kmip_data.models.network import build_model
    from kmip_data.models.training.capture.graphs import CudaGraphs, Learned
    from kmip_data.models.training.capture.steps import CapturedSteps
    from kmip_data.models.training.tasks import PADDING

    class Plain(CudaGraphs):
        def record(self, work: Any) -> Any:
            raise RuntimeError("plain steps")

    attention = {"kind": "k-mip", "heads": sizes.heads, "k": sizes.k, "key_dim": sizes.dim}
    attention |= {"value_dim": sizes.width, "output_projection": True}
    if cuda.unusable(device.type) is not None:  # other searches wait for the GPU
        attention = {"kind": "none"}
    config = ModelConfig.model_validate(
        {"layers": 2, "hidden_dim": sizes.hidden, "dropout": 0.0, "attention": attention}
    )

    def train(kind: type[CudaGraphs], *, pad: bool) -> list[Tensor]:
        torch.manual_seed(0)
        model = build_model(config, in_channels=6, num_classes=4).to(device)
        optimiser = torch.optim.AdamW(model.parameters(), 1e-2, eps=1e-2, fused=True)

        def step(batch: Any, *_: Any, keep: list[Any] | None = None, **__: Any) -> Learned:
            optimiser.zero_grad(set_to_none=False)
            logits = model(batch, ForwardContext(keep=keep))
            loss = torch.nn.functional.cross_entropy(logits, batch.y, ignore_index=PADDING, reduction="sum")
            (loss / 100).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            return Learned(logits.detach(), batch.y, loss.detach(), loss.detach())

        messages: list[str] = []
        steps, losses = CapturedSteps(kind(device), messages.append, pad=pad), []
        for seed in range(STEPS):
            # Padded batches differ in size, and are of one size with their padding.
            graphs = tuple(count + seed % 2 for count in GRAPHS) if pad else GRAPHS
            batch = _batch(6, device, table=True, seed=seed, graphs=graphs)
            losses.append(steps(step, batch, optimiser, first=True, steps=True).loss)
        if kind is not Plain and messages:
            raise SystemExit(messages[0])
        return [torch.stack(losses), *model.parameters()]

    for pad in (False, True):
        name = f"captured steps{', padded' if pad else ''}"
        _near(name, train(CudaGraphs, pad=pad), train(Plain, pad=pad), 1e-3)


def _batch(
    channels: int, device: torch.device, *, table: bool, seed: int = 0, graphs: tuple[int, ...] = GRAPHS
) -> Any:
    generator, found, k = torch.Generator().manual_seed(seed), [], 4
    for count in graphs:
        sources = torch.randint(0, count, (count, k), generator=generator)
        pairs = torch.stack([sources.flatten(), torch.randint(0, count, (count * k,), generator=generator)])
        ends = {"neighbor": sources.to(torch.uint16)} if table else {"edge_index": pairs}
        x, y = torch.randn(count, channels, generator=generator).bfloat16().float(), torch.arange(count) % 4
        found.append(Data(x=x, y=y, num_nodes=count, **ends))
    batch = Batch.from_data_list(found).to(device)
    batch.num_edges_ = sum(graphs) * k
    return batch


def _lifted(module: Module, bias: float) -> Module:
    """A copy whose weights bfloat16 holds, and whose norms have this bias."""
    made = copy.deepcopy(module)
    with torch.no_grad():
        for name, weight in made.named_parameters():
            weight.copy_(weight.bfloat16())
            if weight.ndim == 1 and name.split(".")[-2:-1] in ([], ["norm_x"], ["norm_e"]) and "bias" in name:
                weight.fill_(bias)
    return made


def _hold_padded(name: str, run: Callable[..., list[Tensor]], plain: Any) -> None:
    from kmip_data.models.training.capture.padding import padded

    larger = padded(plain)
    _hold(name, partial(run, plain))
    _hold(
        f"{name}, padded", lambda dtype, bias: run(plain if dtype == torch.float64 else larger, dtype, bias)
    )


def _hold(name: str, run: Callable[[torch.dtype, float], Iterable[Tensor]]) -> None:
    """Compare float32 and bfloat16 with float64, and each with itself."""
    for dtype, tolerance, bias in PRECISIONS:
        found = list(run(dtype, bias))
        _same(f"{name}, {dtype}: a repetition", run(dtype, bias), found)
        _near(f"{name}, {dtype}", found, run(torch.float64, bias), tolerance)


def _same(name: str, found: Iterable[Tensor], expected: Iterable[Tensor]) -> None:
    for one, other in zip(found, expected, strict=True):
        if not torch.equal(*(each.detach().contiguous().view(torch.uint8) for each in (one, other))):
            raise SystemExit(f"{name}: other bits")


def _near(name: str, found: Iterable[Tensor], expected: Iterable[Tensor], tolerance: float) -> None:
    exact = [each.detach().double() for each in expected]
    most = max(float(each.square().mean().sqrt()) for each in exact)
    for number, (one, other) in enumerate(zip(found, exact, strict=True)):
        # A gradient that is zero but for rounding, as of a bias before a norm, has no scale of its own.
        scale = max(float(other.square().mean().sqrt()), 0.1 * most)
        away = float((one.detach().double() - other).square().mean().sqrt()) / scale
        if not away <= tolerance:  # NaN is not
            raise SystemExit(f"{name}: result {number} is {away:.1e} away from float64")


PARTS = {part.__name__: part for part in (search, attention, edges, norms, capture)}


def main(part: str, device: str, sizes: str) -> None:
    """Check one part, where the device has kernels for it; raise ``SystemExit`` with a reason."""
    where = torch.device(device)
    if device == "cuda":
        there = cuda.unusable(device) is None if part == "search" else part == "capture" or triton_runs(where)
        if not there:
            return
    PARTS[part](where, Sizes(*json.loads(sizes)))
    if device == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main(*sys.argv[1:])
