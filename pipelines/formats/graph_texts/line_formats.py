"""Refuse texts of graphs whose lines are no rows of a table, with the line of Python that converts them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from kmip_data.arrays import I64
from kmip_data.errors import DamagedInput

#: Format -> how to convert it.
_REMEDIES = {
    "an adjacency list": "in Python: import networkx; networkx.write_graphml(networkx.read_adjlist({file!r}), "
    "'graph.graphml')",
    "METIS without weights": "in Python: import networkx; lines = [line for line in open({file!r}) if line[0] != "
    "'%']; networkx.write_graphml(networkx.Graph({{node: map(int, line.split()) for node, line in "
    "enumerate(lines[1:], 1)}}), 'graph.graphml')",
    "LGL": "in Python: import igraph; igraph.Graph.Read_LGL({file!r}).write_graphml('graph.graphml')",
    "SIF": "write a line with source, relation and target for each edge; then source is 0 and target is 2",
    "UCINET's DL": "export it as Pajek's .net: Data, Export, Pajek",
}


def refuse_line_format(
    rows: Sequence[str], widths: I64, comments: Mapping[int, str], name: str
) -> None:
    """Refuse a text that looks like one of these formats.

    ``widths`` (R,) are the numbers of cells of all rows, and ``comments`` has lines that begin with ``#``.
    """
    line_format = _line_format(rows, widths, [*comments.values()], name)
    if line_format:
        raise DamagedInput(
            f"{name} may be {line_format}, which is no table of edges.",
            steps=_REMEDIES[line_format].format(file=name),
        )


def _line_format(rows: Sequence[str], widths: I64, comments: Sequence[str], name: str) -> str:
    """Return the format of the first ``rows`` and the ``widths`` (R,) of all; empty for a table."""
    is_ragged = len({*widths.tolist()}) > 2
    first_cells = {row.split()[0] for row in rows}
    counts = rows[0].split()
    if re.match(r"dl\b.*\bn\s*=", " ".join(rows[:2]), re.IGNORECASE):
        return "UCINET's DL"
    if 2 <= len(counts) <= 4 and all(map(str.isdecimal, counts)):
        # Rows of two cells may be as many edges as the first line says.
        neighbours = widths[1:]
        is_metis = neighbours.sum() == 2 * int(counts[1]) and len(neighbours) <= int(counts[0])
        if is_metis and (neighbours != 2).any():
            return "METIS without weights"
    # Each edge of LGL is below one of its ends, so many of these are neighbours, too.
    words = [comment.lstrip("# ") for comment in comments]
    if widths.max() <= 2 and " " not in "".join(words) and not first_cells.isdisjoint(words):
        return "LGL"
    if not is_ragged:
        return ""
    if name.endswith(".sif"):
        return "SIF"
    return "an adjacency list" if len(first_cells) == len(rows) else ""
