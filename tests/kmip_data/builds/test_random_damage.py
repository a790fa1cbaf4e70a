"""Random damage to builds of strangers: nothing but errors of ``kmip_data.errors``, and no crash."""

from __future__ import annotations

import contextlib
import json
import os
import traceback
from pathlib import Path
from random import Random
from typing import Any

import h5py
import numpy as np
import pytest
from support.strangers_builds import copy_build, quiet, reseal, uses

from kmip_data.errors import KmipDataError
from kmip_data.format.writer import put_text

VALUES = [
    *(
        None,
        True,
        -1,
        0,
        1,
        2,
        3,
        255,
        2**16,
        2**31,
        2**63,
        -(2**63),
        10**400,
        0.5,
        1e308,
        float("nan"),
        "",
        "x",
    ),
    *("node/x", "graph/x", "uint8", "int64", "bool", "index", "neighbor", "none", "row", "number", "text"),
    *("edge_index", "../x", "/etc/passwd", "shards/00001.h5", "a\x1b[31m\n", "ä", "x" * 300),
    *([], {}, [[]], [1, 2], {"a": 1}, [2**31] * 8, ["x"], {"min": 1, "mean": 1, "max": 2}),
]
NUMBERS = [0, 1, 2, 3, 7, 64, 255, 2**15, 2**16 - 1, 2**31, 2**32 - 1, 2**62, -1, -2, -(2**63)]


def _places(value: Any) -> list[tuple[Any, Any]]:
    """All places in a JSON value, as container and key."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, child in list(items) for found in [(value, key), *_places(child)]]


def change_json(text: str, random: Random) -> str:
    """Change one place of a JSON value."""
    content = json.loads(text)
    container, key = random.choice(_places(content))
    how = random.choice(["set", "delete", "repeat"])
    if how == "delete":
        del container[key]
    elif how == "repeat" and isinstance(container, list):
        container.append(container[key])
    else:
        container[key] = random.choice(VALUES)
    return json.dumps(content)


def _change_schema(folder: Path, files: str, random: Random) -> None:
    """Change the schema in files and on their card alike: only then does anything read by it."""
    text = ""
    for file in sorted(folder.glob(files)):
        with h5py.File(file, "r+") as opened:
            text = text or change_json(opened.attrs["schema"].decode(), random)
            del opened.attrs["schema"]
            put_text(opened, "schema", text)
    card = json.loads((folder / "card.json").read_bytes())
    (folder / "card.json").write_text(json.dumps({**card, "data_schema": json.loads(text)}))


def _change_array(file: Path, random: Random) -> None:
    with h5py.File(file, "r+") as opened:
        keys: list[str] = []
        opened.visititems(lambda key, found: keys.append(key) if isinstance(found, h5py.Dataset) else None)
        array = opened[random.choice(keys)]
        changed = array[...]
        number = np.array([random.choice(NUMBERS)])
        changed.reshape(-1)[random.randrange(array.size)] = (
            b"\xff" if array.dtype.kind == "S" else number.astype(array.dtype)[0]
        )
        array[...] = changed


def _flip(file: Path, random: Random) -> None:
    data = bytearray(file.read_bytes())
    data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    file.write_bytes(data)


def damage(folder: Path, random: Random) -> str:
    """Change one thing; one that no longer fits what others left is left out. Return its name."""
    kind = random.choice(["card", "columns", "schema", "added schema", "array", "flip"])
    columns, shards = folder / "columns/rwse3", sorted(folder.rglob("*.h5"))
    with contextlib.suppress(
        OSError, ValueError, TypeError, KeyError, IndexError, RuntimeError, OverflowError
    ):
        if kind in {"card", "columns"}:
            card = (folder if kind == "card" else columns) / "card.json"
            card.write_text(change_json(card.read_text(), random))
        elif kind == "schema":
            _change_schema(folder, "shards/*.h5", random)
        elif kind == "added schema":
            _change_schema(columns, "*.h5", random)
        elif kind == "array":
            _change_array(random.choice(shards), random)
        else:
            _flip(random.choice(sorted(path for path in folder.rglob("*") if path.is_file())), random)
    if kind != "flip" or random.random() < 0.5:
        reseal(folder)
    return kind


def attempt(originals: Path, work: Path, seed: int) -> None:
    """Damage a build and use it."""
    random = Random(seed)
    builds = sorted(path for path in originals.iterdir() if path.is_dir())
    folder = copy_build(random.choice(builds), work / "build")
    changes = [damage(folder, random) for _ in range(random.randint(1, 3))]
    chosen = random.sample(range(12), random.randint(2, 3))
    (work / "case.txt").write_text(f"seed {seed}: {changes}, {chosen}")
    actions = uses(folder)
    for position in chosen:
        with contextlib.suppress(KmipDataError):
            actions[position]()


def fuzz(originals: Path, work: Path, seeds: range) -> None:
    """Try random damages in a fork, which may crash."""
    pid = os.fork()
    if not pid:
        quiet()
        try:
            for seed in seeds:
                attempt(originals, work, seed)
            os._exit(0)
        except BaseException:
            (work / "error.txt").write_text(traceback.format_exc())
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    said = [path.read_text() for path in (work / "case.txt", work / "error.txt") if path.exists()]
    assert code == 0, (code, *said)


def test_random_damage(originals, tmp_path):
    fuzz(originals, tmp_path, range(60))


@pytest.mark.torture
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(10))
def test_random_damage_at_length(originals, tmp_path, part, torture_count):
    fuzz(originals, tmp_path, range(1_000 + 2_000 * part, 3_000 + 2_000 * part))
    torture_count("fuzzer cases", 2_000)
