"""Builds that are killed or find the disk full: at chosen system calls and at random moments, then resumed.

After every kill the visible shards are complete, the next run ends in the same bytes, and it redoes at most
the units that were in the hands of workers. A small build of one unit runs without workers.
"""

from __future__ import annotations

import contextlib
import os
import random
import resource
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from support import crash_points
from support.crash_points import Fault
from support.toy_pipeline import OneUnitPipeline, build_toy, built_units, digests, write_raw

GRAPHS = {"worker": 12, "builder": 12, "alone": 6}  #: four units of three graphs; one unit of six
Point = tuple[str, str, str, int, str]

#: The calls on files of a build: role (``alone``: without workers), place, call, how many.
CALLS = [
    ("worker", "/prepared/", "fsync", 12),
    ("worker", "/shards", "write", 4),
    ("worker", "/shards", "fsync", 8),
    ("worker", "/shards", "replace", 4),
    ("builder", "", "write", 11),
    ("builder", "", "fsync", 15),
    ("builder", "", "replace", 4),
    ("alone", "", "write", 9),
    ("alone", "", "fsync", 20),
    ("alone", "", "replace", 5),
]
POINTS: list[Point] = [
    (role, place, call, n, when)
    for role, place, call, most in CALLS
    for n in range(1, most + 1)
    for when in ("before", "middle", "after")
    if call == "write" or when != "middle"
]
#: The named moments: each step of a shard, of a journal line, of the split, README, Croissant and card.
CHOSEN: list[Point] = [
    ("worker", "/shards", "write", 2, "middle"),
    ("worker", "/shards", "replace", 2, "before"),
    ("worker", "/shards", "replace", 1, "after"),
    ("builder", "", "write", 1, "middle"),
    ("builder", "", "write", 4, "middle"),
    ("builder", "", "replace", 4, "before"),
    ("builder", "", "replace", 4, "after"),
    # A piece of ``prepare``; the shard's line; the card's name.
    ("alone", "", "fsync", 3, "after"),
    ("alone", "", "write", 5, "middle"),
    ("alone", "", "replace", 5, "before"),
]
CHOSEN_FULL = [("worker", 3), ("builder", 5)]


