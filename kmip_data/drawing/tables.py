"""Tables of a build, from its card: sizes, degrees and classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kmip_data.format.build_files import SPREADS
from kmip_data.format.card import Card
from kmip_data.format.splits import in_order


class Table(NamedTuple):
    """Headings, and rows of numbers and text."""

    header: Sequence[str]
    rows: Sequence[Sequence[object]]


def tables_of(card: Card) -> list[Table]:
    """Return the tables of a build that have rows."""
    return [table for table in (_sizes(card), _spreads(card), _classes(card)) if table.rows]


def _sizes(card: Card) -> Table:
    """Counts of graphs, nodes and edges, in all and in each part of each split."""
    whole, edges = card.counts["nodes"], card.counts["edges"]
    rows: list[list[Any]] = [["", "all", card.counts["graphs"], whole, edges]]
    for name, split in card.splits.items():
        parts = split.in_order()
        # Where nodes are split, each part has the whole graph around its nodes.
        of_nodes = len(parts) > 1 and all(counts.edges == edges for _, counts in parts)
        for part, counts in parts:
            rows.append([name, part, counts.graphs, counts.nodes, None if of_nodes else counts.edges])
        if of_nodes and (left := whole - sum(counts.nodes for _, counts in parts)):
            rows.append([name, "in none", 1, left, None])
    for row in rows:
        row.append(f"{row[3] / whole:.1%}" if whole else None)
        row.append(f"{row[4] / row[3]:.2f}" if row[3] and row[4] is not None else None)
    return Table(["split", "part", "graphs", "nodes", "edges", "of all nodes", "edges/node"], rows)


def _spreads(card: Card) -> Table:
    found = [(title, card.statistics.get(name)) for name, title in SPREADS.items()]
    rows = [[title, of["min"], f"{of['mean']:,.2f}", of["max"]] for title, of in found if of]
    return Table(["", "least", "mean", "most"], rows)


def _classes(card: Card) -> Table:
    """Count of each class, its share in all records and in each part."""
    counted = card.statistics.get("classes") or {}
    columns = {"all": counted.get("total") or []}
    for name, parts in counted.get("splits", {}).items():
        columns |= {f"{part} ({name})": parts[part] for part in in_order(parts)}
    names = [*card.class_names, *[""] * len(columns["all"])] if card.class_names else []
    rows = [
        [
            number,
            *names[number : number + 1],
            count,
            *(f"{part[number] / max(1, sum(part)):.2%}" for part in columns.values()),
        ]
        for number, count in enumerate(columns["all"])
    ]
    return Table(["class", *(["name"] if names else []), "count", *columns], rows)
