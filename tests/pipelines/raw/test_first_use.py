"""A dataset without a published digest: the first complete download is what later ones must be."""

from __future__ import annotations

import json
import shutil
import tarfile
import zipfile
from pathlib import Path

import pytest
from support.http_server import File, serving

from kmip_data.builds.home import Home
from kmip_data.errors import DamagedInput
from kmip_data.manifest import Expected, Manifest, Mirror, dataset_names, load_manifest
from kmip_data.pipelines import build as builds
from kmip_data.pipelines.base import load_pipeline
from kmip_data.pipelines.build import build_dataset
from kmip_data.pipelines.raw.copies import PIN_NAME
from kmip_data.pipelines.raw.obtain import fetch_dataset

GRAPHS = 25
OPTIONS = {"jobs": 1, "quiet": True}


@pytest.fixture
def home(tmp_path, monkeypatch) -> Home:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    return Home(tmp_path / "home")


@pytest.fixture
def server():
    with serving() as running:
        yield running


def publish(
    server, folder: Path, *, seed: int = 0, root: str = "malnet", git_blob: str | None = None
) -> Manifest:
    """Put generated call graphs and their lists on the server; return the manifest of that set."""
    load_pipeline(load_manifest("malnet-tiny")).sample(folder, limit=GRAPHS, seed=seed)
    archive = folder.with_suffix(".tar.gz")
    with tarfile.open(archive, "w:gz") as tar:
        for path in sorted(folder.rglob("*.edgelist")):
            tar.add(path, f"{root}/{path.relative_to(folder)}")
    with zipfile.ZipFile(folder.with_suffix(".zip"), "w") as lists:
        for path in sorted(folder.glob("type/*.txt")):
            lists.write(path, f"{root}/{path.relative_to(folder)}")
    manifest = load_manifest("malnet-tiny")
    sources = []
    for source, path in zip(manifest.sources, (archive, folder.with_suffix(".zip")), strict=True):
        url = server.route(f"/{source.name}", File(path.read_bytes()))
        content = source.content.model_copy(update={"known_sha256": {}})
        mirrors = (Mirror(url=url, git_blob=git_blob),)
        sources.append(source.model_copy(update={"mirrors": mirrors, "content": content}))
    return manifest.model_copy(update={"sources": tuple(sources), "expected": Expected(graphs=GRAPHS)})


def forget_downloads(home: Home) -> None:
    """Free the space of the raw files, as a user may, and keep the pin."""
    for path in (home.raw / "malnet-tiny").iterdir():
        if path.name.startswith("members-"):
            shutil.rmtree(path)
        elif path.name != PIN_NAME:
            path.unlink()


@pytest.fixture
def pinned(server, home, tmp_path, monkeypatch):
    """A complete build of a first download."""
    manifest = publish(server, tmp_path / "first")
    monkeypatch.setattr(builds, "load_manifest", lambda name: manifest)
    build = build_dataset("malnet-tiny", home=home, **OPTIONS)
    assert build.card.complete
    return build


def test_a_complete_download_is_pinned_by_its_content(pinned, home):
    pin = json.loads((home.raw / "malnet-tiny" / PIN_NAME).read_text())
    assert pin["content_digest"] == pinned.card.content_digest
    assert pin["members"] == GRAPHS + 3
    assert all("sha256" in text for text in pin["sources"].values())


def test_the_same_content_packed_anew_is_accepted(pinned, home, server, tmp_path):
    forget_downloads(home)
    fetch_dataset(publish(server, tmp_path / "again", root="other-root"), home, quiet=True)
    assert list(home.raw.glob("malnet-tiny/members-*"))


def test_other_content_is_refused_until_it_is_accepted(pinned, home, server, tmp_path):
    forget_downloads(home)
    other = publish(server, tmp_path / "other", seed=1)
    for _ in range(2):
        with pytest.raises(DamagedInput, match="not what the first complete download was") as caught:
            fetch_dataset(other, home, quiet=True)
        assert f"rm {home.raw / 'malnet-tiny' / PIN_NAME}" in caught.value.parts["next"]
        assert not list(home.raw.glob("malnet-tiny/members-*"))
    assert len(server.requests) == 4, "the refused download is kept"
    (home.raw / "malnet-tiny" / PIN_NAME).unlink()
    fetch_dataset(other, home, quiet=True)
    assert list(home.raw.glob("malnet-tiny/members-*"))


def test_a_pin_that_cannot_be_read_is_no_pin_less(pinned, home):
    (home.raw / "malnet-tiny" / PIN_NAME).write_text("{")
    with pytest.raises(DamagedInput, match=r"pinned\.json is damaged"):
        build_dataset("malnet-tiny", parameters={"isolated": "keep"}, home=home, **OPTIONS)


@pytest.mark.parametrize("how", ["archives", "limit", "published digest"])
def test_what_is_not_a_first_complete_download_pins_nothing(how, server, home, tmp_path, monkeypatch):
    blob = "0" * 40 if how == "published digest" else None
    manifest = publish(server, tmp_path / "first", git_blob=blob)
    monkeypatch.setattr(builds, "load_manifest", lambda name: manifest)
    if how == "archives":
        build_dataset("malnet-tiny", home=home, archives=[tmp_path / "first"], **OPTIONS)
    elif how == "limit":
        build_dataset("malnet-tiny", parameters={"limit": 5}, home=home, **OPTIONS)
    else:
        monkeypatch.setattr("kmip_data.pipelines.download.fetch.git_blob", lambda path: blob)
        build_dataset("malnet-tiny", home=home, **OPTIONS)
    assert not (home.raw / "malnet-tiny" / PIN_NAME).exists()


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
