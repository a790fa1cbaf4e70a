"""Surveyed graphs to the files of a build: shards, split, page and, last, the card."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path

import numpy as np

from kmip_data import __version__
from kmip_data.files.digests import json_digest
from kmip_data.format.build_files import finish
from kmip_data.format.card import Card, ShardEntry
from kmip_data.format.schema import FORMAT_VERSION, Schema
from kmip_data.format.writer import MAX_SHARD_BYTES, Compression, bytes_per, encode_shard, write_file
from kmip_data.graphs.statistics import UnitStatistics, summarise
from kmip_data.saving.given_split import MASKS, RULE, Positions, masks_of, write_node_split, write_split
from kmip_data.saving.plain import PlainGraph
from kmip_data.saving.survey import Survey, to_record


# Long: a card has this many fields.
def write_build(  # noqa: PLR0913 -- to become one object
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
    compression: Compression,
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
    key = json_digest(identity)[:12]
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
        shards.append(ShardEntry(file=file, **done.facts))
        for record in records:
            counted.add(record)
            keys.append(record.key)
            sizes.append((record.num_nodes, record.num_edges))
    splits = {}
    if masks or split:
        (folder / "splits").mkdir()
    if survey.graphs == 1 and (masks or split):
        splits[RULE] = write_node_split(folder, masks or split or {}, *sizes[0])
    elif split:
        splits[RULE] = write_split(folder, split, keys, np.array(sizes, np.int64))
    return finish(
        folder,
        schema,
        shards,
        splits,
        summarise([counted.to_json()]),
        {},
        dataset=name,
        title=title,
        key=key,
        sample=False,
        complete=None,
        parameters={"k": schema.k, "limit": None, "compression": compression},
        pipeline_version=1,
        license={"name": license_name, "url": "", "notice": ""},
        citation=citation,
        receipts=[],
        content_digest=content,
        class_names=list(class_names),
        versions={
            "kmip-data": __version__,
            **{package: metadata.version(package) for package in ("numpy", "h5py", "torch-geometric")},
        },
        notes=["Written by kmip_data.save."],
    )


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
