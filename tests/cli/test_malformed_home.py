"""Rule: strange homes, results of steps, cards and names end in the usual error, or are left out."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

import pytest
from support.cli import kmip

import kmip_data
from kmip_data.errors import KmipDataError

NAMES = {
    "NUL": "a\0b",
    "no UTF-8": "a\udcff",
    "too long": "x" * 300,
    "a deep path": "x/" * 2500,
    "no user": "~nobody-here/x",
}
TEXTS = {
    "empty": b"",
    "no UTF-8": b"\xff\xfe{}",
    "no object": b"[1]",
    "deep": b"[" * 100_000,
    "NUL": b'{"count":"a\\u0000b","name":"a\\u0000b"}',
    "other types": b'{"count":{},"name":5,"facts":3,"path_in_work":[1]}',
    "long number": b'{"count":' + b"9" * 5000 + b"}",
}
COMMANDS = ("list", "list --json", "runs", "runs --json", "remove {} --yes", "verify {}", "info {}")
#: Kind of a file, its folder in the home (empty: a build), and where it lies in that.
FILES = (
    ("card", "built/x-0", ["card.json"]),
    ("card of a build", "", ["card.json"]),
    ("result of a step", "built/x-1", ["work/units.json", "work/00000.json", "shards/00000.h5"]),
    ("card of a column", "", ["columns/rwse4/card.json"]),
    ("run", "runs/a/b/c", ["config.toml", "result.json", "metrics.csv", "checkpoints/last.ckpt"]),
    ("raw", "raw/s3dis", ["members-0/receipt.json", "a.receipt.json", "b.partial.json"]),
)
ODD = (b"built/\xff-0", b"runs/\xff/b/c", b"runs/a/\xff/c", b"raw/\xff", b"sweeps/\xff")


def put(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_dir():
        path.write_bytes(data)


@pytest.mark.slow
def test_commands_end_cleanly_on_malformed_homes(home, make_build, subtests) -> None:
    def ends(
        command: str, target: str, *more: object, codes: tuple[int, ...] = (0, 1, 2, 4)
    ) -> None:
        outcome = kmip(*[word.format(target) for word in command.split()], *more)
        assert outcome.code in codes, outcome.err

    for kind, place, files in FILES:
        for text, data in TEXTS.items():
            shutil.rmtree(home, ignore_errors=True)
            folder = home / place if place else make_build().path
            for file in files:
                put(folder / file, data)
            with subtests.test(f"open: {kind} is {text}"), contextlib.suppress(KmipDataError):
                list(kmip_data.open(folder, columns=["rwse4"]))
            for command in COMMANDS:
                with subtests.test(f"{command}: {kind} is {text}"):
                    for file in files:
                        put(folder / file, data)
                    name = folder.relative_to(home).as_posix()
                    ends(command, name if command.startswith("remove") else str(folder))
    shutil.rmtree(home, ignore_errors=True)
    for command in COMMANDS:
        with subtests.test(f"{command}: odd names"):
            for name in ODD:
                folder = Path(os.fsdecode(os.fsencode(home) + b"/" + name))
                for file in ("shards/00000.h5", "card.json", "config.toml", "result.json"):
                    put(folder / file, b"{}")
            ends(command, "built/\udcff-0")
        for name, text in NAMES.items():
            with subtests.test(f"{command}: a home with {name}"):
                folder = home / text if text[0] != "~" else text
                ends(command, text, "--home", folder, codes=(0, 2))
