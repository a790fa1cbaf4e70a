"""A disk that is full at the n-th write: exit class 6, nothing half-written, and the next run goes on."""

from __future__ import annotations

import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import crash_points
from support.crash_points import Fault
from support.toy_pipeline import build_toy, digests, write_raw

GRAPHS = 12  #: four units; every file of the build is smaller than 16 KiB


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Digests of a build with room."""
    folder = tmp_path_factory.mktemp("reference")
    write_raw(folder / "raw", GRAPHS)
    return digests(build_toy(folder, quiet=True).path)


def _check_failure(child: subprocess.Popen[str], folder: Path, reference: dict[str, str]) -> None:
    out, err = child.communicate(timeout=600)
    assert child.returncode == 6, err
    assert out == ""
    assert "Traceback" not in err
    assert "next: " in err
    assert "on disk: " in err
    assert not list(folder.rglob("*.partial"))
    for build in (folder / "built").glob("toy-*"):
        assert not (build / "card.json").exists()
        for name, digest in digests(build).items():
            assert name.startswith("work/") or digest == reference[name]


def _check_resume(folder: Path, reference: dict[str, str]) -> None:
    assert digests(build_toy(folder, jobs=1, quiet=True).path) == reference


#: Writes of a build of four units (``test_kill`` checks that these are all).
POINTS = [("worker", n) for n in range(1, 5)] + [("builder", n) for n in range(1, 12)]
CHOSEN = [("worker", 1), ("worker", 3), ("builder", 1), ("builder", 6), ("builder", 9), ("builder", 11)]


def _full_at(folder: Path, reference: dict[str, str], role: str, n: int, call: str = "write") -> None:
    write_raw(folder / "raw", GRAPHS)
    place = "/shards" if role == "worker" else ""
    fault = Fault(str(folder / "built"), role, call, n, how="no-space", within=place)  # type: ignore[arg-type]
    _check_failure(crash_points.start_build(folder, jobs=1, fault=fault), folder, reference)
    _check_resume(folder, reference)


@pytest.mark.parametrize(("role", "n"), CHOSEN)
def test_no_space_at_a_write(tmp_path: Path, reference: dict[str, str], role: str, n: int) -> None:
    _full_at(tmp_path, reference, role, n)


@pytest.mark.torture
@pytest.mark.parametrize(("role", "n"), [point for point in POINTS if point not in CHOSEN])
def test_no_space_at_every_write(
    tmp_path: Path, reference: dict[str, str], role: str, n: int, torture_count: Callable[..., None]
) -> None:
    _full_at(tmp_path, reference, role, n)
    torture_count("full disks")


@pytest.mark.torture
@pytest.mark.parametrize(("role", "n"), [("worker", 2), ("builder", 6), ("builder", 11)])
def test_an_error_while_syncing(
    tmp_path: Path, reference: dict[str, str], role: str, n: int, torture_count: Callable[..., None]
) -> None:
    _full_at(tmp_path, reference, role, n, call="fsync")
    torture_count("full disks")


@pytest.mark.parametrize("limit", [30, 1_000, 9_000])
def test_a_limit_on_file_sizes(tmp_path: Path, reference: dict[str, str], limit: int) -> None:
    """RLIMIT_FSIZE: 30 bytes stop the journal, 1,000 a journal or a shard, 9,000 the first shard."""
    write_raw(tmp_path / "raw", GRAPHS)
    (tmp_path / "bootstrap").mkdir()
    child = crash_points.start_build(
        tmp_path, jobs=1, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    )
    _check_failure(child, tmp_path, reference)
    _check_resume(tmp_path, reference)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own with 64 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = shutil.which("mount")
    made = mount and subprocess.run(
        [mount, "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)], capture_output=True, check=False
    )
    if not made or made.returncode:
        pytest.skip(f"a small tmpfs cannot be mounted here: {made.stderr.decode() if made else 'no mount'}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_small_disk_fills_up_and_gets_room_again(small_disk: Path, reference: dict[str, str]) -> None:
    write_raw(small_disk / "raw", GRAPHS)
    (small_disk / "bootstrap").mkdir()
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 12_000)
    _check_failure(crash_points.start_build(small_disk, jobs=2), small_disk, reference)
    ballast.unlink()
    subprocess.run(["mount", "-o", "remount,size=1m", str(small_disk)], check=True)
    _check_resume(small_disk, reference)
