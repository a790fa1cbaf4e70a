"""Builds that are killed: at chosen system calls and at random moments, then resumed to the same bytes.

After every kill the visible shards are complete, and the next run redoes at most the units that
were in the hands of workers.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from support import crash_points
from support.crash_points import Fault
from support.toy_pipeline import build_toy, built_units, digests, write_raw

GRAPHS = 12  #: four units of three graphs


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Digests of a build that nobody disturbed."""
    folder = tmp_path_factory.mktemp("reference")
    write_raw(folder / "raw", GRAPHS)
    return digests(build_toy(folder, quiet=True).path)


def _build_folder(folder: Path) -> Path | None:
    return next(iter((folder / "built").glob("toy-*")), None)


def _check_visible(folder: Path, reference: dict[str, str]) -> None:
    """Every file under its final name is complete; a card is there only for a whole build."""
    build = _build_folder(folder)
    if build is None:
        return
    found = {name: digest for name, digest in digests(build).items() if not name.startswith("work/")}
    for name, digest in found.items():
        assert name.endswith(".partial") or digest == reference[name], name
    if "card.json" in found:
        assert {name for name in found if not name.endswith(".partial")} == set(reference)


def _resume(folder: Path, reference: dict[str, str], *, jobs: int) -> None:
    before = Counter(built_units(folder))
    build = build_toy(folder, jobs=jobs, quiet=True)
    assert digests(build.path) == reference
    again = Counter(built_units(folder)) - before
    assert all(count == 1 for count in again.values())
    redone = sum(1 for unit in again if unit in before)
    assert redone <= jobs + 1


#: The calls that a build of four units makes: role, place, call, how many.
CALLS = [
    ("worker", "/prepared/", "fsync", 12),
    ("worker", "/shards", "write", 4),
    ("worker", "/shards", "fsync", 8),
    ("worker", "/shards", "replace", 4),
    ("builder", "", "write", 12),  # the first says who has the lock
    ("builder", "", "fsync", 17),
    ("builder", "", "replace", 5),
]


def _points() -> list[tuple[str, str, str, int, str]]:
    """Role, place, call, number of the call and moment, over all calls of a build."""
    return [
        (role, place, call, n, when)
        for role, place, call, most in CALLS
        for n in range(1, most + 1)
        for when in ("before", "middle", "after")
        if call == "write" or when != "middle"
    ]


#: The named moments: each step of a shard, of a journal line, of the split, README, Croissant and card.
CHOSEN = [
    ("worker", "/prepared/", "fsync", 2, "after"),
    ("worker", "/shards", "write", 1, "before"),
    ("worker", "/shards", "write", 2, "middle"),
    ("worker", "/shards", "fsync", 1, "before"),
    ("worker", "/shards", "replace", 2, "before"),
    ("worker", "/shards", "replace", 1, "after"),
    ("builder", "", "write", 2, "middle"),
    ("builder", "", "fsync", 5, "after"),
    ("builder", "", "write", 5, "middle"),
    ("builder", "", "write", 9, "middle"),
    ("builder", "", "replace", 3, "before"),
    ("builder", "", "replace", 4, "before"),
    ("builder", "", "replace", 5, "before"),
    ("builder", "", "replace", 5, "after"),
]


def test_a_build_makes_the_calls_that_are_counted(tmp_path: Path) -> None:
    assert set(CHOSEN) <= set(_points())
    for i, (role, place, call, count) in enumerate(CALLS):
        if call == "fsync":  # one run of each place counts all its calls
            folder = tmp_path / str(i)
            write_raw(folder / "raw", GRAPHS)
            log = folder / "calls"
            fault = Fault(str(folder / "built"), role, "", 0, how="count", log=str(log), within=place)  # type: ignore[arg-type]
            child = crash_points.start_build(folder, jobs=1, fault=fault)
            _, err = child.communicate(timeout=600)
            assert child.returncode == 0, err
            assert Counter(log.read_text().split()) == {
                c: n for r, p, c, n in CALLS if (r, p) == (role, place)
            }
            assert count == log.read_text().split().count("fsync")


Point = tuple[str, str, str, int, str]


def _kill_at(folder: Path, reference: dict[str, str], point: Point) -> None:
    role, place, call, n, when = point
    write_raw(folder / "raw", GRAPHS)
    how = "kill" if role == "worker" else "kill-group"
    fault = Fault(str(folder / "built"), role, call, n, when, how, within=place)  # type: ignore[arg-type]
    child = crash_points.start_build(folder, jobs=1, fault=fault)
    _, err = child.communicate(timeout=600)
    # The units of a worker that dies are tried alone: at its first call it dies again (exit 6), at a
    # later one the new worker gets through (exit 0). The builder is gone with its group.
    codes = {"builder": [-signal.SIGKILL], "worker": [6] if n == 1 or place == "/prepared/" else [0, 6]}
    assert child.returncode in codes[role], err
    assert "Traceback" not in err
    _check_visible(folder, reference)
    _resume(folder, reference, jobs=1)


