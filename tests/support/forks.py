"""Forks of this process, whose file operations are seen: each may be held, killed or out of room at one.

What a fork runs is imported and compiled already.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal

OPERATIONS = ("open", "mkdir", "write", "fsync", "ftruncate", "replace", "unlink", "rmdir")
NEVER = 10**9
SECONDS = 300.0  #: after which a writer hangs
#: Carries an operation out: its number (from 0), its name, the path, the call.
Around = Callable[[int, str, str, "functools.partial[Any]"], Any]
Rounds = Iterable[tuple[str, Callable[[], str]]]


def watch(folder: Path, around: Around) -> None:
    """Let ``around`` carry out each change of what lies below ``folder``."""
    seen = -1

    def wrapped(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal seen
            path = _changed(name, arguments, options)
            if path is None or not path.startswith(str(folder)):
                return function(*arguments, **options)
            seen += 1
            return around(seen, name, path, functools.partial(function, *arguments, **options))

        return call

    for name in OPERATIONS:
        setattr(os, name, wrapped(name, getattr(os, name)))


def _changed(name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> str | None:
    """Path of the file that an operation changes, if it changes one."""
    if name == "open" and not arguments[1] & (os.O_CREAT | os.O_WRONLY | os.O_RDWR):
        return None
    target = arguments[1] if name == "replace" else arguments[0]
    if isinstance(target, int):
        try:
            target = Path(f"/proc/self/fd/{target}").readlink()
        except OSError:
            return None
    inside = options.get("dst_dir_fd", options.get("dir_fd"))  # a name inside an open folder
    base = Path.cwd() if inside is None else Path(f"/proc/self/fd/{inside}").readlink()
    return str(base / target)


def fork(action: Callable[[], int], said: Path, folder: Path, around: Around) -> int:
    """Run ``action`` in a fork, which ends with its code; what it prints is in ``said``."""
    said.write_text("")
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        descriptor = os.open(said, os.O_WRONLY | os.O_APPEND)
        for stream in (1, 2):
            os.dup2(descriptor, stream)
        sys.stdout, sys.stderr = (os.fdopen(stream, "w", buffering=1) for stream in (1, 2))
        watch(folder, around)
        code = action()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def end_of(pid: int) -> int:
    """Wait for a fork and return how it ended (negative: by a signal)."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


class Writer:
    """A fork that runs ``action`` and is held before its n-th change below ``folder``."""

    def __init__(self, action: Callable[[], int], folder: Path, n: int, said: Path) -> None:
        self.said, self.code = said, None
        self._held, held = os.pipe()
        go, self._go = os.pipe()

        def around(seen: int, name: str, path: str, call: Any) -> Any:
            if seen == n:
                os.write(held, f"{name} {Path(path).name}".encode())
                os.read(go, 1)
            return call()

        self.pid = fork(action, said, folder, around)
        os.close(held)
        os.close(go)

    def until_held(self) -> Literal["held", "waits", "ended"]:
        """Go on until it is held, waits for another, or has ended."""
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            if select.select([self._held], [], [], 0.02)[0]:
                if operation := os.read(self._held, 1000):
                    self.operation = operation.decode()
                    return "held"
                self.wait()
                return "ended"
            if "waiting for" in self.said.read_text():
                return "waits"
        os.kill(self.pid, signal.SIGKILL)
        self.wait()
        raise TimeoutError(self.said.read_text())

    def wait(self) -> int:
        """Return how it ended."""
        if self.code is None:
            self.code = end_of(self.pid)
            os.close(self._held)
            os.close(self._go)
        return self.code

    def finish(self) -> int:
        """Let it go on to its end."""
        with contextlib.suppress(OSError):
            os.write(self._go, b"x")
        return self.wait()


def count(action: Callable[[], int], folder: Path, said: Path) -> int:
    """Return how many changes below ``folder`` the action makes."""
    log = said.with_suffix(".count")

    def counted(n: int, _name: str, _path: str, call: Any) -> Any:
        log.write_text(str(n + 1))
        return call()

    assert end_of(fork(action, said, folder, counted)) == 0, said.read_text()
    return int(log.read_text())


def play(rounds: Rounds, *, most: int = NEVER, part: int = 0, parts: int = 1) -> int:
    """Play at most so many rounds, the ``part``-th of ``parts``; return their number. None may be wrong."""
    rounds = list(rounds)
    chosen = random.Random(0).sample(rounds, min(most, len(rounds)))[part::parts]
    assert {title: fault for title, act in chosen if (fault := act())} == {}
    return len(chosen)
