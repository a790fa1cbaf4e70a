"""Random damage to builds, drawn by Hypothesis; run as a program, so that a crash ends only the child.

``python -m support.strangers_fuzz ORIGINALS WORK SEED CASES``: exits with 1 at the first case that raises
anything but an error of ``kmip_data.errors``. ``WORK/case.txt`` has the case that is running.
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
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

_place = st.integers(0, 10_000)
_json = st.tuples(_place, st.sampled_from(["set", "delete", "repeat"]), st.sampled_from(VALUES))
_changes = st.one_of(
    st.tuples(st.sampled_from(["card", "columns", "schema", "added schema", "counts"]), _json),
    st.tuples(st.just("array"), st.tuples(_place, _place, _place, st.sampled_from(NUMBERS))),
    st.tuples(st.just("flip"), st.tuples(_place, st.integers(0, 2**30), st.integers(0, 7), st.booleans())),
)
CASES = st.tuples(
    st.integers(0, 2),
    st.lists(_changes, min_size=1, max_size=3),
    st.lists(st.integers(0, 11), min_size=2, max_size=3, unique=True),
)


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


def run(originals: Path, work: Path, number: int, cases: int) -> None:
    """Try ``cases`` cases."""
    quiet()
    builds = sorted(path for path in originals.iterdir() if path.is_dir())
    tried = 0

    @seed(number)
    @settings(
        max_examples=cases,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(CASES)
    def attempt(case: Any) -> None:
        nonlocal tried
        tried += 1
        which, changes, chosen = case
        (work / "case.txt").write_text(repr(case))
        folder = copy_build(builds[which], work / "build")
        damage(folder, changes)
        actions = uses(folder)
        for position in chosen:
            with contextlib.suppress(KmipDataError):
                actions[position]()

    attempt()
    sys.stdout.write(f"{tried:,} cases\n")


if __name__ == "__main__":
    run(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
