"""Section 1: the self-check, fuzzed searches against ``dense``, and the tests of the search."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import patch

import torch

from kmip_data.models.config import ModelConfig
from kmip_data.models.search.backends import cuda
from kmip_data.models.search.gpu import launch, plan
from kmip_data.models.training import self_check
from tools.gpu.fuzz import differs, problems
from tools.gpu.results import Recorder
from tools.gpu.tools import run_tests

PROBLEMS, SECONDS = 2_000, 30.0
SHAPES = (
    (False, 1, 0),
    (True, 1, 0),
    (True, 2, 0),
    (True, 4, 1),
    (False, 4, 0),
)  #: ordered, tiles, staged
TESTS = "tests/models/search/test_cuda_kernels.py"


def run(record: Recorder) -> None:
    """Check, fuzz and test."""
    if record.dry:
        found = {"capture": _emulated_capture(record)}
    else:
        found = self_check.check("cuda", self_check.sizes_of(ModelConfig()))
    for part, reason in found.items():
        ok = reason == self_check.OK
        record(f"self-check: {part}", status="ok" if ok else "failed", note="" if ok else reason)
    _fuzz(record)
    run_tests(record, [TESTS], filters="gpu", processes=4)


def _emulated_capture(record: Recorder) -> str:
    """Check captured steps by an emulated graph, in this process: a child would import it all again."""
    from support.kernels import emulated_gpu

    os.environ["EMULATED_KERNELS"] = str(record.folder / "cache")
    try:
        emulated_gpu.main("whole", "capture", "cpu", json.dumps(emulated_gpu.SIZES))
    except SystemExit as error:
        return str(error)
    return self_check.OK


def _fuzz(record: Recorder) -> None:
    dims, count, shapes = (5, 10, 19), PROBLEMS, SHAPES
    if record.dry:
        dims, count, shapes = (10,), 4, SHAPES[:1]
    else:
        with record.attempt("compiling for fuzzed searches"):
            _compile(dims)
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
    record(
        "fuzzed searches with other bits than dense", wrong, f"of {done}", target=0, kind="figure"
    )


def _compile(dims: tuple[int, ...]) -> None:
    """Compile the programs of all these searches at the same time."""
    sizes = itertools.product(dims, {shape[1:] for shape in SHAPES})
    programs = [plan.Program(dim, 128, 1, *shape) for dim, shape in sizes]
    target = "sm_{}{}".format(*torch.cuda.get_device_capability())
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda program: launch.compiled(program, target), programs))


@contextlib.contextmanager
def shaped(ordered: bool, tiles: int, staged: int) -> Iterator[None]:
    """Set when keys are ordered and warps share them, so that few rows do what otherwise many do."""
    chosen = {"_ORDERED_KEYS": 1 if ordered else 10**9, "_BUCKETS_A_ROW": 10**9}
    plan.plan_for.cache_clear()
    with patch.multiple(plan, **chosen, _tiles=lambda *_, **__: (tiles, staged)):
        yield
    plan.plan_for.cache_clear()
