"""Resuming or starting a run whose trainer is still alive: one of the two processes is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.two_writers import play


@pytest.mark.slow  # a process imports PyTorch
def test_a_live_run_is_not_resumed(tmp_path: Path) -> None:
    assert play("run", tmp_path, most=3) == 3


@pytest.mark.torture
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(2))
def test_a_live_run_is_not_resumed_at_any_moment(
    tmp_path: Path, part: int, torture_count: Callable[..., None]
) -> None:
    torture_count("two writers", play("run", tmp_path, most=60, part=part, parts=2))
