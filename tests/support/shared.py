"""Places of the small real files for tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def shared_data(*parts: str) -> Path:
    """Path below the folder of real test files, or skip the test where it is absent.

    The folder is ``$KMIP_DATA_TEST_FILES``, else ``../shared/data`` beside the checkout.
    """
    folder = Path(os.environ.get("KMIP_DATA_TEST_FILES") or ROOT.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(
            "the small real files are absent: ../shared/data, or the folder that $KMIP_DATA_TEST_FILES names"
        )
    path = folder.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"real test files are not here: {path}")
    return path
