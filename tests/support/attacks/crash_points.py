"""Death at the n-th ``os.write``, ``os.fsync`` or ``os.replace`` of a child process or its workers.

The package has no hooks for this. A child gets a ``sitecustomize`` on its ``PYTHONPATH`` that
imports this module and wraps the functions; loky workers inherit the environment, so they are
wrapped too. Calls are counted in each process for itself, and only those on files of the build.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

ROOT = Path(__file__).resolve().parents[3]
VARIABLE = "KMIP_TEST_FAULT"
RUN = "from support.builds.toy_pipeline import main; main()"
RUN_ONE_UNIT = "from support.builds.toy_pipeline import main; main(one_unit=True)"


@dataclass(frozen=True)
class Fault:
    """A kill and its place: the ``n``-th ``call`` on a path below ``folder`` that contains ``within``."""

    folder: str
    role: Literal["builder", "worker"]
    call: str
    n: int
    when: Literal["before", "middle", "after"] = "before"  #: the middle of a write
    within: str = ""


def environment(place: Path, fault: Fault | None = None, **more: str) -> dict[str, str]:
    """The environment of a child; ``place`` is an empty folder for the bootstrap."""
    place.mkdir(parents=True, exist_ok=True)
    (place / "sitecustomize.py").write_text(
        "from support.attacks import crash_points\ncrash_points.arm()\n"
    )
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
        setattr(os, fault.call, _dying(fault, getattr(os, fault.call)))


def run_in_fork(fault: Fault, act: Callable[[], int], *, power: bool = False) -> int | None:
    """Return the exit code of ``act`` in a fork of this process; ``None`` where it was killed.

    With ``power`` all that was written and not yet synced is lost, as without power.
    """
    pid = os.fork()
    if not pid:
        code = 99
        try:
            if power:
                _lose_unsynced(Path(fault.folder))
            setattr(os, fault.call, _dying(fault, getattr(os, fault.call)))
            code = act()
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    return None if os.WIFSIGNALED(status) else os.waitstatus_to_exitcode(status)


CALLS = ("write", "fsync", "replace", "unlink")


@contextlib.contextmanager
def count_calls(folder: Path) -> Iterator[Counter[str]]:
    """Count the calls at which :func:`run_in_fork` can kill what is done inside, by name."""
    fault = Fault(str(folder), "builder", "", 0)
    calls: Counter[str] = Counter()
    functions = {name: getattr(os, name) for name in CALLS}

    def counting(name: str) -> Any:
        def call(first: Any, *rest: Any, **options: Any) -> Any:
            calls[name] += _concerns(_place(first, options), fault)
            return functions[name](first, *rest, **options)

        return call

    vars(os).update({name: counting(name) for name in CALLS})
    try:
        yield calls
    finally:
        vars(os).update(functions)


def _lose_unsynced(folder: Path) -> None:
    """Let files shrink to what was synced of them, whatever their name by then, before this process dies."""
    write, fsync, die = os.write, os.fsync, _die
    synced: dict[tuple[int, int], int] = {}

    def write_unsynced(descriptor: int, data: Any) -> int:
        status = os.fstat(descriptor)
        synced.setdefault((status.st_dev, status.st_ino), status.st_size)
        return write(descriptor, data)

    def sync(descriptor: int) -> None:
        fsync(descriptor)
        status = os.fstat(descriptor)
        synced.pop((status.st_dev, status.st_ino), None)

    def lose(fault: Fault) -> None:
        for path in folder.rglob("*"):
            status = path.lstat()
            size = synced.get((status.st_dev, status.st_ino))
            if size is not None:
                os.truncate(path, size)
        die(fault)

    vars(os).update(write=write_unsynced, fsync=sync)
    globals()["_die"] = lose


def _dying(fault: Fault, function: Any) -> Any:
    seen = 0

    def call(first: Any, *rest: Any, **options: Any) -> Any:
        nonlocal seen
        concerned = _concerns(_place(first, options), fault)
        seen += concerned
        last = concerned and seen == fault.n
        if last and fault.when == "middle":
            function(first, bytes(rest[0])[: len(rest[0]) // 2])
        if last and fault.when != "after":
            _die(fault)
        result = function(first, *rest, **options)
        if last:
            _die(fault)
        return result

    return call


def _place(target: Any, options: dict[str, Any]) -> Any:
    """Return the path that a call names, also of a name inside an open folder."""
    folder = options.get("src_dir_fd", options.get("dir_fd"))
    if folder is None:
        return target
    return Path(f"/proc/self/fd/{folder}").readlink() / os.fspath(target)


def _die(fault: Fault) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _concerns(target: Any, fault: Fault) -> bool:
    if isinstance(target, int):
        try:
            target = Path(f"/proc/self/fd/{target}").readlink()
        except OSError:
            return False
    path = os.fspath(target)
    return path.startswith(fault.folder) and fault.within in path
