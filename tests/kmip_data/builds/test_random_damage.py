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
    *(None, True, False, -1, 0, 1, 2, 3, 5, 255, 2**16, 2**31, 2**32 - 1, 2**63 - 1, 2**63),
    *(-(2**63), 10**400),
    *(0.5, -1e308, 1e308, float("nan"), float("inf"), "", "x", "k", "node/x", "graph/x", "node/y", "uint8"),
    *("int64", "bool", "float64", "index", "neighbor", "none", "row", "axis", "number", "text", "edge_index"),
    *("..", "../x", "/etc/passwd", "shards/00001.h5", "shards/../card.json", "a\x1b[31m\n", "ä", "x" * 300),
    *([], {}, [[]], [1, 2], {"a": 1}, [2**31] * 8, ["x"], {"min": 1, "mean": 1, "max": 2}),
]
NUMBERS = [0, 1, 2, 3, 7, 64, 255, 2**15, 2**16 - 1, 2**31, 2**32 - 1, 2**62, -1, -2, -(2**63)]


def _nodes(value: Any) -> list[tuple[Any, Any]]:
    """All places in a JSON value, as container and key."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, child in list(items) for found in [(value, key), *_nodes(child)]]


def change_json(value: Any, change: tuple[int, str, Any]) -> None:
    """Change one place of a JSON value."""
    at, how, new = change
    places = _nodes(value)
    if not places:
        return
    container, key = places[at % len(places)]
    if how == "set" or (how == "repeat" and isinstance(container, dict)):
        container[key] = new
    elif how == "delete":
        del container[key]
    else:
        container.append(container[key])


def _change_text(path: Path, change: tuple[int, str, Any]) -> None:
    content = json.loads(path.read_bytes())
    change_json(content, change)
    path.write_text(json.dumps(content))


def _change_attribute(files: list[Path], name: str, change: tuple[int, str, Any]) -> Any:
    """Change JSON in an attribute of some files alike; return what it is now."""
    content = None
    for file in files:
        with h5py.File(file, "r+") as opened:
            content = json.loads(opened.attrs[name])
            change_json(content, change)
            del opened.attrs[name]
            put_text(opened, name, json.dumps(content))
    return content


def _change_schema(folder: Path, card: str, files: str, change: tuple[int, str, Any]) -> None:
    """Change the schema on a card and in its files alike: only then does anything read by it."""
    schema = _change_attribute(sorted(folder.glob(files)), "schema", change)
    content = json.loads((folder / card).read_bytes())
    content["data_schema"] = schema
    (folder / card).write_text(json.dumps(content))


def _change_array(folder: Path, change: tuple[int, int, int, int]) -> None:
    files = sorted(folder.rglob("*.h5"))
    which, dataset, at, value = change
    with h5py.File(files[which % len(files)], "r+") as file:
        keys: list[str] = []
        file.visititems(lambda key, found: keys.append(key) if isinstance(found, h5py.Dataset) else None)
        array = file[keys[dataset % len(keys)]]
        if array.size:
            changed = array[...]
            flat = changed.reshape(-1)
            flat[at % flat.size] = (
                b"\xff" if array.dtype.kind == "S" else np.array([value]).astype(array.dtype)[0]
            )
            array[...] = changed


def _flip(folder: Path, change: tuple[int, int, int, bool]) -> bool:
    which, at, bit, sealed = change
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    file = files[which % len(files)]
    data = bytearray(file.read_bytes())
    data[at % len(data)] ^= 1 << bit
    file.write_bytes(data)
    return sealed


def damage(folder: Path, changes: list[Any]) -> None:
    """Carry out the changes; one that no longer fits what the others left is left out."""
    sealed = True
    for kind, change in changes:
        try:
            if kind == "card":
                _change_text(folder / "card.json", change)
            elif kind == "columns":
                _change_text(folder / "columns/rwse3/card.json", change)
            elif kind == "schema":
                _change_schema(folder, "card.json", "shards/*.h5", change)
            elif kind == "added schema":
                _change_schema(folder, "columns/rwse3/card.json", "columns/rwse3/*.h5", change)
            elif kind == "counts":
                _change_attribute(sorted(folder.glob("shards/*.h5"))[:1], "counts", change)
            elif kind == "array":
                _change_array(folder, change)
            else:
                sealed = _flip(folder, change)
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RuntimeError, OverflowError):
            continue
    if sealed:
        reseal(folder)


def draw(random: Random) -> tuple[str, Any]:
    """Draw one change: what is changed, and how."""
    kind = random.choice(["card", "columns", "schema", "added schema", "counts", "array", "flip"])
    place = random.randrange(10_000)
    if kind == "array":
        return kind, (place, random.randrange(10_000), random.randrange(10_000), random.choice(NUMBERS))
    if kind == "flip":
        return kind, (place, random.randrange(2**30), random.randrange(8), random.random() < 0.5)
    return kind, (place, random.choice(["set", "delete", "repeat"]), random.choice(VALUES))


def attempt(originals: Path, work: Path, seed: int) -> None:
    """Damage a build and use it."""
    random = Random(seed)
    builds = sorted(path for path in originals.iterdir() if path.is_dir())
    changes = [draw(random) for _ in range(random.randint(1, 3))]
    chosen = random.sample(range(12), random.randint(2, 3))
    (work / "case.txt").write_text(f"seed {seed}: {changes}, {chosen}")
    folder = copy_build(random.choice(builds), work / "build")
    damage(folder, changes)
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
