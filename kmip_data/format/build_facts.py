"""Facts about a build, in the words that commands and the page of a build share."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kmip_data.format.card import Card, Repeats
from kmip_data.format.schema import MOLECULE_DOC, Column
from kmip_data.format.split_files import parts_in_order
from kmip_data.format.targets import target_column, target_type_of
from kmip_data.text import count_with_noun, human_bytes, list_names, one_line

MAX_REPEATS = 0.01  #: fraction of repeated items above which a build has a warning
_MAX_LINES = 1_500  #: characters of ignored columns and files, and of skipped records
#: Keys of the statistics of your own files that are shown elsewhere.
_SHOWN_ELSEWHERE = {"warnings", "features", "columns", "parameters"}
#: Level of a column -> number of its rows in an item with N nodes and E edges.
_ROW_COUNTS = {"graph": "1", "node": "N", "edge": "E"}
_CATEGORY_WORDS = {"False": "no", "True": "yes", "nan": "not stated"}


@dataclass(frozen=True)
class BuildFacts:
    """Facts about a build, read from its card."""

    card: Card

    def values(self, split: str) -> list[tuple[str, str]]:
        """Return label and value of each fact; equal items are counted between parts of ``split``."""
        card = self.card
        size = human_bytes(sum(shard.bytes for shard in card.shards))
        terms = [card.license.get(key) for key in ("name", "url", "notice")]
        facts = [
            *((unit, f"{card.counts[unit]:,}") for unit in ("graphs", "nodes", "edges")),
            ("shards", f"{len(card.shards):,} ({size})"),
            ("raw files", card.raw_file_status),
            ("license", "\n".join(one_line(str(term)) for term in terms if term)),
            ("key", card.key),
            ("parameters", card.parameters_and_sources),
            *self._target_and_classes(),
            *self._features(),
            *self._own_files(),
            *self._repeats(split),
        ]
        for caption, spread in self.spreads().items():
            facts.append(
                (caption, f"{spread['min']:,} to {spread['max']:,}, mean {spread['mean']:,.2f}")
            )
        return [(label, value) for label, value in facts if value]

    @property
    def class_counts(self) -> list[int]:
        """Number of items of each class; empty without classes."""
        counts: list[int] = self.card.statistics.get("classes", {}).get("total", [])
        return counts

    @property
    def class_names(self) -> list[str]:
        """Name of each class or label, or its number."""
        target = self.card.schema_.y_column
        names = self.card.class_names
        if target is not None and target.shape:
            names = [*target.fields]
        numbers = [*map(str, range(len(self.class_counts)))]
        return names if len(names) == len(numbers) else numbers

    def class_counts_by_part(self, split: str) -> dict[str, list[int]]:
        """Return the number of items of each class in each part of a split; empty without classes."""
        if not self.class_counts:  # counts of an added split alone
            return {}
        counts = self.card.statistics.get("classes", {}).get("splits", {}).get(split, {})
        return {part: counts[part] for part in parts_in_order(counts)}

    def parts(self, split: str) -> list[list[object]]:
        """Return name, graphs, nodes, edges and digest of each part, and the nodes in no part."""
        rows: list[list[object]] = []
        unassigned = self.card.counts["nodes"]
        for part, counts in self.card.splits[split].ordered_parts():
            unassigned -= counts.nodes
            rows.append([part, counts.graphs, counts.nodes, counts.edges, counts.digest[:12]])
        if self.card.counts["graphs"] == 1 and unassigned:  # a buffer between blocks of the map
            rows.append(["in none", 1, unassigned, None, ""])
        return rows

    def classes(self, split: str) -> list[tuple[str, ...]]:
        """Return a header, and number, name, count and share of each class in all and each part.

        Labels of which an item may have several have no share.
        """
        parts = {"all": self.class_counts, **self.class_counts_by_part(split)}
        target = self.card.schema_.y_column
        form = "{:,} ({:.2%})"
        if target is not None and target.shape:
            form = "{:,}"
        columns = []
        for counts in parts.values():
            total = max(1, sum(counts))
            columns.append([form.format(count, count / total) for count in counts])
        numbers = map(str, range(len(columns[0])))
        return [("", "class", *parts), *zip(numbers, self.class_names, *columns, strict=True)]

    def columns(self) -> Iterator[tuple[str, str, str, str, str]]:
        """Yield attribute, key in a shard, dtype, shape and content of each column, view and edges."""
        schema = self.card.schema_
        for column in schema.columns:
            dtype = column.stored
            if column.stored != column.presented:
                dtype = f"{column.stored} → {column.presented}"
            shape = "×".join(map(str, (_ROW_COUNTS[column.level], *column.shape)))
            content = column.doc
            if column.unit:
                content = f"{content} [{column.unit}]".strip()
            if not column.finite:
                content = f"{content} (may be NaN)".strip()
            names = ", ".join(field_names(self.card, column))
            content = ": ".join(filter(None, [content, names]))
            yield column.attribute, column.key, dtype, shape, content
        for view in schema.views:
            source = f"{view.source}[:, {view.start}:{view.stop}]"
            yield view.attribute, source, "view", "", ""
        dtype = f"{schema.index_dtype} → int64"
        if schema.edges == "neighbor":
            content = f"row i: the {schema.k} sources of node i, nearest first"
            yield "edge_index", "edge/neighbor", dtype, f"N×{schema.k}", content
        elif schema.edges == "index":
            content = "sources and targets, as indices inside the graph"
            yield "edge_index", "edge/index", dtype, "2×E", content

    def spreads(self) -> dict[str, dict[str, Any]]:
        """Return the statistics of sizes and degrees by caption; of one graph, only of degrees."""
        keys = ["in_degree", "out_degree"]
        if self.card.counts["graphs"] > 1:
            keys = ["nodes_per_graph", "edges_per_graph", *keys]
        captions = {key: key.replace("_per_", "/").replace("_", " ") for key in keys}
        statistics = self.card.statistics
        return {captions[key]: statistics[key] for key in keys if statistics.get(key)}

    def _target_and_classes(self) -> Iterator[tuple[str, str]]:
        target = target_column(self.card.schema_)
        if target is None:
            yield "target", "none: a trained run can predict it"
            return
        task = target_type_of(target)
        names = target.fields or filter(None, [target.doc])
        yield "target", _with_names(f"{task} of each {target.level}", names)
        if counts := self.class_counts:
            pairs = zip(self.class_names, counts, strict=True)
            label = "positives" if task == "multilabel" else "classes"
            listed = (f"{name}: {count:,}" for name, count in pairs)
            yield label, _with_names(f"{len(counts):,}", listed)

    def _features(self) -> Iterator[tuple[str, str]]:
        for column in self.card.schema_.columns:
            if column.attribute in {"x", "edge_attr", "graph_attr"}:
                names = field_names(self.card, column)
                yield f"{column.level} features", _with_names(f"{math.prod(column.shape):,}", names)

    def _own_files(self) -> Iterator[tuple[str, str]]:
        """Yield the facts about your own files, and the records that were skipped."""
        for name, value in (self.card.statistics.get("files") or {}).items():
            if name in _SHOWN_ELSEWHERE:
                continue
            text = f"{value:,}" if isinstance(value, int) else one_line(str(value))
            if isinstance(value, list):
                separator = "\n" if name == "ignored" else ", "
                text = list_names(map(str, value), _MAX_LINES, separator=separator) or "none"
            yield name.replace("_", " "), text
        if skipped := self.card.statistics.get("skipped"):
            reasons = (f"{key}: {reason}" for key, reason in skipped)
            listed = list_names(reasons, _MAX_LINES, separator="\n")
            yield "skipped", f"{count_with_noun(len(skipped), 'record')}\n{listed}"

    def _repeats(self, split: str) -> Iterator[tuple[str, str]]:
        """Yield the numbers of equal items of your own data, and warnings above 1 %."""
        counts = self.card.statistics.get("repeats", {}).get(split)
        if counts is None:
            return
        repeats = Repeats.model_validate(counts)
        unit = "graph"
        if self.card.counts["graphs"] == 1:
            unit = "node"
        elif any(column.doc == MOLECULE_DOC for column in self.card.schema_.columns):
            unit = "molecule"
        items = count_with_noun(repeats.test, unit)
        in_train = f"{repeats.test_in_train:,} of {items} of test also in train"
        other = f"{repeats.other_target:,} of {repeats.items:,} equal one with another target"
        yield "repeats", f"{in_train}; {other}"
        if repeats.test_in_train > MAX_REPEATS * repeats.test:
            grouping = "scaffold split" if unit == "molecule" else "split by a group column"
            remedy = f"keep one row of each, or a {grouping} keeps them in one part"
            yield "warning", f"{in_train}, so that test flatters the model; {remedy}"
        if repeats.other_target > MAX_REPEATS * repeats.items:
            yield "warning", f"{other}, so that no model can be right about all of them"


def _with_names(text: str, names: Iterable[str]) -> str:
    listed = list_names(names, 250)
    return f"{text} ({listed})" if listed else text


def field_names(card: Card, column: Column) -> tuple[str, ...]:
    """Return the names of a column's fields, with the categories of a city's one-hot fields."""
    if column.key != "node/x" or "city" not in card.statistics:
        return column.fields
    return tuple(_field_name(field, card.vocabulary) for field in column.fields)


def _field_name(field: str, vocabulary: Mapping[str, Sequence[object]]) -> str:
    """Name a one-hot field by its category, which may be a list of values of merged streets.

    >>> _field_name("highway_0", {"highway": ["footway"]})
    'highway footway'
    >>> _field_name("lanes_0", {"lanes": ["['2', '3']"]}), _field_name("reversed [False, True]", {})
    ('lanes 2 and 3', 'reversed no and yes')
    >>> _field_name("lanes_0", {"lanes": ["nan"]}), _field_name("lanes_1", {"lanes": ["nan"]})
    ('lanes not stated', 'lanes unused (1)')
    """
    match = re.fullmatch(r"([a-z]+)_(\d+)", field)
    if match and match[1] in vocabulary:
        categories = vocabulary[match[1]]
        position = int(match[2])
        category = categories[position] if position < len(categories) else f"unused ({position})"
        field = f"{match[1]} {category}"
    key, _, value = field.partition(" ")
    if re.fullmatch(r"True|False|nan|\[.*[,'].*\]", value):
        values = re.findall(r"[^\[\]', ][^\[\]',]*", value)
        return f"{key} {' and '.join(_CATEGORY_WORDS.get(value, value) for value in values)}"
    return field
