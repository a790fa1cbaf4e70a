"""Damage of every kind in every file of four builds: refused when it is first read."""

from __future__ import annotations

import os
import pickle
import shutil
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.builds.written import s3dis_records, s3dis_schema, write_build
from support.cases import flip_bit
from torch.utils.data import DataLoader

from kmip_data.builds.home import Build
from kmip_data.errors import Command, DamagedInput
from kmip_data.format import crc_checks, writer
from kmip_data.format.reader import Shard
from kmip_data.graphs.encoding import parse_encoding
from kmip_data.pipelines.engine.encode import encode_build
from kmip_data.reading.dataset import ShardedDataset
from kmip_data.reading.loader import GraphLoader
from kmip_data.runtime import memory

PAGE = 4096
BUILDS = ("whole", "cut", "columns")
DAMAGE = ("one bit", "two bits", "a zeroed page", "two exchanged pages")
COLUMN = "rwse4"


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("originals")
    parts = {"train": list(range(16)), "val": [16, 17], "test": [18, 19]}
    records = s3dis_records(20, nodes=(60, 90))
    for name in BUILDS:
        build = write_build(folder / name, records, s3dis_schema(), parts=parts, per_shard=7)
        if name == "cut":
            _cut(build)
        if name == "columns":
            encode_build(build, [parse_encoding(COLUMN)], jobs=1, quiet=True)
        for file in build.path.rglob("*.h5"):
            file.chmod(0o644)
    return folder


def _cut(build: Build) -> None:
    """Write each shard of a build as members of one page."""
    from kmip_data.format.card import ShardEntry
    from kmip_data.format.schema import shard_member_name

    shards = []
    for entry in build.card.shards:
        path = build.path / entry.file
        data = path.read_bytes()
        path.unlink()
        members = []
        for number, start in enumerate(range(0, len(data), 2 * PAGE)):
            piece = data[start : start + 2 * PAGE]
            (build.path / shard_member_name(entry.file, number)).write_bytes(piece)
            digests = writer.RunningDigests()
            digests.update(piece)
            members.append(digests.facts)
        facts = {**entry.model_dump(), "members": members}
        shards.append(ShardEntry(**facts))
    card = build.card.model_copy(update={"shards": shards})
    (build.path / "card.json").write_text(card.to_json())


def read_all(folder: Path) -> bytes:
    """Return every value that a user can read from a build."""
    columns = [COLUMN] if (folder / "columns").exists() else None
    values = []
    for part in ("train", "val", "test"):
        for item in ShardedDataset(folder, part, columns=columns):
            for name in sorted(item.keys()):
                values.append(np.asarray(item[name]).tobytes())
    return b"".join(values)


