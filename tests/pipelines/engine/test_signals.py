"""A signal to a build leaves no lock, no semaphore and no half-written file, whichever process got it."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import subprocess
import termios
import time
from pathlib import Path

import pytest
from support import crash_points
from support.toy_pipeline import built_units, write_raw

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}


def _begun(folder: Path, **more: object) -> subprocess.Popen[str]:
    """Start a build and return it when its workers are at work."""
    write_raw(folder / "raw", 60, orders=dict.fromkeys(range(60), "sleep=0.05"))
    (folder / "before").write_text("\n".join(map(str, _semaphores())))
    child = crash_points.start_build(folder, jobs=2, **more)
    while not built_units(folder):
        assert child.poll() is None, child.communicate()
        time.sleep(0.01)
    return child


def _semaphores(pid: int | str = "*") -> set[Path]:
    return set(Path("/dev/shm").glob(f"sem.loky-{pid}-*"))


def _own_semaphores(folder: Path, pid: int) -> set[Path]:
    """Those of this build: a process of the same number that was killed long ago may have left some."""
    return _semaphores(pid) - {Path(line) for line in (folder / "before").read_text().splitlines()}


def _check_nothing_left(folder: Path, pid: int) -> None:
    while _own_semaphores(folder, pid):  # loky's tracker removes them when it sees that the builder is gone
        time.sleep(0.05)
    assert not (folder / "built/.locks").exists()
    assert not list((folder / "built").rglob("*.partial"))


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("number", "group"), [(signal.SIGINT, True), (signal.SIGTERM, False), (signal.SIGHUP, False)]
)
def test_a_signal_leaves_no_lock_and_no_semaphore(
    tmp_path: Path, number: signal.Signals, group: bool
) -> None:
    child = _begun(tmp_path)
    assert _own_semaphores(tmp_path, child.pid)
    (os.killpg if group else os.kill)(child.pid, number)
    _, err = child.communicate(timeout=600)
    assert child.returncode == CODES[number], err
    assert "shards are finished and stay" in err
    assert "Traceback" not in err
    _check_nothing_left(tmp_path, child.pid)


@pytest.mark.timeout(120)
def test_a_terminal_that_is_closed_leaves_nothing(tmp_path: Path) -> None:
    """It sends SIGHUP, and what a build still says to it fails."""
    master, slave = pty.openpty()

    def take_terminal() -> None:
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        for stream in (1, 2):
            os.dup2(slave, stream)

    child = _begun(tmp_path, preexec_fn=take_terminal)
    os.close(slave)
    os.close(master)
    child.communicate(timeout=600)
    assert child.returncode == 129
    _check_nothing_left(tmp_path, child.pid)
