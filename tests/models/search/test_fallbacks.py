"""Whatever part of a GPU's search breaks, a run that chose ``auto`` searches on by the next backend."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import sys
import threading
from enum import Enum
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from support.raises import raises

from kmip_data.errors import OutOfResources, UsageError
from kmip_data.models.search import topk, topk_inner_product
from kmip_data.models.search.backends import cuda
from kmip_data.models.search.gpu import launch, plan
from kmip_data.models.search.problem import NotFinite

ROWS = torch.randn(2, 60, 10, generator=torch.Generator().manual_seed(1))
EXPECTED = topk_inner_product(ROWS, ROWS, 5, backend="dense")


class FakeCuda:
    """``cuda.core`` and ``cuda.bindings`` whose kernels write −1; a part that is broken raises."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.broken, self.compiled, self.launched = "", 0, 0
        self.threads: set[int] = set()  # those that have a context
        self.patch = monkeypatch
        self.results = Enum(
            "CUresult", ["CUDA_SUCCESS", "CUDA_ERROR_INVALID_CONTEXT", "CUDA_ERROR_INVALID_VALUE"]
        )
        driver = SimpleNamespace(CUfunction=int, cuLaunchKernel=self.launch, CUresult=self.results)
        context = SimpleNamespace(set_current=lambda: self.threads.add(threading.get_ident()))
        core = {
            "Program": lambda *_: SimpleNamespace(compile=self.compile),
            "ProgramOptions": SimpleNamespace,
            "ObjectCode": SimpleNamespace(from_cubin=self.load),
            "Device": lambda _: context,
        }
        bindings = {"driver": driver, "nvrtc": SimpleNamespace(nvrtcVersion=lambda: (0, 13, 5))}
        for name, members in {"cuda": {}, "cuda.core": core, "cuda.bindings": bindings}.items():
            module = ModuleType(name)
            vars(module).update(members)
            monkeypatch.setitem(sys.modules, name, module)

    def fail(self, part: str) -> None:
        if self.broken == part:
            raise RuntimeError(f"the {part} is broken")

    def compile(self, *_: Any, **__: Any) -> Any:
        self.fail("compiler")
        self.compiled += 1
        return SimpleNamespace(code=b"machine code")

    def load(self, code: bytes) -> Any:
        self.fail("loader")
        if code != b"machine code":
            raise RuntimeError("CUDA_ERROR_INVALID_IMAGE")
        return SimpleNamespace(get_kernel=lambda _: SimpleNamespace(handle=7))

    def launch(self, kernel: int, *rest: Any) -> tuple[Any]:
        if self.broken == "launch":
            return (self.results.CUDA_ERROR_INVALID_VALUE,)
        if threading.get_ident() not in self.threads:
            return (self.results.CUDA_ERROR_INVALID_CONTEXT,)
        self.launched += 1
        assert kernel == 7
        (members,) = ctypes.cast(rest[-2], ctypes.POINTER(ctypes.c_void_p))[:1]
        places = np.ctypeslib.as_array(ctypes.cast(members, ctypes.POINTER(ctypes.c_int64)), (9,))
        indices = ctypes.cast(
            int(places[plan.STRUCT_POINTERS.index("indices")]), ctypes.POINTER(ctypes.c_int64)
        )
        np.ctypeslib.as_array(indices, (2 * 60 * 5,))[:] = -1
        return (self.results.CUDA_SUCCESS,)


