"""Words that messages and commands share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def counted(count: int, noun: str) -> str:
    """Write a number with its noun, which is given in the singular.

    >>> counted(1, "graph"), counted(1200, "graph")
    ('1 graph', '1,200 graphs')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


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
