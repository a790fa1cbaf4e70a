"""Records to shards and back: every schema, value and storage; the bytes; refusals."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.cases import Cases, check_each
from support.records import (
    EDGE_SCHEMA,
    POINT_SCHEMA,
    assert_same_records,
    make_record,
    make_records,
    random_records,
    random_schema,
    read_records,
)

from kmip_data.errors import DamagedInput, UsageError
from kmip_data.format.reader import Shard
from kmip_data.format.schema import Column, Schema, bytes_per
from kmip_data.format.writer import GraphRecord, encode_shard

#: The same with HDF5 1.14.2 and 2.0.0 (h5py 3.10 and 3.16) and with numpy 1.26 and 2.4.
PINNED = "fa55baf128bd516abab1444517fe9fbc2ebe11d7d5fe2d55450d7161d56df7e1"


def encode(records, schema, **options):
    return encode_shard(records, schema, dataset="points", build_key="0123456789ab", **options)


def shard_of(folder, records, schema, **options):
    path = Path(folder) / "00000.h5"
    path.write_bytes(encode(records, schema, **options).data)
    return Shard(path)


def test_round_trip(tmp_path):
    def check(seed):
        random, compression = np.random.default_rng(seed), [None, None, "gzip", "zstd"][seed % 4]
        schema = random_schema(random)
        records = random_records(schema, random)
        encoded = encode(records, schema, compression=compression)
        assert encoded.data == encode(records, schema, compression=compression).data
        assert encoded.sha256 == hashlib.sha256(encoded.data).hexdigest()
        shard = shard_of(tmp_path, records, schema, compression=compression)
        assert_same_records(read_records(shard), records)
        assert shard.schema == schema
        assert (shard.graphs, shard.nodes, shard.edges) == (encoded.graphs, encoded.nodes, encoded.edges)
        assert (shard.dataset, shard.build_key) == ("points", "0123456789ab")
        assert len(shard) == len(records)

    check_each(check, range(80))


def test_round_trip_of_a_large_graph(tmp_path):
    records = make_records(EDGE_SCHEMA, [3, 70_000, 0, 1])
    for compression in (None, "gzip", "zstd"):
        folder = tmp_path / str(compression)
        folder.mkdir()
        shard = shard_of(folder, records, EDGE_SCHEMA, compression=compression)
        assert_same_records(read_records(shard), records)
        assert shard.layout["edge/index"].dtype == np.dtype("<u4")


def test_index_width_follows_the_schema_not_the_data(tmp_path):
    for max_nodes, width in ((65_536, 2), (65_537, 4)):
        schema = dataclasses.replace(POINT_SCHEMA, max_nodes=max_nodes)
        shard = shard_of(tmp_path, make_records(schema, [2]), schema)
        assert shard.layout["edge/neighbor"].dtype.itemsize == width
    schema = dataclasses.replace(POINT_SCHEMA, max_nodes=65_536)
    full = make_record(schema, "full", 65_536, 0, np.random.default_rng(0))
    full.neighbor[0, 0] = 65_535
    assert shard_of(tmp_path, [full], schema).read("edge/neighbor", 0, 1)[0, 0] == 65_535


def test_bytes_of_one_shard_are_pinned():
    """A change here is a change of the format: raise FORMAT_VERSION."""
    columns = (
        Column(key="node/x", attribute="x", stored="float16", presented="float32", shape=(2,)),
        Column(key="graph/y", attribute="y", stored="uint8", presented="int64"),
    )
    schema = Schema(columns=columns, edges="neighbor", k=2, max_nodes=100)
    records = [
        GraphRecord(
            key=f"record {size}",
            num_nodes=size,
            columns={
                "node/x": np.arange(2 * size, dtype=np.float16).reshape(size, 2),
                "graph/y": np.uint8(size),
            },
            neighbor=np.tile(np.arange(2), (size, 1)),
        )
        for size in (3, 0, 2)
    ]
    assert encode(records, schema).sha256 == PINNED


def test_bytes_do_not_depend_on_the_process(tmp_path):
    """Dirty memory, hash seed, locale, umask, time zone and time change nothing."""
    code = """
import hashlib, sys; sys.path[:0] = sys.argv[1:]
from support.records import *
from kmip_data.format.writer import encode_shard
options = dict(dataset="d", build_key="k")
for compression in (None, "gzip", "zstd"):
    for schema in (POINT_SCHEMA, EDGE_SCHEMA):
        records = make_records(schema, [3, 0, 500])
        print(encode_shard(records, schema, compression=compression, **options).sha256)
