"""A signal to a build leaves no lock, no semaphore and no half-written file, whichever process got it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from support.attacks import crash_points
from support.builds.toy_pipeline import built_units, write_raw

pytestmark = pytest.mark.real_workers

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("number", "group"),
    [
        (signal.SIGINT, True),
        (signal.SIGTERM, False),
        pytest.param(signal.SIGHUP, False, marks=pytest.mark.torture),
    ],
)
def test_a_signal_leaves_no_lock_and_no_semaphore(
    tmp_path: Path, number: signal.Signals, group: bool
) -> None:
    write_raw(tmp_path / "raw", 60, orders=dict.fromkeys(range(60), "sleep=0.05"))
    child = crash_points.start_build(tmp_path, jobs=2)
    while not built_units(tmp_path):
        assert child.poll() is None, child.communicate()
        time.sleep(0.01)
    semaphores = set(Path("/dev/shm").glob(f"sem.loky-{child.pid}-*"))
    assert semaphores
    (os.killpg if group else os.kill)(child.pid, number)
    _, err = child.communicate(timeout=600)
    assert child.returncode == CODES[number], err
    assert "shards are finished and stay" in err
    assert "Traceback" not in err
    while any(
        path.exists() for path in semaphores
    ):  # loky's tracker removes them when the builder is gone
        time.sleep(0.05)
    assert not list((tmp_path / "built").rglob("*.lock"))
    assert not list((tmp_path / "built").rglob("*.partial"))
