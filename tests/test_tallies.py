"""Faults that a run of the tests prints at its end, and its core, alone and over processes."""

from __future__ import annotations

import re
from pathlib import Path

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
    (folder / "pytest.ini").write_text(f"[pytest]\n{markers}")
    alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    out = python("-m", "pytest", "-q", "-p", "no:cacheprovider", *options, cwd=folder, **alone).out
    return re.sub(r" +", " ", out)


def test_faults_are_summed_and_the_core_is_the_first_case_of_the_first_tests(tmp_path: Path) -> None:
    assert "\n 6,000 bit flips\n 3 kills\n" in ending(tmp_path, "-p", "xdist.plugin", "-n", "2")
    found = ending(tmp_path, "-m", "not torture", "--core")
    assert "1 passed, 1 skipped" in found
    assert "faults injected" not in found
