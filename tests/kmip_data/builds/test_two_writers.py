"""Two processes write one build, one held at any operation: the other waits, or says that it is another's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.two_writers import play


@pytest.mark.slow  # most of it waits
def test_two_writers_of_one_build(tmp_path: Path) -> None:
    assert play("build", tmp_path, most=6) == 6


@pytest.mark.torture
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(2))
def test_two_writers_of_one_build_at_any_moment(
    tmp_path: Path, part: int, torture_count: Callable[..., None]
) -> None:
    torture_count("two writers", play("build", tmp_path, part=part, parts=2))
