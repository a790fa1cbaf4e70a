"""Small builds for reading tests, written directly from records."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kmip_data.builds.home import Build
from kmip_data.files.changes import write_file
from kmip_data.format.card import CARD_NAME, Card, ShardEntry, SplitEntry, SplitPart
from kmip_data.format.schema import Column, Schema, View
from kmip_data.format.splits import encode_node_split, encode_split
from kmip_data.format.writer import GraphRecord, encode_shard
from kmip_data.manifest import dataset_names


def s3dis_schema(k: int = 4) -> Schema:
    """The schema of S3DIS with another k."""
    return Schema(
        columns=(
            Column(key="node/x", attribute="x", stored="float32", presented="float32", shape=(9,)),
            Column(key="node/y", attribute="y", stored="uint8", presented="int64", num_classes=13),
        ),
        views=(View(attribute="pos", source="node/x", start=0, stop=3),),
        edges="neighbor",
        k=k,
        max_nodes=4096,
    )


def s3dis_records(
    graphs: int, *, nodes: tuple[int, int] = (6, 40), k: int = 4, seed: int = 0
) -> list[GraphRecord]:
    """Random graphs of ``nodes`` nodes with a table of k random distinct sources each."""
    rng = np.random.default_rng(seed)
    records = []
    for g in range(graphs):
        n = int(rng.integers(*nodes)) if nodes[0] < nodes[1] else nodes[0]
        table = np.argsort(rng.random((n, n)), axis=1)[:, :k] if n < 200 else rng.integers(0, n, (n, k))
        records.append(
            GraphRecord(
                key=f"Area_{g % 6 + 1}_room_1/{g:06d}",
                num_nodes=n,
                columns={
                    "node/x": rng.random((n, 9), dtype=np.float32),
                    "node/y": rng.integers(0, 13, n).astype(np.uint8),
                },
                neighbor=table.astype(np.uint16),
            )
        )
    return records


def write_build(
    folder: Path,
    records: Sequence[GraphRecord],
    schema: Schema,
    *,
    dataset: str = "s3dis",
    per_shard: int = 7,
    parts: Mapping[str, Sequence[int]] | None = None,
    node_code: np.ndarray[Any, Any] | None = None,
    compression: Any = None,
    sample: bool = False,
    complete: bool | None = None,
    parameters: Mapping[str, Any] | None = None,
    class_names: Sequence[str] = (),
) -> Build:
    """Write shards, the split ``default`` and the card."""
    key = hashlib.sha256(f"{dataset}{parameters}".encode()).hexdigest()[:12]
    (folder / "shards").mkdir(parents=True)
    (folder / "splits").mkdir()
    shards, splits = [], {}
    for i, start in enumerate(range(0, len(records), per_shard)):
        done = encode_shard(
            records[start : start + per_shard],
            schema,
            dataset=dataset,
            build_key=key,
            compression=compression,
        )
        name = f"shards/{i:05d}.h5"
        write_file(folder / name, done.data)
        counts = {"graphs": done.graphs, "nodes": done.nodes, "edges": done.edges}
        shards.append(ShardEntry(file=name, sha256=done.sha256, bytes=len(done.data), **counts))
    if parts is not None or node_code is not None:
        if parts is not None:
            keys = [record.key for record in records]
            arrays = {name: np.asarray(part, np.int64) for name, part in parts.items()}
            data, digests = encode_split(arrays, rule="given", parameters={}, keys=keys)
            sizes = {name: len(part) for name, part in parts.items()}
        else:
            data, digests = encode_node_split(node_code, rule="given", parameters={})
            sizes = dict.fromkeys(digests, 1)
        write_file(folder / "splits/default.h5", data)
        splits["default"] = SplitEntry(
            file="splits/default.h5",
            sha256=hashlib.sha256(data).hexdigest(),
            rule="given",
            parameters={},
            parts={
                name: SplitPart(graphs=sizes[name], nodes=0, edges=0, digest=digest)
                for name, digest in digests.items()
            },
        )
    card = Card(
        dataset=dataset,
        manifest=dataset if dataset in dataset_names() else "",
        title=dataset,
        key=key,
        sample=sample,
        complete=complete,
        parameters={"k": schema.k, "limit": None, **(parameters or {})},
        pipeline_version=1,
        format_version=1,
        license={},
        citation="",
        receipts=[],
        content_digest="0" * 64,
        data_schema=json.loads(schema.to_json()),
        default_split="default" if splits else "",
        class_names=list(class_names),
        shards=shards,
        splits=splits,
        counts={
            "graphs": len(records),
            "nodes": sum(record.num_nodes for record in records),
            "edges": sum(record.num_edges for record in records),
        },
        statistics={},
        versions={},
        notes=[],
    )
    write_file(folder / CARD_NAME, card.to_json().encode())
    return Build(folder, card)


def numbered_build(
    folder: Path, graphs: int, *, nodes: tuple[int, int] = (1, 30), per_shard: int = 7
) -> Build:
    """Graphs of different sizes whose only column is their number."""
    schema = Schema(
        columns=(Column(key="graph/number", attribute="number", stored="uint16", presented="int64"),),
        edges="none",
    )
    rng = np.random.default_rng(graphs)
    records = [
        GraphRecord(key=str(i), num_nodes=int(rng.integers(*nodes)), columns={"graph/number": np.uint16(i)})
        for i in range(graphs)
    ]
    return write_build(folder, records, schema, dataset="numbered", per_shard=per_shard)
