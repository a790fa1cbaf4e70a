"""Sizes of the parts of a sample."""

from __future__ import annotations

from collections.abc import Mapping


def part_sizes(total: int, published: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes of train, val and test: the published shares, no part empty from three records on."""
    everything = sum(published.values())
    least = 1 if total >= 3 else 0
    val, test = (max(round(total * published[part] / everything), least) for part in ("val", "test"))
    return {"train": total - val - test, "val": val, "test": test}