@pytest.mark.parametrize("point", CHOSEN, ids=str)
def test_killed_at_a_named_point(tmp_path: Path, reference: dict[str, str], point: Point) -> None:
    _kill_at(tmp_path, reference, point)


@pytest.mark.torture
@pytest.mark.parametrize("point", [point for point in _points() if point not in CHOSEN], ids=str)
def test_killed_at_every_point(
    tmp_path: Path, reference: dict[str, str], point: Point, torture_count: Callable[..., None]
) -> None:
    _kill_at(tmp_path, reference, point)
    torture_count("kills")


class _Chain:
    """Runs of one build that are disturbed at random moments, each going on where the last stopped."""

    jobs, units = 2, 40

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.rng = folder, random.Random(seed)
        graphs = 3 * self.units
        write_raw(folder / "raw", graphs, orders=dict.fromkeys(range(0, graphs, 3), "sleep=0.01"))
        self.reference = digests(build_toy(folder, jobs=self.jobs, quiet=True, home=folder / "whole").path)
        (folder / "log").unlink()

    def disturb(self, signals: dict[int, int], *, group: bool) -> bool:
        """Send one of the signals at a random moment; its exit code must follow. False: it came too late."""
        before = Counter(built_units(self.folder))
        child = crash_points.start_build(self.folder, jobs=self.jobs)
        # Startup is most of a run: wait for a random number of units, then a random moment more.
        wanted = before.total() + self.rng.randrange(3)
        while child.poll() is None and (
            f'"pid": {child.pid}' not in self._owner() or len(built_units(self.folder)) < wanted
        ):
            time.sleep(0.002)
        time.sleep(self.rng.uniform(0, 0.08))
        number = self.rng.choice(list(signals))
        landed = child.poll() is None
        if landed:
            (os.killpg if group and self.rng.random() < 0.5 else os.kill)(child.pid, number)
        out, err = child.communicate(timeout=600)
        # A process that has printed its result is on its way out and dies of a signal as any other.
        assert child.returncode in (0, signals[number], *([-number] if out else [])), err
        assert "Traceback" not in err
        _check_visible(self.folder, self.reference)
        redone = sum(1 for unit in Counter(built_units(self.folder)) - before if unit in before)
        assert redone <= self.jobs + 1
        build = _build_folder(self.folder)
        if build is not None and (build / "card.json").exists():
            self.finish()
            shutil.rmtree(self.folder / "built")
            (self.folder / "log").unlink(missing_ok=True)
        return landed

    def _owner(self) -> str:
        """The side file of the lock, which says whether a run has begun to build."""
        for path in (self.folder / "built/.locks").glob("*.owner.json"):
            with contextlib.suppress(FileNotFoundError):
                return path.read_text()
        return ""

    def finish(self) -> None:
        """Let a run finish; nothing may be left of the others."""
        _resume(self.folder, self.reference, jobs=self.jobs)


def _random_kills(folder: Path, kills: int, seed: int) -> int:
    chain = _Chain(folder, seed)
    landed = sum(chain.disturb({signal.SIGKILL: -signal.SIGKILL}, group=True) for _ in range(kills))
    chain.finish()
    assert landed > kills // 2
    return landed


def _random_interrupts(folder: Path, count: int, seed: int) -> int:
    chain = _Chain(folder, seed)
    codes = {signal.SIGINT: 130, signal.SIGTERM: 143}
    landed = 0
    for _ in range(count):
        landed += chain.disturb(codes, group=True)
        assert not list((folder / "built").rglob("*.partial"))
    chain.finish()
    assert landed > count // 2
    return landed


@pytest.mark.slow
def test_killed_at_random_moments(tmp_path: Path) -> None:
    _random_kills(tmp_path, 8, seed=0)  # the torture has 200


@pytest.mark.slow
def test_interrupted_at_random_moments(tmp_path: Path) -> None:
    _random_interrupts(tmp_path, 3, seed=0)


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(1, 5))
def test_killed_at_random_moments_many_times(
    tmp_path: Path, seed: int, torture_count: Callable[..., None]
) -> None:
    torture_count("kills", _random_kills(tmp_path, 50, seed=seed))


@pytest.mark.torture
def test_interrupted_at_random_moments_many_times(tmp_path: Path, torture_count: Callable[..., None]) -> None:
    torture_count("interrupts", _random_interrupts(tmp_path, 50, seed=1))
