"""Names by which columns of graph tables are recognised."""

from __future__ import annotations

import re
from collections.abc import Iterable

from kmip_data.columns.column_roles import Level
from kmip_data.columns.part_masks import PART_ARRAYS

#: Names of the two ends of an edge, normalized by :func:`normalized_name`.
END_NAMES = (
    ("source", "target"),
    ("sourceid", "targetid"),
    ("from", "to"),
    ("fromid", "toid"),
    ("fromnode", "tonode"),
    ("fromnodeid", "tonodeid"),
    ("src", "dst"),
    ("u", "v"),
    ("head", "tail"),
    ("begin", "end"),
    ("start", "end"),
    ("id1", "id2"),
    ("node1", "node2"),
)
NODE_ID_NAMES = ("id", "node", "name", "nodeid")
GRAPH_ID_NAMES = ("graph", "graphid", "graphidx", "graphindex", "molid", "moleculeid")
#: Labels of nodes and graphs; the target of an edge is a node.
LABEL_NAMES = ("label", "y", "class", "target")
#: Level of the rows -> words in the names of files. The first existing level gives the order of graphs.
LEVEL_WORDS: dict[Level, set[str]] = {
    "graph": {"graph", "graphs", "molecule", "molecules", "mols"},
    "node": {"node", "nodes", "vertex", "vertices", "atom", "atoms", "target", "targets"},
    "edge": {"edge", "edges", "edgelist", "link", "links", "bond", "bonds", "arcs", "relations"},
}
#: Columns that a reader adds to the attributes of a file; no attribute has such a name.
LOCATION_KEY = "\0location"  #: file and line of a row, for messages
SOURCE_KEY = "\0source"
TARGET_KEY = "\0target"
NODE_KEY = "\0node"
GRAPH_KEY = "\0graph"
UNDIRECTED_KEY = "\0undirected"  #: True for an undirected edge
DIRECTION_NAME = "type"  #: direction of an edge in Gephi's tables: Directed or Undirected
ROWS_FROM_1 = "rows-from-1"  #: value of ``node`` for rows that are numbered from 1
PART_NAME = "split"  #: column with the part of each row


def normalized_name(name: str) -> str:
    """Return a name in lower case, without blanks, ``_`` and ``-``."""
    return re.sub(r"[\s_-]", "", name).casefold()


#: First or last words of names of ids, as in ``edge_id`` and ``personId``, but not ``paid``.
_ID_WORDS = {"id", "ids", "uid", "uuid", "guid", "vid", "eid", "nid", "pid", "oid", "osmid"}
_ID_WORDS |= {"objectid"}
#: Such words of names of ids and of values, as in ``code`` and ``house number``.
_KEY_WORDS = {"key", "code", "nr", "no", "number", "index", "idx", "node", "name", "vertex"}


def is_id_name(name: str) -> bool:
    """True if a name is one of ids only."""
    return not _ID_WORDS.isdisjoint(_outer_words(name))


def may_be_id_name(name: str) -> bool:
    """True if a name is one of ids, or of values that may be ids."""
    return not (_ID_WORDS | _KEY_WORDS).isdisjoint(_outer_words(name))


def _outer_words(name: str) -> set[str]:
    """Return the first and the last word of a name, in lower case."""
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)
    return {word.lower() for word in (*words[:1], *words[-1:])}


#: Names that show that a line is a header; data rarely has them.
HEADER_NAMES = {
    *(end for pair in END_NAMES for end in pair),
    *NODE_ID_NAMES,
    *GRAPH_ID_NAMES,
    *LABEL_NAMES,
    *map(normalized_name, PART_ARRAYS),
    PART_NAME,
    DIRECTION_NAME,
    "smiles",
    "weight",
}


def matching_names(names: Iterable[str], known_names: Iterable[str]) -> list[str]:
    """Return the names that are among ``known_names`` once normalized, in order."""
    known = set(known_names)
    return [name for name in names if normalized_name(name) in known]


def matching_end_pairs(names: Iterable[str]) -> list[tuple[str, str]]:
    """Return the pairs of columns named like the two ends of an edge."""
    by_name = {normalized_name(name): name for name in names}
    return [
        (by_name[source], by_name[target])
        for source, target in END_NAMES
        if source in by_name and target in by_name
    ]
