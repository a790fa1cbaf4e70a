"""Summary at the end of a run of the tests, alone and over processes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.cli import python

HERE = Path(__file__).parent
TESTS = """
import pytest

@pytest.mark.torture
@pytest.mark.parametrize("n", [1, 2, 3])
def test_faults(n, torture_count):
    torture_count("kills")
    torture_count("bit flips", 1000 * n)

@pytest.mark.parametrize("n", range(4))
def test_without_files(n):
    pytest.skip("no files here")

@pytest.mark.slow
def test_slow(): ...

def test_fast(): ...
"""


def ending(folder: Path, *options: str) -> str:
    """Run the tests above as a process and return what follows the dots."""
    (folder / "test_it.py").write_text(TESTS)
    (folder / "conftest.py").write_text((HERE / "conftest.py").read_text())
    markers = "markers =\n  slow: x\n  torture: x\n"
    (folder / "pytest.ini").write_text(f"[pytest]\npythonpath = {HERE} {HERE.parent}\n{markers}")
    out = python("-m", "pytest", "-q", "-p", "no:cacheprovider", *options, cwd=folder).out
    return re.sub(r" +", " ", out)


@pytest.mark.parametrize("processes", [[], ["-n", "2"]], ids=["alone", "over processes"])
def test_the_summary_of_a_run(tmp_path: Path, processes: list[str]) -> None:
    found = ending(tmp_path, *processes)
    assert "\n 6,000 bit flips\n 3 kills\n" in found
    assert "\n 4 skipped: no files here\n" in found
    assert "left out" not in found
    found = ending(tmp_path, *processes, "-m", "not torture and not slow")
    assert "\n 3 left out: torture (`make torture` has them)\n" in found
    assert "\n 1 left out: slow (`make test` has them)\n" in found
    assert "faults injected" not in found
    found = ending(tmp_path, *processes, "-m", "not torture", "--core")
    assert "1 passed, 1 skipped" in found
    assert "\n 4 left out: further tests and cases of a file (`make test` has them)\n" in found
