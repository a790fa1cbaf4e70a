"""Differences of values and edges, counted over blocks of paired graphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from kmip_data.arrays import I64, Array
from kmip_data.reading.gather import EDGE, LEVELS, NODE
from kmip_data.saving.compared_blocks import EDGES, Block, ComparedColumn

MAX_EXAMPLES = 3
Kind = Literal["counts", "column", "shape", "dtype", "graphs", "order", "values", "edges"]


@dataclass(frozen=True)
class Difference:
    """One difference, with its numbers (a pair is of A and B) and the first examples."""

    kind: Kind
    column: str  #: attribute or split; empty for the graphs themselves
    numbers: Mapping[str, object]
    examples: Sequence[Mapping[str, object]] = ()


def match(a: Array, b: Array) -> tuple[I64, I64]:
    """Return the positions of equal values in ``a`` (n,), ascending, and ``b`` (m,).

    The k-th of several equal values is matched with the k-th.
    """
    _, numbers = np.unique(np.concatenate([a, b]), return_inverse=True)
    _, at_a, at_b = np.intersect1d(
        _distinguish_repeats(numbers[: len(a)]),
        _distinguish_repeats(numbers[len(a) :]),
        assume_unique=True,
        return_indices=True,
    )
    ascending = np.argsort(at_a)
    return at_a[ascending], at_b[ascending]


def _distinguish_repeats(numbers: I64) -> I64:
    """Return distinct values (n,), where the k-th of equal numbers depends on it and k alone."""
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    positions = np.arange(len(ordered))
    is_repeat = np.zeros(len(ordered), bool)
    is_repeat[1:] = ordered[1:] == ordered[:-1]
    repeat = np.empty(len(ordered), np.int64)
    repeat[order] = positions - np.maximum.accumulate(np.where(is_repeat, 0, positions))
    return numbers.astype(np.int64) << 31 | repeat


class ValueTally:
    """Rows of a column that differ."""

    def __init__(self, column: ComparedColumn) -> None:
        self._column = column
        self._rows = 0
        self._graphs = 0
        self._largest = 0.0
        self._examples: list[dict[str, object]] = []

    def add(self, a: Block, b: Block, name: str, aligned: tuple[I64, I64]) -> None:
        """Add the rows of two blocks; ``aligned`` (m,) are the edges that both have."""
        rows_a = a.columns[name]
        rows_b = b.columns[name]
        level = LEVELS[self._column.level]
        if level == EDGE:
            rows_a = rows_a[aligned[0]]
            rows_b = rows_b[aligned[1]]
        is_equal = rows_a == rows_b
        if self._column.dtype.kind == "f":
            is_equal |= np.isnan(rows_a) & np.isnan(rows_b)
        differing = np.flatnonzero(~is_equal.all(axis=1))
        if not len(differing):
            return

        rows = aligned[0][differing] if level == EDGE else differing
        graphs = a.graph_of(level, rows)
        self._rows += len(rows)
        self._graphs += len(np.unique(graphs))
        values_a = rows_a[differing].astype(float)
        with np.errstate(invalid="ignore"):
            distances = np.abs(values_a - rows_b[differing])
        finite = distances[np.isfinite(distances)]
        self._largest = max(self._largest, float(finite.max(initial=0)))
        for position in range(min(len(rows), MAX_EXAMPLES - len(self._examples))):
            row, graph = int(rows[position]), int(graphs[position])
            example: dict[str, object] = {"graph of A": int(a.records[graph])}
            if level == EDGE:
                example["edge"] = a.ends(row)
            elif level == NODE:
                example["node"] = row - int(a.first[NODE, graph])
            pair = rows_a[differing[position]], rows_b[differing[position]]
            if self._column.is_text:
                example["values"] = [
                    text.tobytes().rstrip(b"\0").decode("utf-8", "replace") for text in pair
                ]
            else:
                component = int(np.argmin(is_equal[differing[position]]))
                if self._column.width > 1:
                    example["component"] = component
                example["values"] = [values[component].item() for values in pair]
            self._examples.append(example)

    def differences(self, name: str) -> Iterator[Difference]:
        """Yield the difference of the values, if there is one."""
        if not self._rows:
            return
        numbers: dict[str, object] = {"rows": self._rows, "graphs": self._graphs}
        if not self._column.is_text:
            numbers["largest difference"] = self._largest
        yield Difference("values", name, numbers, self._examples)


class EdgeTally:
    """Edges that differ, as multisets of pairs of nodes."""

    def __init__(self) -> None:
        self._numbers = Counter[str]()
        self._examples: dict[str, Mapping[str, object]] = {}

    def add(self, a: Block, b: Block) -> tuple[I64, I64]:
        """Add the edges of two blocks; return the positions (m,) of those that both have."""
        at_a, at_b = match(a.keys, b.keys)
        rest_a = np.delete(np.arange(len(a.keys)), at_a)
        rest_b = np.delete(np.arange(len(b.keys)), at_b)
        incomplete = np.union1d(a.graph_of(EDGE, rest_a), b.graph_of(EDGE, rest_b))
        has_other_order = a.order[at_a] != b.order[at_b]
        has_other_order &= np.isin(a.graph_of(EDGE, at_a), incomplete, invert=True)
        moved = a.graph_of(EDGE, at_a[has_other_order])
        if len(moved):
            title = "graphs with edges in another order"
            self._numbers[title] += len(np.unique(moved))
            self._examples.setdefault(title, {"graph of A": int(a.records[moved[0]])})
        self._count("A", a, rest_a, b, rest_b)
        self._count("B", b, rest_b, a, rest_a)
        return at_a, at_b

    def _count(self, side: str, block: Block, rest: I64, other: Block, other_rest: I64) -> None:
        """Count the edges ``rest`` (m,) that the other side lacks, by what it has instead."""
        source, target = np.divmod(block.keys[rest], block.nodes)
        reversed_keys = target * block.nodes + source
        kinds = np.select(
            [
                np.isin(block.keys[rest], other.keys),
                source == target,
                np.isin(reversed_keys, other.keys[other_rest]),
                np.isin(reversed_keys, other.keys),
            ],
            ["repeats of edges", "loops", "reversed edges", "reverses of edges"],
            "edges",
        )
        for kind in np.unique(kinds).tolist():
            edges = rest[kinds == kind]
            title = f"{kind} only in {side}"
            self._numbers[title] += len(edges)
            graph = int(block.records[block.graph_of(EDGE, edges[0])])
            example = {f"graph of {side}": graph, title: block.ends(int(edges[0]))}
            self._examples.setdefault(title, example)

    def differences(self) -> Iterator[Difference]:
        """Yield the difference of the edges, if there is one."""
        if self._numbers:
            examples = list(self._examples.values())
            yield Difference("edges", EDGES, dict(self._numbers), examples)
