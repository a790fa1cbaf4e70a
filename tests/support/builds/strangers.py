"""Small builds as a stranger may hand them over: made once, changed in any way, and used as users do."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from support.builds.records import column_of, make_record
from support.builds.written import write_build

from kmip_data.files.small_files import RunningDigests, sealed_json
from kmip_data.format.card import CARD_NAME
from kmip_data.format.graph_record import GraphRecord
from kmip_data.format.schema import Schema, View
from kmip_data.graphs.encoding import parse_encoding
from kmip_data.pipelines.engine.encode import encode_build

ENCODING = "rwse3"
SIZES = (3, 0, 5, 4)  #: nodes of the graphs of many

_COLUMNS = (
    column_of("node/x", shape=(3,), fields=("a", "b", "c")),
    column_of("node/y", "uint8", "int64", low=0, high=2, num_classes=3),
    column_of("graph/name", "uint8", shape=(4,), form="text"),
)
_VIEWS = (View(attribute="pos", source="node/x", start=0, stop=2),)
_WEIGHT = column_of("edge/weight", "uint16", "int64", high=9)


def _schema(edges: str) -> Schema:
    more = (_WEIGHT,) if edges == "index" else ()
    return Schema(
        columns=_COLUMNS + more,
        views=_VIEWS,
        edges=edges,
        k=2 if edges == "neighbor" else None,
        max_nodes=64,
    )


def _record(schema: Schema, number: int, nodes: int) -> GraphRecord:
    record = make_record(schema, f"g{number}", nodes, nodes, np.random.default_rng(number))
    record.columns["graph/name"] = np.frombuffer(b"n%03d" % number, np.uint8)
    return record


def make_originals(folder: Path) -> None:
    """Write a build of neighbour tables, one of edge lists and one of a single graph, with added columns."""
    many: dict[str, Any] = {"parts": {"train": [0, 2], "val": [1], "test": [3]}}
    one: dict[str, Any] = {"part_codes": np.array([0, 1, 2, 255, 0, 1], np.uint8)}
    for name, edges, sizes, split in (
        ("neighbor", "neighbor", SIZES, many),
        ("index", "index", SIZES, many),
        ("one", "index", (6,), one),
    ):
        schema = _schema(edges)
        records = [_record(schema, i, n) for i, n in enumerate(sizes)]
        options = dict(dataset="given", per_shard=3, class_names=("a", "b", "c"), **split)
        build = write_build(folder / name, records, schema, **options)
        encode_build(build, [parse_encoding(ENCODING)], jobs=1, quiet=True)
        for file in build.path.rglob("*.h5"):
            file.chmod(0o644)


def reseal(folder: Path) -> None:
    """Write the digests of the files into readable cards, as a stranger would."""
    for card in (folder / CARD_NAME, folder / "columns" / ENCODING / CARD_NAME):
        with contextlib.suppress(
            OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError
        ):
            content = json.loads(card.read_bytes())
            named = [
                *content.get("shards", []),
                *content.get("files", []),
                *content.get("splits", {}).values(),
            ]
            for entry in named:
                digests = RunningDigests()
                digests.update((card.parent / entry["file"]).read_bytes())
                entry.update({k: v for k, v in digests.facts.items() if k in entry})
            if "shards_digest" in content:
                shards = json.loads((folder / CARD_NAME).read_bytes())["shards"]
                joined = "\n".join(shard["sha256"] for shard in shards)
                content["shards_digest"] = hashlib.sha256(joined.encode()).hexdigest()
            card.write_text(sealed_json(content))


def copy_build(original: Path, folder: Path) -> Path:
    """Return a copy of a build in the place of the one before."""
    shutil.rmtree(folder, ignore_errors=True)
    return Path(shutil.copytree(original, folder))
