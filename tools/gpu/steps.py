"""Second section: training steps with our kernels, with PyTorch only, and with torch.compile."""

from __future__ import annotations

import contextlib
import gc
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from support.builds.learnable import streets
from support.builds.written import s3dis_records, s3dis_schema, write_build
from support.oracles.gathered_attention import attend_to_pairs
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

import kmip_data
from kmip_data.builds.home import Home
from kmip_data.models import network
from kmip_data.models.attention import kmip
from kmip_data.models.kernel_availability import DISABLED_GPU_FEATURES
from kmip_data.models.layers import gated_gcn
from kmip_data.models.layers.batch import GraphBatch, read_batch
from kmip_data.models.layers.edge_list import EdgeList, widen_half_precision
from kmip_data.models.precision import float32_product_precision
from kmip_data.models.training.capture.cuda_graphs import CudaGraphs
from kmip_data.models.training.capture.steps import CapturedSteps, why_not_capturable
from kmip_data.models.training.config.overrides import apply_overrides
from kmip_data.models.training.config.presets import config_for_data
from kmip_data.models.training.config.run_config import RunConfig
from kmip_data.models.training.data.open_data import open_data
from kmip_data.models.training.data.run_data import RunData
from kmip_data.models.training.devices import choose_device
from kmip_data.models.training.run.loop import Loop
from kmip_data.models.training.run.training_module import TrainingModule
from tools.gpu.packing import unpacked_build
from tools.gpu.results import Recorder

#: Steps of a measurement: at least, at most, and seconds after which no more begin.
MIN_STEPS, MAX_STEPS, SECONDS = 8, 60, 1.5
KERNELS = 30  #: longest kernels of a step that are logged
NODES, TINY_NODES = 570_000, 300


class Work(NamedTuple):
    """A preset with a precision, and its target in milliseconds on an H200."""

    dataset: str
    precision: str
    target: float | None = None
    compared: bool = True  #: False: measured only with our kernels

    def __str__(self) -> str:
        return f"step of {self.dataset}, {self.precision}"


WORKS = (
    Work("s3dis", "tf32", 17),
    Work("london", "tf32", 400),
    Work("peptides-func", "32"),
    Work("s3dis", "bf16-mixed", 13, compared=False),
)


class Way(NamedTuple):
    """A way to compute a step."""

    name: str
    disabled: tuple[str, ...] = ()  #: parts computed without our kernels
    compiled: tuple[str, ...] = ()  #: part compiled by ``torch.compile``, or the network


OURS = Way("kmip-data")
WAYS = (
    OURS,
    Way("PyTorch", ("search", "attention", "edges", "capture")),
    Way("torch.compile", ("search", "attention", "edges", "capture"), ("network",)),
    Way("attention by torch.compile", ("attention",), ("attention",)),
    Way("edges by torch.compile", ("edges",), ("edges",)),
    Way("search by dense", ("search",)),
    Way("not captured", ("capture",)),
)
#: Ways and works that the first section compiles, our kernels first.
WARMED = [(OURS, work) for work in WORKS] + [
    (way, work) for way in WAYS if way.compiled for work in WORKS if work.compared
]


def run(record: Recorder) -> None:
    """Time a step of each preset in each way, ours first."""
    found: dict[tuple[Way, Work], float] = {}
    with tempfile.TemporaryDirectory() as folder:
        opened = {}
        for way in WAYS:
            for work in WORKS:
                if way is not OURS and not work.compared:
                    continue
                with record.attempt(_title(work, way)):
                    if work not in opened:
                        opened[work] = _open(work, Path(folder, str(work)), tiny=record.dry)
                    found[way, work] = _measure(record, work, way, *opened[work], found)


def warm(number: int) -> None:
    """Run a step, to compile its kernels."""
    way, work = WARMED[number]
    with tempfile.TemporaryDirectory() as folder, computed(way, work):
        opened = _open(work, Path(folder), tiny=work.dataset == "london")
        _loop(way, work, *opened)[0].train_epoch(1)


