"""Type checkers follow both installs: a user's script passes, and knows what items and batches are."""

from __future__ import annotations

import shutil
import site
import subprocess
import sys
from pathlib import Path

import pytest
from support.cli import python

ROOT = Path(__file__).resolve().parents[1]
#: What a user writes, as PyTorch Geometric has no stubs.
SETTINGS = """
[mypy]
strict = true
[mypy-torch_geometric.*]
ignore_missing_imports = true
"""
WRONG = "\nassert_type(dataset[0], int)\nload_preset(5)\n"


def check(folder: Path, tool: str, interpreter: Path) -> list[str]:
    """Errors that a type checker finds in ``folder``, which is not in the clone."""
    options = {
        "mypy": ["--python-executable", interpreter, "--cache-dir", folder / "cache"],
        "basedpyright": ["--pythonpath", interpreter, "--level", "error"],
    }
    command = [sys.executable, "-m", tool, *options[tool], "script.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode in {0, 1}, done.stderr
    errors = [line for line in done.stdout.splitlines() if "error" in line and ":" in line]
    assert bool(errors) == bool(done.returncode), done.stdout
    return errors


@pytest.fixture(scope="module")
def from_wheel(tmp_path_factory) -> Path:
    """The interpreter of an environment with the wheel, and all other packages of this one."""
    folder = tmp_path_factory.mktemp("environment")
    copy = folder / "copy"
    ignore = shutil.ignore_patterns(".*", "build", "dist", "tests", "docs", "*.egg-info")
    shutil.copytree(ROOT, copy, symlinks=True, ignore=ignore)
    (copy / "docs").mkdir()
    python("-m", "build", "--no-isolation", "--wheel", "--outdir", folder, copy)

    python("-m", "venv", "--without-pip", folder / "venv")
    packages = next((folder / "venv").glob("lib/python*/site-packages"))
    wheel = next(folder.glob("*.whl"))
    python("-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", packages, wheel)
    others = [entry for entry in [*site.getsitepackages(), *sys.path] if "packages" in entry]
    (packages / "others.pth").write_text("\n".join(dict.fromkeys(others)))
    return folder / "venv" / "bin" / "python"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tool", "install"),
    [
        ("basedpyright", "editable"),
        ("basedpyright", "wheel"),
        ("mypy", "wheel"),
        ("mypy", "editable"),
    ],
)
def test_a_users_script_passes(tool, install, tmp_path, request):
    """basedpyright reads PyTorch Geometric too: ``dataset[0]`` is ``Data``, a batch has its attributes."""
    pytest.importorskip(tool)
    interpreter = Path(sys.executable)
    if install == "wheel":
        interpreter = request.getfixturevalue("from_wheel")
    script = tmp_path / "script.py"
    shutil.copy(ROOT / "tests" / "support" / "user_script.py", script)
    (tmp_path / "mypy.ini").write_text(SETTINGS)
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "standard"}')
    assert check(tmp_path, tool, interpreter) == []

    script.write_text(script.read_text("utf-8") + WRONG)
    lines = {line.split(":")[1] for line in check(tmp_path, tool, interpreter)}
    last = len(script.read_text("utf-8").splitlines())
    assert lines == {str(last - 1), str(last)}
