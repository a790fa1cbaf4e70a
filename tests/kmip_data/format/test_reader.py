"""Reading shards: views and copies, processes and threads, and files that are not what they should be."""

from __future__ import annotations

import concurrent.futures
import json
import multiprocessing
import pickle
import resource
from pathlib import Path

import h5py
import numpy as np
import pytest
from support.builds.records import (
    EDGE_SCHEMA,
    POINT_SCHEMA,
    assert_same_records,
    encode_shard,
    make_records,
    read_records,
)
from support.cases import count_descriptors
from support.raises import raises

from kmip_data.errors import DamagedInput, KmipDataError, OutOfResources
from kmip_data.format.reader import Shard

SIZES = [40, 0, 1, 300]


def write(path, schema=POINT_SCHEMA, sizes=SIZES):
    records = make_records(schema, sizes)
    path.write_bytes(encode_shard(records, schema, dataset="points", build_key="k").data)
    return records


@pytest.fixture
def path(tmp_path):
    """Path of a sound shard."""
    write(tmp_path / "s.h5")
    return tmp_path / "s.h5"


def test_mapped_values_are_read_only_views(path, tmp_path):
    shard = Shard(path)
    view = shard.mapped_view("node/x")
    assert view is shard.mapped_view("node/x")
    for array in (view, shard.node_ptr):
        with pytest.raises(ValueError):
            array.fill(1)
    with pytest.raises(ValueError):
        view.setflags(write=True)
    write(tmp_path / "e.h5", sizes=[0, 0])
    empty = Shard(tmp_path / "e.h5")
    assert empty.mapped_view("node/x").shape == empty.read("node/x", 0, 0).shape == (0, 6)


def test_read_slices_like_numpy_and_copies(tmp_path):
    records = write(tmp_path / "s.h5")
    shard = Shard(tmp_path / "s.h5")
    whole = np.concatenate([record.columns["node/x"] for record in records])
    for start, stop in ((0, 0), (3, 9), (340, 341), (0, 341), (330, 400), (341, 341)):
        first = shard.read("node/x", start, stop)
        np.testing.assert_array_equal(first, whole[start:stop])
        assert first.flags.owndata
        first += 1
        np.testing.assert_array_equal(shard.read("node/x", start, stop), whole[start:stop])


def test_more_shards_than_open_files_are_read(path):
    """More shards than a process may open files; a lack of descriptors is no damage."""
    before = count_descriptors()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lacking = Shard(path)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before + 20, hard))
        shards = [Shard(path) for _ in range(60)]
        assert len({shard.read("node/x", 3, 9).tobytes() for shard in shards}) == 1
        assert count_descriptors() == before
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        for act in (lambda: Shard(path), lambda: lacking.read("node/x", 0, 5)):
            with pytest.raises(OutOfResources):
                act()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert lacking.read("node/x", 0, 5).shape == (5, 6)


def test_memory_maps_are_released(path):
    """Opening and dropping shards does not pile up address space."""

    def maps():
        return Path("/proc/self/maps").read_text().count(str(path))

    shard = Shard(path)
    view = shard.mapped_view("node/x")
    assert maps() == 1
    total = float(view.sum())
    del shard
    assert maps() == 1, "a view keeps its map"
    assert float(view.sum()) == total
    del view
    assert maps() == 0


def _read_in_child(shard):
    return (
        shard.read("node/x", 0, 40).tobytes(),
        shard.keys,
        shard.read("edge/neighbor", 40, 341).tobytes(),
    )


def test_a_shard_is_read_by_processes_and_threads(tmp_path):
    """A pickled shard is small; a fork and several threads read the same."""
    records = write(tmp_path / "s.h5")
    shard = Shard(tmp_path / "s.h5")
    expected = _read_in_child(shard)  # the parent has a map when it forks
    assert len(pickle.dumps(shard)) < 5_000
    assert_same_records(read_records(pickle.loads(pickle.dumps(shard))), records)
    fork = multiprocessing.get_context("fork")
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=fork) as pool:
        assert list(pool.map(_read_in_child, [shard] * 4)) == [expected] * 4
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert list(pool.map(_read_in_child, [shard] * 20)) == [expected] * 20


# Files that are not what they should be: each is a good shard with one thing changed by h5py.


def edit(change):
    def apply(path):
        with h5py.File(path, "r+") as file:
            change(file)

    return apply


def attribute(name, value):
    return edit(lambda file: file.attrs.__setitem__(name, value))


def replace(key, array, **options):
    def change(file):
        del file[key]
        file.create_dataset(key, data=array, **options)

    return edit(change)


def schema_with(column=None, **changes):
    """Change the schema, or its first column."""

    def change(file):
        schema = json.loads(file.attrs["schema"])
        schema.update(changes)
        schema["columns"][:1] = [{**schema["columns"][0], **(column or {})}]
        file.attrs["schema"] = np.bytes_(json.dumps(schema))

    return edit(change)


def counts(**changes):
    text = json.dumps({"graphs": 4, "nodes": 341, "edges": 1364, **changes})
    return attribute("counts", np.bytes_(text.encode()))


def pointers(*values, **options):
    return replace("graph/node_ptr", [*values], **options)


