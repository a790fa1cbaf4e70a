"""Names of the parts of a split, in the order in which they are printed and written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

PARTS: Final[tuple[str, ...]] = ("train", "val", "test")


def in_order(parts: Iterable[str]) -> list[str]:
    """Sort names of parts: train, val, test, then others by name.

    >>> in_order(["extra", "test", "train"])
    ['train', 'test', 'extra']
    """
    rank = {part: position for position, part in enumerate(PARTS)}
    return sorted(parts, key=lambda part: (rank.get(part, len(PARTS)), part))
