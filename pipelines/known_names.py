"""Names by which columns, arrays and files are recognised if nothing says what they are.

Names of tables of graphs are normalized by ``known_columns.normalized_name``.
"""

from __future__ import annotations

import re

from kmip_data.columns.column_roles import Level

NO_LABEL = "none"  #: value of ``label``: no labels
#: Names of the two ends of an edge.
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
#: Words in names of the end at which an edge begins.
SOURCE_WORDS = frozenset(
    re.findall(
        r"\w+",
        """
    source src from origin orig start begin sender payer citing caller departure dep seller supplier
    exporter lender donor follower ego predecessor upstream pickup pre presynaptic subject initiator
    """,
    )
)
#: Words in names of the end to which an edge leads.
TARGET_WORDS = frozenset(
    re.findall(
        r"\w+",
        """
    target tgt dst dest destination to into toward towards end receiver recipient beneficiary payee
    cited callee arrival arr buyer importer borrower followed followee alter successor downstream dropoff
    post postsynaptic object
    """,
    )
)
NODE_ID_NAMES = ("id", "node", "name", "nodeid")
GRAPH_ID_NAMES = ("graph", "graphid", "graphidx", "graphindex", "molid", "moleculeid")
#: Labels of nodes and graphs; the target of an edge is a node.
TABLE_LABELS = ("label", "y", "class", "target")
#: Level of the rows -> words in the names of files. The first existing level gives the order of graphs.
LEVEL_WORDS: dict[Level, set[str]] = {
    "graph": {"graph", "graphs", "molecule", "molecules", "mols"},
    "node": {"node", "nodes", "vertex", "vertices", "atom", "atoms", "target", "targets"},
    "edge": {"edge", "edges", "edgelist", "link", "links", "bond", "bonds", "arcs", "relations"},
}
DIRECTION_NAME = "type"  #: direction of an edge in Gephi's tables: Directed or Undirected
PART_NAME = "split"  #: column with the part of each row or item
#: First or last words of names of ids, as in ``edge_id`` and ``personId``, but not ``paid``.
ID_WORDS = {
    "id",
    "ids",
    "uid",
    "uuid",
    "guid",
    "vid",
    "eid",
    "nid",
    "pid",
    "oid",
    "osmid",
    "objectid",
}
#: Such words of names of ids and of values, as in ``code`` and ``house number``.
KEY_WORDS = {"key", "code", "nr", "no", "number", "index", "idx", "node", "name", "vertex"}

#: Labels of clouds or pictures, in a table with a row for each.
ITEM_LABELS = ("label", "labels", "class", "classification", "category", "target")
CLOUD_LABELS = ("label", "labels")  #: columns of points
#: Further names of labels of points, as of LAS and CloudCompare; a column with a single value is none.
LIKELY_CLOUD_LABELS = (
    "class", "classification", "scalar_label", "scalar_class", "scalar_classification",
)  # fmt: skip
ARRAY_LABELS = ("labels", "label", "y", "node_labels")  #: arrays of ``.npz``
