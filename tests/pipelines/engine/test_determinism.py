"""A build is a function of its inputs: not of jobs, order, locale, hash seed, umask or time zone."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.attacks import crash_points
from support.builds.toy_pipeline import build_toy, digests, write_raw

pytestmark = pytest.mark.real_workers

GRAPHS = 20

#: Every listing of a folder in another order.
SHUFFLED = """
import os, random, shutil  # shutil looks up os.scandir once
real_listdir, real_scandir = os.listdir, os.scandir
rng = random.Random({seed})

class scandir:
    def __init__(self, *arguments):
        with real_scandir(*arguments) as entries:
            self.entries = shuffled(entries)
    __iter__ = lambda self: iter(self.entries)
    __next__ = lambda self: self.entries.pop()
    __enter__ = lambda self: self
    close = __exit__ = lambda *_: None

def shuffled(names):
    return sorted(names, key=lambda _: rng.random())

os.listdir, os.scandir = lambda *arguments: shuffled(real_listdir(*arguments)), scandir
"""


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Digests of a build with one job."""
    folder = tmp_path_factory.mktemp("reference")
    write_raw(folder / "raw", GRAPHS)
    return digests(build_toy(folder, jobs=1, quiet=True).path)


@pytest.mark.slow
def test_bytes_do_not_depend_on_jobs_order_or_path(tmp_path: Path) -> None:
    rng, folder = random.Random(4), tmp_path / "Größe ün1 \u4e2d $HOME; 'x'"
    orders = {i: f"sleep={rng.uniform(0, 0.05):.3f}" for i in range(GRAPHS)}
    write_raw(folder / "raw", GRAPHS, orders=orders)
    slow = build_toy(folder, jobs=3, quiet=True)
    alone = build_toy(folder, jobs=1, home=tmp_path / "alone", quiet=True)
    assert digests(slow.path) == digests(alone.path)


@pytest.mark.parametrize(
    ("variables", "umask"),
    [
        pytest.param(
            {"PYTHONHASHSEED": "1", "LC_ALL": "C.UTF-8", "TZ": "Asia/Kathmandu"},
            0o077,
            marks=pytest.mark.torture,
        ),
        (
            {
                "PYTHONHASHSEED": "random",
                "LC_ALL": "de_DE.UTF-8",
                "PYTHONUTF8": "0",
                "COLUMNS": "20",
            },
            0o027,
        ),
    ],
)
def test_bytes_do_not_depend_on_environment_and_umask(
    tmp_path: Path, reference: dict[str, str], variables: Any, umask: int
) -> None:
    write_raw(tmp_path / "raw", GRAPHS)
    place = tmp_path / "bootstrap"
    environment = crash_points.environment(place, **variables)
    (place / "sitecustomize.py").write_text(SHUFFLED.format(seed=umask))
    child = subprocess.run(
        [sys.executable, "-c", crash_points.RUN, str(tmp_path), "2"],
        env=environment, umask=umask, cwd="/", capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert child.returncode == 0, child.stderr
    path = Path(child.stdout.strip())
    assert digests(path) == reference
    shard = (path / "shards/00000.h5").stat().st_mode & 0o777
    assert shard == 0o444 & ~umask  # permissions follow the umask; bytes do not
