"""Write the files of a build from surveyed graphs: shards, split, page and, last, the card."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import numpy as np

from kmip_data import __version__
from kmip_data.files.changes import write_file
from kmip_data.files.digests import json_digest
from kmip_data.format.build_files import finish
from kmip_data.format.card import Card, ShardEntry
from kmip_data.format.record import GraphRecord
from kmip_data.format.schema import FORMAT_VERSION, Schema, bytes_per
from kmip_data.format.writer import MAX_SHARD_BYTES, Compression, encode_shard
from kmip_data.graphs.statistics import UnitStatistics, summarise
from kmip_data.saving.given_split import MASKS, RULE, Positions, masks_of, write_node_split, write_split
from kmip_data.saving.plain import PlainGraph
from kmip_data.saving.survey import Survey, to_record

_LIBRARIES: Final = ("numpy", "h5py", "torch-geometric")  #: whose versions the card has


def write_build(
    folder: Path,
    graphs: Iterable[PlainGraph],
    survey: Survey,
    split: Mapping[str, Positions] | None,
    compression: Compression,
    *,
    dataset: str,
    **about: Any,
) -> Card:
    """Write a build of ``graphs``, which ``survey`` has seen all of, into an empty folder.

    The build key is made of the name, the content of the graphs and how they are stored: the same
    graphs give the same bytes. ``about`` are other fields of the card.
    """
    masks = masks_of(next(iter(graphs))) if survey.graphs == 1 and split is None else None
    schema = survey.schema(without=frozenset(MASKS if masks else ()))
    content = survey.content_digest()
    identity = {
        "dataset": dataset,
        "content": content,
        "schema": schema.to_json(),
        "compression": compression,
        "format_version": FORMAT_VERSION,
    }
    key = json_digest(identity)[:12]
    seen: list[tuple[str, int, int]] = []  # key, nodes, edges

    def records() -> Iterator[GraphRecord]:
        for graph in graphs:
            record = to_record(graph, schema)
            seen.append((record.key, record.num_nodes, record.num_edges))
            yield record

    shards, statistics = write_shards(
        folder, records(), schema, dataset=dataset, build_key=key, compression=compression
    )
    splits = {}
    if chosen := masks or split:
        (folder / "splits").mkdir()
        if survey.graphs == 1:
            splits[RULE] = write_node_split(folder, chosen, *seen[0][1:])
        else:
            sizes = np.array([size for _, *size in seen], np.int64)
            splits[RULE] = write_split(folder, chosen, [key for key, *_ in seen], sizes)
    return finish(
        folder,
        schema,
        shards,
        splits,
        statistics,
        {},
        dataset=dataset,
        key=key,
        sample=False,
        complete=None,
        parameters={"k": schema.k, "limit": None, "compression": compression},
        pipeline_version=1,
        receipts=[],
        content_digest=content,
        versions={"kmip-data": __version__, **{name: metadata.version(name) for name in _LIBRARIES}},
        notes=["Written by kmip_data.save."],
        **about,
    )


def write_shards(
    folder: Path, records: Iterable[GraphRecord], schema: Schema, **options: Any
) -> tuple[list[ShardEntry], dict[str, Any]]:
    """Write records as shards of at most MAX_SHARD_BYTES (a larger graph is a shard of its own).

    ``options`` are those of :func:`~kmip_data.format.writer.encode_shard`; what is returned, shards and
    statistics, is for the card.
    """
    (folder / "shards").mkdir(parents=True)
    per_graph, per_node, per_edge = bytes_per(schema)
    shards: list[ShardEntry] = []
    counted = UnitStatistics(schema)
    waiting: list[GraphRecord] = []
    used = 0

    def write() -> None:
        done = encode_shard(waiting, schema, **options)
        file = f"shards/{len(shards):05d}.h5"
        write_file(folder / file, done.data)
        shards.append(ShardEntry(file=file, **done.facts))
        waiting.clear()

    for record in records:
        size = per_graph + record.num_nodes * per_node + record.num_edges * per_edge
        if waiting and used + size > MAX_SHARD_BYTES:
            write()
            used = 0
        waiting.append(record)
        counted.add(record)
        used += size
    write()
    return shards, summarise([counted.to_json()])
