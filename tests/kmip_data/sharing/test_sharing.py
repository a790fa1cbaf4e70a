"""Pushed and pulled: the same bytes from a folder, from memory and from an S3 server.

Damaged and foreign ones are refused.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec
import pytest
import torch
from support.attacks.http_server import File, Handler, Server, redirect, serving, status
from support.cases import damage_file, read_contents
from support.raises import raises
from torch_geometric.data import Data

import kmip_data
from kmip_data.builds.home import Build, Home
from kmip_data.builds.verify import verify_build
from kmip_data.errors import (
    DamagedInput,
    KmipDataError,
    LicenseNotAccepted,
    SourceUnavailable,
    UsageError,
)
from kmip_data.files.atomic_writes import create_marked_folder
from kmip_data.files.small_files import sealed_json
from kmip_data.format.card import read_card
from kmip_data.manifest import load_manifest
from kmip_data.pipelines.find_builds import ensure_columns
from kmip_data.runtime import http_client
from kmip_data.sharing import remote
from kmip_data.sharing.pull import pull
from kmip_data.sharing.push import dataset_page, license_fields, push_build
from kmip_data.sharing.push_index import SHARE_NAME

PLACES = ["folder", "memory", "s3"]


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """A sound build of some MiB with an added column: shards of several blocks."""
    generator = torch.Generator().manual_seed(0)
    ring = torch.stack([torch.arange(2000), torch.arange(2000).roll(1)])
    graphs = [Data(x=torch.rand(2000, 60, generator=generator), edge_index=ring) for _ in range(6)]
    folder = tmp_path_factory.mktemp("build") / "rings"
    saved = kmip_data.save(
        graphs, folder, split={"train": [0, 1, 2], "test": [3, 5]}, title="Rings"
    )
    ensure_columns(saved, ["degree-profile-2.8"], quiet=True)
    return saved


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """An empty home."""
    return Home(tmp_path / "home")


@pytest.fixture(params=PLACES)
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty place to push to."""
    if request.param == "folder":
        yield str(tmp_path / "share")
    elif request.param == "memory":
        yield "memory://share/rings"
        fsspec.filesystem("memory").rm("/share", recursive=True)
    else:
        yield request.getfixturevalue("bucket")


def test_a_push_and_a_pull_give_the_same_build(build, address, home) -> None:
    share = push_build(build, address, quiet=True)
    pulled = pull(address, home, quiet=True)
    assert pulled.path == home.built / "rings"
    assert read_contents(pulled.path) == read_contents(build.path)
    assert verify_build(pulled.path).ok
    assert pulled.push_index.to_json() == share.to_json()
    assert not os.access(pulled.path / "shards/00000.h5", os.W_OK) or os.geteuid() == 0
    assert torch.equal(kmip_data.open(pulled.path)[4].x, kmip_data.open(build.path)[4].x)
    before = {path: path.stat().st_mtime_ns for path in pulled.path.rglob("*")}
    assert not pulled.was_complete
    assert pull(address, home, quiet=True).was_complete
    assert before == {path: path.stat().st_mtime_ns for path in pulled.path.rglob("*")}, (
        "nothing again"
    )


def test_the_index_follows_the_documentation(build, tmp_path) -> None:
    push_build(build, str(tmp_path / "share"), quiet=True)
    share = json.loads((tmp_path / "share" / SHARE_NAME).read_text())
    assert set(share) == {"version", "kind", "name", "key", "files", "digest"}
    for entry in share["files"]:
        data = (tmp_path / "share" / entry["file"]).read_bytes()
        assert (entry["sha256"], entry["bytes"]) == (hashlib.sha256(data).hexdigest(), len(data))
    there = read_contents(tmp_path / "share").keys()
    assert there == {entry["file"] for entry in share["files"]} | {
        SHARE_NAME,
        "README.md",  # people edit it
    }
    digest = share.pop("digest")
    text = json.dumps(share, sort_keys=True, separators=(",", ":"))
    assert hashlib.sha256(text.encode()).hexdigest() == digest


