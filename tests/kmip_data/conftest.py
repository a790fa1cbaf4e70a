"""Builds that tests of several rooms share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small builds as a stranger may hand them over; to be copied, never changed."""
    from support.builds.strangers import make_originals

    folder = tmp_path_factory.mktemp("originals")
    make_originals(folder)
    return folder
