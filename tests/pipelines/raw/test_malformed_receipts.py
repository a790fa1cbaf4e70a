"""Journals and receipts of a strange home, and names that no file system takes: the usual errors."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from support.attacks.archives import CONTENT, WANTED, good_zip
from support.attacks.http_server import File, serving
from support.builds.toy_pipeline import toy_manifest
from support.cli import kmip

from kmip_data.builds.home import Home
from kmip_data.errors import KmipDataError
from kmip_data.files.small_files import json_digest
from kmip_data.manifest import Manifest, Mirror, Source
from kmip_data.pipelines.own_pipeline import escaped_key, existing_file, files_below
from kmip_data.pipelines.raw.copies import copy_problems, files_of_raw, list_copies
from kmip_data.pipelines.raw.find_or_download import fetch_dataset
from kmip_data.pipelines.raw.licenses import accepted_licenses

#: what may lie in a file that should be a small JSON object
ODD = {
    "nothing": b"",
    "not UTF-8": b'{"version": 1, "name": "\xff\xfe"}',
    "NUL bytes": bytes(64),
    "null": b"null",
    "a long number": b"9" * 5000,
    "a list": b"[[], {}]",
    "a deep object": b'{"a":' * 100_000,
    "half a pair": b'{"version": 1, "dataset": "\\ud800"}',
}
#: values of other types, put into each field of a journal in turn
VALUES: tuple[object, ...] = (
    *(None, -1, 10**30, 1.5, "", "a\0b", "../../x", "/x", "x" * 5000, "é\n", [], {}, {"": {}}),
    *({name: "0" * 64} for name in ("a\0b", "a/../../b", "x" * 300, "..")),
)
#: what reads a journal; the others of a download are read by whatever fetches or removes it
READERS = {
    "receipt.json": ("offline", "fetch", "archive", "copies", "files"),
    "licenses.json": ("licenses", "fetch"),
}


def toy(url: str) -> Manifest:
    sources = (Source(name="toy.zip", mirrors=(Mirror(url=url),)),)
    return toy_manifest().model_copy(update={"sources": sources, "content": CONTENT})


def journals(home: Home, url: str, data: bytes) -> dict[Path, dict[str, object]]:
    """Sound contents of every journal that a download and its copy have."""
    folder = home.raw / "toy"
    members = dict.fromkeys(WANTED, "0" * 64)
    digest = json_digest(members)
    receipt = {"name": "toy.zip", "origin": url, "sha256": "0" * 64, "bytes": 3}
    state = {"url": url, "validator": '"one"', "total": len(data)}
    return {
        folder / "toy.zip.receipt.json": {
            "name": "toy.zip", "origin": url, "sha256": "0" * 64, "bytes": 3, "time": "t",
        },
        folder / "toy.zip.partial.json": state,
        folder / f"members-{digest[:12]}" / "receipt.json": {
            "receipts": [receipt], "downloaded": True, "members": members, "time": "t",
        },
        home.path / "licenses.json": {"toy": {"name": "L", "url": "u", "how": "flag", "time": "t"}},
    }  # fmt: skip


def damage_receipts(sound: dict[str, object]) -> dict[str, bytes]:
    receipts = dict(ODD)
    for turn, field in enumerate(sound):  # each field takes every fourth value
        for number, value in enumerate(VALUES[turn % 4 :: 4]):
            receipts[f"{field} {number}"] = json.dumps({**sound, field: value}).encode()
    return receipts


def folder_name(receipt: bytes) -> str:
    """Name of the folder in which a receipt with these members belongs, or any."""
    members = json.loads(receipt)["members"]
    try:
        return f"members-{json_digest(members)[:12]}"
    except (AttributeError, TypeError, KeyError, UnicodeError):
        return "members-000000000000"


def crashes(act: Callable[[], object]) -> str | None:
    """Return what a call raised that is not one of our errors."""
    try:
        act()
    except KmipDataError:
        return None
    except Exception as error:
        return repr(error)[:200]
    return None


def test_odd_journals_end_in_the_usual_errors(tmp_path):
    good_zip(tmp_path / "toy.zip")
    data = (tmp_path / "toy.zip").read_bytes()
    wrong, count = {}, 0
    with serving() as server:
        url = server.route("/toy.zip", *[File(data)] * 2000)
        sound = journals(Home(tmp_path / "home"), url, data)
        for path, content in sound.items():
            for case, odd in damage_receipts(content).items():
                home = Home(tmp_path / f"home-{count}")
                count += 1
                for other, entry in sound.items():
                    here = home.path / other.relative_to(tmp_path / "home")
                    if other == path and case.startswith("members"):
                        here = here.parent.with_name(folder_name(odd)) / here.name
                    here.parent.mkdir(parents=True, exist_ok=True)
                    here.write_bytes(odd if other == path else json.dumps(entry).encode())
                folder = home.raw / "toy"
                (folder / "toy.zip").write_bytes(b"PK\3")
                (folder / "toy.zip.partial").write_bytes(data[:100])
                acts = {
                    "offline": lambda home=home: fetch_dataset(
                        toy(url), home, quiet=True, offline=True
                    ),
                    "fetch": lambda home=home: fetch_dataset(toy(url), home, quiet=True),
                    "archive": lambda home=home: fetch_dataset(
                        toy(url), home, quiet=True, archives=[tmp_path / "toy.zip"]
                    ),
                    "copies": lambda folder=folder: [
                        copy_problems(copy) for copy in list_copies(folder)
                    ],
                    "files": lambda folder=folder: files_of_raw(folder),
                    "licenses": lambda home=home: accepted_licenses(home),
                }
                for what in READERS.get(path.name, ("offline", "fetch", "files")):
                    if why := crashes(acts[what]):
                        wrong[path.name, case] = why
    assert not wrong, f"{len(wrong)} of {count}: {wrong}"


NAMES = (
    "a\0b",
    "x" * 300,
    "x/" * 3000,
    os.fsdecode(b"\xff\xfe"),
    "a\nb",
    "",
    ".",
    "~nobody-here/x",
)


def test_odd_names_end_in_the_usual_errors(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / os.fsdecode(b"\xff.npy")).write_bytes(b"x")
    wrong = {}
    for name in NAMES:
        for what, act in {
            "existing_file": lambda name=name: existing_file(Path(name)),
            "files_below": lambda name=name: files_below(Path(name), "files", (".npy",)),
            "fetch_dataset": lambda name=name: fetch_dataset(
                toy("x"), Home(tmp_path), archives=[Path(name)], quiet=True
            ),
            "escaped_key": lambda name=name: escaped_key(name, 40),
        }.items():
            if why := crashes(act):
                wrong[what, name[:20]] = why
        for command in (
            ("fetch", "s3dis", "--offline", "--archive", name),
            ("build", "points", "--name", "own", "--set", f"path={name}"),
            (
                "build",
                "superpixels",
                "--name",
                "own",
                "--set",
                f"images={name}",
                "--set",
                f"masks={name}",
            ),
        ):
            if "\0" in name:  # which no command line can hold
                continue
            if (code := kmip(*command, "--home", tmp_path / "home").code) not in {1, 2, 3, 4, 5, 6}:
                wrong[command[:2], name[:20]] = code
    assert not wrong
