"""Tables of a build: sizes, degrees, classes, and the columns of a city."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from kmip_data.builds.home import Build
from kmip_data.drawing.maps import ATTRIBUTION, CityMap, read_city_map
from kmip_data.format.build_files import SPREADS
from kmip_data.format.card import Card
from kmip_data.format.splits import in_order
from kmip_data.graphs.city_columns import is_city


class Table(NamedTuple):
    """Headings, and rows of numbers and text, with a ``note`` below."""

    header: Sequence[str]
    rows: Sequence[Sequence[object]]
    note: str = ""


def tables_of(build: Build) -> list[Table]:
    """Return the tables of a build that have rows.

    Raises ``DamagedInput`` where a shard or split of a city is missing or damaged.
    """
    card = build.card
    tables = [_sizes(card), _spreads(card), _classes(card)]
    if is_city(card):
        tables += _of_city(build)
    return [table for table in tables if table.rows]


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


def class_eccentricity(city: CityMap) -> Iterator[tuple[int, int, float, float, float]]:
    """Give each class that occurs, its number of intersections, and their least, mean and largest value."""
    for number in range(city.num_classes):
        found = city.eccentricity[city.classes == number].astype(np.float64)
        if len(found):
            yield number, len(found), float(found.min()), float(found.mean()), float(found.max())


def column_spreads(city: CityMap) -> Iterator[tuple[str, float, float, float, float, float]]:
    """Give name, least, mean, largest value, standard deviation and share of values that are not zero.

    Over all intersections, not only the train nodes that standardise the columns; identifiers are left out.
    """
    for name, values in city.columns.items():
        if values.dtype.kind == "f" and len(values):
            numbers = values.astype(np.float64)
            spread = numbers.min(), numbers.mean(), numbers.max(), numbers.std(), np.mean(numbers != 0)
            yield name, *map(float, spread)  # type: ignore[misc] # five


def _of_city(build: Build) -> Iterator[Table]:
    city = read_city_map(build)
    unit = f"[{city.unit}]"
    header = ["class", "count", f"eccentricity {unit}: least", "mean", "most"]
    rows = [[c, n, *(f"{value:,.1f}" for value in spread)] for c, n, *spread in class_eccentricity(city)]
    yield Table(header, rows)
    yield Table(
        ["column", "least", "mean", "most", "deviation", "not zero"],
        [
            [name, *(f"{value:,.4g}" for value in spread), f"{share:.1%}"]
            for name, *spread, share in column_spreads(city)
        ],
        ATTRIBUTION,
    )
