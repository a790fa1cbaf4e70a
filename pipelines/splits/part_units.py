"""Units of a source that comes as one list of records a part, and the published split they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kmip_data.format.parts import PARTS
from kmip_data.pipelines.base import Params, Unit


def units_of_parts(sizes: Mapping[str, int], params: Params, records: int) -> list[Unit]:
    """Deal the chosen records of each part, in the order of the parts, to units of at most ``records``.

    Parameters
    ----------
    sizes
        Records of each part.

    Returns
    -------
    Units whose items are ``part`` and ``rows``, positions inside the part.
    """
    chosen = params.choose(sum(sizes.values()))
    units: list[Unit] = []
    first = 0
    for part in PARTS:
        rows = [position - first for position in chosen if first <= position < first + sizes[part]]
        for at in range(0, len(rows), records):
            some = rows[at : at + records]
            name = f"{part} {some[0]} to {some[-1]}"
            units.append(Unit(len(units), name, {"part": part, "rows": some}))
        first += sizes[part]
    return units


def parts_of_keys(keys: Iterable[str]) -> dict[str, list[int]]:
    """Return the positions of the records of each part; a key begins with its part (``val/000012``)."""
    parts: dict[str, list[int]] = {part: [] for part in PARTS}
    for position, key in enumerate(keys):
        parts[key.partition("/")[0]].append(position)
    return parts
