"""Builds on a Dask cluster of real processes: the same bytes, also when a worker is killed in the middle."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.builds.toy_pipeline import build_toy, built_units, digests, write_raw
from support.cases import wait_until
from support.raises import raises
from support.shared import ROOT

from kmip_data.builds.execution_options import ExecutionOptions
from kmip_data.errors import DamagedInput, Setting, SourceUnavailable, UsageError
from kmip_data.graphs.encoding import parse_encoding
from kmip_data.pipelines.engine.cluster import WorkerRequirements, check_worker, local_versions
from kmip_data.pipelines.engine.encode import encode_build

pytestmark = pytest.mark.real_workers

Client = pytest.importorskip("distributed").Client
GRAPHS = 18  # six shards
ENCODINGS = [parse_encoding("rwse4"), parse_encoding("lappe3")]


class Cluster:
    """A scheduler and workers, each a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / "scheduler.json"
        self.processes: list[subprocess.Popen[bytes]] = []
        self._start(
            "scheduler",
            "--host",
            "127.0.0.1",
            "--port",
            "0",
            "--no-dashboard",
            "--scheduler-file",
            self.file,
        )
        wait_until(self.is_announced)
        self.workers = [self.add_worker() for _ in range(2)]
        with Client(scheduler_file=str(self.file), set_as_default=False) as client:
            client.wait_for_workers(2)

    def add_worker(self, *options: str) -> subprocess.Popen[bytes]:
        """Start a worker of one thread, without a nanny that would start it anew."""
        local = self.folder / f"worker{len(self.processes)}"
        arguments = (
            "--nthreads",
            "1",
            "--no-nanny",
            "--no-dashboard",
            "--local-directory",
            local,
            *options,
        )
        return self._start(
            "worker", "--scheduler-file", self.file, "--host", "127.0.0.1", *arguments
        )

    def _start(self, role: str, *arguments: object) -> subprocess.Popen[bytes]:
        path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
        process = subprocess.Popen(
            [sys.executable, "-m", f"distributed.cli.dask_{role}", *map(str, arguments)],
            env={**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "2"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self.folder,
        )
        self.processes.append(process)
        return process

    def is_announced(self) -> bool:
        """True if the scheduler has written all of its file; a client gives up after 0.1 s of a part."""
        try:
            return bool(json.loads(self.file.read_text())["address"])
        except (OSError, ValueError):
            return False

    def wait_for_rest(self) -> None:
        """Wait until no worker runs a call or has one that it could begin."""

        def rests(dask_worker: Any) -> bool:
            state = dask_worker.state
            return not (dask_worker.active_threads or state.executing or state.ready)

        with Client(scheduler_file=str(self.file), set_as_default=False) as client:
            wait_until(lambda: all(client.run(rests).values()))


@pytest.fixture(scope="module")
def dask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of two workers, whose scheduler the last of its tests kills."""
    started = Cluster(tmp_path_factory.mktemp("dask"))
    try:
        yield started
    finally:
        for process in started.processes:
            process.kill()
            process.wait()


@pytest.mark.slow
def test_a_worker_killed_in_the_middle_loses_nothing(
    dask: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_raw(tmp_path / "raw", GRAPHS, orders={1: f"die-once={tmp_path / 'died'}"})
    build = build_toy(tmp_path, engine="dask", scheduler=str(dask.file))
    assert [worker.poll() for worker in dask.workers].count(-signal.SIGKILL) == 1
    assert "dashboard http" in capsys.readouterr().err
    # The first unit, the first work of a worker, began twice, no other.
    assert sorted(built_units(tmp_path)) == [0, 0, 1, 2, 3, 4, 5]
    dask.add_worker()  # one that joins later
    encode_build(build, ENCODINGS, engine="dask", scheduler=str(dask.file), quiet=True)
    alone = build_toy(tmp_path, jobs=1, quiet=True, output=tmp_path / "alone")
    encode_build(alone, ENCODINGS, jobs=1, quiet=True)
    assert digests(build.path) == digests(alone.path)


@pytest.mark.slow
def test_an_interrupt_and_the_loss_of_the_scheduler_leave_a_build_that_resumes(
    dask: Cluster, tmp_path: Path
) -> None:
    """All units but the first two are held until the build is stopped."""
    write_raw(
        tmp_path / "raw",
        GRAPHS,
        orders=dict.fromkeys(range(6, GRAPHS, 3), f"hold={tmp_path / 'go'}"),
    )

    def after(units: int, act: Callable[[], None]) -> threading.Thread:
        """Act once so many units have begun and the two that are not held are recorded."""

        def wait() -> None:
            wait_until(lambda: len(built_units(tmp_path)) >= units)
            wait_until(
                lambda: all([*(tmp_path / "built").rglob(f"{unit:05d}.json")] for unit in range(2))
            )
            act()

        thread = threading.Thread(target=wait)
        thread.start()
        return thread

    def build() -> None:
        build_toy(tmp_path, engine="dask", scheduler=str(dask.file), quiet=True)

    # In the fifth shard of six: others are finished when it fails.
    write_raw(tmp_path / "bad/raw", GRAPHS, orders={13: "fail=on-purpose"})
    with raises(DamagedInput, naming=["graphs 12", "on-purpose"]) as failed:
        build_toy(tmp_path / "bad", engine="dask", scheduler=str(dask.file), quiet=True)
    assert failed.value.left
    thread = after(3, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        build()
    thread.join()
    # A unit that was sent before the interrupt may begin after it; counted as one of the
    # next build, it would have the scheduler killed before that build has connected.
    dask.wait_for_rest()
    begun = built_units(tmp_path)
    assert len(begun) < 6
    assert not list(tmp_path.rglob("card.json"))
    finished = len(list(tmp_path.rglob("shards/*.h5")))
    thread = after(len(begun) + 1, dask.processes[0].kill)
    with pytest.raises(SourceUnavailable) as caught:
        build()
    thread.join()
    assert caught.value.left
    assert len(list(tmp_path.rglob("shards/*.h5"))) >= finished
    (tmp_path / "go").touch()
    resumed, whole = (
        build_toy(tmp_path, jobs=1, quiet=True, home=tmp_path / home) for home in ("", "other")
    )
    assert digests(resumed.path) == digests(whole.path)


@pytest.mark.slow
def test_a_local_scheduler_is_started_by_default(tmp_path: Path) -> None:
    write_raw(tmp_path / "raw", GRAPHS)
    build = build_toy(tmp_path, engine="dask", jobs=1, quiet=True)
    assert digests(build.path) == digests(build_toy(tmp_path, jobs=1, home=tmp_path / "other").path)


def test_a_folder_that_workers_do_not_see_is_refused(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    folders, versions = (str(tmp_path),), local_versions()
    assert check_worker(WorkerRequirements(str(token), "secret", folders, versions))
    for file, secret, seen in (
        (token, "secret", (*folders, str(tmp_path / "raw"))),
        (token, "another", folders),
        (tmp_path / "no", "secret", folders),
    ):
        with raises(UsageError, naming=tmp_path):
            check_worker(WorkerRequirements(str(file), secret, seen, versions))
    older = tuple((name, "0" if name == "numpy" else version) for name, version in versions)
    with raises(UsageError, naming="numpy"):
        check_worker(WorkerRequirements(str(token), "secret", folders, older))


def test_an_unresponsive_scheduler_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kmip_data.pipelines.engine.cluster.CONNECT_SECONDS", 1)
    write_raw(tmp_path / "raw", 3)
    for address in ("tcp://127.0.0.1:9", "nonsense"):
        with raises(UsageError, naming=address):
            build_toy(tmp_path, engine="dask", scheduler=address)


def test_unreachable_schedulers_and_unknown_engines_are_refused() -> None:
    with raises(UsageError, steps=Setting(engine="dask")):
        ExecutionOptions.from_arguments("toy", {"scheduler": "tcp://127.0.0.1:9"})
    with raises(UsageError, naming="threads"):
        ExecutionOptions.from_arguments("toy", {"engine": "threads"})
