"""Mirrors of the datasets: what is pinned of them, and what `doctor --sources` finds."""

from __future__ import annotations

import pytest
from support.cli import kmip
from support.http_server import File, serving

from kmip_data.builds.home import Home
from kmip_data.manifest import Mirror, dataset_names, load_manifest


@pytest.fixture
def home(tmp_path, monkeypatch) -> Home:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    return Home(tmp_path / "home")


@pytest.fixture
def server():
    with serving() as running:
        yield running


def test_these_have_no_published_digest():
    """Of the others at least one mirror is known by size and digest; City-Networks have two addresses."""
    without = set()
    for manifest in map(load_manifest, dataset_names()):
        mirrors = [mirror for source in manifest.sources for mirror in source.mirrors]
        if mirrors and not any(m.sha256 or m.md5 or m.git_blob for m in mirrors):
            without.add(manifest.name)
        if manifest.pipeline == "city_networks":
            branch, commit = mirrors
            assert branch.git_blob == commit.git_blob
            assert "/fab206a2c6e125995827543ed01ad95f6d695e8e/" in commit.url
    assert without == {"s3dis", "coco-sp", "cifar10", "malnet-tiny"}


# --- doctor --sources ------------------------------------------------------------------------------


@pytest.fixture
def probed(server, monkeypatch):
    """Let ``doctor --sources`` see one source with the mirrors given."""

    def make(*mirrors: Mirror):
        manifest = load_manifest("s3dis")
        source = manifest.sources[0].model_copy(update={"mirrors": mirrors})
        changed = manifest.model_copy(update={"sources": (source,)})
        monkeypatch.setattr("kmip_data.manifest.load_manifest", lambda name: changed)
        monkeypatch.setattr("kmip_data.manifest.dataset_names", lambda: ["s3dis"])

    return make


def first_byte(handler):
    """Answer as a server that understands ranges."""
    assert handler.headers["Range"] == "bytes=0-0"
    handler.head(206, 1, Content_Range="bytes 0-0/1700000000", Content_Type="application/zip")
    handler.body(b"P")


def test_every_mirror_is_asked_for_one_byte(home, server, probed):
    def endless(handler):
        handler.head(200, 2 * 10**9, Content_Type="application/zip")
        while not handler.server.held.is_set():
            handler.body(bytes(2**16))

    page = File(b"<html>", kind="text/html; charset=utf-8", ranges=False)
    odd = {"Content_Range": "bytes 0-0/" + "9" * 5000}
    probed(
        Mirror(url=server.route("/good", first_byte).replace("://", "://me:pa55word@")),
        Mirror(url=server.route("/plain", endless)),
        Mirror(url=server.route("/small", first_byte), bytes=5),
        Mirror(url=server.route("/page", page)),
        Mirror(url=server.route("/odd", lambda handler: handler.head(206, 0, **odd))),
        Mirror(url=server.url("/missing")),
        Mirror(url="http://no-such-host.invalid/x.zip"),
    )
    outcome = kmip("doctor", "--sources", "--json")
    assert outcome.code == 0, outcome.err
    rows = [(entry["status"], entry["detail"]) for entry in outcome.json["findings"]]
    assert rows == [
        ("ok", "206, 1.7 GB, can be resumed"),
        ("ok", "200, 2.0 GB, cannot be resumed"),
        ("no", "1.7 GB, can be resumed, expected 5 bytes"),
        ("no", "6 B, cannot be resumed, a web page, not the file"),
        ("ok", "206, size unknown, cannot be resumed"),
        ("no", "answers 404 Not Found"),
        ("no", "has a host name that cannot be resolved here"),
    ]
    assert server.sent < 100 * 10**6, "nothing is downloaded"
    assert "pa55word" not in outcome.out
    assert not home.root.exists()


def test_a_source_without_a_mirror_that_answers_is_exit_1(home, server, probed):
    probed(Mirror(url=server.url("/missing")), Mirror(url="http://no-such-host.invalid/x.zip"))
    outcome = kmip("doctor", "--sources")
    assert outcome.code == 1
    assert "!!  http://no-such-host.invalid/x.zip" in outcome.out
    assert "--archive PATH" in outcome.err
