"""Categories of the one-hot columns: chosen by frequency, kept on the card, and taken from other builds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import field_validator

from kmip_data.errors import DamagedInput
from kmip_data.files.reading import first_fault, read_small
from kmip_data.strict import Strict

OTHERS: Final = "others"
MISSING: Final = "nan"  #: a street without the tag, as upstream's text of a missing value
WIDTH: Final = 9  #: columns of ``landuse``, ``lanes`` and ``highway`` in the published cities

#: In all published cities the same; here fixed, so that these columns mean the same everywhere.
ONEWAY: Final = ("False", "True")
REVERSED: Final = ("False", "True", "[False, True]")


class Vocabulary(Strict):
    """The category of each one-hot column, in order; a city with fewer leaves the last columns zero."""

    landuse: tuple[str, ...]
    lanes: tuple[str, ...]
    highway: tuple[str, ...]

    @field_validator("landuse", "lanes", "highway")
    @classmethod
    def _fits(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(value) > WIDTH or len(set(value)) < len(value):
            raise ValueError(f"at most {WIDTH} distinct categories")
        return value


def by_frequency(counts: Mapping[str, int]) -> tuple[str, ...]:
    """Return upstream's choice: the eight most frequent categories and ``others`` for the rest.

    ``others`` has its place by frequency like the rest. Equally frequent ones are ordered as text
    (upstream: as they come).
    """
    ranked = sorted(counts, key=lambda name: (-counts[name], name))
    kept, rest = ranked[: WIDTH - 1], ranked[WIDTH - 1 :]
    totals = {name: counts[name] for name in kept}
    if rest:
        totals[OTHERS] = totals.get(OTHERS, 0) + sum(counts[name] for name in rest)
    return tuple(sorted(totals, key=lambda name: (-totals[name], name)))


def lanes_by_frequency(counts: Mapping[str, int]) -> tuple[str, ...]:
    """Return the same with streets that lack the tag in the first column, as in the published cities."""
    chosen = by_frequency({**counts, MISSING: sum(counts.values()) + 1})
    return (MISSING, *(name for name in chosen if name != MISSING))


def columns_of(categories: list[str], vocabulary: tuple[str, ...]) -> NDArray[np.int64]:
    """Return the column of each category, -1 for one that has none (and there is no ``others``)."""
    rest = vocabulary.index(OTHERS) if OTHERS in vocabulary else -1
    position = {name: column for column, name in enumerate(vocabulary)}
    return np.array([position.get(name, rest) for name in categories], np.int64)


def read_vocabulary(path: Path) -> Vocabulary:
    """Read what :func:`vocabulary_of_card` gave, from a file."""
    try:
        return Vocabulary.model_validate_json(read_small(path))
    except (ValueError, RecursionError, OSError) as error:
        raise DamagedInput(
            f"{path.name} is not a vocabulary.",
            expected="landuse, lanes and highway, each with at most nine categories",
            found=first_fault(error),
        ) from error


def vocabulary_of_card(statistics: Mapping[str, Any]) -> Vocabulary | None:
    """Return the vocabulary of a build from the statistics on its card; ``None`` where it has none."""
    found = statistics.get("city", {}).get("vocabulary")
    try:
        return None if found is None else Vocabulary.model_validate_json(json.dumps(found))
    except ValueError:
        return None
