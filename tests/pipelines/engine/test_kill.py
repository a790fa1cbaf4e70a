"""Builds that are killed or find the disk full at chosen system calls, then resumed.

After every kill the visible shards are complete, the next run ends in the same bytes, and it redoes
at most the units that were in the hands of workers. A small build of one unit runs without workers.
"""

from __future__ import annotations

import resource
import signal
from collections import Counter
from pathlib import Path

import pytest
from support.attacks import crash_points
from support.attacks.crash_points import Fault
from support.builds.toy_pipeline import OneUnitPipeline, build_toy, built_units, digests, write_raw

pytestmark = pytest.mark.real_workers

GRAPHS = {"worker": 12, "builder": 12, "alone": 6}  #: four units of three graphs; one unit of six
Point = tuple[str, str, str, int, str]

#: The named moments: each step of a shard, of a result, of the split, README, Croissant and
#: card.
POINTS: list[Point] = [
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


@pytest.fixture(scope="module")
def references(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """Digests of builds that nobody disturbed, all by worker processes, by role."""
    by_role = {}
    for role, graphs in GRAPHS.items():
        folder = tmp_path_factory.mktemp("reference")
        write_raw(folder / "raw", graphs)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(OneUnitPipeline, "small_bytes", 0)
            by_role[role] = digests(build_toy(folder, one_unit=role == "alone", quiet=True).path)
    return by_role


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
    visible = {
        name: digest for name, digest in digests(build).items() if not name.startswith("work/")
    }
    for name, digest in visible.items():
        assert name.endswith(".partial") or digest == reference[name], name
    if "card.json" in visible:
        assert {name for name in visible if not name.endswith(".partial")} == set(reference)


def _resume(folder: Path, reference: dict[str, str], *, jobs: int, one_unit: bool = False) -> None:
    before = Counter(built_units(folder))
    build = build_toy(folder, jobs=jobs, one_unit=one_unit, quiet=True)
    assert digests(build.path) == reference
    again = Counter(built_units(folder)) - before
    assert all(count == 1 for count in again.values())
    assert sum(1 for unit in again if unit in before) <= jobs + 1


def _start(folder: Path, role: str, fault: tuple[str, int, str], place: str, how: str) -> str:
    """Run a build with a fault to its end; return its exit code and stderr as text."""
    write_raw(folder / "raw", GRAPHS[role])
    process = "worker" if role == "worker" else "builder"
    crash = Fault(str(folder / "built"), process, *fault, how=how, within=place)  # type: ignore[arg-type]
    child = crash_points.start_build(folder, jobs=1, fault=crash, one_unit=role == "alone")
    _, err = child.communicate(timeout=600)
    assert "Traceback" not in err
    return f"{child.returncode}: {err}"


@pytest.mark.parametrize("point", POINTS, ids=str)
def test_killed_at_a_named_point(
    tmp_path: Path, references: dict[str, dict[str, str]], point: Point
) -> None:
    role, place, call, n, when = point
    ended = _start(
        tmp_path, role, (call, n, when), place, "kill-group" if role == "builder" else "kill"
    )
    # The units of a worker that dies are tried alone: at its first call it dies again (exit 6), at
    # a later one the new worker gets through (exit 0). The builder is gone with its group.
    of_worker = ("6: ",) if n == 1 else ("0: ", "6: ")
    assert ended.startswith(of_worker if role == "worker" else f"-{signal.SIGKILL:d}: "), ended
    _check_visible(tmp_path, references[role])
    _resume(tmp_path, references[role], jobs=1, one_unit=role == "alone")


def _check_failure(code: int, err: str, folder: Path, reference: dict[str, str]) -> None:
    assert code == 6, err
    assert "Traceback" not in err
    assert "next: " in err
    assert "on disk: " in err
    assert not list(folder.rglob("*.partial"))
    assert not list((folder / "built").rglob("card.json"))
    _check_visible(folder, reference)


@pytest.mark.parametrize("limit", [20, 64, 9_000])
def test_a_limit_on_file_sizes(tmp_path: Path, reference: dict[str, str], limit: int) -> None:
    """RLIMIT_FSIZE: 20 bytes stop the marker, 64 the result of ``prepare``, 9,000 the first shard."""
    write_raw(tmp_path / "raw", GRAPHS["builder"])
    (tmp_path / "bootstrap").mkdir()
    child = crash_points.start_build(
        tmp_path,
        jobs=1,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    _, err = child.communicate(timeout=600)
    _check_failure(child.returncode, err, tmp_path, reference)
    _resume(tmp_path, reference, jobs=1)