@pytest.fixture(scope="module")
def references(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """Digests of builds that nobody disturbed, all by worker processes, by role."""
    found = {}
    for role, graphs in GRAPHS.items():
        folder = tmp_path_factory.mktemp("reference")
        write_raw(folder / "raw", graphs)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(OneUnitPipeline, "small_bytes", 0)
            found[role] = digests(build_toy(folder, one_unit=role == "alone", quiet=True).path)
    return found


@pytest.fixture(scope="module")
def reference(references: dict[str, dict[str, str]]) -> dict[str, str]:
    """Digests of the build of four units."""
    return references["builder"]


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


def _resume(folder: Path, reference: dict[str, str], *, jobs: int, one_unit: bool = False) -> None:
    before = Counter(built_units(folder))
    build = build_toy(folder, jobs=jobs, one_unit=one_unit, quiet=True)
    assert digests(build.path) == reference
    again = Counter(built_units(folder)) - before
    assert all(count == 1 for count in again.values())
    assert sum(1 for unit in again if unit in before) <= jobs + 1


def _start(folder: Path, role: str, fault: tuple[str, int, str], place: str, how: str, log: str = "") -> str:
    """Run a build with a fault to its end; return its exit code and what it wrote to stderr, as text."""
    write_raw(folder / "raw", GRAPHS[role])
    process = "worker" if role == "worker" else "builder"
    found = Fault(str(folder / "built"), process, *fault, how=how, log=log, within=place)  # type: ignore[arg-type]
    child = crash_points.start_build(folder, jobs=1, fault=found, one_unit=role == "alone")
    _, err = child.communicate(timeout=600)
    assert "Traceback" not in err
    return f"{child.returncode}: {err}"


def test_a_build_makes_the_calls_that_are_counted(tmp_path: Path) -> None:
    assert set(CHOSEN) <= set(POINTS)
    for role, place in dict.fromkeys((role, place) for role, place, *_ in CALLS):
        folder = tmp_path / f"{role}{len(place)}"
        log = folder / "calls"
        assert _start(folder, role, ("", 0, "before"), place, "count", str(log)).startswith("0: ")
        assert Counter(log.read_text().split()) == {c: n for r, p, c, n in CALLS if (r, p) == (role, place)}


def _kill_at(folder: Path, references: dict[str, dict[str, str]], point: Point) -> None:
    role, place, call, n, when = point
    ended = _start(folder, role, (call, n, when), place, "kill-group" if role == "builder" else "kill")
    # The units of a worker that dies are tried alone: at its first call it dies again (exit 6), at a
    # later one the new worker gets through (exit 0). The builder is gone with its group.
    of_worker = ("6: ",) if n == 1 or place == "/prepared/" else ("0: ", "6: ")
    assert ended.startswith(of_worker if role == "worker" else f"-{signal.SIGKILL:d}: "), ended
    _check_visible(folder, references[role])
    _resume(folder, references[role], jobs=1, one_unit=role == "alone")


@pytest.mark.parametrize("point", CHOSEN, ids=str)
def test_killed_at_a_named_point(tmp_path: Path, references: dict[str, dict[str, str]], point: Point) -> None:
    _kill_at(tmp_path, references, point)


@pytest.mark.torture
@pytest.mark.parametrize("point", [point for point in POINTS if point not in CHOSEN], ids=str)
def test_killed_at_every_point(
    tmp_path: Path, references: dict[str, dict[str, str]], point: Point, torture_count: Callable[..., None]
) -> None:
    _kill_at(tmp_path, references, point)
    torture_count("kills")


def _check_failure(code: int, err: str, folder: Path, reference: dict[str, str]) -> None:
    assert code == 6, err
    assert "Traceback" not in err
    assert "next: " in err
    assert "on disk: " in err
    assert not list(folder.rglob("*.partial"))
    assert not list((folder / "built").rglob("card.json"))
    _check_visible(folder, reference)


@pytest.mark.parametrize(("role", "n"), CHOSEN_FULL)
def test_no_space_at_a_write(tmp_path: Path, reference: dict[str, str], role: str, n: int) -> None:
    place = "/shards" if role == "worker" else ""
    code, _, err = _start(tmp_path, role, ("write", n, "before"), place, "no-space").partition(": ")
    _check_failure(int(code), err, tmp_path, reference)
    _resume(tmp_path, reference, jobs=1)


@pytest.mark.parametrize("limit", [30, 9_000])
def test_a_limit_on_file_sizes(tmp_path: Path, reference: dict[str, str], limit: int) -> None:
    """RLIMIT_FSIZE: 30 bytes stop the journal, 9,000 the first shard."""
    write_raw(tmp_path / "raw", GRAPHS["builder"])
    (tmp_path / "bootstrap").mkdir()
    child = crash_points.start_build(
        tmp_path, jobs=1, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    )
    _, err = child.communicate(timeout=600)
    _check_failure(child.returncode, err, tmp_path, reference)
    _resume(tmp_path, reference, jobs=1)


class _Chain:
    """Runs of one build that are disturbed at random moments, each resuming the last."""

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
            f"process {child.pid} on " not in self._owner() or len(built_units(self.folder)) < wanted
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
        """The lock, which says whether a run has begun to build."""
        for path in (self.folder / "built/.locks").glob("*.lock"):
            with contextlib.suppress(FileNotFoundError):
                return path.read_text()
        return ""

    def finish(self) -> None:
        """Let a run finish; nothing may be left of the others."""
        _resume(self.folder, self.reference, jobs=self.jobs)


def _at_random(folder: Path, count: int, seed: int, codes: dict[int, int]) -> int:
    chain = _Chain(folder, seed)
    landed = 0
    for _ in range(count):
        landed += chain.disturb(codes, group=True)
        assert signal.SIGKILL in codes or not list((folder / "built").rglob("*.partial"))
    chain.finish()
    assert landed > count // 2
    return landed


KILLS = {signal.SIGKILL: -signal.SIGKILL}
INTERRUPTS = {signal.SIGINT: 130, signal.SIGTERM: 143}


@pytest.mark.slow
@pytest.mark.parametrize(("count", "codes"), [(3, KILLS), (2, INTERRUPTS)], ids=["killed", "interrupted"])
def test_disturbed_at_random_moments(tmp_path: Path, count: int, codes: dict[int, int]) -> None:
    _at_random(tmp_path, count, 0, codes)
