"""``tools/mirrors.py`` against a server on this machine that has the paths of the real mirrors."""

from __future__ import annotations

import hashlib
import io
import shutil
import sys
import tomllib
import urllib.parse
import zipfile
from pathlib import Path

import pytest
from support.attacks.http_server import File, Server, page, running, status
from support.shared import ROOT

from kmip_data import manifest as manifests
from kmip_data.builds.home import Home
from kmip_data.errors import CheckFailed
from kmip_data.manifest import load_manifest
from kmip_data.pipelines.base import load_pipeline
from kmip_data.runtime import http_client
from kmip_data.strict_model import shipped_datasets

sys.path.insert(0, str(ROOT))

from tools import mirrors


@pytest.fixture
def server(monkeypatch):
    """A server that answers for every host."""
    opened = http_client.open_response

    def redirected(url, *arguments):
        return opened(server.url(urllib.parse.urlsplit(url).path), *arguments)

    monkeypatch.setattr(http_client, "open_response", redirected)
    with running(Server()) as server:
        yield server


def path_of(mirror) -> str:
    return urllib.parse.urlsplit(mirror.url).path


def packed(folder: Path) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                archive.write(path, path.relative_to(folder))
    return file.getvalue()


def test_every_mirror_is_checked_for_size_first_bytes_and_digest(server) -> None:
    manifest = load_manifest("mnist")
    [source] = manifest.sources
    mirror, *_ = source.mirrors
    data = b"PK\3\4" + bytes(2000)
    digest = hashlib.sha256(data).hexdigest()

    def check_mirror(answer, mirror=mirror) -> mirrors.Answer:
        server.route(path_of(mirror), answer)
        return mirrors.ask(manifest, source, mirror)

    good = check_mirror(File(data))
    assert (good.size, good.first, good.problem) == (2004, "zip", "")
    assert good.digest == f"{digest[:12]}…, none is pinned"
    asked = [headers.get("Range") for _, headers in server.requests]
    assert asked == ["bytes=0-511", None]

    known = mirror.model_copy(update={"sha256": digest, "bytes": 2004})
    assert check_mirror(File(data), known).digest == f"{digest[:12]}…, as pinned"
    assert check_mirror(File(data, ranges=False), known).problem == ""
    changed = data[:-1] + b"x"
    assert check_mirror(File(changed), known).problem.endswith(f"pinned {digest[:12]}…")
    assert check_mirror(File(data + b"x"), known).problem == "2,004 bytes are pinned"
    assert check_mirror(page()).problem == "no archive"
    assert check_mirror(status(404)).problem == "answers 404 Not Found"
    assert check_mirror(status(404)).line.endswith("| – | – | not asked | answers 404 Not Found |")

    server.requests.clear()
    large = check_mirror(File(b"PK\3\4" + bytes(mirrors.MAX_DOWNLOADED_BYTES)))
    assert (large.problem, large.digest, len(server.requests)) == ("", "not asked", 1)


def test_the_table_has_all_mirrors_once_and_failures_first(server) -> None:
    """Nothing answers but one file."""
    names = ("zinc", "zinc-full", "mnist")
    mirror, *_ = load_manifest("mnist").sources[0].mirrors
    server.route(path_of(mirror), File(b"PK\3\4" + bytes(2000)))
    rows = list(mirrors.answers(names))
    addresses = {m.address for n in names for s in load_manifest(n).sources for m in s.mirrors}
    assert sorted(row.address for row in rows) == sorted(addresses)
    # Both mirrors of MNIST have this path.
    assert {row.dataset for row in rows if not row.problem} == {"mnist"}


def test_a_dataset_is_pinned_by_what_was_built(server, tmp_path, monkeypatch) -> None:
    raw = tmp_path / "raw"
    raw.mkdir()
    load_pipeline(load_manifest("mnist")).write_sample(raw, limit=30, seed=0)
    data = packed(raw)
    mirror, *_ = load_manifest("mnist").sources[0].mirrors
    server.route(path_of(mirror), File(data))
    folder = tmp_path / "manifests"
    for name in ("mnist", "cifar10"):
        (folder / name).mkdir(parents=True)
        shutil.copy(ROOT / f"manifests/datasets/{name}/dataset.toml", folder / name)
    before = {path: path.read_text() for path in folder.glob("*/*")}

    # 1. Thirty graphs are not the 70,000 published ones.
    with pytest.raises(CheckFailed):
        mirrors.pin("mnist", Home(tmp_path / "home"), folder)
    assert before == {path: path.read_text() for path in folder.glob("*/*")}

    # 2. Where they are what is published, the manifest has their digest.
    shipped = manifests.read_shipped

    def read(folder, name):
        values = shipped(folder, name)
        return {**values, "expected": {"classes": 10}} if folder == "datasets/mnist" else values

    monkeypatch.setattr(manifests, "read_shipped", read)
    load_manifest.cache_clear()
    try:
        [line] = mirrors.pin("mnist", Home(tmp_path / "other"), folder)
    finally:
        monkeypatch.undo()
        load_manifest.cache_clear()
    digest = hashlib.sha256(data).hexdigest()
    assert line.startswith("mnist: MNIST_v2.zip, ")
    assert line.endswith(digest)
    values = tomllib.loads((folder / "mnist/dataset.toml").read_text())
    assert values["sources"][0]["mirrors"][0]["sha256"] == digest
    assert (folder / "cifar10/dataset.toml").read_text() == before[folder / "cifar10/dataset.toml"]


def test_every_mirror_without_a_digest_can_be_given_one() -> None:
    """Each address stands in a manifest in one of the two forms that are edited."""
    texts = {p: p.read_text() for p in (ROOT / "manifests/datasets").glob("*/dataset.toml")}
    digest = "0" * 64
    unpinned = set()
    for name in shipped_datasets():
        for source in load_manifest(name).sources:
            unpinned |= {
                mirror.url
                for mirror in source.mirrors
                if not (mirror.is_pinned or mirror.members_sha256 or source.is_packaged)
            }
    assert len(unpinned) > 10
    for url in unpinned:
        changed = [mirrors.with_digest(text, url, digest) for text in texts.values()]
        edited = [text for text in changed if text not in texts.values()]
        assert edited, url
        for text in edited:
            sources = tomllib.loads(text)["sources"]
            listed_mirrors = [m for source in sources for m in source["mirrors"] if m["url"] == url]
            assert [mirror["sha256"] for mirror in listed_mirrors] == [digest], url
