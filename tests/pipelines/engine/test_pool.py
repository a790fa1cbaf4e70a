"""Small builds of one unit run in the builder's process: same bytes, same ends, same state after a kill."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import time
from pathlib import Path

import psutil
import pytest
from support.attacks import crash_points
from support.builds.toy_pipeline import (
    OneUnitPipeline,
    build_toy,
    digests,
    raw_folder,
    toy_manifest,
    toy_pipeline,
    write_raw,
)

from kmip_data.pipelines.base import MAX_PLUGIN_BYTES_IN_PROCESS, needs_no_worker
from kmip_data.pipelines.engine.pool import LocalWorkers
from kmip_data.registry import PLUGIN_OBJECTS, PluginObject
from kmip_data.runtime import signals

pytestmark = pytest.mark.real_workers

GRAPHS = 6


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Digests of the same build by a worker process."""
    folder = tmp_path_factory.mktemp("reference")
    write_raw(folder / "raw", GRAPHS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OneUnitPipeline, "max_bytes_in_process", 0)
        return digests(build_toy(folder, one_unit=True, quiet=True).path)


def test_only_one_unit_of_small_files_is_small(tmp_path: Path) -> None:
    write_raw(tmp_path / "raw", GRAPHS)
    raw = raw_folder(tmp_path / "raw")
    pipeline = OneUnitPipeline(toy_manifest())
    assert needs_no_worker(pipeline, raw)
    assert not needs_no_worker(toy_pipeline(), raw)
    (tmp_path / "raw/part1.txt").write_bytes(bytes(pipeline.max_bytes_in_process))
    assert not needs_no_worker(pipeline, raw)


def test_few_bytes_of_a_plugin_are_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_raw(tmp_path / "raw", GRAPHS)
    raw = raw_folder(tmp_path / "raw")
    pipeline = toy_pipeline()
    monkeypatch.setitem(
        PLUGIN_OBJECTS["datasets"], pipeline.manifest.registered_name, PluginObject(pipeline, None)
    )
    assert needs_no_worker(pipeline, raw)
    (tmp_path / "raw/part1.txt").write_bytes(bytes(MAX_PLUGIN_BYTES_IN_PROCESS))
    assert not needs_no_worker(pipeline, raw)


def test_an_interrupt_ends_the_build_at_once(tmp_path: Path, reference: dict[str, str]) -> None:
    write_raw(tmp_path / "raw", GRAPHS, orders={3: "sleep=7200"})
    child = crash_points.start_build(tmp_path, one_unit=True)
    while not (tmp_path / "log").exists() or "0" not in (tmp_path / "log").read_text().split():
        assert child.poll() is None
        time.sleep(0.02)
    time.sleep(0.1)
    assert not psutil.Process(child.pid).children()
    child.send_signal(signal.SIGTERM)
    _, err = child.communicate(timeout=600)  # the record would sleep for hours
    assert child.returncode == 143
    assert "interrupted: 0 of 1 shards are finished and stay" in err
    assert "Traceback" not in err
    assert not list((tmp_path / "built").rglob("*.partial"))
    write_raw(tmp_path / "raw", GRAPHS)  # another content: built beside
    assert digests(build_toy(tmp_path, one_unit=True, quiet=True).path) == reference


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="semaphores are no files here")
def test_workers_leave_no_semaphores(tmp_path: Path) -> None:
    def semaphores() -> set[str]:
        return {path.name for path in Path("/dev/shm").glob(f"sem.loky-{os.getpid()}-*")}

    of_other_tests = semaphores()  # of builds that they killed, in this process
    (tmp_path / "work").mkdir()
    for text in ("3", "not a number"):
        with (
            contextlib.suppress(ValueError),
            LocalWorkers(tmp_path / "work" / "stop") as workers,
        ):
            workers.start(2)
            workers.result(workers.submit(int, "3"), "unit")
            assert semaphores() - of_other_tests
            workers.result(workers.submit(int, text), "unit")
        gc.collect()
        assert not semaphores() - of_other_tests, text


def test_an_interrupt_that_a_library_makes_an_error_of_ends_the_build() -> None:
    """A signal ends the process even if a library, such as pydantic, turns it into an error of its own."""

    def prepare() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        except SystemExit as error:
            raise ValueError("no such model") from error

    with pytest.raises(SystemExit), signals.exit_on_signals():
        prepare()
    with pytest.raises(ValueError), signals.exit_on_signals():
        raise ValueError("no such model")


class _Callback:
    """A callback that Python calls where it cannot pass an exception on."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)
        time.sleep(0)  # the handler runs here


def test_an_interrupt_swallowed_by_python_is_raised_again(
    capfd: pytest.CaptureFixture[str],
) -> None:
    shown = sys.unraisablehook

    def swallow() -> None:
        _Callback()
        time.sleep(20)

    with pytest.raises(KeyboardInterrupt), signals.exit_on_signals():
        swallow()
    assert "ignored" not in capfd.readouterr().err
    assert sys.unraisablehook is shown
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
