"""The wheel and the sdist of this tree."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from support.cli import python
from support.shared import ROOT

CODE = ("kmip_data", "pipelines", "models", "cli", "manifests")


def build_copy(copy: Path, *, date: int | None = None) -> Path:
    """Make wheel and sdist from a copy of the tree, so that nothing is left in it.

    Return their folder.

    With a ``date`` all files have it, and no other user may read them.
    """
    pytest.importorskip("build")
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for folder in (*CODE, "src", "docs", ".github", "conda"):
        shutil.copytree(ROOT / folder, copy / folder, symlinks=True, ignore=ignore)
    (copy / "tests").mkdir()
    (copy / "tests" / "test_x.py").write_text("")
    for path in ROOT.iterdir():
        if path.is_file() and path.name != ".git":
            shutil.copy(path, copy)
    for path in copy.rglob("*") if date is not None else ():
        path.chmod(path.stat().st_mode & 0o700)
        os.utime(path, (date, date))
    python("-m", "build", "--no-isolation", "--outdir", copy / "dist", copy)
    return copy / "dist"
