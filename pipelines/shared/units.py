"""Records dealt to units: by number, by file size, or part by part."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from kmip_data.format.splits import PARTS
from kmip_data.pipelines.base import Params, Unit


def units_of_rows(rows: Sequence[int], per_unit: int, what: str = "rows") -> list[Unit]:
    """Deal rows to units of ``per_unit``; the items of a unit are its ``rows``."""
    runs = (list(rows[at : at + per_unit]) for at in range(0, len(rows), per_unit))
    return [Unit(i, f"{what} {run[0]} to {run[-1]}", {"rows": run}) for i, run in enumerate(runs)]


def units_by_size(names: Iterable[str], size: Callable[[str], int], most: int, what: str) -> list[Unit]:
    """Deal names to units whose sizes add up to ``most`` or less; the items of a unit are called ``what``.

    A name that is larger by itself is a unit of its own.
    """
    units: list[list[str]] = []
    used = 0
    for name in names:
        needed = size(name)
        if not units or used + needed > most:
            units.append([])
            used = 0
        units[-1].append(name)
        used += needed
    return [Unit(i, f"{what} {unit[0]} to {unit[-1]}", {what: unit}) for i, unit in enumerate(units)]


def rows_inside(sizes: Sequence[tuple[str, int]], params: Params) -> Iterator[tuple[str, int, list[int]]]:
    """Yield the name of each file or part, how many records come before it, and the rows chosen in it.

    ``sizes`` has name and number of records of each, in source order.
    """
    chosen = params.choose(sum(size for _, size in sizes))
    first = 0
    for name, size in sizes:
        yield name, first, [row - first for row in chosen if first <= row < first + size]
        first += size


def units_of_parts(sizes: Mapping[str, int], params: Params, per_unit: int) -> list[Unit]:
    """Deal the chosen records of each part; the items of a unit are its ``part`` and ``rows`` inside it."""
    units: list[Unit] = []
    for part, _, rows in rows_inside([(part, sizes[part]) for part in PARTS], params):
        for at in range(0, len(rows), per_unit):
            run = rows[at : at + per_unit]
            units.append(Unit(len(units), f"{part} {run[0]} to {run[-1]}", {"part": part, "rows": run}))
    return units
