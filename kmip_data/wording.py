"""Words that messages and commands share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def as_options(parameters: Mapping[str, Any]) -> str:
    """Parameters as options are typed, those that are unset left out.

    >>> as_options({"k": 32, "limit": None, "category": ["Bag", "Cap"]})
    '--k 32 --category Bag --category Cap'
    """
    words: list[str] = []
    for name, value in parameters.items():
        option = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            words.append(option if value else f"--no-{name.replace('_', '-')}")
        elif isinstance(value, (list, tuple)):
            words.extend(f"{option} {item}" for item in value)
        elif value is not None:
            words.append(f"{option} {value}")
    return " ".join(words)
