"""Folders and names from strangers: limits before reading, and the usual error for all that is strange."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import h5py
import numpy as np
import torch
from support.builds.strangers import ENCODING, copy_build, reseal
from torch_geometric.data import Data

import kmip_data
from kmip_data.errors import KmipDataError
from kmip_data.format.card import CARD_NAME, read_card
from kmip_data.format.split_files import read_split
from kmip_data.format.untrusted_hdf5 import open_untrusted_hdf5

GROWN = 1_500_000_000  #: bytes of a file that has grown; sparse, so it takes no room on the disk
MAX_BYTES = 300_000_000  #: bytes of memory that refusing a file may take
SPLIT, COLUMNS = "splits/default.h5", f"columns/{ENCODING}/{CARD_NAME}"


def error_and_growth(use: Callable[[], object]) -> tuple[BaseException | None, int]:
    """Return the exception of a call, if any, and the bytes by which it raised the memory of this process."""

    def highest() -> int:
        return int(re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())[1]) * 1024

    Path("/proc/self/clear_refs").write_text("5")  # begin anew
    before, refusal = highest(), None
    try:
        use()
    except Exception as error:
        refusal = error
    return refusal, highest() - before


def failures(
    cases: Iterator[tuple[str, Callable[[], object]]], *, refused: bool = False
) -> list[str]:
    """Return the cases that end in another error than ours, or take too much memory.

    With ``refused`` each must end in our error.
    """
    wrong = []
    for name, use in cases:
        error, taken = error_and_growth(use)
        printed = str(error).encode(errors="replace").decode()
        if printed != str(error):
            wrong.append(f"{name}: a message that cannot be encoded")
        if not isinstance(error, KmipDataError) and (error is not None or refused):
            wrong.append(f"{name}: {type(error).__name__}: {printed[:100]}")
        if taken > MAX_BYTES:
            wrong.append(f"{name}: {taken:,} bytes of memory")
    return wrong


def grow(path: Path) -> None:
    path.chmod(0o644)
    os.truncate(path, GROWN)


def declare(path: Path, key: str, shape: tuple[int, ...], **options) -> None:
    """Put a dataset of this shape, without data, in the place of another."""
    path.chmod(0o644)
    with h5py.File(path, "r+") as file:
        if key in file:
            del file[key]
        file.create_dataset(key, shape, "<i8", track_times=False, **options)


def large_files(originals: Path, tmp_path: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """Uses of files that have grown, or declare more than they hold."""
    folder = tmp_path / "build"

    def fresh() -> None:
        copy_build(originals / "index", folder)

    fresh()
    grow(folder / CARD_NAME)
    yield "a card", lambda: read_card(folder)
    fresh()
    grow(folder / COLUMNS)
    yield "the card of an added column", lambda: kmip_data.open(folder, columns=[ENCODING])
    for name, shape, options in (
        ("a split with a part of 1.2 GB", (150_000_000,), {"fillvalue": 1}),
        ("a split with a compressed part", (2**30,), {"chunks": (2**16,), "compression": "gzip"}),
        ("a split with an axis of 0", (0, 10**10), {}),
    ):
        fresh()
        declare(folder / SPLIT, "split/train", shape, **options)
        yield f"{name}, read", lambda: read_split(folder / SPLIT)
        yield f"{name}, opened", lambda: kmip_data.open(folder, "train")
        if "1.2 GB" not in name:
            reseal(folder)
            yield f"{name} with its digest, opened", lambda: kmip_data.open(folder, "train")
    fresh()
    (folder / SPLIT).chmod(0o644)
    os.truncate(folder / SPLIT, 100 * 2**20)
    reseal(folder)
    yield "a split of 100 MiB with its digest", lambda: kmip_data.open(folder, "train")
    fresh()
    declare(folder / "shards/00000.h5", "node/x", (0, 10**10))
    reseal(folder)
    yield "a shard with an axis of 0", lambda: kmip_data.open(folder)
    path = tmp_path / "own.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("data", (0, 10**10), "f4")

    def user_file() -> None:
        with open_untrusted_hdf5(path, max_declared_bytes=2**33) as (file, _):
            np.ascontiguousarray(file["data"][:].T)

    yield "a file of your own with an axis of 0", user_file


def test_sizes_are_limited_before_files_are_read(originals, tmp_path):
    assert not failures(large_files(originals, tmp_path), refused=True)


NAMES = [
    *("a\0b", "x" * 300, "./" + "x" * 300, "x/" * 3_000, "\udcff", "./\udcff", "\ud800", "a\nb/"),
    *("~nobody/x", "", ".", "/dev/null", "/dev/null/x", "https://\0", "s3://\udcff/a"),
]


def strange_names(originals: Path, tmp_path: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    graphs = [Data(x=torch.rand(3, 2), edge_index=torch.tensor([[0, 1], [1, 2]]))]
    for text in NAMES:
        shown = repr(text[:12])
        yield f"open({shown})", lambda text=text: kmip_data.open(text)
        yield f"open(home={shown})", lambda text=text: kmip_data.open("given", home=text)
        yield f"ShardedDataset({shown})", lambda text=text: kmip_data.ShardedDataset(text)
        yield f"S3DIS({shown})", lambda text=text: kmip_data.S3DIS(text, build=False)
        for options in ({"split": text}, {"split_name": text}, {"columns": [text]}):
            name = f"open({next(iter(options))}={shown})"
            yield name, lambda options=options: kmip_data.open(originals / "index", **options)
        yield (
            f"save(name={shown})",
            lambda text=text: kmip_data.save(graphs, tmp_path / "saved", name=text),
        )
        if text not in {"", "."}:
            yield f"save({shown})", lambda text=text: kmip_data.save(graphs, text)


def test_strange_names_of_files_are_refused(originals, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KMIP_DATA_HOME", str(tmp_path / "home"))
    assert not failures(strange_names(originals, tmp_path))
