"""Layers and attention know no concern of training around them: their files never name these."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kmip_data.models import layers

MODELS = Path(layers.__file__).parents[1]

#: Pattern of a forbidden name, by its concern.
FORBIDDEN = {
    "padded batches": r"COUNTED|Rows\.first|rows\.first|\btrusted\b|PADDING",
}


@pytest.mark.parametrize("concern", FORBIDDEN)
def test_no_layer_names(concern: str) -> None:
    files = [*(MODELS / "layers").rglob("*.py"), *(MODELS / "attention").rglob("*.py")]
    assert len(files) > 20
    found = {
        str(path.relative_to(MODELS)): names
        for path in files
        if (names := re.findall(FORBIDDEN[concern], path.read_text("utf-8")))
    }
    assert not found
