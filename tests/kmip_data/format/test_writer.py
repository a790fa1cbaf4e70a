"""Records to shards and back: every schema, value and storage; the bytes; refusals."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import tempfile
import zlib
from functools import partial
from typing import Any

import numpy as np
import pytest
from support.builds.records import (
    EDGE_SCHEMA,
    POINT_SCHEMA,
    assert_same_records,
    encode_shard,
    make_record,
    make_records,
    read_records,
)
from support.cases import check_each
from support.cli import python
from support.raises import raises
from support.shared import ROOT

from kmip_data.errors import DamagedInput, UsageError
from kmip_data.format import writer
from kmip_data.format.graph_record import GraphRecord
from kmip_data.format.reader import Shard
from kmip_data.format.schema import (
    FORMAT_NAME,
    FORMAT_VERSION,
    GRAPH_KEY,
    STORED_DTYPES,
    Column,
    Schema,
    View,
    bytes_per_graph_node_edge,
)
from kmip_data.format.writer import (
    ShardContent,
    file_bytes,
    open_memory_file,
    write_shard,
    write_text_attribute,
)

#: The same with HDF5 1.14.2 and 2.0.0 (h5py 3.10 and 3.16) and with numpy 1.26 and 2.4.
PINNED = "fa55baf128bd516abab1444517fe9fbc2ebe11d7d5fe2d55450d7161d56df7e1"


HOW = {"dataset": "points", "build_key": "0123456789ab"}


def encode(records, schema):
    return encode_shard(records, schema, **HOW)


def random_schema(random: np.random.Generator) -> Schema:
    """Any schema that the format can hold: all dtypes, row shapes, edge layouts and index widths."""
    edges = str(random.choice(["neighbor", "index", "none"]))
    levels = ["node", "graph"] if edges == "none" else ["node", "graph", "edge"]
    shapes = [(), (1,), (3,), (2, 2), (0,)]
    columns = [
        Column(
            key=f"{random.choice(levels)}/{name}",
            attribute=name,
            stored=(dtype := str(random.choice(sorted(STORED_DTYPES)))),
            presented=dtype,
            shape=shapes[random.integers(len(shapes))],
            finite=False,
        )
        for name in "abcdxy"[: random.integers(6)]
    ]
    k = int(random.integers(1, 6)) if edges == "neighbor" else None
    most = int(random.choice([64, 65_536, 65_537, 200_000]))
    return Schema(columns=tuple(columns), edges=edges, k=k, max_nodes=most)


def random_records(schema: Schema, random: np.random.Generator) -> list[GraphRecord]:
    """Records of ``schema``: empty graphs, single nodes, no edges, arbitrary bits, extremes, NaN."""
    records = []
    for number in range(random.integers(6)):
        nodes, edges = random.choice([0, 1, 2, 7, 40]), random.choice([0, 1, 9])
        record = make_record(schema, f"{number}: ~ {'k' * number}", int(nodes), int(edges), random)
        for key, array in record.columns.items():
            info: Any = np.finfo(array.dtype) if array.dtype.kind == "f" else np.iinfo(array.dtype)
            odd = [info.max, info.min]
            odd += [info.tiny, np.nan, np.inf, -np.inf, -0.0] if array.dtype.kind == "f" else []
            bits = np.frombuffer(random.bytes(array.nbytes), array.dtype).reshape(array.shape)
            filled = np.full(array.shape, odd[random.integers(len(odd))], array.dtype)
            record.columns[key] = bits if random.random() < 0.6 else filled
        for index in (record.neighbor, record.edge_index):
            if index is not None and random.random() < 0.3:
                index[...] = max(nodes - 1, 0)
        records.append(record)
    return records


def in_memory(records: list[GraphRecord], schema: Schema) -> bytes:
    """The bytes of a shard that HDF5 itself writes, not in pieces."""
    content = ShardContent.from_records(records, schema, **HOW)
    with open_memory_file() as file:
        write_text_attribute(file, "format", FORMAT_NAME)
        file.attrs.create("format_version", np.array(FORMAT_VERSION, dtype="<i8"))
        for name, text in content.texts.items():
            write_text_attribute(file, name, text)
        for entry in content.expected_arrays.values():
            data = np.empty(entry.shape(*content.totals), entry.dtype)
            if entry.per == "pointer":
                data = content.pointers[entry.key]
            elif entry.key == GRAPH_KEY:
                data[:] = [record.key.encode("ascii") for record in records]
            elif records:
                join = (
                    np.stack
                    if entry.per == "graph"
                    else partial(np.concatenate, axis=entry.row_axis)
                )
                join(
                    [content.rows_of_record(record, entry.key) for record in records],
                    out=data,
                    casting="unsafe",
                )
            file.create_dataset(entry.key, data=data, dtype=entry.dtype, track_times=False)
        return file_bytes(file)


def test_random_records_are_read_as_they_were_written(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "PIECE_BYTES", 64)

    def check(seed):
        random = np.random.default_rng(seed)
        schema = random_schema(random)
        records = random_records(schema, random)
        encoded = encode(records, schema)
        path = tmp_path / "00000.h5"
        path.write_bytes(encoded.data)
        assert encoded.data == in_memory(records, schema)
        shard = Shard(path)
        # The structure that the writer hands over is the one in the file.
        np.testing.assert_equal(vars(Shard(path, structure=encoded.structure)), vars(shard))
        assert_same_records(read_records(shard), records)
        assert (shard.schema, shard.dataset, shard.build_key) == (schema, "points", "0123456789ab")
        counts = {"graphs": shard.graphs, "nodes": shard.nodes, "edges": shard.edges}
        assert encoded.facts == counts | {
            "sha256": hashlib.sha256(encoded.data).hexdigest(),
            "crc32": f"{zlib.crc32(encoded.data):08x}",
            "bytes": len(encoded.data),
        }

    check_each(check, range(80))


@pytest.mark.parametrize(("max_nodes", "dtype"), [(65_536, "uint16"), (65_537, "uint32")])
def test_index_width_follows_the_schema_not_the_data(max_nodes, dtype, tmp_path):
    schema = dataclasses.replace(POINT_SCHEMA, max_nodes=max_nodes)
    full = make_record(schema, "full", max_nodes, 0, np.random.default_rng(0))
    full.neighbor[0, 0] = max_nodes - 1
    (tmp_path / "s.h5").write_bytes(encode([full], schema).data)
    first = Shard(tmp_path / "s.h5").read("edge/neighbor", 0, 1)
    assert first.dtype == dtype
    assert first[0, 0] == max_nodes - 1


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
    assert encode(records, schema).facts["sha256"] == PINNED


def test_a_shard_is_written_without_a_temporary_folder(tmp_path, monkeypatch):
    records = make_records(EDGE_SCHEMA, [3, 4])
    first, _ = write_shard(tmp_path / "a.h5", records, EDGE_SCHEMA, root=tmp_path, **HOW)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    for name in ("a.h5", "b.h5"):
        again, _ = write_shard(tmp_path / name, records, EDGE_SCHEMA, root=tmp_path, **HOW)
        assert again == first
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.h5", "b.h5"]


LIMITED = """
import resource, sys
from pathlib import Path
from support.builds.records import EDGE_SCHEMA, make_records
from kmip_data.errors import OutOfResources
from kmip_data.format.writer import write_shard
records = make_records(EDGE_SCHEMA, [500, 400])
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
try:
    folder = Path(sys.argv[1])
    write_shard(folder / "a", records, EDGE_SCHEMA, root=folder, dataset="toy", build_key="0" * 12)
