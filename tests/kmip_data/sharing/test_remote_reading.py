"""Builds read where they lie: the same items, by no block more than they touch, nothing unverified kept."""

import hashlib
import json
import multiprocessing
import os
import pickle
import shutil

import fsspec
import pytest
import torch
from support.attacks.http_server import serving_folder
from support.builds.same import assert_same_data
from support.builds.shares import share_folder
from support.builds.written import s3dis_records, s3dis_schema, write_build
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader

import kmip_data
from kmip_data import GraphLoader
from kmip_data.errors import DamagedInput, SourceUnavailable, UsageError
from kmip_data.files.small_files import sealed_json
from kmip_data.format.card import CARD_NAME
from kmip_data.pipelines.find_builds import ensure_columns
from kmip_data.sharing.push_metadata import BLOCK_BYTES, BLOCKS_NAME, SHARE_NAME
from kmip_data.sharing.remote import Remote

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


def first_batches(far, local, **options):
    batches = GraphLoader(far, **options), GraphLoader(local, **options)
    for batch, other in zip(*batches, strict=True):
        assert_same_data(batch, other)


def test_remote_items_splits_and_batches_equal_the_local_build(pushed, server):
    local, _ = pushed
    far = kmip_data.open(server.address, k=4)
    assert far.keys == local.keys
    assert far.card.digest == local.card.digest
    for g in (0, 29, 30, 77, 119):
        assert_same_data(far[g], local[g])
    test = kmip_data.open(server.address, "test", columns=["y"])
    assert_same_data(test[3], kmip_data.open(local.build.path, "test", columns=["y"])[3])
    for options in ({"compact": True, "prefetch": 0}, {"prefetch": 2}):
        first_batches(far, local, batch_size=7, shuffle=True, seed=5, **options)


def test_edge_lists_texts_empty_graphs_and_added_columns_are_read(tmp_path):
    graphs = []
    for n, e in ((50_000, 90_000), (0, 0), (20_000, 0), (3, 5)):
        edges = torch.randint(max(n, 1), (2, e))
        graphs.append(
            Data(x=torch.rand(n, 3), edge_index=edges, edge_attr=torch.rand(e), name=f"g{n}")
        )
    build = kmip_data.save(graphs, tmp_path / "b")
    ensure_columns(build, ["degree-profile-2.8"], quiet=True)
    share_folder(build.path, tmp_path / "share")
    with serving_folder(tmp_path / "share") as server:
        for columns in (None, ["x", "degree-profile-2.8"]):
            local, far = (
                kmip_data.open(at, columns=columns) for at in (build.path, server.address)
            )
            for one, other in zip(far, local, strict=True):
                assert_same_data(one, other)
            first_batches(far, local, batch_size=4)
        with pytest.raises(DamagedInput, match="/nothing"):
            far.build.open_shard("nothing", far.build.card.shards[0])


