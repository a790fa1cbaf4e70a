"""Names by which columns of graph tables are recognised."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from kmip_data.columns.column_roles import Level
from kmip_data.columns.part_masks import PART_ARRAYS
from kmip_data.pipelines import known_names
from kmip_data.pipelines.formats.typed_tables import SHEET_MARK


def level_from_name(name: str) -> Level | None:
    """Return the level of a table by its name; edges take precedence, as in ``graph-edges``.

    An ending such as ``.edges`` counts, too.
    """
    _, _, own_name = name.rpartition(SHEET_MARK)
    path = Path(own_name.lower())
    words = {*re.split(r"[^a-z]+", path.name.partition(".")[0])}
    words |= {path.suffix[1:]} & known_names.LEVEL_WORDS["edge"]
    for level in reversed(known_names.LEVEL_WORDS):
        if words & known_names.LEVEL_WORDS[level]:
            return level
    return None


#: Columns that a reader adds to the attributes of a file; no attribute has such a name.
LOCATION_KEY = "\0location"  #: file and line of a row, for messages
SOURCE_KEY = "\0source"
TARGET_KEY = "\0target"
NODE_KEY = "\0node"
GRAPH_KEY = "\0graph"
UNDIRECTED_KEY = "\0undirected"  #: True for an undirected edge
ROWS_FROM_1 = "rows-from-1"  #: value of ``node`` for rows that are numbered from 1


def normalized_name(name: str) -> str:
    """Return a name in lower case, without blanks, ``_`` and ``-``."""
    return re.sub(r"[\s_-]", "", name).casefold()


def is_id_name(name: str) -> bool:
    """True if a name is one of ids only."""
    return not known_names.ID_WORDS.isdisjoint(_outer_words(name))


def may_be_id_name(name: str) -> bool:
    """True if a name is one of ids, or of values that may be ids."""
    return not (known_names.ID_WORDS | known_names.KEY_WORDS).isdisjoint(_outer_words(name))


def _outer_words(name: str) -> set[str]:
    """Return the first and the last word of a name, in lower case."""
    words = _words(name)
    return {*words[:1], *words[-1:]}


def _words(name: str) -> list[str]:
    """Return the words of a name, such as ``from``, ``node`` and ``id`` of ``fromNode_id``."""
    words = re.findall(r"[A-Z]?[^\W\d_A-Z]+|[A-Z]+(?![^\W\d_A-Z])", name)
    return [word.casefold() for word in words]


def names_give_direction(source: str, target: str) -> bool:
    """True if words of two names say that edges go from ``source`` to ``target``."""
    return (_named_end(source), _named_end(target)) == ("source", "target")


def in_direction(first: str, second: str) -> tuple[str, str]:
    """Return two ends of an edge, the source first if words of their names tell them apart."""
    if names_give_direction(second, first):
        return second, first
    return first, second


def _named_end(name: str) -> str:
    """Return the end that the last such word of a name means, as in ``destination port``."""
    for word in reversed(_words(name)):
        if word in known_names.SOURCE_WORDS:
            return "source"
        if word in known_names.TARGET_WORDS:
            return "target"
    return ""


#: Names that show that a line is a header; data rarely has them.
HEADER_NAMES = {
    *(end for pair in known_names.END_NAMES for end in pair),
    *known_names.NODE_ID_NAMES,
    *known_names.GRAPH_ID_NAMES,
    *known_names.TABLE_LABELS,
    *map(normalized_name, PART_ARRAYS),
    known_names.PART_NAME,
    known_names.DIRECTION_NAME,
    "smiles",
    "weight",
}


def matching_names(names: Iterable[str], likely_names: Iterable[str]) -> list[str]:
    """Return the names that are among ``likely_names`` once normalized, in order."""
    likely = set(likely_names)
    return [name for name in names if normalized_name(name) in likely]


def matching_end_pairs(names: Iterable[str]) -> list[tuple[str, str]]:
    """Return the pairs of columns named like the two ends of an edge."""
    by_name = {normalized_name(name): name for name in names}
    return [
        (by_name[source], by_name[target])
        for source, target in known_names.END_NAMES
        if source in by_name and target in by_name
    ]