@pytest.fixture
def fake(monkeypatch, tmp_path) -> FakeCuda:
    """The backend ``cuda`` on the CPU, first in the order of ``auto``."""
    properties = SimpleNamespace(major=9, minor=0, multi_processor_count=132)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: SimpleNamespace(cuda_stream=0))
    monkeypatch.setattr(torch.cuda, "device", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(launch.platformdirs, "user_cache_dir", lambda *_, **__: str(tmp_path))
    monkeypatch.setattr(cuda, "AUTO_PRIORITY", {"cpu": 99})
    monkeypatch.setattr(cuda, "why_unusable", lambda _: None)
    monkeypatch.setattr(topk, "_disabled", {})
    caches = (topk._warn_once, launch.get_device, launch.nvrtc_version, plan.make_search_plan)
    for each in caches:
        each.cache_clear()
    yield FakeCuda(monkeypatch)
    for each in caches:
        each.cache_clear()


def search(backend: str = "auto") -> tuple[torch.Tensor, torch.Tensor]:
    return topk_inner_product(ROWS, ROWS, 5, backend=backend)


@pytest.mark.parametrize("part", ["compiler", "loader", "launch", "cuda.core", "cuda.bindings"])
def test_a_broken_part_costs_speed_and_one_warning(fake, caplog, part: str) -> None:
    fake.broken = part
    if part.startswith("cuda"):
        fake.patch.setitem(sys.modules, part, None)
    with caplog.at_level(logging.WARNING, logger=topk.__name__):
        for _ in range(3):
            assert all(map(torch.equal, search(), EXPECTED))
    (warning,) = [each.getMessage() for each in caplog.records if each.name == topk.__name__]
    assert warning.startswith(
        "search backend cpu on cpu; not cuda: it failed, please report this: "
    )
    assert {"launch": "INVALID_VALUE from search kernel"}.get(part, part) in warning
    assert fake.launched == 0
    (row,) = (row for row in topk.backend_status(("cpu",)) if row.name == "cuda")
    assert not row.usable
    with pytest.raises((UsageError, RuntimeError, ImportError)):  # by name there is no other
        search("cuda")


def test_a_fault_that_is_not_the_backends_is_raised(fake, monkeypatch) -> None:
    def fails(error: Exception) -> None:
        monkeypatch.setattr(cuda, "search", lambda _: (_ for _ in ()).throw(error))

    for error, raised in (
        (torch.cuda.OutOfMemoryError("CUDA out of memory"), OutOfResources),
        (NotFinite("NaN"), NotFinite),
    ):
        fails(error)
        with pytest.raises(raised):
            search()
    fails(RuntimeError("an illegal memory access"))
    monkeypatch.setattr(topk, "_is_lost", lambda _: True)
    with raises(RuntimeError, naming="an illegal memory access"):
        search()
    assert not topk._disabled
    monkeypatch.setattr(topk, "all_backends", lambda: {"cuda": cuda})
    monkeypatch.setattr(topk, "_is_lost", lambda _: False)
    with raises(UsageError, naming="an illegal memory access"):  # there is no other backend
        search()


def test_a_device_that_cannot_be_synchronised_is_reported_lost(monkeypatch) -> None:
    def lost(*, capturing: bool, answer: str = "") -> bool:
        def synchronize(_: Any) -> None:
            if answer:
                raise RuntimeError(answer)

        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: capturing)
        monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
        return topk._is_lost(torch.device("cuda"))

    assert not lost(capturing=False)
    assert lost(capturing=True)
    assert lost(capturing=False, answer="CUDA error: an illegal memory access was encountered")
    assert not topk._is_lost(torch.device("cpu"))


def test_machine_code_is_compiled_once_and_its_damage_named(fake, tmp_path, caplog) -> None:
    """It is compiled once for each NVRTC; where it is damaged, its folder is named."""
    fake.patch.setattr(launch, "_compilations", iter(range(1, 9)))
    with caplog.at_level(logging.INFO, logger=launch.__name__):
        for _ in range(2):
            assert bool((search()[1] == -1).all())  # of the fake
            assert (fake.launched, fake.compiled) == (6, 1)
            launch.get_device.cache_clear(), plan.make_search_plan.cache_clear()
            fake.launched = 0
        (kept,) = (tmp_path / "kernels").iterdir()
        kept.write_bytes(b"damaged")
        with raises(UsageError, naming=kept.parent):
            search("cuda")
        kept.unlink()
        search("cuda")
    assert fake.compiled == 2
    assert [each.levelname for each in caplog.records if "program" in each.getMessage()] == [
        "WARNING",
        "INFO",
    ]
    sys.modules["cuda.bindings"].nvrtc.nvrtcVersion = lambda: (0, 13, 6)  # type: ignore[attr-defined]
    launch.nvrtc_version.cache_clear()
    launch.get_device.cache_clear()
    search("cuda")
    assert fake.compiled == 3
    fake.patch.setattr(launch.platformdirs, "user_cache_dir", lambda *_, **__: "/proc/nowhere")
    assert launch.machine_code(plan.Program(10, 128, 1, 1, 0), "sm_80") == b"machine code"


def test_search_runs_in_thread_without_cuda_context(fake) -> None:
    search("cuda")
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.extend(search("cuda")))
    thread.start()
    thread.join()
    assert len(results) == 2
    assert fake.launched == 11  # the tables are made once
    assert len(fake.threads) == 2
