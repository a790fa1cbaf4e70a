"""Settings that must stand before torch is loaded, and what is printed at the end."""

import contextlib
import os
import pkgutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.tallies import Tallies, torture_count

__all__ = ["torture_count"]

# As the command line does: threads of several test processes on few cores must not spin.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# Kernels for GPUs are compiled once a checkout; the machine code of numba lies beside its source as ever.
os.environ.setdefault(
    "TRITON_CACHE_DIR", str(Path(__file__).resolve().parents[1] / ".pytest_cache" / "triton")
)
# A shell has its jobs in the background ignore SIGINT, and nohup SIGHUP; what tests start would, too.
for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, usual)


@pytest.fixture(scope="session", autouse=True)
def _light() -> Iterator[dict[str, Any]]:
    """Let tests share few cores: one thread of PyTorch, builds in this process, runs without their extras.

    A worker of a build takes 1 to 4 s to start; bytes and errors are the same
    (``pipelines/engine/test_pool.py``). Curves and the measure of memory are 40 % of a run of two epochs.
    Give what was replaced, by its name.
    """
    light: dict[str, Any] = {}
    if "kmip_data" in sys.modules:
        from kmip_data.pipelines.engine import run

        open_executor = run.open_executor
        for module in ("run", "encode"):
            light[f"kmip_data.pipelines.engine.{module}.open_executor"] = lambda *arguments, **options: (
                open_executor(*arguments, **{**options, "here": True})
            )
    if "torch" in sys.modules:
        import torch

        from kmip_data.drawing.style import write_output
        from kmip_data.models.training.run import train

        torch.set_num_threads(1)
        light[f"{train.__name__}.draw_curves"] = lambda _, path, **__: write_output(path, b"\x89PNG")
        light[f"{train.__name__}.plan_memory"] = lambda config, *_: train.StepMemory(
            bool(config.model.checkpoint_layers), need=1, free=2**40
        )
    whole = {name: pkgutil.resolve_name(name) for name in light}
    with _patched(light):
        yield whole


@contextlib.contextmanager
def _patched(values: dict[str, Any]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in values.items():
            patch.setattr(name, value)
        yield


@pytest.fixture(autouse=True, scope="module")
def _workers(request: pytest.FixtureRequest, _light: dict[str, Any]) -> Iterator[None]:
    """Start workers of builds where the engine is tested."""
    engine = "engine" in request.path.parts or request.path.name == "test_build.py"
    with _patched({name: value for name, value in _light.items() if engine and "engine" in name}):
        yield


@pytest.fixture(autouse=True)
def _whole_run(request: pytest.FixtureRequest, _light: dict[str, Any]) -> Iterator[None]:
    """Draw curves and measure memory where a test is marked so."""
    whole = request.node.get_closest_marker("whole_run") is not None
    with _patched({name: value for name, value in _light.items() if whole and "train" in name}):
        yield


def pytest_addoption(parser: pytest.Parser) -> None:
    """``make check`` has this."""
    parser.addoption("--core", action="store_true", help="run the first case of the first tests of each file")


def pytest_configure(config: pytest.Config) -> None:
    """Sum up over all tests."""
    config.pluginmanager.register(Tallies(), "tallies")
