"""Builds whose workers are killed or find the disk full at chosen system calls, then resumed.

After every kill the visible shards are complete, the next run ends in the same bytes, and it redoes
at most the units that were in the hands of workers. Kills of the builder are steps of
``support/attacks/home_machine.py``, and every moment of its writes is in
``kmip_data/files/test_power_cuts.py``.
"""

from __future__ import annotations

import resource
from collections import Counter
from pathlib import Path

import pytest
from support.attacks import crash_points
from support.attacks.crash_points import Fault
from support.builds.toy_pipeline import build_toy, built_units, digests, write_raw

pytestmark = pytest.mark.real_workers

GRAPHS = 12  #: four units of three
Point = tuple[str, int, str]

#: Steps of a shard.
POINTS: list[Point] = [("write", 2, "middle"), ("replace", 2, "before"), ("replace", 1, "after")]


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
    visible = {
        name: digest for name, digest in digests(build).items() if not name.startswith("work/")
    }
    for name, digest in visible.items():
        assert name.endswith(".partial") or digest == reference[name], name
    if "card.json" in visible:
        assert {name for name in visible if not name.endswith(".partial")} == set(reference)


def _resume(folder: Path, reference: dict[str, str], *, jobs: int) -> None:
    before = Counter(built_units(folder))
    build = build_toy(folder, jobs=jobs, quiet=True)
    assert digests(build.path) == reference
    again = Counter(built_units(folder)) - before
    assert all(count == 1 for count in again.values())
    assert sum(1 for unit in again if unit in before) <= jobs + 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "point", [pytest.param(POINTS[1], marks=pytest.mark.torture), POINTS[0], POINTS[2]], ids=str
)
def test_a_worker_killed_at_a_named_point_loses_nothing(
    tmp_path: Path, reference: dict[str, str], point: Point
) -> None:
    call, n, when = point
    write_raw(tmp_path / "raw", GRAPHS)
    fault = Fault(str(tmp_path / "built"), "worker", call, n, when, within="/shards")  # type: ignore[arg-type]
    child = crash_points.start_build(tmp_path, jobs=1, fault=fault)
    _, err = child.communicate(timeout=600)
    assert "Traceback" not in err
    # The units of a worker that dies are tried alone: at its first call it dies again (exit 6), at
    # a later one the new worker gets through (exit 0).
    assert child.returncode in ({6} if n == 1 else {0, 6}), err
    _check_visible(tmp_path, reference)
    _resume(tmp_path, reference, jobs=1)


def _check_failure(code: int, err: str, folder: Path, reference: dict[str, str]) -> None:
    assert code == 6, err
    assert "Traceback" not in err
    assert "next: " in err
    finished = list((folder / "built").rglob("shards/*.h5"))
    assert ("shards are finished and stay" in err) == bool(finished)
    assert not list(folder.rglob("*.partial"))
    assert not list((folder / "built").rglob("card.json"))
    _check_visible(folder, reference)


@pytest.mark.parametrize("limit", [pytest.param(20, marks=pytest.mark.torture), 64, 9_000])
def test_a_limit_on_file_sizes_is_reported(
    tmp_path: Path, reference: dict[str, str], limit: int
) -> None:
    """RLIMIT_FSIZE: 20 bytes stop the marker, 64 the result of ``prepare``, 9,000 the first shard."""
    write_raw(tmp_path / "raw", GRAPHS)
    (tmp_path / "bootstrap").mkdir()
    child = crash_points.start_build(
        tmp_path,
        jobs=1,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    _, err = child.communicate(timeout=600)
    _check_failure(child.returncode, err, tmp_path, reference)
    _resume(tmp_path, reference, jobs=1)
