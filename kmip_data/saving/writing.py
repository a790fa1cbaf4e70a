"""Surveyed graphs to the files of a build: shards, split, page and, last, the card."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path

import numpy as np

import kmip_data
from kmip_data.format.card import CARD_NAME, Card, ShardEntry
from kmip_data.format.card_page import PAGE_NAME, render_card
from kmip_data.format.hdf5.file import canonical_json
from kmip_data.format.schema import FORMAT_VERSION, Schema
from kmip_data.format.writer import MAX_SHARD_BYTES, Compression, bytes_per, encode_shard, write_file
from kmip_data.graphs.statistics import UnitStatistics, summarise
from kmip_data.saving.given_split import MASKS, RULE, Positions, masks_of, write_node_split, write_split
from kmip_data.saving.plain import PlainGraph
from kmip_data.saving.survey import Survey, to_record


def write_build(
    folder: Path,
    graphs: Iterable[PlainGraph],
    survey: Survey,
    *,
    name: str,
    title: str,
    split: Mapping[str, Positions] | None,
    class_names: Sequence[str],
    license_name: str,
    citation: str,
    compression: Compression | None,
) -> Card:
    """Write a build of ``graphs``, which ``survey`` has seen all of, into an empty folder.

    The build key is made of the name, the content of the graphs and how they are stored: the same
    graphs give the same bytes.
    """
    masks = masks_of(next(iter(graphs))) if survey.graphs == 1 and split is None else None
    schema = survey.schema(without=frozenset(MASKS if masks else ()))
    content = survey.content_digest()
    identity = {
        "dataset": name,
        "content": content,
        "schema": schema.to_json(),
        "compression": compression,
        "format_version": FORMAT_VERSION,
    }
    key = hashlib.sha256(canonical_json(identity).encode()).hexdigest()[:12]
    (folder / "shards").mkdir()
    shards: list[ShardEntry] = []
    keys: list[str] = []
    sizes: list[tuple[int, int]] = []
    counted = UnitStatistics(schema)
    for part in _dealt(graphs, schema):
        records = [to_record(graph, schema) for graph in part]
        done = encode_shard(records, schema, dataset=name, build_key=key, compression=compression)
        file = f"shards/{len(shards):05d}.h5"
        write_file(folder / file, done.data)
        counts = {"graphs": done.graphs, "nodes": done.nodes, "edges": done.edges}
        shards.append(ShardEntry(file=file, sha256=done.sha256, bytes=len(done.data), **counts))
        for record in records:
            counted.add(record)
            keys.append(record.key)
            sizes.append((record.num_nodes, record.num_edges))
    splits = {}
    if survey.graphs == 1 and (masks or split):
        splits[RULE] = write_node_split(folder, masks or split or {}, *sizes[0])
    elif split:
        splits[RULE] = write_split(folder, split, keys, np.array(sizes, np.int64))
    statistics = summarise([counted.to_json()])
    statistics["classes"] = {"total": statistics["classes"], "splits": {}}
    card = Card(
        dataset=name,
        title=title,
        key=key,
        sample=False,
        complete=None,
        parameters={"k": schema.k, "limit": None, "compression": compression},
        pipeline_version=1,
        format_version=FORMAT_VERSION,
        license={"name": license_name, "url": "", "notice": ""},
        citation=citation,
        receipts=[],
        content_digest=content,
        data_schema=json.loads(schema.to_json()),
        default_split=next(iter(splits), ""),
        class_names=list(class_names),
        shards=shards,
        splits=splits,
        counts={count: statistics.pop(count) for count in ("graphs", "nodes", "edges")},
        statistics=statistics,
        versions={
            "kmip-data": kmip_data.__version__,
            **{package: metadata.version(package) for package in ("numpy", "h5py", "torch-geometric")},
        },
        notes=["Written by kmip_data.save."],
    )
    for shard in shards:  # readers map them and trust that they do not change
        path = folder / shard.file
        path.chmod(path.stat().st_mode & ~0o222)
    write_file(folder / PAGE_NAME, render_card(card).encode())
    write_file(folder / CARD_NAME, card.to_json().encode())
    return card


def _dealt(graphs: Iterable[PlainGraph], schema: Schema) -> Iterator[list[PlainGraph]]:
    """Deal graphs to shards of at most MAX_SHARD_BYTES (a larger graph is a shard of its own)."""
    per_graph, per_node, per_edge = bytes_per(schema)
    shard: list[PlainGraph] = []
    used = 0
    for graph in graphs:
        size = per_graph + graph.num_nodes * per_node + (graph.num_edges or 0) * per_edge
        if shard and used + size > MAX_SHARD_BYTES:
            yield shard
            shard, used = [], 0
        shard.append(graph)
        used += size
    yield shard