@contextlib.contextmanager
def computed(way: Way, work: Work) -> Iterator[None]:
    """Compute training steps in this way inside the block."""
    disabled = dict.fromkeys(way.disabled, way.name)
    if work.dataset == "london":  # all scores of 570,000 nodes take terabytes
        disabled.pop("search", None)
    patches = [patch.dict(DISABLED_GPU_FEATURES, disabled)]
    if {"network", "attention"} & {*way.compiled}:
        attend = attend_to_pairs  # torch.compile can trace it
        if "attention" in way.compiled:
            attend = _compiled(attend, work)
        patches.append(patch.object(kmip, "attend", attend))
    if {"network", "edges"} & {*way.compiled}:
        patches += [
            patch.object(gated_gcn, "_find_kernel", lambda *_: None),
            patch.multiple(
                EdgeList, at_source=_at_source, at_target=_at_target, sum_at_target=_sum
            ),
        ]
    if "network" in way.compiled:
        patches.append(patch.object(network, "read_batch", _read_batch))
    if "edges" in way.compiled:
        function = _compiled(gated_gcn.GatedGCN._gate_with_torch_operators, work)
        patches.append(patch.object(gated_gcn.GatedGCN, "_gate_with_torch_operators", function))
    with contextlib.ExitStack() as stack:
        for patched in patches:
            stack.enter_context(patched)
        yield
    torch.compiler.reset()


def _at_source(edges: EdgeList, x: Tensor) -> Tensor:
    return x.index_select(0, edges.source)


def _at_target(edges: EdgeList, x: Tensor) -> Tensor:
    return x.index_select(0, edges.target)


def _sum(edges: EdgeList, values: Tensor) -> Tensor:
    rows = widen_half_precision(values)
    return rows.new_zeros(edges.num_nodes, rows.shape[1]).index_add(0, edges.target, rows)


@torch.compiler.disable
def _read_batch(*args: Any) -> GraphBatch:
    """Read a batch and fill its caches, which torch.compile cannot create inside a graph."""
    graphs = read_batch(*args)
    _ = graphs.graph_sizes, graphs.edges.edge_list.outgoing, graphs.edges.edge_list.incoming
    return graphs


def _compiled(function: Any, work: Work) -> Any:
    # Sizes are dynamic if batches differ, or if the first section compiles on a smaller graph.
    dynamic = None if work.dataset == "s3dis" else True
    # On a CPU, only trace: compiling C++ takes minutes.
    backend = "inductor" if torch.cuda.is_available() else "aot_eager"
    return torch.compile(function, dynamic=dynamic, backend=backend)


def _open(work: Work, folder: Path, *, tiny: bool) -> tuple[RunConfig, RunData]:
    """Open data of the published size: generated rooms, a generated city, or the copied peptides."""
    path = None
    if work.dataset == "s3dis":
        nodes, k = (60, 6) if tiny else (4096, 32)
        # 70 % are for training: four full batches.
        records = s3dis_records(45, nodes=(nodes, nodes), k=k)
        path = write_build(folder / "build", records, s3dis_schema(k)).path
    elif work.dataset == "london":
        graph = streets(TINY_NODES if tiny else NODES)
        path = kmip_data.save(graph, folder / "build", name="generated-city").path
    else:
        path = unpacked_build(work.dataset)
    config = config_for_data(work.dataset)
    changes = [f"training.precision={work.precision}", "system.deterministic=false"]
    data: dict[str, Any] = {"sample": True}
    if path is not None:
        data = {
            "dataset": str(path),
            "parameters": {},
            "split": {},
            "split_seed_follows_run": False,
        }
    config = config.model_copy(update={"data": config.data.model_copy(update=data)})
    if not torch.cuda.is_available():
        changes = ["model.layers=2", "training.precision=32", "model.checkpoint_layers=false"]
        changes.append("training.batch_size=8")
    config = apply_overrides(config, changes)
    opened = open_data(config, home=Home(folder), quiet=True)
    return opened.pin_settings(config), opened


