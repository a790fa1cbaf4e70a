"""Small builds for reading tests, written directly from records."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from support.builds.records import column_of, encode_shard

from kmip_data.builds.home import Build
from kmip_data.files.atomic_writes import build_marker_content, write_file, write_marker
from kmip_data.format.build_files import write_split_file
from kmip_data.format.card import CARD_NAME, Card, ShardEntry
from kmip_data.format.graph_record import GraphRecord
from kmip_data.format.schema import Schema, View
from kmip_data.manifest import dataset_names


def s3dis_schema(k: int = 4) -> Schema:
    """The schema of S3DIS with another k."""
    return Schema(
        columns=(
            column_of("node/x", shape=(9,)),
            column_of("node/y", "uint8", "int64", num_classes=13),
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
        table = (
            np.argsort(rng.random((n, n)), axis=1)[:, :k] if n < 200 else rng.integers(0, n, (n, k))
        )
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


def put_build(
    folder: Path,
    shards: Sequence[Sequence[GraphRecord]],
    schema: Schema,
    *,
    dataset: str,
    key: str,
    **card: Any,
) -> Build:
    """Write a build by the writers of the package: shards and the card, whose other fields are ``card``."""
    (folder / "shards").mkdir(parents=True)
    (folder / "splits").mkdir(exist_ok=True)
    entries = []
    for number, records in enumerate(shards):
        done = encode_shard(records, schema, dataset=dataset, build_key=key)
        file = f"shards/{number:05d}.h5"
        write_file(folder / file, done.data)
        entries.append(ShardEntry(file=file, **done.facts))
    empty = dict(
        class_names=[], notes=[], receipts=[], splits={}, versions={}, statistics={}, license={}
    )
    plain = dict(title=dataset, sample=False, complete=None, content_digest="0" * 64, citation="")
    fields: dict[str, Any] = dict(dataset=dataset, key=key, shards=entries)
    fields |= dict(pipeline_version=1, format_version=1)
    fields["counts"] = {
        name: sum(getattr(entry, name) for entry in entries)
        for name in ("graphs", "nodes", "edges")
    }
    fields["data_schema"] = json.loads(schema.to_json())
    fields["default_split"] = next(iter(card.get("splits", {})), "")
    described = Card(**{**empty, **plain, **fields, **card})
    write_file(folder / CARD_NAME, described.to_json().encode())
    write_marker(folder, build_marker_content(key))
    return Build(folder, described)


def sizes_of(records: Sequence[GraphRecord]) -> np.ndarray[Any, Any]:
    """Return nodes and edges of each record."""
    return np.array([(record.num_nodes, record.num_edges) for record in records]).reshape(-1, 2)


def write_build(
    folder: Path,
    records: Sequence[GraphRecord],
    schema: Schema,
    *,
    dataset: str = "s3dis",
    per_shard: int = 7,
    parts: Mapping[str, Sequence[int]] | None = None,
    part_codes: np.ndarray[Any, Any] | None = None,
    parameters: Mapping[str, Any] | None = None,
    class_names: Sequence[str] = (),
    content: str = "",
    **options: Any,
) -> Build:
    """Write shards, the split ``default`` and the card.

    ``content`` enters the key: what the records are drawn from. ``options`` go to :func:`put_build`.
    """
    (folder / "splits").mkdir(parents=True)
    parts_or_codes: Any = parts and {
        name: np.asarray(part, np.int64) for name, part in parts.items()
    }
    if parts_or_codes is None:
        parts_or_codes = part_codes
    splits = {}
    if parts_or_codes is not None:
        keys, sizes = [record.key for record in records], sizes_of(records)
        about: dict[str, Any] = {"rule": "given", "parameters": {}}
        splits["default"] = write_split_file(
            folder, "default", parts_or_codes, keys, sizes, **about
        )
    return put_build(
        folder,
        [records[start : start + per_shard] for start in range(0, len(records), per_shard)],
        schema,
        dataset=dataset,
        key=hashlib.sha256(f"{dataset}{parameters}{content}".encode()).hexdigest()[:12],
        manifest=dataset if dataset in dataset_names() else "",
        parameters={"k": schema.k, "limit": None, **(parameters or {})},
        splits=splits,
        class_names=list(class_names),
        **options,
    )


def numbered_build(
    folder: Path, graphs: int, *, nodes: tuple[int, int] = (1, 30), per_shard: int = 7
) -> Build:
    """Graphs of different sizes whose only column is their number."""
    schema = Schema(columns=(column_of("graph/number", "uint16", "int64"),), edges="none")
    rng = np.random.default_rng(graphs)
    records = [
        GraphRecord(
            key=str(i), num_nodes=int(rng.integers(*nodes)), columns={"graph/number": np.uint16(i)}
        )
        for i in range(graphs)
    ]
    return write_build(folder, records, schema, dataset="numbered", per_shard=per_shard)
