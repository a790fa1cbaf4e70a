"""Texts of graphs whose lines are no rows of a table, with the line of Python that converts them."""

from __future__ import annotations

import re
from collections.abc import Sequence

#: Format -> how to convert it.
REMEDIES = {
    "an adjacency list": "in Python: import networkx; networkx.write_graphml(networkx.read_adjlist({file!r}), "
    "'graph.graphml')",
    "METIS without weights": "in Python: import networkx; lines = [line for line in open({file!r}) if line[0] != "
    "'%']; networkx.write_graphml(networkx.Graph({{node: map(int, line.split()) for node, line in "
    "enumerate(lines[1:], 1)}}), 'graph.graphml')",
    "LGL": "in Python: import igraph; igraph.Graph.Read_LGL({file!r}).write_graphml('graph.graphml')",
    "SIF": "write a line with source, relation and target for each edge; then source is 0 and target is 2",
    "UCINET's DL": "export it as Pajek's .net: Data, Export, Pajek",
}


def line_format(
    rows: Sequence[str], cells: int, count: int, comments: Sequence[str], name: str
) -> str:
    """Return the format of a text that is no table; empty if it may be one.

    Parameters
    ----------
    rows
        First rows.
    cells, count
        Number of cells of all rows, and of all rows.
    comments
        Lines that begin with ``#``.
    name
        Name of the file.
    """
    widths = {len(row.split()) for row in rows}
    first_cells = {cell for row in rows for cell in row.split()[:1]}
    counts = rows[0].split()
    if re.match(r"dl\b.*\bn\s*=", " ".join(rows[:2]), re.IGNORECASE):
        return "UCINET's DL"
    if 2 <= len(counts) <= 4 and all(map(str.isdecimal, counts)):
        # Rows of two cells may be as many edges as the first line says.
        is_metis = cells - len(counts) == 2 * int(counts[1]) and count - 1 <= int(counts[0])
        if is_metis and {len(row.split()) for row in rows[1:]} != {2}:
            return "METIS without weights"
    # Each edge of LGL is below one of its ends, so many of these are neighbours, too.
    words = [comment.lstrip("# ") for comment in comments]
    if max(widths) <= 2 and " " not in "".join(words) and not first_cells.isdisjoint(words):
        return "LGL"
    if len(widths) <= 2:
        return ""
    if name.endswith(".sif"):
        return "SIF"
    return "an adjacency list" if len(first_cells) == len(rows) else ""
