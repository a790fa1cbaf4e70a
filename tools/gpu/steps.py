"""Sections 6 and 7: training steps of the presets, captured and replayed, and of one generated city."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch
from support.builds.learnable import streets
from support.builds.written import s3dis_records, s3dis_schema, write_build
from torch.profiler import ProfilerActivity, profile

import kmip_data
from kmip_data.builds.home import Home
from kmip_data.models.precision import float32_products
from kmip_data.models.profiling.training import timed_epoch
from kmip_data.models.training.capture.graphs import CudaGraphs
from kmip_data.models.training.capture.steps import CapturedSteps, reason_not_captured
from kmip_data.models.training.config.overrides import apply_overrides
from kmip_data.models.training.config.presets import config_for
from kmip_data.models.training.data.graphs import open_data
from kmip_data.models.training.machine import choose_device
from kmip_data.models.training.run.loop import Loop
from kmip_data.models.training.run.module import TrainingModule
from tools.gpu.results import Recorder

EPOCHS, SECONDS = (
    (6, 60),
    6.0,
)  #: least and most epochs, and the time after which no further one begins
KERNELS = 30  #: longest ones of a step that are listed


class Work(NamedTuple):
    """A preset with a precision, and the milliseconds aimed at on an H200."""

    dataset: str
    precision: str = "tf32"
    target: float | None = None


WORKS = (
    Work("s3dis", "tf32", 17),
    Work("s3dis", "32", 20),
    Work("s3dis", "bf16-mixed", 14),
    Work("shapenet-part"),
    Work("malnet-tiny", "tf32", 6),
    Work("pascalvoc-sp", "tf32", 6),
)
CITY = Work("london", "tf32", 400)
WARMED = (*WORKS, CITY)  #: whose kernels section 0 compiles
NODES, TINY_NODES = 570_000, 300


def run(record: Recorder) -> None:
    """Measure a step of each preset; a dry run takes one."""
    for work in WORKS[:1] if record.dry else WORKS:
        with (
            record.attempt(f"step of {work.dataset}, {work.precision}"),
            tempfile.TemporaryDirectory() as folder,
        ):
            _measure(record, work, Path(folder))


def city(record: Recorder) -> None:
    """Measure a step on one city: two plain ones, a capture, three replays."""
    with record.attempt("step of one city"), tempfile.TemporaryDirectory() as folder:
        _measure(record, CITY, Path(folder))


def warm(number: int) -> None:
    """Take a step of a preset, which compiles its kernels."""
    work = WARMED[number]
    with tempfile.TemporaryDirectory() as folder:
        loop, _ = _loop(work, Path(folder), tiny=work is CITY)
        loop.train_epoch(1)


def _build(work: Work, folder: Path, *, tiny: bool) -> Any:
    """Make data of the published size: rooms and a city are generated, others are samples."""
    if work.dataset == "s3dis":
        batches, nodes, k = (3, 60, 6) if tiny else (3, 4096, 32)
        records = s3dis_records(8 * batches + 8, nodes=(nodes, nodes), k=k)
        order = list(range(len(records)))
        parts = {"train": order[8:], "val": order[:4], "test": order[4:8]}
        return write_build(folder / "build", records, s3dis_schema(k), parts=parts)
    if work is CITY:
        return kmip_data.save(
            streets(TINY_NODES if tiny else NODES), folder / "build", name="generated-city"
        )
    return None


def _loop(work: Work, folder: Path, *, tiny: bool) -> tuple[Loop, list[str]]:
    build = _build(work, folder, tiny=tiny)
    config = config_for(work.dataset)
    changes = [f"training.precision={work.precision}", "system.deterministic=false"]
    own = {"sample": True}
    if build is not None:
        own = {
            "dataset": str(build.path),
            "parameters": {},
            "split": {},
            "split_seed_follows_run": False,
        }
    config = config.model_copy(update={"data": config.data.model_copy(update=own)})
    if tiny and not torch.cuda.is_available():
        changes = ["model.layers=2", "training.precision=32", "model.checkpoint_layers=false"]
    config = apply_overrides(config, changes)
    data = open_data(config, home=Home(folder), quiet=True)
    device, told = choose_device(), list[str]()
    torch.manual_seed(0)
    module = TrainingModule(data.pinned(config), data)
    options: dict[str, Any] = {}
    plain = reason_not_captured(config, data, device, recompute=False)
    if plain is None:
        options["captured"] = CapturedSteps(CudaGraphs(torch.device("cuda")), told.append)
    else:
        told.append(f"not captured: {plain}")
    return Loop(module, data, torch.device(device.kind), **options), told


def _measure(record: Recorder, work: Work, folder: Path) -> None:
    loop, told = _loop(work, folder, tiny=record.dry)
    name, cuda = f"step of {work.dataset}, {work.precision}", record.device.type == "cuda"
    seconds: list[float] = []
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    with float32_products(work.precision):
        least, most = (2, 2) if record.dry else EPOCHS
        until, epoch = time.monotonic() + SECONDS, 0
        while epoch < least or (epoch < most and time.monotonic() < until):
            loop.epoch, loop.batch, epoch = epoch, 0, epoch + 1
            seconds += [each for each, _ in timed_epoch(loop)]
            loop.module.metrics.reset()
        found = sorted(seconds[len(seconds) // 2 :])  # the first ones compile, warm up and capture
        peak = round(torch.cuda.max_memory_allocated() / 2**30, 2) if cuda else None
        target = None if record.dry else work.target
        note = "; ".join([*told, f"{peak} GiB"] if peak else told)
        middle = 1000 * found[len(found) // 2]
        more = {"first": round(seconds[0], 2), "captured": not told}
        record(name, middle, "ms", target=target, kind="figure", note=note, **more)
        loop.epoch, loop.batch = epoch, 0
        activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
        with profile(activities=activities) as profiler:
            loop.train_epoch(1)
    by = "self_device_time_total" if cuda else "self_cpu_time_total"
    record.show(
        f"{name}\n"
        + profiler.key_averages().table(sort_by=by, row_limit=KERNELS, max_name_column_width=70)
    )
