"""Two processes write one file, each held at any operation: it is one of the two, whole, at any time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.two_writers import play


def test_two_writers_of_one_file(tmp_path: Path) -> None:
    assert play("file", tmp_path, most=12) == 12


@pytest.mark.torture
@pytest.mark.timeout(3600)
def test_two_writers_of_one_file_at_any_moment(tmp_path: Path, torture_count: Callable[..., None]) -> None:
    torture_count("two writers", play("file", tmp_path))