def test_the_index_is_written_first_without_files_and_last(build, monkeypatch, tmp_path) -> None:
    address, order = str(tmp_path / "share"), []
    write_file = remote.Remote.write_file

    def recorded(at: remote.Remote, name: str, content: Path | bytes) -> None:
        order.append(name)
        if order.count(SHARE_NAME) == 1 and name != SHARE_NAME:
            with raises(UsageError, naming="rings"):
                pull(address, Home(tmp_path / "home"))
        write_file(at, name, content)

    monkeypatch.setattr(remote.Remote, "write_file", recorded)
    push_build(build, address, quiet=True)
    assert (order[0], order[-1]) == (SHARE_NAME, SHARE_NAME)
    assert len(order) > 2
    order.clear()
    push_build(build, address, quiet=True)
    assert order == [], "the same again is nothing to do"


def test_a_push_with_a_change_reads_and_writes_no_other_file(build, monkeypatch, tmp_path) -> None:
    address, order = str(tmp_path / "share"), []
    push_build(build, address, quiet=True)
    changed = build.card.model_copy(update={"notes": ["changed"]})
    copy = Build(Path(shutil.copytree(build.path, tmp_path / "copy" / build.path.name)), changed)
    (copy.path / "card.json").write_text(changed.to_json())
    for method in ("write_file", "stream"):
        original = getattr(remote.Remote, method)

        def recorded(at: remote.Remote, name: str, content: object, original=original) -> object:
            order.append(name)
            return original(at, name, content)

        monkeypatch.setattr(remote.Remote, method, recorded)
    push_build(copy, address, quiet=True)
    assert order == [SHARE_NAME, SHARE_NAME, "card.json", SHARE_NAME]


def test_a_damaged_push_is_refused(build, tmp_path, home, subtests) -> None:
    share = tmp_path / "share"
    push_build(build, str(share), quiet=True)
    for file in ("shards/00000.h5", "splits/given.h5", "card.json", SHARE_NAME):
        for way, error in (
            ("flipped", DamagedInput),
            ("cut", KmipDataError),
            ("missing", KmipDataError),
        ):
            with subtests.test(f"{file} {way}"):
                data = (share / file).read_bytes()
                damage_file(share / file, data, way)
                try:
                    for address in (str(share), share.as_uri()):
                        with raises(error, naming=share) as caught:
                            pull(address, home, quiet=True)
                finally:
                    (share / file).write_bytes(data)
                assert not (home.built / "rings/card.json").exists()
                if way == "cut" and file != SHARE_NAME:  # checking the network would not help
                    assert caught.value.found.startswith(f"{len(data) // 2:,} bytes of SHA-256 ")


def hostile(share: Path, change: Callable[[dict], None]) -> None:
    """Write a manifest anew that a stranger changed and sealed."""
    content = json.loads((share / SHARE_NAME).read_text())
    change(content)
    (share / SHARE_NAME).write_text(sealed_json(content))


def rename(name: str) -> Callable[[dict], None]:
    return lambda content: content["files"][0].update(file=name)


NAMES = (
    "../evil", "/etc/evil", "shards/../../evil", ".bashrc", "a/b/c/d", "a\\..\\b/../c", "shards/x.h5",
)  # fmt: skip
HOSTILE: dict[str, Callable[[dict], None]] = {
    **{f"a file called {name}": rename(name) for name in (*NAMES, SHARE_NAME)},
    "climbing": lambda content: content.update(name="../evil"),
    "another kind": lambda content: content.update(kind="script"),
    "a file twice": lambda content: content["files"].append(content["files"][0]),
    "another size": lambda content: [entry.update(bytes=9) for entry in content["files"]],
    "another digest": lambda content: content["files"][0].update(sha256="0" * 64),
    "more": lambda content: content.update(more=1),
    "a newer version": lambda content: content.update(version=3),
    "a run": lambda content: content.update(kind="run"),
}


def test_a_hostile_index_writes_nothing(build, tmp_path, home, subtests) -> None:
    share = tmp_path / "share"
    push_build(build, str(share), quiet=True)
    sound, odd = (share / SHARE_NAME).read_bytes(), (b"", b"[]", b"\xff", b"[" * 100_000, b"{}")
    for name, change in [*HOSTILE.items(), *((str(data[:9]), data) for data in odd)]:
        with subtests.test(name):
            (share / SHARE_NAME).write_bytes(change if isinstance(change, bytes) else sound)
            if not isinstance(change, bytes):
                hostile(share, change)
            before = read_contents(tmp_path)
            with pytest.raises(DamagedInput):
                pull(str(share), home, quiet=True)
            assert read_contents(tmp_path) == before
    (share / SHARE_NAME).unlink()
    os.mkfifo(share / SHARE_NAME)
    for read in (
        lambda: pull(str(share), home, quiet=True),
        lambda: kmip_data.open(share.as_uri()),
    ):
        with pytest.raises(SourceUnavailable):
            read()


