"""One builder at a time: waiting, dead owners, disks without locks, four processes."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from support.attacks import crash_points
from support.builds.toy_pipeline import build_toy, built_units, digests, write_raw
from support.cases import read_contents

from kmip_data.errors import FolderInUse, UsageError
from kmip_data.files import atomic_writes
from kmip_data.files.atomic_writes import folder_lock, lock_path

HOLD = (
    "import sys, time; from pathlib import Path; from kmip_data.files.atomic_writes import folder_lock\n"
    "with folder_lock(Path(sys.argv[1])):\n"
    "    print('held', flush=True); time.sleep(float(sys.argv[2]))\n"
)


def _holder(folder: Path, place: Path, seconds: float = 60) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder), str(seconds)],
        env=crash_points.environment(place),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    return child


def test_a_waiter_logs_and_resumes_when_the_lock_holder_is_killed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(atomic_writes, "WAIT_MESSAGE_SECONDS", 0.3)
    folder = tmp_path / "built" / "toy"
    child = _holder(folder, tmp_path / "bootstrap")
    entered = threading.Event()

    def wait_for_it() -> None:
        with folder_lock(folder):
            entered.set()

    thread = threading.Thread(target=wait_for_it)
    thread.start()
    assert not entered.wait(1.0)
    child.kill()
    child.wait()
    assert entered.wait(600)
    thread.join()
    line = f"waiting for another process that uses {folder}\n"
    assert 2 <= capfd.readouterr().err.count(line) <= 5  # at once, and again


def test_without_waiting_a_folder_in_use_is_an_error(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    with folder_lock(folder):
        assert [path.name for path in tmp_path.iterdir()] == [".x.lock"]
        with (
            pytest.raises(FolderInUse),
            folder_lock(folder, wait=False),
        ):
            pass
        assert lock_path(folder).exists()  # still the holder's
    with folder_lock(folder, wait=False):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_lock_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / ".x.lock").symlink_to(tmp_path / "mine")
    with pytest.raises(UsageError), folder_lock(tmp_path / "x"):
        pass
    assert read_contents(tmp_path) == {"mine": b"mine", ".x.lock": b"a link"}
    (tmp_path / ".x.lock").unlink()
    os.link(tmp_path / "mine", tmp_path / ".x.lock")
    with pytest.raises(UsageError), folder_lock(tmp_path / "x"):
        pass
    assert (tmp_path / "mine").read_text() == "mine"


def test_a_file_system_without_locks_is_named_and_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", missing)
    with folder_lock(tmp_path / "x"):
        assert lock_path(tmp_path / "x").exists()
    assert (
        f"{tmp_path} has no file locks: do not run another command on x" in capsys.readouterr().err
    )
    assert list(tmp_path.iterdir()) == []


def test_lock_holders_never_overlap(tmp_path: Path) -> None:
    """Lock files come and go with each holder; still no two are inside at once."""
    inside = tmp_path / "inside"
    code = (
        "import sys; from pathlib import Path; from kmip_data.files.atomic_writes import folder_lock\n"
        "for _ in range(30):\n"
        "    with folder_lock(Path(sys.argv[1]), quiet=True):\n"
        "        inside = Path(sys.argv[2]); inside.touch(exist_ok=False); inside.unlink()\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "x"), str(inside)]
    environment = crash_points.environment(tmp_path / "bootstrap")
    children = [
        subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    assert [(child.communicate(timeout=600)[1], child.returncode) for child in children] == [
        ("", 0)
    ] * 4
    assert not (tmp_path / ".x.lock").exists()


def test_four_processes_build_once_and_agree(tmp_path: Path) -> None:
    write_raw(tmp_path / "raw", 12, orders=dict.fromkeys(range(12), "sleep=0.05"))
    children = [crash_points.start_build(tmp_path, jobs=1) for _ in range(4)]
    ends = [child.communicate(timeout=600) for child in children]
    assert [child.returncode for child in children] == [0] * 4, ends
    assert len({out for out, _ in ends}) == 1
    assert sorted(built_units(tmp_path)) == [0, 1, 2, 3]
    assert sum("built toy" in err for _, err in ends) == 1
    path = Path(ends[0][0].strip())
    assert digests(path) == digests(build_toy(tmp_path, home=tmp_path / "reference").path)


def test_a_folder_lock_replaces_stale_locks_and_no_user_file(tmp_path: Path) -> None:
    """An empty lock of a killed process is reused, then removed."""
    (tmp_path / ".x.lock").touch()
    with folder_lock(tmp_path / "x"):
        pass
    assert list(tmp_path.iterdir()) == []
    with folder_lock(tmp_path / "sub/x"), folder_lock(tmp_path / "sub" / ("y" * 255)):
        pass
    assert list((tmp_path / "sub").iterdir()) == []
    (tmp_path / ".x.lock").write_text("mine")
    with pytest.raises(UsageError), folder_lock(tmp_path / "x"):
        pass
    assert (tmp_path / ".x.lock").read_text() == "mine"