def _loop(way: Way, work: Work, config: RunConfig, data: RunData) -> tuple[Loop, list[str]]:
    """Return a training loop, and a list of reasons why its steps are not captured."""
    device, notes = choose_device(), list[str]()
    torch.manual_seed(0)
    module = TrainingModule(config, data)
    if "network" in way.compiled:
        for layer in module.model.layers:  # equal layers are traced once
            layer.forward = _compiled(layer.forward, work)
    options: dict[str, Any] = {}
    reason = why_not_capturable(config, data, device, recompute=False)
    if reason is None:
        options["captured"] = CapturedSteps(CudaGraphs(torch.device("cuda")), notes.append)
    elif "capture" not in way.disabled:
        notes.append(f"not captured: {reason}")
    return Loop(module, data, torch.device(device.type), **options), notes


def _title(work: Work, way: Way) -> str:
    return str(work) if way is OURS else f"{work}: {way.name}"


def _measure(
    record: Recorder,
    work: Work,
    way: Way,
    config: RunConfig,
    data: RunData,
    found: dict[tuple[Way, Work], float],
) -> float:
    """Record the median milliseconds of a step."""
    gc.collect()
    cuda = record.device.type == "cuda"
    if cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    with computed(way, work), float32_product_precision(work.precision):
        loop, notes = _loop(way, work, config, data)
        seconds: list[float] = []
        least, most = (3, 3) if record.dry else (MIN_STEPS, MAX_STEPS)
        until = time.monotonic() + SECONDS
        while len(seconds) < least or (len(seconds) < most and time.monotonic() < until):
            loop.epoch, loop.batches_done = loop.epoch + bool(seconds), 0
            seconds += _time_batches(loop, least)
            loop.module.metrics.reset()
        later = sorted(seconds[len(seconds) // 2 :])  # the first steps compile, warm up and capture
        middle = 1000 * later[len(later) // 2]
        if cuda:
            notes.append(f"{torch.cuda.max_memory_allocated() / 2**30:.2f} GiB")
        if (OURS, work) in found:
            notes.append(f"{middle / found[OURS, work]:.2f} × {OURS.name}")
        target = work.target if way is OURS and not record.dry else None
        first = round(seconds[0], 2)
        note = "; ".join(notes)
        record(
            _title(work, way), middle, "ms", target=target, kind="figure", note=note, first=first
        )
        if way is OURS:
            loop.epoch, loop.batches_done = loop.epoch + 1, 0
            record.show(f"{work}\n{_profile(loop, cuda=cuda)}")
    return middle


def _time_batches(loop: Loop, most: int) -> list[float]:
    """Train on at most these batches of an epoch; return the seconds of each, with waiting for it.

    CUDA events time them on a GPU, so that nothing waits for a batch before the last.
    """
    run_batch = loop.run_batch
    cuda = loop.device.type == "cuda"
    marks: list[Any] = []

    def mark() -> None:
        marks.append(torch.cuda.Event(enable_timing=True) if cuda else time.perf_counter())
        if cuda:
            marks[-1].record()

    def timed(*args: Any, **options: Any) -> Any:
        output = run_batch(*args, **options)
        mark()
        return output

    loop.run_batch = timed
    mark()
    loop.train_epoch(most)
    loop.run_batch = run_batch
    if cuda:
        marks[-1].synchronize()
        return [start.elapsed_time(end) / 1000 for start, end in pairwise(marks)]
    return [end - start for start, end in pairwise(marks)]


def _profile(loop: Loop, *, cuda: bool) -> str:
    """Return the longest kernels of a step."""
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    with profile(activities=activities) as profiler:
        loop.train_epoch(1)
    by = "self_device_time_total" if cuda else "self_cpu_time_total"
    averages = profiler.key_averages()
    return str(averages.table(sort_by=by, row_limit=KERNELS, max_name_column_width=70))