def test_nothing_is_written_through_a_link(build, tmp_path, home) -> None:
    share, folder, victim = tmp_path / "share", home.built / "rings", tmp_path / "victim"
    push_build(build, str(share), quiet=True)
    victim.mkdir()
    for link in (folder / "shards", folder / "shards/00000.h5", folder):
        shutil.rmtree(folder, ignore_errors=True)
        if link != folder:
            create_marked_folder(folder, f"build {build.card.key}")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(victim)
        with raises(UsageError, naming=link):
            pull(str(share), home, quiet=True)
        assert not any(victim.iterdir())
    folder.unlink()
    assert read_contents(pull(str(share), home, quiet=True).path) == read_contents(build.path)


def test_a_licence_that_forbids_it_is_named(build, tmp_path) -> None:
    terms = load_manifest("shapenet-part").license.model_dump()
    for states in ({"license": terms}, {"manifest": "shapenet-part"}):
        with raises(LicenseNotAccepted, naming=terms["name"]):
            push_build(
                Build(build.path, build.card.model_copy(update=states)), str(tmp_path / "share")
            )
    assert not (tmp_path / "share").exists()


def test_a_damaged_build_is_not_pushed(build, tmp_path) -> None:
    copy = Build(tmp_path / "copy", build.card)
    shutil.copytree(build.path, copy.path)
    shard = copy.path / "shards/00000.h5"
    shard.unlink()
    with raises(DamagedInput, naming=shard):
        push_build(copy, str(tmp_path / "share"), quiet=True)
    assert not (tmp_path / "share").exists()


def test_a_build_with_an_edited_card_is_not_pushed(build, tmp_path) -> None:
    """Sealed anew, it would be called verified after a pull."""
    copy = tmp_path / "copy"
    shutil.copytree(build.path, copy)
    sound = build.card.model_copy(update={"sample": True}).to_json()
    (copy / "card.json").write_text(sound)
    push_build(Build(copy, read_card(copy)), str(tmp_path / "sound"), quiet=True)

    digest = build.card.shards[0].sha256
    flipped = f"{int(digest[0], 16) ^ 1:x}{digest[1:]}"
    for old, new in (
        ('"sample": true', '"sample": false'),
        ('"title": "Rings', '"title": "Sings'),
        (digest, flipped),
    ):
        edited = sound.replace(old, new, 1)
        assert edited != sound
        (copy / "card.json").write_text(edited)
        with raises(DamagedInput, naming="card.json") as caught:
            push_build(Build(copy, read_card(copy)), str(tmp_path / "share"), quiet=True)
        assert caught.value.found is None  # not: cannot be read
        assert not (tmp_path / "share").exists()


def test_invalid_names_and_addresses_are_refused(build, home, tmp_path) -> None:
    for address in ("nope://x/y", "", "reference://x"):
        with raises(UsageError, naming=address):
            push_build(build, address)
    for name in ("ü x", "#a", "..", "a\nb", "b" * 201):
        with raises(UsageError, naming=repr(name)):
            push_build(Build(build.path.parent / name, build.card), str(tmp_path / "share"))
        assert not (tmp_path / "share").exists()
    with raises(UsageError, naming=SHARE_NAME):
        pull(str(tmp_path / "empty"), home)
    with pytest.raises(SourceUnavailable):
        pull("http://127.0.0.1:9/nothing", home)


def trickle(handler: Handler) -> None:
    """Send a body at twenty bytes a second."""
    handler.head(206, 10**6, Content_Range="bytes 0-999999/1000000")
    while not handler.server.held.wait(0.05):
        handler.wfile.write(b" ")


