"""Settings that must stand before torch is loaded, and what is printed at the end."""

import os
import signal
import sys
from pathlib import Path

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


@pytest.fixture(autouse=True)
def _light_runs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let training in this process measure no memory beforehand; tests marked ``whole_run`` do."""
    train = sys.modules.get("kmip_data.models.training.run.train")
    if train is None or request.node.get_closest_marker("whole_run"):
        return
    monkeypatch.setattr(
        train,
        "plan_memory",
        lambda config, *_: train.StepMemory(bool(config.model.checkpoint_layers), need=1, free=2**40),
    )


def pytest_addoption(parser: pytest.Parser) -> None:
    """``make check`` has this."""
    parser.addoption("--core", action="store_true", help="run the first case of the first tests of each file")


def pytest_configure(config: pytest.Config) -> None:
    """Sum up over all tests."""
    config.pluginmanager.register(Tallies(), "tallies")