parts = {"val": [1], "train": [2, 0]}
data, _ = encode_split(parts, rule="r", parameters={"b": 1, "a": 2}, keys=["x", "y", "z"])
print(hashlib.sha256(data).hexdigest())
"""
    tests = Path(__file__).resolve().parents[2]
    outputs = set()
    for environment in (
        {"MALLOC_PERTURB_": "1", "PYTHONHASHSEED": "1", "LC_ALL": "C", "TZ": "Asia/Tokyo"},
        {"MALLOC_PERTURB_": "170", "PYTHONHASHSEED": "2", "LC_ALL": "C.UTF-8", "TZ": "UTC"},
    ):
        command = [sys.executable, "-c", code, str(tests.parent), str(tests)]
        run = subprocess.run(
            command,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=True,
            timeout=600,
            cwd=tmp_path,
        )
        outputs.add(run.stdout)
    assert len(outputs) == 1
    assert len(outputs.pop().split()) == 7


def test_bytes_per_predicts_the_size():
    for schema in (POINT_SCHEMA, EDGE_SCHEMA):
        per_graph, per_node, per_edge = bytes_per(schema)
        encoded = encode(make_records(schema, [3000, 2000]), schema)
        predicted = per_graph * encoded.graphs + per_node * encoded.nodes + per_edge * encoded.edges
        assert 0 <= len(encoded.data) - predicted < 16_000


GOOD = make_record(POINT_SCHEMA, "Area_1/7", 5, 0, np.random.default_rng(0))
BROKEN = {
    "no column": (dict(columns={}), "its columns"),
    "other column": (dict(columns={**GOOD.columns, "node/z": np.zeros(5)}), "node/z"),
    "dtype": (dict(columns={**GOOD.columns, "node/x": np.zeros((5, 6))}), "dtype float32"),
    "not an array": (dict(columns={**GOOD.columns, "node/x": [[0.0]]}), "list"),
    "byte order": (dict(columns={**GOOD.columns, "node/x": np.zeros((5, 6), ">f4")}), "dtype float32"),
    "rows": (dict(columns={**GOOD.columns, "node/x": np.zeros((4, 6), "f4")}), r"shape \(5, 6\)"),
    "row shape": (dict(columns={**GOOD.columns, "node/x": np.zeros((5, 7), "f4")}), r"shape \(5, 6\)"),
    "graph row": (dict(columns={**GOOD.columns, "graph/category": np.zeros(1, "u1")}), r"shape \(\)"),
    "no table": (dict(neighbor=None), "neighbor"),
    "table width": (dict(neighbor=np.zeros((5, 3), int)), r"shape \(5, 4\)"),
    "table rank": (dict(neighbor=np.zeros(20, int)), r"shape \(5, 4\)"),
    "table dtype": (dict(neighbor=np.zeros((5, 4))), "integer"),
    "index too large": (dict(neighbor=np.full((5, 4), 5)), "0 to 4"),
    "index negative": (dict(neighbor=np.full((5, 4), -1)), "0 to 4"),
    "other layout": (dict(edge_index=np.zeros((2, 3), int)), "another edge layout"),
    "too many nodes": (dict(num_nodes=4097), "4,096"),
    "negative nodes": (dict(num_nodes=-1), "-1"),
    "empty key": (dict(key=""), "printable ASCII"),
    "key not ASCII": (dict(key="Büro/1"), "printable ASCII"),
    "key with line feed": (dict(key="a\nb"), "printable ASCII"),
    "key with zero byte": (dict(key="a\0"), "printable ASCII"),
    "long key": (dict(key="a" * 65), "at most 64 bytes"),
}


def test_broken_records_are_refused_by_key():
    with Cases() as cases:
        for name, (changes, words) in BROKEN.items():
            with cases(name):
                record = dataclasses.replace(GOOD, **changes)
                with pytest.raises(DamagedInput, match=words) as caught:
                    encode([GOOD, record], POINT_SCHEMA)
                assert repr(record.key) in caught.value.what
        record = make_record(EDGE_SCHEMA, "g", 5, 1, np.random.default_rng(0))
        for edge_index in (None, np.zeros(3, int), np.zeros((3, 2), int), np.full((2, 1), 9)):
            with cases(edge_index), pytest.raises(DamagedInput, match="edge_index"):
                encode([dataclasses.replace(record, edge_index=edge_index)], EDGE_SCHEMA)


COLUMN = POINT_SCHEMA.columns[0]


def changed(**changes):
    return dict(columns=(dataclasses.replace(COLUMN, **changes),))


UNSTORABLE = [
    (dict(edges="sparse"), "edges"),
    (dict(k=None), "k: expected"),
    (dict(k=True), "k: "),
    (dict(directed=1), "directed"),
    (changed(low=float("nan")), "low"),
    (changed(form="column"), "form"),
    (dict(k=0), "k: "),
    (dict(max_nodes=0), "max_nodes"),
    (dict(max_nodes=2**32 + 1), "max_nodes"),
    (dict(key_length=0), "key_length"),
    (dict(columns=(COLUMN, COLUMN)), "column keys"),
    (dict(columns=(COLUMN, dataclasses.replace(COLUMN, key="node/z"))), "attributes"),
    (changed(key="edge/neighbor"), "does not use itself"),
    (changed(key="graph/node_ptr"), "does not use itself"),
    (changed(key="mesh/x"), "pattern"),
    (changed(key="node/../x"), "pattern"),
    (changed(stored="bool"), "stored dtype"),
    (changed(stored="object"), "stored dtype"),
    (changed(presented="complex64"), "presented dtype"),
    (changed(shape=(-1,)), "shape"),
    (changed(attribute="a b"), "identifier"),
    (dict(edges="none", k=None, columns=(dataclasses.replace(COLUMN, key="edge/a"),)), "no edge columns"),
]


def test_schemas_that_cannot_be_stored():
    with Cases() as cases:
        for changes, words in UNSTORABLE:
            with cases(changes), pytest.raises(UsageError, match=words):
                encode([], dataclasses.replace(POINT_SCHEMA, **changes))


def test_what_a_shard_cannot_hold():
    many = tuple(
        dataclasses.replace(COLUMN, key=f"node/x{i}", attribute=f"x{i}", doc="…" * 60) for i in range(200)
    )
    with pytest.raises(UsageError, match="lz4"):
        encode([], POINT_SCHEMA, compression="lz4")
    with pytest.raises(UsageError, match="ASCII"):
        encode_shard([], POINT_SCHEMA, dataset="größe", build_key="k")
    with pytest.raises(UsageError, match="cannot be stored"):
        encode([], dataclasses.replace(POINT_SCHEMA, columns=many))