def spoil(path: Path, damage: str, rng: np.random.Generator) -> bool:
    """Damage a file in place; False where that changes nothing."""
    data = np.frombuffer(path.read_bytes(), np.uint8).copy()
    before = data.copy()
    if damage in {"one bit", "two bits"}:
        for _ in range(DAMAGE.index(damage) + 1):
            data[rng.integers(len(data))] ^= 1 << rng.integers(8)
    else:
        pages = max(1, len(data) // PAGE)
        first = PAGE * int(rng.integers(pages))
        second = PAGE * int(rng.integers(pages))
        if damage == "a zeroed page":
            data[first : first + PAGE] = 0
        else:
            size = len(data[max(first, second) :][:PAGE])
            one = data[first : first + size].copy()
            data[first : first + size] = data[second : second + size]
            data[second : second + size] = one
    if (data == before).all():
        return False
    path.write_bytes(data.tobytes())
    return True


def count_outcomes(originals: Path, folder: Path, tries: int) -> Counter[str]:
    """Damage one file, and read all; ``wrong`` counts other values than before."""
    outcomes: Counter[str] = Counter()
    rng = np.random.default_rng(0)
    right = {name: read_all(originals / name) for name in BUILDS}
    while outcomes.total() < tries:
        name = BUILDS[outcomes.total() % len(BUILDS)]
        damage = DAMAGE[outcomes.total() // len(BUILDS) % len(DAMAGE)]
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(originals / name, folder)
        files = sorted(folder.rglob("*.h5"))
        if not spoil(files[rng.integers(len(files))], damage, rng):
            continue
        try:
            is_right = read_all(folder) == right[name]
            outcomes["unnoticed" if is_right else "wrong"] += 1
        except DamagedInput as error:
            is_repair = error.steps == [Command("kmip-data", "verify", folder, "--repair")]
            outcomes["refused" if is_repair else str(error.steps)] += 1
        except Exception as error:
            outcomes[type(error).__name__] += 1
    return outcomes


def test_damage_is_refused(originals, tmp_path):
    assert count_outcomes(originals, tmp_path / "build", 48) == {"refused": 48}


def test_threads_pickles_and_forks_refuse_changed_files(originals, tmp_path):
    """The file is damaged between opening and first mapping."""
    folder = shutil.copytree(originals / "whole", tmp_path / "build")
    dataset = ShardedDataset(folder, "train")
    flip_bit(folder / "shards/00000.h5")
    again = pickle.loads(pickle.dumps(dataset))
    caught = []

    def read(dataset: ShardedDataset = again, caught: list[Exception] = caught) -> None:
        try:
            dataset[0]
        except DamagedInput as error:
            caught.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    thread.join()
    assert len(caught) == 1
    with pytest.raises(DamagedInput):
        list(GraphLoader(dataset, batch_size=2, num_workers=1))


@pytest.mark.parametrize("change", ["replaced", "rewritten"])
def test_a_private_map_reads_the_checked_file(originals, tmp_path, monkeypatch, change):
    """Columns that are large enough are mapped anew for each item."""
    monkeypatch.setattr(memory, "MIN_MAPPED_BYTES", 1)
    folder = shutil.copytree(originals / "whole", tmp_path / "build")
    dataset = ShardedDataset(folder, "train")
    dataset[0]
    file = folder / "shards/00000.h5"
    data = bytearray(file.read_bytes())
    shard = Shard(file)
    for column in shard.schema.columns:
        data[shard._offsets[column.key]] ^= 1
    if change == "replaced":
        (folder / "new").write_bytes(data)
        (folder / "new").rename(file)
    else:
        file.write_bytes(data)
    for reader in (dataset, pickle.loads(pickle.dumps(dataset))):
        with pytest.raises(DamagedInput):
            reader[0]
    with pytest.raises(DamagedInput):
        list(DataLoader(dataset, batch_size=None, num_workers=1))  # a fork


def test_a_change_with_a_restored_mtime_is_detected(originals, tmp_path):
    folder = shutil.copytree(originals / "whole", tmp_path / "build")
    list(ShardedDataset(folder, "train"))
    file = folder / "shards/00001.h5"
    before = file.stat()
    flip_bit(file)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert file.stat().st_mtime_ns == before.st_mtime_ns
    with pytest.raises(DamagedInput):
        list(ShardedDataset(folder, "train"))


def test_a_state_is_checked_once_even_after_unpickling(originals, tmp_path, monkeypatch):
    folder = shutil.copytree(originals / "whole", tmp_path / "build")
    counted: list[Path] = []
    read_crc32 = crc_checks._read_crc32

    def counting(path: Path, *rest: Any) -> str:
        counted.append(path)
        return read_crc32(path, *rest)

    monkeypatch.setattr(crc_checks, "_read_crc32", counting)
    time.sleep(crc_checks._TIMESTAMP_RESOLUTION_NS / 1e9)  # a later change has another time
    dataset = ShardedDataset(folder, "train")
    list(dataset)
    data = pickle.dumps(dataset)
    assert len(counted) == len(set(counted)) == 3
    crc_checks.verified_files.clear()  # as in a new process
    list(pickle.loads(data))
    assert len(counted) == 3
    os.utime(folder / "shards/00001.h5", ns=(1, 1))
    time.sleep(crc_checks._TIMESTAMP_RESOLUTION_NS / 1e9)
    list(ShardedDataset(folder, "train"))
    assert counted[3:] == [folder / "shards/00001.h5"]


def test_a_large_file_leaves_a_receipt_in_the_home(originals, tmp_path, monkeypatch):
    monkeypatch.setattr(crc_checks, "MIN_STAMPED_BYTES", 0)
    folder = shutil.copytree(originals / "whole", tmp_path / "home/built/b")
    time.sleep(crc_checks._TIMESTAMP_RESOLUTION_NS / 1e9)
    right = read_all(folder)
    assert len(list((tmp_path / "home/cache/checked").iterdir())) == 3
    monkeypatch.setattr(crc_checks, "_read_crc32", lambda *_: "read again")
    crc_checks.verified_files.clear()
    assert read_all(folder) == right
    for change in (lambda file: os.utime(file, ns=(1, 1)), flip_bit):
        crc_checks.verified_files.clear()
        change(folder / "shards/00000.h5")
        with pytest.raises(DamagedInput):
            read_all(folder)
