"""Type checkers follow both installs: a user's script passes, and knows what items and batches are."""

from __future__ import annotations

import re
import site
import subprocess
import sys
from pathlib import Path

import pytest
from support.cli import python
from support.shared import ROOT

#: Settings of a program checked by mypy, as PyTorch Geometric has no stubs.
SETTINGS = """
[mypy]
strict = true
[mypy-torch_geometric.*]
ignore_missing_imports = true
"""
WRONG_LINES = "\nassert_type(dataset[0], int)\nload_preset(5)\n"
RIGHT = "script.py"
WRONG = "wrong.py"
FILES = (RIGHT, WRONG)


def check(folder: Path, tool: str, interpreter: Path) -> list[tuple[str, int]]:
    """Files and lines of the errors that a type checker finds in ``folder``, which is not in the clone."""
    options = {
        "mypy": ["--python-executable", interpreter, "--cache-dir", folder / "cache"],
        "basedpyright": ["--pythonpath", interpreter, "--level", "error"],
    }
    command = [sys.executable, "-m", tool, *options[tool], *FILES]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode in {0, 1}, done.stderr
    errors = [line for line in done.stdout.splitlines() if "error" in line and ":" in line]
    assert bool(errors) == bool(done.returncode), done.stdout
    positions = []
    for line in errors:
        file, number = re.search(r"([^/\s:]+):(\d+)", line).groups()
        positions.append((file, int(number)))
    return positions


@pytest.fixture
def from_wheel(installed: Path, tmp_path: Path) -> Path:
    """The interpreter of an environment with the wheel, and all other packages of this one."""
    python("-m", "venv", "--without-pip", tmp_path / "venv")
    packages = next((tmp_path / "venv").glob("lib/python*/site-packages"))
    others = [entry for entry in [*site.getsitepackages(), *sys.path] if "packages" in entry]
    (packages / "others.pth").write_text(
        "\n".join(map(str, {installed: 0, **dict.fromkeys(others)}))
    )
    return tmp_path / "venv" / "bin" / "python"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tool", "install"),
    [
        ("basedpyright", "wheel"),
        pytest.param("basedpyright", "clone", marks=pytest.mark.torture),
        pytest.param("mypy", "wheel", marks=pytest.mark.torture),
        pytest.param("mypy", "clone", marks=pytest.mark.torture),
    ],
)
def test_correct_types_pass_and_wrong_types_fail(tool, install, tmp_path, request):
    """basedpyright reads PyTorch Geometric too: ``dataset[0]`` is ``Data``, a batch has its attributes.

    Both files are checked at once: nearly all of the time goes into reading PyTorch. ``make lint``
    checks the clone.
    """
    pytest.importorskip(tool)
    right = (ROOT / "tests" / "support" / "user_script.py").read_text("utf-8")
    (tmp_path / RIGHT).write_text(right)
    (tmp_path / WRONG).write_text(right + WRONG_LINES)
    (tmp_path / "mypy.ini").write_text(SETTINGS)
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "standard"}')
    last = len((right + WRONG_LINES).splitlines())
    expected = [(WRONG, last - 1), (WRONG, last)]
    interpreter = Path(sys.executable)
    if install == "wheel":
        interpreter = request.getfixturevalue("from_wheel")
    assert check(tmp_path, tool, interpreter) == expected
