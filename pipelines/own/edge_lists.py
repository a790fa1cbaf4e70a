"""Tables that may be no edge lists: lines of counts, lists of neighbours and molecules."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kmip_data.errors import Setting
from kmip_data.pipelines.own.columns.numbers import all_match
from kmip_data.pipelines.own.ids import MIN_COVERAGE, Ids
from kmip_data.pipelines.own.table import Table

#: Letters of SMILES of two atoms or more: atoms, bonds, branches and rings.
_ATOM = r"Cl|Br|[BCNOPSFIbcnops]|\[[^\]]*\]"
_MOLECULES = rf"^(?:{_ATOM})[-=#(0-9]*(?:{_ATOM})(?:{_ATOM}|[-=#$:/\\.%0-9()@+])*$"


def refuse_counts(edges: Table, ends: Sequence[Ids]) -> None:
    """Refuse a first line that has the numbers of nodes and edges, as some programs write it."""
    if edges.rows < 2 or not all(end.are_numbers for end in ends):
        return
    nodes, count = (end.cells[0].as_py() for end in ends)
    below = [end.cells[1:] for end in ends]
    spread = max(pc.max(cells).as_py() for cells in below) - min(
        pc.min(cells).as_py() for cells in below
    )
    if count == edges.rows - 1 and nodes > spread:
        raise edges.error_at(
            0,
            f"{nodes} {count} may be the numbers of nodes and edges, as {count} lines follow (if each "
            "has the neighbours of a node, it is METIS, and no table of edges)",
            ["leave it out, or keep it as an edge", Setting(header="yes"), Setting(header="no")],
        )


def may_be_neighbours(columns: Sequence[Ids]) -> bool:
    """True if each row may have a node and its neighbours, of which none is the node itself."""
    first, *others = columns
    rows = np.stack([first.positions(ids.cells) for ids in others])
    is_own = (rows == np.arange(len(first.cells))).any()
    return bool(first.is_key and (rows >= 0).mean() >= MIN_COVERAGE and not is_own)


def smiles_column(table: Table) -> str:
    """Return the first column whose texts may be SMILES; empty if there is none."""
    texts = {name: cells for name, cells in table.columns.items() if pa.types.is_string(cells.type)}
    return next((name for name, cells in texts.items() if all_match(cells, _MOLECULES)), "")
