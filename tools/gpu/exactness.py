"""First section: compare every kernel with PyTorch, and compile kernels for later sections."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import patch

import torch

from kmip_data.models.search.backends import cuda
from kmip_data.models.search.gpu import launch, plan
from kmip_data.models.training import self_check
from kmip_data.models.training.config.presets import config_for_data
from tools.gpu import ceilings, searches, steps
from tools.gpu.fuzz import differs, problems
from tools.gpu.results import Recorder

PROCESSES = 14  #: parallel processes; each uses a core and less than 2 GiB of the GPU
COMPILE_SECONDS = 60.0  #: time limit of a process that compiles
PRESETS = ("s3dis", "london", "peptides-func")  #: presets with the sizes to check
PROBLEMS, SECONDS = 2_000, 15.0
#: ordered, tiles, staged
SHAPES = (
    (False, 1, 0),
    (True, 1, 0),
    (True, 2, 0),
    (True, 4, 1),
    (False, 4, 0),
)
DIMS = (5, 10, 19)
ROOT = Path(__file__).resolve().parents[2]


def run(record: Recorder) -> None:
    """Record versions, check and compile in parallel, then fuzz."""
    ceilings.versions(record)
    if record.dry:
        _note(record, "capture", "emulated", _emulated_capture(record))
        _fuzz(record, DIMS[1:2], 4, SHAPES[:1])
        return
    # Checks come first: compilation for later sections may be cut short.
    with ThreadPoolExecutor(PROCESSES) as pool:
        checks = list(itertools.product(PRESETS, self_check.GPU_FEATURES))
        checked = [pool.submit(_check, record, *check) for check in checks]
        works = [("steps", number) for number in range(len(steps.WARMED))]
        works += [("searches", number) for number in range(len(searches.WARMED))]
        compiled = [pool.submit(_warm, record, *work) for work in works]
        for check in checked:
            check.result()
        _compile(DIMS)
        _fuzz(record, DIMS, PROBLEMS, SHAPES)
        for work in compiled:
            work.result()
    record("kernels compiled", len(works), "processes")


def _check(record: Recorder, preset: str, part: str) -> None:
    """Compare one feature with PyTorch in float32 and bfloat16, at the sizes of a preset."""
    sizes = self_check.kernel_sizes(config_for_data(preset).model)
    _note(record, part, preset, self_check.check_gpu_features("cuda", sizes, [part])[part])


def _note(record: Recorder, part: str, where: str, reason: str) -> None:
    ok = reason == self_check.OK
    status = "ok" if ok else "failed"
    record(f"{part} against PyTorch, {where}", status=status, note="" if ok else reason)


def _warm(record: Recorder, module: str, number: int) -> None:
    """Run a small workload in a process, so that its kernels are cached on disk."""
    program = f"from tools.gpu.{module} import warm; warm({number})"
    command = [sys.executable, "-c", program]
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=COMPILE_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        record(f"compiling {module}, {number}", status="skipped", note=str(error)[-60:])
        return
    if done.returncode:
        record.show(done.stdout + done.stderr)
        last = done.stderr.strip().splitlines()[-1:]
        record(f"compiling {module}, {number}", status="failed", note="".join(last)[:300])


def _emulated_capture(record: Recorder) -> str:
    """Check captured steps by an emulated graph, in this process to save imports."""
    from support.kernels import emulated_gpu

    os.environ["EMULATED_KERNELS"] = str(record.folder / "cache")
    try:
        emulated_gpu.main("whole", "capture", "cpu", json.dumps(emulated_gpu.SIZES))
    except SystemExit as error:
        return str(error)
    return self_check.OK


def _fuzz(
    record: Recorder, dims: tuple[int, ...], count: int, shapes: tuple[tuple[bool, int, int], ...]
) -> None:
    done = wrong = 0
    for shape in shapes:
        until = time.monotonic() + SECONDS / len(shapes)
        with shaped(*shape), record.attempt("fuzzed searches"):
            drawn = problems(done, record.device, most=100 if record.dry else 400, dims=dims)
            for name, problem in drawn:
                if differs(problem, cuda.search):  # of a dry run, the self-check's: emulated
                    wrong += 1
                    record(f"fuzzed search: {name}", status="failed", note="other bits than dense")
                done += 1
                if done % (count // len(shapes)) == 0 or time.monotonic() > until:
                    break
    what = "fuzzed searches with other bits than dense"
    record(what, wrong, f"of {done}", target=0, kind="figure")


def _compile(dims: tuple[int, ...]) -> None:
    """Compile the programs of all searches in parallel."""
    sizes = itertools.product(dims, {shape[1:] for shape in SHAPES})
    programs = [plan.Program(dim, 128, 1, *shape) for dim, shape in sizes]
    architecture = "sm_{}{}".format(*torch.cuda.get_device_capability())
    with ThreadPoolExecutor(PROCESSES) as pool:
        list(pool.map(lambda program: launch.machine_code(program, architecture), programs))


@contextlib.contextmanager
def shaped(ordered: bool, tiles: int, staged: int) -> Iterator[None]:
    """Force the order of keys and the tiles of a warp, which plans otherwise use only for many rows."""
    chosen = {"_MIN_ORDERED_KEYS": 1 if ordered else 10**9, "_MAX_BUCKETS_PER_ROW": 10**9}
    plan.make_search_plan.cache_clear()
    with patch.multiple(plan, **chosen, _choose_tiles=lambda *_, **__: (tiles, staged)):
        yield
    plan.make_search_plan.cache_clear()
