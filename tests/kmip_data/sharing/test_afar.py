"""Builds read where they lie: the same items, by no block more than they touch, nothing unverified kept."""

import errno
import hashlib
import json
import multiprocessing
import os
import pickle
import shutil

import fsspec
import numpy as np
import pytest
from support.builds import s3dis_records, s3dis_schema, write_build
from support.http_server import serving_folder
from support.same import assert_same
from support.shares import share_folder
from torch_geometric.loader import DataLoader

import kmip_data
from kmip_data import GraphLoader
from kmip_data.errors import DamagedInput, SourceUnavailable, UsageError
from kmip_data.format.card import CARD_NAME
from kmip_data.format.schema import Column, Schema
from kmip_data.format.writer import GraphRecord
from kmip_data.pipelines.find import obtain_columns
from kmip_data.sharing.share import BLOCK, BLOCKS_NAME, SHARE_NAME

INDEX = {SHARE_NAME, BLOCKS_NAME, CARD_NAME, "splits/default.h5"}
PARTS = {"train": range(0, 100, 2), "test": range(1, 100, 2)}


@pytest.fixture(scope="module")
def pushed(tmp_path_factory):
    """A build of four shards of some 2.7 MB, opened here, and the folder of its push."""
    folder = tmp_path_factory.mktemp("push")
    records = s3dis_records(120, nodes=(900, 3100))
    build = write_build(folder / "b", records, s3dis_schema(), per_shard=30, parts=PARTS)
    share_folder(build.path, folder / "share")
    return kmip_data.open(build.path), folder / "share"


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    """A home and a cache of its own for each test."""
    monkeypatch.setenv("KMIP_DATA_HOME", str(tmp_path / "home"))


@pytest.fixture
def server(pushed):
    with serving_folder(pushed[1]) as server:
        yield server


def copy_of(pushed, target):
    """The push once more, to be spoilt."""
    share_folder(pushed[0].build.path, target)
    return target


def kept(tmp_path):
    return [path for path in (tmp_path / "home" / "cache" / "blocks").glob("*/*") if path.is_file()]