#: Change of a shard, and what the error names.
FAULTS = [
    (attribute("format_version", np.int64(2)), 2),
    (attribute("format_version", np.int64(0)), 0),
    (attribute("format_version", np.bytes_(b"1")), "'1'"),
    (attribute("format", np.bytes_(b"netcdf")), "netcdf"),
    (edit(lambda file: file.attrs.__delitem__("format")), "None"),
    (attribute("dataset", np.array([b"points"] * 3)), "dataset"),
    (attribute("dataset", np.bytes_("Büro".encode())), "dataset"),
    (attribute("dataset", ["points" * 1000] * 1000), "dataset"),
    (attribute("schema", np.bytes_(b"{")), "schema"),
    (attribute("schema", np.bytes_(b"[" * 50_000)), "schema"),
    (schema_with(colour=1), "colour"),
    (schema_with(k=5), "(341, 5)"),
    (schema_with(edges="none"), "edge/neighbor"),
    (schema_with(max_nodes=299), 299),
    (schema_with({"stored": "object"}), "object"),
    (schema_with({"shape": [2**40]}), "shape"),
    (schema_with({"attribute": "__class__.x"}), "__class__.x"),
    (schema_with({"stored": "float64"}), "float64"),
    (schema_with({"shape": [7]}), "(341, 7)"),
    (attribute("counts", np.bytes_(b"many")), "counts"),
    (attribute("counts", np.bytes_(b'{"graphs": 4}')), "counts.nodes"),
    (counts(graphs=3), "graph/node_ptr"),
    (counts(nodes=340), "(340, 6)"),
    (counts(edges=1), 1364),
    (counts(graphs=-1), "counts.graphs"),
    (edit(lambda file: file.__delitem__("graph/node_ptr")), "graph/node_ptr"),
    (edit(lambda file: file.create_dataset("node/z", data=[1])), "node/z"),
    (pointers(1, 40, 40, 41, 341), "graph/node_ptr"),
    (pointers(0, 40, 39, 41, 341), "graph/node_ptr"),
    (pointers(0, 40, 40, 41, 340), "graph/node_ptr"),
    (pointers(0, 2**62, -(2**62), 41, 341), "graph/node_ptr"),
    (pointers(0, 341), "(2,)"),
    (pointers(0.0, 40, 40, 41, 341), "float64"),
    (pointers(0, 40, 40, 41, 341, chunks=(5,)), "graph/node_ptr"),
    (replace("node/x", np.zeros((341, 6), "f4"), chunks=(64, 6)), "node/x"),
    (replace("node/x", np.zeros((341, 6), "f4"), compression="gzip"), 1),  # number of the filter
    (replace("node/x", np.zeros((341, 6), ">f4")), ">f4"),
    (edit(lambda file: file.__setitem__("extra", h5py.SoftLink("/node"))), "extra"),
    (replace("node/y", ["a"] * 341), "node/y"),
]


@pytest.mark.parametrize(("change", "named"), FAULTS)
def test_faulty_shards_are_refused(path, change, named):
    change(path)
    with raises(DamagedInput, naming=(path, named)) as caught:
        Shard(path)
    assert caught.value.steps


def test_keys_that_are_not_text_are_refused(path):
    replace("graph/key", np.array([b"a", b"\xff", b"c", b"d"], "S64"))(path)
    with pytest.raises(DamagedInput):
        _ = Shard(path).keys


def test_a_file_changed_after_opening_is_refused(path):
    """A shorter file must not be mapped: reading past its end would kill the process."""
    shard = Shard(path)
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(DamagedInput):
        shard.mapped_view("node/x")
    path.unlink()
    with pytest.raises(DamagedInput):
        shard.read("node/x", 0, 1)


def test_truncation_is_always_detected(tmp_path):
    """A shard cut at any multiple of 4 KiB, or within its last 300 bytes, is refused."""
    path = tmp_path / "s.h5"
    write(path, sizes=[3000, 1500])
    data = path.read_bytes()
    for size in [*range(0, len(data), 4096), *range(len(data) - 300, len(data))]:
        path.write_bytes(data[:size])
        with pytest.raises(DamagedInput):
            Shard(path)


def read_all(path):
    """Open a shard and read all that it has; only our errors may leave."""
    try:
        shard = Shard(path)
        shard.keys  # noqa: B018
        for key in shard.expected_arrays:
            view = shard.mapped_view(key)
            view.sum() if view.dtype.kind != "S" else view[:1]
            shard.read(key, 0, 10)
    except KmipDataError:
        return False
    return True


def test_mutated_shards_give_only_our_errors(tmp_path):
    """Change 1 to 20 bytes of real shards, mostly in the metadata."""
    random = np.random.default_rng(1)
    path, opened, originals = tmp_path / "fuzz.h5", 0, []
    for schema in (POINT_SCHEMA, EDGE_SCHEMA):
        write(path, schema)
        originals.append(path.read_bytes())
    for number in range(600):
        data = bytearray(originals[number % 2])
        for _ in range(random.integers(1, 21)):
            at = random.integers(0, len(data) if random.random() < 0.7 else min(len(data), 6000))
            new = random.choice([b"\xff" * 8, bytes(8), random.bytes(8), bytes([data[at] ^ 1])])
            data[at : at + len(new)] = new[: len(data) - at]
        path.write_bytes(data)
        opened += read_all(path)
    assert 0 < opened < 600


# The format page


def test_the_example_of_the_format_page_runs(tmp_path, monkeypatch):
    """Five lines of plain h5py read what the reader reads."""
    page = (Path(__file__).resolve().parents[3] / "docs" / "format.md").read_text(encoding="utf-8")
    example = page.split("```python\n")[1].split("```")[0]
    (tmp_path / "shards").mkdir()
    records = write(tmp_path / "shards/00000.h5", sizes=[3, 0, 5, 1, 1, 1, 2, 40, 7])
    monkeypatch.chdir(tmp_path)
    namespace = {}
    exec(example, namespace)
    assert len(example.strip().splitlines()) == 5
    np.testing.assert_array_equal(namespace["x"], records[7].columns["node/x"])
    np.testing.assert_array_equal(namespace["y"], records[7].columns["node/y"])
    np.testing.assert_array_equal(namespace["neighbor"], records[7].neighbor)
