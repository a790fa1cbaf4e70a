"""Items of your own data that occur twice: in train and in test, or with different targets.

An item is a graph, or a node of a single graph. Graphs are equal if their arrays are, in the same
order: the nodes of one of them numbered in another way make another item. Molecules of SMILES are equal
if their canonical SMILES are. Nodes are equal if they have the same features and the same neighbours, so
that no network can tell them apart.

An item has a digest of 64 bits: sums of mixed words, so that its cost is linear in the values.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from kmip_data.arrays import I64, U8, U64, Array
from kmip_data.format.reader import Shard
from kmip_data.format.schema import EDGE_INDEX, MOLECULE_DOC, NODE_ID, Column, Schema
from kmip_data.format.split_files import NO_PART, PART_CODES
from kmip_data.pipelines.base import AnyPipeline, RecordTable, Split

_BLOCK_VALUES = 2**18  #: values converted to words at a time, which bounds the memory
_ODD = np.uint64(0x9E3779B97F4A7C15)


RepeatCounts = dict[str, int]  #: see :func:`count_repeats`


class ItemDigests(NamedTuple):
    """Digests of all items, and of their targets."""

    items: U64  #: (n,)
    targets: U64  #: (n,)


def digest_items(shards: Sequence[Shard], schema: Schema, *, of_nodes: bool) -> ItemDigests | None:
    """Return the digests of all graphs, or of the nodes of the only one.

    ``None`` if there is no target, or if nodes have no features.
    """
    target = schema.y_column
    if target is None:
        return None
    inputs = [
        column
        for column in schema.columns
        if column.attribute not in {"y", *schema.split_attributes} and column.key != NODE_ID
    ]
    if of_nodes:
        (shard,) = shards
        if not any(column.level == "node" for column in inputs):
            return None
        return ItemDigests(
            _digest_nodes(shard, inputs),
            _row_digests(shard.mapped_view(target.key), target.key),
        )
    molecule = next((column for column in schema.columns if column.doc == MOLECULE_DOC), None)
    items = []
    for shard in shards:
        if molecule is not None:
            items.append(shard.mapped_view(molecule.key).view(np.uint64))
            continue
        sizes = np.diff(shard.node_ptr).astype(np.uint64)
        items.append(
            _mixed(sizes) + _digest_graphs(shard, inputs, has_edges=schema.edges == "index")
        )
    targets = [_digest_graphs(shard, [target], has_edges=False) for shard in shards]
    return ItemDigests(np.concatenate(items), np.concatenate(targets))


class RepeatCounter:
    """Count of equal items of the splits of one build; the digests are computed once."""

    def __init__(self, pipeline: AnyPipeline, records: RecordTable, schema: Schema) -> None:
        self._is_counted = pipeline.counts_repeats
        self._records = records
        self._schema = schema
        self._digests: dict[bool, ItemDigests | None] = {}

    def count(self, split: Split) -> RepeatCounts | None:
        """Return the counts of a split; ``None`` without a target or without features of nodes."""
        if not self._is_counted:
            return None
        of_nodes = split.part_codes is not None
        if of_nodes not in self._digests:
            self._digests[of_nodes] = digest_items(
                self._records.shards, self._schema, of_nodes=of_nodes
            )
        digests = self._digests[of_nodes]
        if digests is None:
            return None
        codes = split.part_codes
        if codes is None:
            codes = np.full(len(self._records.keys), NO_PART, np.uint8)
            for part, rows in split.parts.items():
                codes[np.asarray(rows, np.int64)] = PART_CODES[part]
        return count_repeats(digests, codes)


def count_repeats(digests: ItemDigests, codes: U8) -> RepeatCounts:
    """Count the items of a split, given the part of each (n,), that equal another one.

    ``test_in_train`` of the ``test`` items equal an item of train; ``other_target`` of all ``items``
    in a part equal one with another target.
    """
    train = digests.items[codes == PART_CODES["train"]]
    test = digests.items[codes == PART_CODES["test"]]
    used = codes != NO_PART
    items = digests.items[used]
    order = np.argsort(items)
    starts = np.flatnonzero(np.diff(items[order], prepend=~items[order[:1]]))
    other_target = 0
    if len(items):
        targets = digests.targets[used][order]
        differs = np.minimum.reduceat(targets, starts) != np.maximum.reduceat(targets, starts)
        other_target = int(np.diff(starts, append=len(items))[differs].sum())
    return {
        "test": len(test),
        "test_in_train": int(np.isin(test, train).sum()),
        "items": len(items),
        "other_target": other_target,
    }


def _digest_graphs(shard: Shard, columns: Sequence[Column], *, has_edges: bool) -> U64:
    """Return the digest of each graph of a shard: its arrays, with the position of each row."""
    digests: U64 = np.zeros(shard.graphs, np.uint64)
    for column in columns:
        rows = _row_digests(shard.mapped_view(column.key), column.key)
        if column.level == "graph":
            digests += rows
        else:
            digests += _sums_in_order(
                rows, shard.node_ptr if column.level == "node" else shard.edge_ptr
            )
    if has_edges:
        digests += _sums_in_order(
            _row_digests(shard.mapped_view(EDGE_INDEX).T, EDGE_INDEX), shard.edge_ptr
        )
    return digests


def _digest_nodes(shard: Shard, columns: Sequence[Column]) -> U64:
    """Return the digest of each node: its features, and its neighbours in any order."""
    digests: U64 = np.zeros(shard.nodes, np.uint64)
    for column in columns:
        if column.level == "node":
            digests += _row_digests(shard.mapped_view(column.key), column.key)
    if shard.schema.edges != "index":  # the neighbours of points follow from their positions
        return digests
    numbers = _mixed(np.arange(shard.nodes, dtype=np.uint64))
    edge_columns = [column for column in columns if column.level == "edge"]
    for start, stop in _blocks(shard.edges, 1):
        source, target = shard.mapped_view(EDGE_INDEX)[:, start:stop].astype(np.int64)
        edges = np.zeros(len(source), np.uint64)
        for column in edge_columns:
            edges += _row_digests(shard.mapped_view(column.key)[start:stop], column.key)
        np.add.at(digests, target, _mixed(numbers[source] + edges))
        np.add.at(digests, source, _mixed(numbers[target] + edges + _ODD))
    return digests


def _row_digests(array: Array, name: str) -> U64:
    """Return the digest of each row (n,) of an array (n, …) called ``name``."""
    rows = array.reshape(len(array), math.prod(array.shape[1:]))
    salt = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")
    weights = _mixed(np.arange(rows.shape[1], dtype=np.uint64) + np.uint64(salt))
    digests: U64 = np.empty(len(rows), np.uint64)
    for start, stop in _blocks(*rows.shape):
        block = rows[start:stop]
        if block.dtype.kind == "f":
            words = (block.astype(np.float64) + 0.0).view(np.uint64)  # -0.0 becomes 0.0
        else:
            words = block.astype(np.int64).view(np.uint64)
        digests[start:stop] = _mixed(words + weights).sum(axis=1, dtype=np.uint64)
    return _mixed(digests + np.uint64(salt))


def _sums_in_order(rows: U64, pointers: I64) -> U64:
    """Return a digest of the rows of each graph that depends on their order."""
    positions = np.arange(len(rows)) - np.repeat(pointers[:-1], np.diff(pointers))
    sums = np.cumsum(_mixed(rows + positions.astype(np.uint64) * _ODD), dtype=np.uint64)
    sums = np.concatenate([np.zeros(1, np.uint64), sums])
    return _mixed(sums[pointers[1:]] - sums[pointers[:-1]])


def _mixed(words: U64) -> U64:
    """Return words (…) mixed by a bijection: the last step of SplitMix64 (Steele et al., 2014)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: U64 = words ^ (words >> np.uint64(31))
    return mixed


def _blocks(rows: int, width: int) -> Iterator[tuple[int, int]]:
    """Yield bounds of blocks of rows with a limited number of values."""
    size = max(1, _BLOCK_VALUES // max(width, 1))
    for start in range(0, rows, size):
        yield start, min(start + size, rows)
