"""Names of columns and files that decide between readings whose values fit equally."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kmip_data.pipelines import known_names

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+|[^\W\d_a-zA-Z]+")
_ID_WORDS = known_names.ID_WORDS | known_names.KEY_WORDS


def normalized(name: str) -> str:
    """Return a name in lower case, without blanks, ``_`` and ``-``.

    >>> normalized("From node_ID")
    'fromnodeid'
    """
    return re.sub(r"[\s_-]", "", name).casefold()


def words(name: str) -> list[str]:
    """Return the words of a name in lower case.

    >>> words("fromNode_id.csv")
    ['from', 'node', 'id', 'csv']
    """
    return [word.casefold() for word in _WORD.findall(name)]


def has_word(name: str, known: Iterable[str]) -> bool:
    """True if a name has one of these words."""
    return not set(words(name)).isdisjoint(known)


def is_id_name(name: str) -> bool:
    """True if the first or last word of a name is one of ids, as in ``personId`` and ``key``."""
    outer = words(name)
    return not _ID_WORDS.isdisjoint(outer[:1] + outer[-1:])


def matching(names: Iterable[str], likely: Iterable[str]) -> list[str]:
    """Return the names that are among ``likely`` once normalized, in order."""
    known = set(likely)
    return [name for name in names if normalized(name) in known]


def end_pairs(names: Iterable[str]) -> list[tuple[str, str]]:
    """Return the pairs of columns named like the two ends of an edge."""
    by_name = {normalized(name): name for name in names}
    return [
        (by_name[source], by_name[target])
        for source, target in known_names.END_NAMES
        if source in by_name and target in by_name
    ]


def in_direction(first: str, second: str) -> tuple[str, str]:
    """Return two ends, the source first if a word of a name tells it, such as ``start`` next to ``ende``."""
    sources, targets = known_names.SOURCE_WORDS, known_names.TARGET_WORDS
    forward = has_word(first, sources) + has_word(second, targets)
    backward = has_word(second, sources) + has_word(first, targets)
    return (second, first) if backward > forward else (first, second)


def tells_direction(source: str, target: str) -> bool:
    """True if words of two names say that edges go from ``source`` to ``target``."""
    return has_word(source, known_names.SOURCE_WORDS) and has_word(target, known_names.TARGET_WORDS)


def are_alike(first: str, second: str) -> bool:
    """True for two names of the same thing: with a common word that is none of ids, or of one letter.

    >>> are_alike("node a", "node b"), are_alike("u", "v"), are_alike("user_id", "film_id")
    (True, True, False)
    """
    letters = [[*filter(str.isalpha, words(name))] for name in (first, second)]
    common = {*letters[0]} & {*letters[1]} - (_ID_WORDS - {"node", "vertex"})
    are_single = all(len("".join(own)) == 1 for own in letters)
    is_told = tells_direction(first, second) or letters[0] == letters[1]
    return bool(common) or are_single or is_told


def is_named_after(name: str, things: Iterable[str]) -> bool:
    """True if a name has a word of one of ``things``, which may be in the plural, and is none of ids.

    >>> is_named_after("user_id", ["users.csv"]), is_named_after("film_id", ["id", "users.csv"])
    (True, False)
    """
    known = {word.rstrip("s") for thing in things for word in words(thing)} - _ID_WORDS
    return not known.isdisjoint(word.rstrip("s") for word in words(name))


def level_of(table: str) -> str:
    """Return the level that a word of a table's name means; edges come first, as in ``graph-edges``."""
    own_name = words(table.rpartition("/")[2])
    for level in reversed(known_names.LEVEL_WORDS):
        if not known_names.LEVEL_WORDS[level].isdisjoint(own_name):
            return level
    return ""