except OutOfResources as error:
    sys.exit(error.exit_code)
"""


@pytest.mark.parametrize("most", [1, 3_000, 9_000])
def test_a_limit_on_file_sizes_is_an_error_and_no_crash_of_hdf5(tmp_path, most):
    path = os.pathsep.join([str(ROOT / "tests"), str(ROOT)])
    python("-c", LIMITED, tmp_path, most, code=6, PYTHONPATH=path)
    assert list(tmp_path.iterdir()) == []


def test_bytes_per_predicts_the_size():
    for schema in (POINT_SCHEMA, EDGE_SCHEMA):
        per_graph, per_node, per_edge = bytes_per_graph_node_edge(schema)
        data, facts, _ = encode(make_records(schema, [3000, 2000]), schema)
        predicted = (
            per_graph * facts["graphs"] + per_node * facts["nodes"] + per_edge * facts["edges"]
        )
        assert 0 <= len(data) - predicted < 16_000


GOOD = make_record(POINT_SCHEMA, "Area_1/7", 5, 0, np.random.default_rng(0))
BROKEN = [
    (dict(columns={}), "[]"),
    (dict(columns={**GOOD.columns, "node/x": [[0.0]]}), "list"),
    (dict(columns={**GOOD.columns, "node/x": np.zeros((5, 6), ">f4")}), ">f4"),
    (dict(columns={**GOOD.columns, "node/x": np.zeros((4, 6), "f4")}), "(4, 6)"),
    (dict(columns={**GOOD.columns, "graph/category": np.zeros(1, "u1")}), "(1,)"),
    (dict(neighbor=None), "neighbor"),
    (dict(neighbor=np.zeros((5, 3), int)), "(5, 3)"),
    (dict(neighbor=np.zeros(20, int)), "(20,)"),
    (dict(neighbor=np.zeros((5, 4))), "float64"),
    (dict(neighbor=np.full((5, 4), 5)), 5),
    (dict(neighbor=np.full((5, 4), -1)), -1),
    (dict(edge_index=np.zeros((2, 3), int)), "edge_index"),
    (dict(num_nodes=4097), 4097),
    (dict(num_nodes=-1), -1),
    (dict(key=""), "key"),
    (dict(key="Büro/1"), "key"),
    (dict(key="a\nb"), "key"),
    (dict(key="a" * 65), 65),
]


@pytest.mark.parametrize(("changes", "named"), BROKEN)
def test_broken_records_are_refused_by_key(changes, named):
    record = dataclasses.replace(GOOD, **changes)
    with raises(DamagedInput, naming=(repr(record.key), named)):
        encode([GOOD, record], POINT_SCHEMA)


@pytest.mark.parametrize(
    "edge_index", [None, np.zeros(3, int), np.zeros((3, 2), int), np.full((2, 1), 9)]
)
def test_broken_edges_are_refused(edge_index):
    record = make_record(EDGE_SCHEMA, "g", 5, 1, np.random.default_rng(0))
    with raises(DamagedInput, naming="edge_index"):
        encode([dataclasses.replace(record, edge_index=edge_index)], EDGE_SCHEMA)


COLUMN = POINT_SCHEMA.columns[0]


def changed(**changes):
    return dict(columns=(dataclasses.replace(COLUMN, **changes),))


UNSTORABLE = [
    (dict(edges="sparse"), "edges"),
    (dict(k=None), "k"),
    (dict(k=True), "k"),
    (changed(low=float("nan")), "low"),
    (dict(max_nodes=2**32 + 1), "max_nodes"),
    (dict(key_length=0), "key_length"),
    (dict(columns=(COLUMN, dataclasses.replace(COLUMN, attribute="z"))), "node/x"),
    (dict(columns=(COLUMN, dataclasses.replace(COLUMN, key="node/z"))), "x"),
    (changed(key="edge/neighbor"), "edge/neighbor"),
    (changed(key="node/../x"), "key"),
    (changed(stored="object"), "object"),
    (changed(presented="complex64"), "complex64"),
    (changed(shape=(-1,)), "shape"),
    (changed(shape=(2**30, 2)), str((2**30, 2))),
    (changed(attribute="a b"), "a b"),
    (changed(key="edge/a") | dict(edges="none", k=None), "edge/a"),
    *(
        (dict(views=(View(attribute="pos", source=key, start=0, stop=stop),)), f"{key}[0:{stop}]")
        for key, stop in (("node/x", 7), ("node/none", 1))
    ),
]


@pytest.mark.parametrize(("changes", "named"), UNSTORABLE)
def test_unsupported_schemas_are_refused(changes, named):
    with raises(UsageError, naming=named):
        encode([], dataclasses.replace(POINT_SCHEMA, **changes))


def test_unsupported_values_are_refused():
    many = tuple(
        dataclasses.replace(COLUMN, key=f"node/x{i}", attribute=f"x{i}", doc="…" * 60)
        for i in range(200)
    )
    with raises(UsageError, naming="größe"):
        encode_shard([], POINT_SCHEMA, dataset="größe", build_key="k")
    with pytest.raises(UsageError):
        encode([], dataclasses.replace(POINT_SCHEMA, columns=many))


def test_values_beyond_their_column_are_refused_before_they_are_written(tmp_path):
    column = {"key": "node/a", "attribute": "a", "stored": "float32", "presented": "float32"}
    for bounds, values, named in (
        ({}, [0, np.nan], "node/a"),
        ({"low": 0, "high": 1}, [0, 2], 2.0),
        ({"low": 0, "finite": False}, [np.nan, -1], -1.0),
        ({"low": 0, "finite": False}, [np.nan, 0], None),
    ):
        schema = Schema(columns=(Column(**column, **bounds),), edges="none")
        records = []
        for key, row in (("1", [0.5, 0.5]), ("2", values)):
            array = np.array(row, np.float32)
            records.append(GraphRecord(key=key, num_nodes=2, columns={"node/a": array}))
        write = partial(write_shard, tmp_path / "0.h5", records, schema, root=tmp_path, **HOW)
        if named is None:
            assert write()[0]["nodes"] == 4
            continue
        with raises(DamagedInput, naming=("'2'", "node/a", named)):
            write()
        assert not (tmp_path / "0.h5").exists()
