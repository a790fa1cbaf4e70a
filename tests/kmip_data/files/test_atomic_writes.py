"""Files appear whole or not at all: short writes, full disks, planted links, crashes."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from pathlib import Path

import pytest
from support.cases import check_each, read_contents
from support.cli import python

from kmip_data.errors import OutOfResources, UsageError
from kmip_data.files import atomic_writes
from kmip_data.files.atomic_writes import open_resumable_file, write_file, write_output

DATA = bytes(range(256)) * 1000


def test_short_writes_are_continued(tmp_path, monkeypatch):
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, bytes(data[:1000])))
    write_file(tmp_path / "a.h5", DATA)
    assert (tmp_path / "a.h5").read_bytes() == DATA


def _name(machine=atomic_writes._MACHINE):
    """Name a partial file of ``a.h5`` by another writer."""
    return f"a.h5.{machine}-{'0' * 16}.partial"


def test_partial_files_of_dead_writers_are_removed(tmp_path):
    cases = [  # name, age in seconds, locked by a writer, removed
        (_name(), 0, False, True),
        (_name(), 10**6, True, False),
        (_name("00000000"), 80_000, False, False),
        (_name("00000000"), 90_000, False, True),
        ("a.h5.partial", 10**6, False, False),  # a name that anybody may choose
        (_name().replace("a.h5", "b.h5"), 0, False, False),  # for the writer of b.h5
    ]

    def check(case):
        name, age, locked, removed = case
        left = tmp_path / name
        left.write_bytes(b"left by another writer, longer than the new data")
        os.utime(left, (time.time() - age,) * 2)
        with left.open("rb") as writer:
            if locked:
                fcntl.flock(writer, fcntl.LOCK_EX)
            write_file(tmp_path / "a.h5", b"new")
            assert (tmp_path / "a.h5").read_bytes() == b"new"
            assert left.exists() is not removed

    check_each(check, cases)
    atomic_writes.remove_partials(tmp_path, root=tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"a.h5", "a.h5.partial"}


def test_a_new_file_removed_as_stale_is_created_again(tmp_path, monkeypatch):
    real, taken = fcntl.flock, []

    def late(descriptor, how):
        if not taken:
            taken.extend(tmp_path.glob("*.partial"))
            taken[0].unlink()
        real(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", late)
    write_file(tmp_path / "a.h5", b"new")
    assert taken
    assert read_contents(tmp_path) == {"a.h5": b"new"}


def test_two_writers_never_show_half_a_file(tmp_path, monkeypatch):
    """A writer that is slowed down, another that overtakes it: each version is seen whole.

    With one partial name for both the second renames in what the first has only begun.
    """
    path, seen = tmp_path / "a.h5", []
    real = os.write

    def slow(descriptor, data):
        if bytes(data[:4]) == b"slow":
            done = real(descriptor, bytes(data[: len(data) // 2]))
            monkeypatch.setattr(os, "write", real)
            write_file(path, b"fast" * 5000)
            seen.append(path.read_bytes())
            return done
        return real(descriptor, data)

    monkeypatch.setattr(os, "write", slow)
    write_file(path, b"slow" * 10000)
    seen.append(path.read_bytes())
    assert seen == [b"fast" * 5000, b"slow" * 10000]
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.h5"]


@pytest.mark.parametrize("before", [{}, {"victim": b"precious"}])
def test_a_link_is_not_written_through_nor_replaced(tmp_path, before):
    (tmp_path / "a.h5").symlink_to(tmp_path / "victim")
    for name, data in before.items():
        (tmp_path / name).write_bytes(data)
    with pytest.raises(UsageError):
        write_file(tmp_path / "a.h5", b"new")
    assert read_contents(tmp_path) == {"a.h5": b"a link", **before}


def test_a_file_of_the_user_is_written_where_a_link_leads(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there/picture.png")
    for data in (b"first", b"second"):
        write_output(tmp_path / "link", data)
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "there/picture.png").read_bytes() == data


@pytest.mark.parametrize("write", [write_output, write_file])
@pytest.mark.parametrize("name", ["pipe", "link", "loop"])
def test_a_pipe_a_link_to_one_and_a_loop_are_not_replaced(tmp_path, write, name):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(UsageError):
        write(tmp_path / name, b"x")
    assert (tmp_path / "pipe").is_fifo()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["link", "loop", "pipe"]


OPERATIONS = {
    "write": lambda root: write_file(root / "a/b/new", b"x", root=root),
    "replace": lambda root: write_file(root / "a/b/mine", b"x", root=root),
    "remove": lambda root: atomic_writes.remove_file(root / "a/b/mine", root=root),
    "remove by name": lambda root: atomic_writes.remove_files(
        root, ["a/b/mine", "a/mine"], folders=["a/b/empty"]
    ),
    "remove partial files": lambda root: atomic_writes.remove_partials(root / "a/b", root=root),
    "make a folder": lambda root: atomic_writes.make_folder(root / "a/b/c/d", root=root),
    "remove a tree": lambda root: atomic_writes.remove_tree(root / "a/b", root=root),
}
CALLS = ("open", "stat", "listdir", "unlink", "rmdir", "mkdir", "replace", "scandir")


def _victim(folder):
    """Make the target of a link, with all the names that are written or removed."""
    (folder / "b/empty").mkdir(parents=True)
    for name in ("mine", "b/mine", "b/" + _name(), "empty", "b/empty/.kmip-data"):
        (folder / name).write_text("precious")
    return read_contents(folder)


def _swapped(tmp_path, monkeypatch, operation, turn, swapped):
    """Run an operation, in whose ``turn``-th system call a folder becomes a link; return the calls."""
    root, away = tmp_path / "root", tmp_path / "away"
    _victim(root / "a")
    before = _victim(away / "a")
    count = 0

    def swapping(real):
        def call(*args, **options):
            nonlocal count
            count += 1
            if count == turn:
                (root / swapped).rename(tmp_path / "moved")
                (root / swapped).symlink_to(away / swapped)
            return real(*args, **options)

        return call

    with monkeypatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, swapping(getattr(os, name)))
        with contextlib.suppress(OSError, UsageError):
            OPERATIONS[operation](root)
    assert read_contents(away / "a") == before
    return count


SWAPS = [(operation, swapped) for operation in OPERATIONS for swapped in ("a", "a/b")]


@pytest.mark.parametrize(("operation", "swapped"), SWAPS)
def test_nothing_is_done_through_a_link_below_the_root(tmp_path, monkeypatch, operation, swapped):
    assert _swapped(tmp_path, monkeypatch, operation, 1, swapped)


@pytest.mark.torture
@pytest.mark.parametrize(("operation", "swapped"), SWAPS)
def test_a_link_planted_during_a_write_is_not_followed(
    tmp_path, monkeypatch, operation, swapped, torture_count
):
    calls = _swapped(tmp_path / "0", monkeypatch, operation, 0, swapped)
    assert calls
    for turn in range(1, calls + 1):
        _swapped(tmp_path / str(turn), monkeypatch, operation, turn, swapped)
    torture_count("links", calls)


@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EFBIG, errno.EIO])
def test_a_failing_disk_keeps_the_old_file(tmp_path, monkeypatch, call, code):
    """The last piece, the sync or the renaming fails: the old file stays."""
    (tmp_path / "a.h5").write_bytes(b"old")
    real = getattr(os, call)

    def fail(*args, **more):
        if call == "write" and bytes(args[1]) != b"last":
            return real(*args, **more)
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(OutOfResources) as caught:
            write_file(tmp_path / "a.h5", [DATA, b"last"])
    assert os.strerror(code) in caught.value.found
    assert read_contents(tmp_path) == {"a.h5": b"old"}
    write_file(tmp_path / "a.h5", [DATA, b"last"])
    assert read_contents(tmp_path) == {"a.h5": DATA + b"last"}


@pytest.mark.parametrize("call", ["open", "write", "fsync"])
def test_an_interrupt_as_soon_as_a_call_has_returned_leaves_nothing(tmp_path, monkeypatch, call):
    real = getattr(os, call)

    def interrupt(*args, **options):
        done = real(*args, **options)
        if call != "open" or ".partial" in str(args[0]):
            raise KeyboardInterrupt
        return done

    monkeypatch.setattr(os, call, interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_file(tmp_path / "a.h5", DATA)
    assert read_contents(tmp_path) == {}


@pytest.mark.parametrize("place", ["absent/a.h5", "file/a.h5", "a" * 300, "/", None, "folder"])
def test_an_unwritable_path_is_named(tmp_path, place):
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    path = Path() if place is None else tmp_path / place
    with pytest.raises(UsageError):
        write_file(path, DATA)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "folder"]


KILLED = """
import os, sys
from pathlib import Path
from kmip_data.files.atomic_writes import write_file
name, turn = sys.argv[2], int(sys.argv[3])
real = getattr(os, name)
count = 0
def dying(*args, **more):
    global count
    count += 1
    if count == turn:
        os.kill(os.getpid(), 9)
    return real(*args, **more)
