"""Units of a source that comes as one list of records a part."""

from __future__ import annotations

from collections.abc import Mapping

from kmip_data.parts import PARTS
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