def test_a_server_that_redirects_elsewhere_fails_or_is_silent_is_named(
    home, build, monkeypatch, subtests
) -> None:
    """A bad answer for share.json is an error that names it; the address never counts as not pushed."""
    monkeypatch.setattr(http_client, "STALL_SECONDS", 1.0)
    card = (build.path / "card.json").read_bytes()
    answers = {
        "file": (redirect("file:///etc/passwd"), "InvalidSchema"),
        "circle": (redirect("share.json"), "TooManyRedirects"),
        "forbidden": (status(403), "403"),
        "silent": (lambda handler: handler.server.held.wait(60), "TimeoutError"),
        "body": (trickle, "sent"),
    }
    with serving() as server:
        for name, (answer, message) in answers.items():
            server.route(f"/{name}/share.json", answer)
            server.route(f"/{name}/card.json", File(card))
            for what, bring in {
                "pull": lambda url: pull(url, home, quiet=True),
                "open": lambda url: kmip_data.open(url, home=home.path),
            }.items():
                with subtests.test(f"{what}: {name}"):
                    begun = time.monotonic()
                    with pytest.raises(SourceUnavailable) as raised:
                        bring(server.url(f"/{name}"))
                    assert time.monotonic() - begun < 60
                    assert message in str(raised.value)


def serve_push(server: Server, share: Path, odd: list[File]) -> None:
    """Serve a folder, with ``odd`` as the first answers for its first shard."""
    for file in read_contents(share):
        data = (share / file).read_bytes()
        server.route(f"/{file}", *(odd if file == "shards/00000.h5" else []), File(data))


def test_a_cut_pull_over_http_retries_and_resumes_with_the_first_missing_file(
    build, tmp_path, home, monkeypatch
) -> None:
    monkeypatch.setattr(http_client, "RETRY_DELAY_SECONDS", 0.0)
    share = tmp_path / "share"
    push_build(build, str(share), quiet=True)
    shard = "shards/00000.h5"
    data = (share / shard).read_bytes()
    cut = [File(data, cut=at) for at in (0, 2**20, len(data) - 1)]
    with serving() as server:
        serve_push(server, share, cut * 2)
        with pytest.raises(SourceUnavailable):
            pull(server.url(""), home, quiet=True)
        assert sum(path == f"/{shard}" for path, _ in server.requests) == 5
        assert not (home.built / "rings" / shard).exists()
        serve_push(server, share, cut)
        push = pull(server.url(""), home, quiet=True)
        assert read_contents(push.path) == read_contents(build.path)

        # Only the missing file is asked for.
        (push.path / shard).unlink()
        server.requests.clear()
        pull(server.url(""), home, quiet=True)
        asked = {path for path, _ in server.requests}
        assert asked == {"/share.json", "/card.json", f"/{shard}"}


def test_a_server_that_lies_about_a_file_leaves_none(build, tmp_path, home, subtests) -> None:
    share = tmp_path / "share"
    push_build(build, str(share), quiet=True)
    data = (share / "shards/00000.h5").read_bytes()
    flipped = bytes([*data[:-1], data[-1] ^ 1])
    lies = {
        "another byte": File(flipped),
        "fewer bytes": File(data[:-1]),
        "one byte more": File(data, more=1),
        "endless": File(data, more=2**30, chunked=False),
    }
    for name, lie in lies.items():
        with subtests.test(name), serving() as server:
            serve_push(server, share, [lie])
            with raises(DamagedInput, naming="shards/00000.h5"):
                pull(server.url(""), home, quiet=True)
            assert server.sent < 2**26
            copied = read_contents(home.built / "rings").keys()
            assert not {"card.json", "shards/00000.h5"} & copied
            assert not any(file.endswith(".partial") for file in copied)


def test_the_page_has_the_header_of_a_hub(build, tmp_path) -> None:
    yaml = pytest.importorskip("yaml")
    terms = {"name": 'Terms: "x"', "url": "https://e.org/#a"}
    card = build.card.model_copy(update={"license": terms, "title": "A: #1 'x'"})
    _, head, page = dataset_page(Build(tmp_path, card)).decode().split("---\n", 2)
    license_ = {"license": "other", "license_name": terms["name"], "license_link": terms["url"]}
    about = {
        "task_categories": ["graph-ml"],
        "tags": ["graph", "hdf5", "kmip-data"],
        "viewer": False,
    }
    assert yaml.safe_load(head) == {**license_, "pretty_name": card.heading, **about}
    assert page.startswith("\n# rings")
    assert license_fields({"name": "ODbL 1.0", "url": "x"}) == {"license": "odbl"}
    assert license_fields({}) == {"license": "unknown"}
