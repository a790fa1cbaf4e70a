"""A home for tests of sweeps."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.builds.learnable import learnable_build

from kmip_data.builds.home import Home


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A home with the data of the plans, which commands find, too."""
    located = Home.locate(tmp_path / "home")
    monkeypatch.setenv("KMIP_DATA_HOME", str(located.path))
    learnable_build(located.built / "clouds")
    return located
