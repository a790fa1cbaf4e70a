"""Files appear whole or not at all: short writes, full disks, planted links, crashes."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kmip_data.errors import OutOfResources, UsageError
from kmip_data.shards.writer import write_file

DATA = bytes(range(256)) * 1000


def test_writes_and_replaces(tmp_path):
    path = tmp_path / "a.h5"
    write_file(path, b"old")
    write_file(path, DATA)
    assert path.read_bytes() == DATA
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.h5"]
    write_file(path, b"")
    assert path.read_bytes() == b""


def test_order_of_the_calls(tmp_path, monkeypatch):
    """Data are synced before the rename, the folder after it."""
    calls = []
    for name in ("write", "fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(
            os, name, lambda *args, name=name, real=real: (calls.append(name), real(*args))[1]
        )
    write_file(tmp_path / "a.h5", b"data")
    assert calls == ["write", "fsync", "replace", "fsync"]


def test_short_writes_are_continued(tmp_path, monkeypatch):
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, bytes(data[:1000])))
    write_file(tmp_path / "a.h5", DATA)
    assert (tmp_path / "a.h5").read_bytes() == DATA


def test_stale_partial_is_replaced(tmp_path):
    (tmp_path / "a.h5.partial").write_bytes(b"left by a dead run, longer than the new data")
    write_file(tmp_path / "a.h5", b"new")
    assert (tmp_path / "a.h5").read_bytes() == b"new"
    assert not (tmp_path / "a.h5.partial").exists()


@pytest.mark.parametrize("target_exists", [True, False])
def test_planted_link_is_not_followed(tmp_path, target_exists):
    victim = tmp_path / "victim"
    if target_exists:
        victim.write_bytes(b"precious")
    (tmp_path / "a.h5.partial").symlink_to(victim)
    write_file(tmp_path / "a.h5", b"new")
    assert (tmp_path / "a.h5").read_bytes() == b"new"
    assert not (tmp_path / "a.h5").is_symlink()
    assert victim.exists() == target_exists
    assert not target_exists or victim.read_bytes() == b"precious"


def test_link_planted_again_and_again_is_refused(tmp_path, monkeypatch):
    """Someone puts the link back between our removal and our creation."""
    victim = tmp_path / "victim"
    partial = tmp_path / "a.h5.partial"
    partial.symlink_to(victim)
    real = os.open

    def race(path, *args):
        if os.fspath(path) == str(partial) and not partial.is_symlink():
            partial.symlink_to(victim)
        return real(path, *args)

    monkeypatch.setattr(os, "open", race)
    with pytest.raises(UsageError, match="cannot be written"):
        write_file(tmp_path / "a.h5", b"new")
    assert not victim.exists()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO])
@pytest.mark.parametrize(
    ("call", "turn"), [("write", 1), ("write", 2), ("write", 3), ("fsync", 1), ("replace", 1)]
)
def test_disk_that_does_not_take_it(tmp_path, monkeypatch, call, turn, code):
    (tmp_path / "a.h5").write_bytes(b"old")
    real_write, real = os.write, getattr(os, call)
    count = 0

    def fail(*args):
        nonlocal count
        count += 1
        if count == turn:
            raise OSError(code, os.strerror(code))
        return real_write(args[0], bytes(args[1][:1000])) if call == "write" else real(*args)

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(OutOfResources) as caught:
        write_file(tmp_path / "a.h5", DATA)
    text = str(caught.value)
    assert f"{len(DATA):,} bytes" in text
    assert os.strerror(code) in text
    assert "bytes free" in text
    assert caught.value.parts["next"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.h5"]
    assert (tmp_path / "a.h5").read_bytes() == b"old"
    monkeypatch.undo()
    write_file(tmp_path / "a.h5", DATA)
    assert (tmp_path / "a.h5").read_bytes() == DATA


def test_interrupt_leaves_nothing(tmp_path, monkeypatch):
    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_file(tmp_path / "a.h5", DATA)
    assert list(tmp_path.iterdir()) == []


def test_folder_that_cannot_be_synced(tmp_path, monkeypatch):
    real = os.fsync
    calls = []

    def fsync(descriptor):
        calls.append(descriptor)
        if len(calls) == 2:
            raise OSError(errno.EINVAL, "Invalid argument")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    write_file(tmp_path / "a.h5", DATA)
    assert (tmp_path / "a.h5").read_bytes() == DATA


def test_wrong_places(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    for path in (tmp_path / "absent" / "a.h5", tmp_path / "file" / "a.h5", tmp_path / ("a" * 300)):
        with pytest.raises(UsageError, match="cannot be written"):
            write_file(path, DATA)
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError):
        write_file(tmp_path / "folder", DATA)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "folder"]


def test_file_size_limit_of_the_system(tmp_path):
    """RLIMIT_FSIZE: a signal that kills most programs, EFBIG in Python; no traceback, no leftovers."""
    code = """
import resource, sys
from pathlib import Path
from kmip_data.errors import OutOfResources
from kmip_data.shards.writer import write_file
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
folder = Path(sys.argv[1])
write_file(folder / "small.h5", bytes(100_000))
try:
    write_file(folder / "large.h5", bytes(100_001))
except OutOfResources as error:
    print(error)
    sys.exit(error.exit_code)
"""
    root = Path(__file__).resolve().parents[3]
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert run.returncode == 6
    assert run.stderr == ""
    assert "File too large" in run.stdout
    assert [entry.name for entry in tmp_path.iterdir()] == ["small.h5"]


def test_killed_before_any_call(tmp_path):
    """Death at each step leaves the old file or the new one, and the next write succeeds."""
    code = """
import os, sys
from pathlib import Path
from kmip_data.shards.writer import write_file
name, turn = sys.argv[2], int(sys.argv[3])
real = getattr(os, name)
count = 0
def dying(*args):
    global count
    count += 1
    if count == turn:
        os.kill(os.getpid(), 9)
    return real(*args)
setattr(os, name, dying)
write_file(Path(sys.argv[1]) / "a.h5", b"new" * 1000)
"""
    root = Path(__file__).resolve().parents[3]
    for name, turn in (("write", 1), ("fsync", 1), ("replace", 1), ("fsync", 2)):
        path = tmp_path / "a.h5"
        path.write_bytes(b"old")
        command = [sys.executable, "-c", code, str(tmp_path), name, str(turn)]
        assert subprocess.run(command, cwd=root, check=False, timeout=600).returncode == -9
        assert path.read_bytes() == (b"new" * 1000 if (name, turn) == ("fsync", 2) else b"old")
        write_file(path, b"newer")
        assert [entry.name for entry in tmp_path.iterdir()] == ["a.h5"]


@pytest.mark.parametrize("place", ["/", "."])
def test_a_folder_without_a_name_is_no_file(place):
    with pytest.raises(UsageError, match="cannot be written"):
        write_file(Path(place), b"x")


def test_a_pipe_or_device_is_not_replaced(tmp_path):
    path = tmp_path / "null"
    os.mkfifo(path)
    with pytest.raises(UsageError, match="is no file"):
        write_file(path, b"x")
    assert path.is_fifo()
    assert [entry.name for entry in tmp_path.iterdir()] == ["null"]