def blocks_asked(server):
    """Blocks of shards that the server sent, each as often as it was sent."""
    return [
        (file, block)
        for file, start, stop in server.asked
        if file.startswith("shards/")
        for block in range(start // BLOCK_BYTES, -(-stop // BLOCK_BYTES))
    ]


def _read_bytes(address, home, graphs):
    far = kmip_data.open(address, home=home)
    return [far[g].x.numpy().tobytes() for g in graphs]


def test_the_first_batch_asks_for_the_blocks_it_touches(pushed, server):
    local, _ = pushed
    far = kmip_data.open(server.address)
    assert {file for file, _, _ in server.asked} >= INDEX
    opened = blocks_asked(server)
    # Of each shard what HDF5 says of it: the first block, and those between large columns.
    assert len(opened) <= 3 * len(local.card.shards)
    graphs = [3, 15, 75]
    batch = next(iter(GraphLoader(far, batch_sampler=[graphs], prefetch=0)))
    assert_same_data(batch, next(iter(GraphLoader(local, batch_sampler=[graphs], prefetch=0))))
    asked = blocks_asked(server)
    assert len(asked) == len(set(asked))
    assert set(asked) - set(opened) == {("shards/00000.h5", 1), ("shards/00002.h5", 1)}


def test_a_flipped_byte_is_refused_by_file_and_block(pushed, server):
    for file, byte in (("00001.h5", 10), ("00001.h5", 2_150_000), ("00002.h5", 1_200_000)):
        server.wrong_file, server.wrong_byte = f"shards/{file}", byte
        where = f"block {byte // BLOCK_BYTES} of {server.address}/shards/{file}"
        with pytest.raises(DamagedInput, match=where) as raised:
            for _ in GraphLoader(kmip_data.open(server.address), batch_size=16):
                pass
        assert "SHA-256" in raised.value.expected
    server.wrong_file = ""
    assert_same_data(kmip_data.open(server.address)[70], pushed[0][70])  # nothing wrong was kept


def test_cut_connections_are_retried(pushed, server, monkeypatch):
    monkeypatch.setattr("kmip_data.sharing.remote.time.sleep", lambda seconds: None)
    server.resets = 3
    far = kmip_data.open(server.address)
    server.resets = 3
    assert_same_data(far[45], pushed[0][45])
    assert server.resets == 0
    server.resets = 10_000
    with pytest.raises(SourceUnavailable, match="RemoteDisconnected"):
        far[75]
    assert (10_000 - server.resets) % 5 == 0, "five tries a request"
    server.resets = 0
    assert_same_data(far[75], pushed[0][75])


def test_remote_datasets_can_be_pickled_forked_and_read_in_workers(pushed, server):
    far = kmip_data.open(server.address)
    far[0]
    assert_same_data(pickle.loads(pickle.dumps(far))[31], pushed[0][31])
    loader = DataLoader(
        far, batch_size=16, num_workers=2, multiprocessing_context="fork", timeout=300
    )
    for batch, other in zip(loader, DataLoader(pushed[0], batch_size=16), strict=True):
        assert_same_data(batch, other)


@pytest.mark.parametrize("scheme", ["file", "memory", "s3"])
def test_other_schemes_are_read_by_fsspec(pushed, tmp_path, scheme, request):
    local, folder = pushed
    address = f"file://{folder}"
    if scheme != "file":
        address = (
            f"memory://{tmp_path.name}" if scheme == "memory" else request.getfixturevalue("bucket")
        )
        system, root = fsspec.core.url_to_fs(address)
        system.put(f"{folder}/", root, recursive=True)
    far = kmip_data.open(address)
    for g in (0, 61):
        assert_same_data(far[g], local[g])
    with pytest.raises(UsageError, match=SHARE_NAME):
        kmip_data.open(f"{address}/shards")


def test_blocks_are_requested_once_over_two_epochs(pushed, server, tmp_path):
    for _ in GraphLoader(kmip_data.open(server.address), batch_size=8):
        pass
    blocks = blocks_asked(server)
    assert len(blocks) == len(set(blocks))
    server.asked.clear()
    for _ in GraphLoader(kmip_data.open(server.address), batch_size=8, shuffle=True):
        pass
    assert {file for file, _, _ in server.asked} == {SHARE_NAME, BLOCKS_NAME}
    # What is damaged in the cache is fetched again, whatever its size.
    copies = [path for path in (tmp_path / "home/cache/builds").rglob("*") if path.is_file()]
    for number, path in enumerate(copies):
        path.write_bytes(bytes(2**23) if number % 2 else b"other")
    assert_same_data(kmip_data.open(server.address)[40], pushed[0][40])


def test_rows_beyond_memory_are_not_fetched(server):
    store = kmip_data.open(server.address)._store
    server.asked.clear()
    with pytest.raises(MemoryError):
        store.build.prefetch_rows([(store.shards[0], "node/x", 0, 2**55)])
    assert server.asked == []


def test_several_processes_share_a_cache(pushed, server, tmp_path):
    work = [(server.address, tmp_path / "shared", range(first, 120, 9)) for first in (0, 0, 4)]
    with multiprocessing.get_context("fork").Pool(3) as pool:
        for rows, (_, _, graphs) in zip(pool.starmap(_read_bytes, work), work, strict=True):
            assert rows == [pushed[0][g].x.numpy().tobytes() for g in graphs]


def test_what_cannot_be_read_remotely_is_refused(pushed, server, tmp_path):
    with pytest.raises(UsageError) as raised:
        kmip_data.open(server.address, k=5)
    assert raised.value.expected == "k = 5"
    with pytest.raises(UsageError, match=SHARE_NAME):
        kmip_data.open(f"{server.address}/splits")
    with pytest.raises(UsageError, match="nothing-like-it://"):
        kmip_data.open("nothing-like-it://there/build")
    share_folder(pushed[0].build.path, tmp_path / "run", kind="run")
    with (
        serving_folder(tmp_path / "run") as other,
        pytest.raises(UsageError, match=r"\brun\b") as caught,
    ):
        kmip_data.open(other.address)
    assert f"kmip-data pull {other.address}" in caught.value.next
    server.ranges = False
    with pytest.raises(UsageError, match="complete files"):
        kmip_data.open(server.address)
    server.ranges, server.more = True, 2**24
    with pytest.raises(DamagedInput) as damaged:
        kmip_data.open(server.address)
    assert damaged.value.found == "more"
    server.more = 1
    with pytest.raises(DamagedInput, match=CARD_NAME):
        Remote(server.address).read_range(CARD_NAME, 100, 200)


def test_hostile_and_broken_pushes_are_refused(pushed, tmp_path):
    folder, shard = tmp_path / "share", "shards/00002.h5"
    share_folder(pushed[0].build.path, folder)
    (folder / shard).chmod(0o644)
    for name in (SHARE_NAME, BLOCKS_NAME, shard):
        sound = (folder / name).read_bytes()
        for spoilt in (b" " * (2**24 + 1), b"[" * 100_000, b""):
            (folder / name).write_bytes(spoilt)
            with (
                serving_folder(folder) as server,
                pytest.raises(DamagedInput, match=name),
            ):
                _read_bytes(server.address, tmp_path / str(len(spoilt)), range(0, 120, 10))
        (folder / name).write_bytes(sound)


def test_cards_that_contradict_the_push_are_refused(pushed, tmp_path):
    """A push with valid digests is refused if its card names another or an empty shard."""
    source = tmp_path / "b"
    shutil.copytree(pushed[0].build.path, source)
    card, shard = json.loads((source / CARD_NAME).read_text()), source / "shards/00001.h5"
    shard.chmod(0o644)
    card["shards"][1]["sha256"] = hashlib.sha256(b"").hexdigest()
    for size, name in ((card["shards"][1]["bytes"], SHARE_NAME), (0, "00001.h5")):
        card["shards"][1]["bytes"] = size
        (source / CARD_NAME).write_text(sealed_json(card))
        os.truncate(shard, size)
        share_folder(source, tmp_path / name)
        with (
            serving_folder(tmp_path / name) as server,
            pytest.raises(DamagedInput, match=name),
        ):
            kmip_data.open(server.address)