setattr(os, name, dying)
write_file(Path(sys.argv[1]) / "a.h5", b"new" * 1000)
"""


def test_a_writer_killed_before_any_call_leaves_a_consistent_file(tmp_path):
    """Death at each step leaves the old file or the new one, and the next write succeeds."""
    for name, turn in (("write", 1), ("replace", 1), ("fsync", 2)):
        path = tmp_path / "a.h5"
        path.write_bytes(b"old")
        python("-c", KILLED, tmp_path, name, turn, code=-9)
        assert path.read_bytes() == (b"new" * 1000 if name == "fsync" else b"old")
        write_file(path, b"newer")
        assert [entry.name for entry in tmp_path.iterdir()] == ["a.h5"]


def test_a_resumed_file_appears_once_complete(tmp_path: Path) -> None:
    def stopped(data: bytes) -> None:
        with open_resumable_file(tmp_path / "a", ".a", root=tmp_path) as file:
            file.write(data)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped(b"")
    assert not list(tmp_path.iterdir())
    with pytest.raises(KeyboardInterrupt):
        stopped(b"ab")
    assert [path.name for path in tmp_path.iterdir()] == [".a"]
    with open_resumable_file(tmp_path / "a", ".a", root=tmp_path) as file:
        assert file.read() == b"ab"
        file.write(b"cd")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == b"abcd"
