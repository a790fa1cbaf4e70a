"""Faults at the n-th ``os.write``, ``os.fsync`` or ``os.replace`` of a child process or its workers.

The package has no hooks for this. A child gets a ``sitecustomize`` on its ``PYTHONPATH`` that
imports this module and wraps the functions; loky workers inherit the environment, so they are
wrapped too. Calls are counted in each process for itself, and only those on files of the build.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

ROOT = Path(__file__).resolve().parents[2]
VARIABLE = "KMIP_TEST_FAULT"
CALLS = ("write", "fsync", "replace")
RUN = "from support.toy_pipeline import main; main()"
RUN_ONE_UNIT = "from support.toy_pipeline import main; main(one_unit=True)"


@dataclass(frozen=True)
class Fault:
    """A fault and its place.

    Attributes
    ----------
    folder, within
        Only calls on paths below ``folder`` that contain ``within`` count.
    role
        The builder itself, or its workers.
    how
        ``kill`` this process, ``kill-group`` with all others of its group, ``no-space`` from this
        call on, or ``count``: only log.
    when
        Before the call, after it, or (``write``) in the middle of it.
    """

    folder: str
    role: Literal["builder", "worker"]
    call: str
    n: int
    when: Literal["before", "middle", "after"] = "before"
    how: Literal["kill", "kill-group", "no-space", "count"] = "kill"
    log: str = ""
    within: str = ""


def environment(place: Path, fault: Fault | None = None, **more: str) -> dict[str, str]:
    """The environment of a child; ``place`` is an empty folder for the bootstrap."""
    place.mkdir(parents=True, exist_ok=True)
    (place / "sitecustomize.py").write_text("from support import crash_points\ncrash_points.arm()\n")
    path = os.pathsep.join([str(place), str(ROOT / "tests"), str(ROOT)])
    values = {**os.environ, "PYTHONPATH": path, **more}
    if fault is not None:
        values[VARIABLE] = json.dumps(asdict(fault))
    return values


def start_build(
    folder: Path, *, jobs: int = 2, fault: Fault | None = None, one_unit: bool = False, **more: Any
) -> subprocess.Popen[str]:
    """Start a toy build in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", RUN_ONE_UNIT if one_unit else RUN, str(folder), str(jobs)],
        env=environment(folder / "bootstrap", fault),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **more,
    )


def arm() -> None:
    """Wrap the functions in this process, if the environment asks for it."""
    text = os.environ.get(VARIABLE)
    if not text:
        return
    fault = Fault(**json.loads(text))
    worker = any("loky" in argument for argument in sys.orig_argv)
    if worker == (fault.role == "worker"):
        counter = _Counter(fault)
        for name in CALLS:
            setattr(os, name, counter.wrapped(name, getattr(os, name)))


class _Counter:
    def __init__(self, fault: Fault) -> None:
        self.fault, self.seen = fault, 0

    def wrapped(self, name: str, function: Any) -> Any:
        fault = self.fault

        def call(first: Any, *rest: Any, **options: Any) -> Any:
            if "src_dir_fd" in options:  # a name inside a folder
                place = Path(f"/proc/self/fd/{options['src_dir_fd']}").readlink() / os.fspath(first)
            else:
                place = first
            if not _concerns(place, fault):
                return function(first, *rest, **options)
            if fault.log:
                with Path(fault.log).open("a") as file:
                    file.write(f"{name}\n")
            if name != fault.call or fault.how == "count":
                return function(first, *rest, **options)
            self.seen += 1
            if fault.how == "no-space" and self.seen >= fault.n:
                if name == "write":
                    function(first, bytes(rest[0])[: len(rest[0]) // 2])
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if self.seen == fault.n:
                if fault.when == "before":
                    self.die()
                if fault.when == "middle":
                    function(first, bytes(rest[0])[: len(rest[0]) // 2])
                    self.die()
            result = function(first, *rest, **options)
            if self.seen == fault.n and fault.when == "after":
                self.die()
            return result

        return call

    def die(self) -> None:
        if self.fault.how == "kill-group":
            os.killpg(0, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


def _concerns(target: Any, fault: Fault) -> bool:
    if isinstance(target, int):
        try:
            target = Path(f"/proc/self/fd/{target}").readlink()
        except OSError:
            return False
    path = os.fspath(target)
    return path.startswith(fault.folder) and fault.within in path