def blocks_asked(server):
    """Blocks of shards that the server sent, each as often as it was sent."""
    return [
        (file, block)
        for file, start, stop in server.asked
        if file.startswith("shards/")
        for block in range(start // BLOCK, -(-stop // BLOCK))
    ]


def _read_bytes(address, home, graphs):
    far = kmip_data.open(address, home=home)
    return [far[g].x.numpy().tobytes() for g in graphs]


def test_items_and_splits_are_those_of_the_local_build(pushed, server):
    local, _ = pushed
    far = kmip_data.open(server.address)
    assert far.keys == local.keys
    assert len(far) == len(local)
    assert far.card.digest == local.card.digest
    for g in (0, 29, 30, 77, 119):
        assert_same(far[g], local[g])
    test = kmip_data.open(server.address, "test", columns=["y"])
    assert_same(test[3], kmip_data.open(local.build.path, "test", columns=["y"])[3])


@pytest.mark.parametrize("options", [{"compact": True, "prefetch": 0}, {"num_threads": 2}])
def test_batches_are_those_of_the_local_build(pushed, server, options):
    options = {"batch_size": 7, "shuffle": True, "seed": 5, **options}
    far = GraphLoader(kmip_data.open(server.address), **options)
    for batch, other in zip(far, GraphLoader(pushed[0], **options), strict=True):
        assert_same(batch, other)


def index_build(folder):
    """Graphs with an edge list, columns of every level, and some graphs and columns without rows."""
    schema = Schema(
        columns=(
            Column(
                key="graph/text", attribute="text", stored="uint8", presented="uint8", shape=(6,), form="text"
            ),
            Column(key="node/none", attribute="none", stored="float32", presented="float32", shape=(0,)),
            Column(key="node/x", attribute="x", stored="int16", presented="float32", shape=(3, 2)),
            Column(key="edge/attr", attribute="edge_attr", stored="float64", presented="float64"),
        ),
    )
    rng, records = np.random.default_rng(1), []
    for g in range(9):
        nodes, edges = (0, 0) if g == 4 else (int(rng.integers(20_000, 50_000)), int(rng.integers(0, 90_000)))
        columns = {
            "graph/text": np.frombuffer(f"g{g}".encode().ljust(6, b"\0"), np.uint8),
            "node/none": np.empty((nodes, 0), np.float32),
            "node/x": rng.integers(-99, 99, (nodes, 3, 2)).astype(np.int16),
            "edge/attr": rng.random(edges),
        }
        index = rng.integers(0, max(nodes, 1), (2, edges)).astype(np.uint16)
        records.append(GraphRecord(key=str(g), num_nodes=nodes, columns=columns, edge_index=index))
    return write_build(folder, records, schema, dataset="pairs", per_shard=4)


def test_edge_lists_texts_and_empty_graphs(tmp_path):
    build = index_build(tmp_path / "b")
    share_folder(build.path, tmp_path / "share")
    local = kmip_data.open(build.path)
    with serving_folder(tmp_path / "share") as server:
        far = kmip_data.open(server.address)
        for one, other in zip(far, local, strict=True):
            assert_same(one, other)
        wanted = GraphLoader(local, batch_size=4)
        for batch, other in zip(GraphLoader(far, batch_size=4), wanted, strict=True):
            assert_same(batch, other)


def test_added_columns(tmp_path):
    build = write_build(tmp_path / "b", s3dis_records(20), s3dis_schema())
    obtain_columns(build, ["degree-profile-2.8"], quiet=True)
    share_folder(build.path, tmp_path / "share")
    columns = ["x", "degree-profile-2.8"]
    with serving_folder(tmp_path / "share") as server:
        far = kmip_data.open(server.address, columns=columns)
        for one, other in zip(far, kmip_data.open(build.path, columns=columns), strict=True):
            assert_same(one, other)
    (tmp_path / "share" / BLOCKS_NAME).unlink()
    shutil.move(tmp_path / "share", tmp_path / "b2")
    next((tmp_path / "b2" / "columns").rglob("*.h5")).unlink()
    (tmp_path / "b2" / SHARE_NAME).unlink()
    share_folder(tmp_path / "b2", tmp_path / "share")
    with serving_folder(tmp_path / "share") as server, pytest.raises(DamagedInput, match=r"\.h5 is not what"):
        kmip_data.open(server.address, columns=columns)


def test_rows_that_cannot_be_held_are_not_fetched(pushed, server):
    far = kmip_data.open(server.address)
    server.asked.clear()
    far._store.build.blocks.sizes["shards/00000.h5"] = 2**62
    with pytest.raises(MemoryError):
        far._store.build.blocks.read("shards/00000.h5", 0, 2**61)
    assert server.asked == []


def touched(local, graphs):
    """Blocks that the rows of graphs lie in, by the offsets in the files."""
    found = set()
    for g in graphs:
        number = int(local._store.shard[g])
        shard = local._store.shards[number]
        for key in ("node/x", "node/y", "edge/neighbor"):
            start, count = (int(table[1, g]) for table in (local._store.start, local._store.count))
            size, offset = shard.layout[key].row_bytes, shard._offsets[key]
            low, high = offset + start * size, offset + (start + count) * size
            name = local.card.shards[number].file
            found |= {(name, block) for block in range(low // BLOCK, -(-high // BLOCK))}
    return found


def test_the_first_batch_asks_for_the_blocks_it_touches(pushed, server):
    local, _ = pushed
    far = kmip_data.open(server.address)
    asked = {file for file, _, _ in server.asked}
    assert asked >= INDEX
    index, opened = server.sent, set(blocks_asked(server))
    # Of each shard what HDF5 says of it: the first block, and those between large columns.
    assert len(opened) <= 3 * len(local.card.shards)
    graphs = [3, 4, 5, 64]
    batch = next(iter(GraphLoader(far, batch_sampler=[graphs], prefetch=0)))
    assert_same(batch, next(iter(GraphLoader(local, batch_sampler=[graphs], prefetch=0))))
    blocks = blocks_asked(server)
    assert set(blocks) == opened | touched(local, graphs)
    assert len(blocks) == len(set(blocks))
    assert server.sent - index <= len(touched(local, graphs)) * BLOCK


def test_an_epoch_asks_for_no_block_twice_and_the_next_for_none(pushed, server, tmp_path):
    for _ in GraphLoader(kmip_data.open(server.address), batch_size=8):
        pass
    blocks = blocks_asked(server)
    assert len(blocks) == len(set(blocks))
    assert len(kept(tmp_path)) == len(set(blocks)) + 2  # card and split
    server.asked.clear()
    for _ in GraphLoader(kmip_data.open(server.address), batch_size=8, shuffle=True):
        pass
    assert {file for file, _, _ in server.asked} == {SHARE_NAME, BLOCKS_NAME}


def test_neighbours_are_asked_for_together(pushed, server):
    far = kmip_data.open(server.address)
    server.asked.clear()
    far._store.build.blocks.take([("shards/00003.h5", block) for block in (0, 1, 2)])
    assert len([stop for _, _, stop in server.asked]) <= 2


def test_a_flipped_byte_is_refused_by_file_and_block(pushed, server):
    for file, byte in (("00001.h5", 10), ("00001.h5", 2_150_000), ("00002.h5", 1_200_000)):
        server.wrong_file, server.wrong_byte = f"shards/{file}", byte
        where = f"block {byte // BLOCK} of {server.address}/shards/{file}"
        with pytest.raises(DamagedInput, match=where) as raised:
            for _ in GraphLoader(kmip_data.open(server.address), batch_size=16):
                pass
        assert "SHA-256" in raised.value.parts["expected"]
    server.wrong_file = ""
    assert_same(kmip_data.open(server.address)[70], pushed[0][70])  # nothing wrong was kept


def test_connections_that_are_cut_are_tried_again(pushed, server, monkeypatch):
    monkeypatch.setattr("kmip_data.sharing.remote.time.sleep", lambda seconds: None)
    server.resets = 3
    far = kmip_data.open(server.address)
    server.resets = 3
    assert_same(far[45], pushed[0][45])
    assert server.resets == 0
    server.resets = 10_000
    with pytest.raises(SourceUnavailable, match="cut the connection"):
        far[75]
    assert (10_000 - server.resets) % 5 == 0, "five tries a request"
    server.resets = 0
    assert_same(far[75], pushed[0][75])


def test_a_server_of_whole_files_is_refused_before_it_sends_one(server):
    server.ranges = False
    with pytest.raises(UsageError, match="cannot be read from afar") as raised:
        kmip_data.open(server.address)
    assert f"kmip-data pull {server.address}" in raised.value.parts["next"]


def test_a_compressed_build_is_refused(tmp_path):
    build = write_build(tmp_path / "b", s3dis_records(9), s3dis_schema(), compression="gzip")
    share_folder(build.path, tmp_path / "share")
    with (
        serving_folder(tmp_path / "share") as server,
        pytest.raises(UsageError, match="it is compressed") as raised,
    ):
        kmip_data.open(server.address)
    assert f"kmip-data pull {server.address}" in raised.value.parts["next"]


def test_other_parameters_and_other_things_are_refused(pushed, server, tmp_path):
    kmip_data.open(server.address, k=4)
    with pytest.raises(UsageError, match="another build"):
        kmip_data.open(server.address, k=5)
    with pytest.raises(UsageError, match="Nothing was pushed"):
        kmip_data.open(f"{server.address}/splits")
    with pytest.raises(UsageError, match="not an address that can be reached from here"):
        kmip_data.open("nothing-like-it://there/build")
    share_folder(pushed[0].build.path, tmp_path / "run", kind="run")
    with serving_folder(tmp_path / "run") as other, pytest.raises(UsageError, match="is not a build"):
        kmip_data.open(other.address)


def test_the_cache_is_bounded(pushed, server, tmp_path, monkeypatch):
    monkeypatch.setenv("KMIP_DATA_CACHE_GB", "0.005")
    far = kmip_data.open(server.address)
    for g in range(0, 120, 7):
        assert_same(far[g], pushed[0][g])
        # Threads that add at the same moment may each look before the other's block is there.
        assert sum(path.stat().st_size for path in kept(tmp_path)) <= 5_000_000 + 2 * BLOCK
    monkeypatch.setenv("KMIP_DATA_CACHE_GB", "much")
    with pytest.raises(UsageError, match="KMIP_DATA_CACHE_GB is not a size"):
        kmip_data.open(server.address)


def test_what_is_damaged_in_the_cache_is_fetched_again(pushed, server, tmp_path):
    for g in range(0, 120, 20):
        kmip_data.open(server.address)[g]
    for path in kept(tmp_path):
        path.write_bytes(b"other")
    assert_same(kmip_data.open(server.address)[40], pushed[0][40])


def test_a_disk_that_takes_no_blocks_is_said_once(pushed, server, monkeypatch):
    def full(path, data, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("kmip_data.sharing.blocks.write_file", full)
    with pytest.warns(UserWarning, match="blocks are not kept") as warned:
        far = kmip_data.open(server.address)
    assert_same(far[60], pushed[0][60])
    assert len(warned) == 1


def test_a_home_that_takes_no_files_is_named(pushed, server, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("kmip_data.sharing.afar.make_folder", refuse)
    with pytest.raises(UsageError, match="cannot be written") as raised:
        kmip_data.open(server.address)
    assert "KMIP_DATA_HOME" in raised.value.parts["next"]


@pytest.mark.parametrize("gigabytes", ["20", "0.003"])
def test_several_processes_share_a_cache(pushed, server, tmp_path, monkeypatch, gigabytes):
    monkeypatch.setenv("KMIP_DATA_CACHE_GB", gigabytes)
    work = [(server.address, tmp_path / "shared", range(first, 120, 9)) for first in (0, 0, 4)]
    with multiprocessing.get_context("fork").Pool(3) as pool:
        for found, (_, _, graphs) in zip(pool.starmap(_read_bytes, work), work, strict=True):
            assert found == [pushed[0][g].x.numpy().tobytes() for g in graphs]


def test_pickled_forked_and_read_in_workers(pushed, server):
    far = kmip_data.open(server.address)
    far[0]
    assert_same(pickle.loads(pickle.dumps(far))[31], pushed[0][31])
    loader = DataLoader(far, batch_size=16, num_workers=2, multiprocessing_context="fork", timeout=300)
    for batch, other in zip(loader, DataLoader(pushed[0], batch_size=16), strict=True):
        assert_same(batch, other)


def test_a_folder_that_was_not_pushed_is_refused(pushed, tmp_path):
    folder = copy_of(pushed, tmp_path / "plain")
    (folder / SHARE_NAME).unlink()
    with serving_folder(folder) as server, pytest.raises(UsageError, match="Nothing was pushed to"):
        kmip_data.open(server.address)


@pytest.mark.parametrize("scheme", ["file", "memory", "s3"])
def test_other_schemes_are_read_by_fsspec(pushed, tmp_path, scheme, request):
    local, folder = pushed
    address = f"file://{folder}"
    if scheme != "file":
        address = f"memory://{tmp_path.name}" if scheme == "memory" else request.getfixturevalue("bucket")
        system, root = fsspec.core.url_to_fs(address)
        system.put(f"{folder}/", root, recursive=True)
    far = kmip_data.open(address)
    for g in (0, 61):
        assert_same(far[g], local[g])
    with pytest.raises(UsageError, match="Nothing was pushed"):
        kmip_data.open(f"{address}/shards")


def test_an_answer_that_goes_on_is_cut_off(server):
    server.more = 2**24
    with pytest.raises(DamagedInput, match="is not what was pushed") as raised:
        kmip_data.open(server.address)
    assert raised.value.parts["found"] == "more"


def test_hostile_and_broken_pushes_are_refused(pushed, tmp_path):
    folder, shard = copy_of(pushed, tmp_path / "share"), "shards/00002.h5"
    for path in folder.rglob("*"):
        path.chmod(0o755)
    for name in (SHARE_NAME, BLOCKS_NAME, shard):
        sound = (folder / name).read_bytes()
        for spoilt in (b" " * (2**24 + 1), b"[" * 100_000, b"x" * 2000, None):
            if spoilt is None and name == SHARE_NAME:
                continue  # it is no push then
            (folder / name).write_bytes(spoilt or b"")
            if spoilt is None:
                (folder / name).unlink()
            with serving_folder(folder) as server, pytest.raises(DamagedInput, match=f"{name} is not what"):
                _read_bytes(server.address, tmp_path / str(len(spoilt or b"")), range(0, 120, 10))
        (folder / name).write_bytes(sound)


def test_a_pipe_in_a_folder_that_is_named_as_an_address_is_not_waited_for(pushed, tmp_path, monkeypatch):
    monkeypatch.setattr("kmip_data.sharing.remote._ATTEMPTS", 1)
    folder = copy_of(pushed, tmp_path / "share")
    folder.chmod(0o755)
    for name in (CARD_NAME, SHARE_NAME):
        (folder / name).unlink()
        os.mkfifo(folder / name)
        with pytest.raises(SourceUnavailable, match=f"{name} cannot be reached"):
            kmip_data.open(f"file://{folder}")


def test_cards_that_do_not_fit_what_was_pushed_are_refused(pushed, tmp_path):
    source = copy_of(pushed, tmp_path / "b")
    for name in (SHARE_NAME, BLOCKS_NAME):
        (source / name).unlink()
    card = json.loads((source / CARD_NAME).read_text())
    card["shards"][1]["sha256"] = hashlib.sha256(b"").hexdigest()
    (source / CARD_NAME).write_text(json.dumps(card))
    share_folder(source, tmp_path / "other")
    with (
        serving_folder(tmp_path / "other") as server,
        pytest.raises(DamagedInput, match=r"share\.json is not what"),
    ):
        kmip_data.open(server.address)
    card["shards"][1]["bytes"] = 0
    (source / CARD_NAME).write_text(json.dumps(card))
    (source / "shards" / "00001.h5").chmod(0o644)
    (source / "shards" / "00001.h5").write_bytes(b"")
    share_folder(source, tmp_path / "empty")
    with (
        serving_folder(tmp_path / "empty") as server,
        pytest.raises(DamagedInput, match=r"00001\.h5 is not what"),
    ):
        kmip_data.open(server.address)
