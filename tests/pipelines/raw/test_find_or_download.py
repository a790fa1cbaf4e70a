"""Raw data come in whole and verified, from wherever they are, and are found again."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import signal
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pydantic import ValidationError
from support.attacks.archives import ATTACKS, CONTENT, GOOD, WANTED, good_tar, good_zip
from support.attacks.http_server import File, page
from support.builds.toy_pipeline import toy_manifest
from support.raises import raises

from kmip_data.builds.execution_options import ExecutionOptions
from kmip_data.builds.home import Home
from kmip_data.errors import (
    Command,
    DamagedInput,
    LicenseNotAccepted,
    Setting,
    SourceUnavailable,
    UsageError,
)
from kmip_data.files.small_files import json_digest, sha256_file
from kmip_data.manifest import (
    NO_CONTENT,
    Content,
    ExpectedCounts,
    License,
    Manifest,
    MemberPattern,
    Mirror,
    Source,
    load_manifest,
)
from kmip_data.pipelines.base import Pipeline, load_pipeline
from kmip_data.pipelines.parameters import BuildParams
from kmip_data.pipelines.raw import find_or_download
from kmip_data.pipelines.raw.copies import copy_problems, list_copies
from kmip_data.pipelines.raw.find_or_download import fetch_dataset, obtain_raw


@pytest.fixture(autouse=True)
def _no_terminal(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO())


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "home")


@pytest.fixture
def archive(tmp_path):
    good_zip(tmp_path / "given.zip")
    return tmp_path / "given.zip"


@pytest.fixture
def mirrored(server, archive):
    """The toy dataset with one good mirror."""
    return toy(server.route("/toy.zip", File(archive.read_bytes())))


def toy(*urls: str, agreement: bool = False, known: dict | None = None, sources=None) -> Manifest:
    mirrors = tuple(Mirror(url=url) for url in urls or ("https://nowhere.invalid/toy.zip",))
    changes = {
        "license": License(
            name="L", url="https://l.example", notice="Toy license.", agreement=agreement
        ),
        "sources": sources or (Source(name="toy.zip", mirrors=mirrors),),
        "expected": ExpectedCounts(graphs=1),
    }
    if not any(source.content for source in changes["sources"]):
        changes["content"] = CONTENT.model_copy(update={"known_sha256": known or {}})
    values = {**dict(toy_manifest()), "content": NO_CONTENT, **changes}
    return Manifest.model_validate(values)


class ToySamples:
    """Stand-in for a pipeline that only generates samples, and counts the calls."""

    version = 1

    def __init__(self, manifest: Manifest, data: dict[str, bytes] | None = None) -> None:
        self.manifest, self.data, self.calls = manifest, data or GOOD, 0

    def write_sample(self, folder: Path, *, limit: int | None, seed: int = 0) -> None:
        self.calls += 1
        for name, data in self.data.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data + b"limit %d" % (limit or 0))


def obtain(manifest: Manifest, home: Home, **options):
    return obtain_by(ToySamples(manifest), home, **options)


def obtain_by(
    pipeline: Pipeline, home: Home, *, sample: bool = False, limit: int | None = None, **options
):
    chosen = ExecutionOptions(**{"quiet": True, **options})
    return obtain_raw(pipeline, BuildParams(limit=limit), home, chosen, sample=sample)


def assert_right(raw, origin: str = "given.zip") -> None:
    assert list(raw.members) == sorted(WANTED)
    for name, digest in raw.members.items():
        assert (raw.path / name).read_bytes() == WANTED[name]
        assert sha256_file(raw.path / name)[0] == digest
    assert [receipt.origin for receipt in raw.receipts] == [origin]
    assert not raw.sample


def other_archive(path: Path) -> Path:
    good_zip(path, members={**GOOD, "toy/parts/1.bin": b"different"})
    return path


def left_in(home: Home) -> set[str]:
    folder = home.raw / "toy"
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


# --- local archives ---------------------------------------------------------------------------------


def test_a_local_archive_is_unpacked_and_described(home, archive):
    raw = obtain(toy(), home, archives=[archive])
    assert_right(raw)
    assert raw.path.parent == home.raw / "toy"
    assert raw.path.name.startswith("members-")
    entry = json.loads((raw.path / "receipt.json").read_text())
    assert entry["time"].endswith("Z")
    assert entry["receipts"][0]["sha256"] == sha256_file(archive)[0]
    assert entry["members"] == dict(raw.members)


def test_the_same_content_in_any_container_is_one_copy(home, archive, tmp_path):
    first = obtain(toy(), home, archives=[archive])
    good_tar(tmp_path / "a.tar", mode="w:gz")
    with zipfile.ZipFile(archive) as zipped:
        zipped.extractall(tmp_path / "folder")
    for other in (tmp_path / "a.tar", tmp_path / "folder", first.path):
        assert obtain(toy(), home, archives=[other]) == first
    assert len(list_copies(home.raw / "toy")) == 1
    assert left_in(home) == {first.path.name}


def test_two_archives_of_one_source_are_refused(home, archive, tmp_path):
    with raises(UsageError, naming=["given.zip", "other.zip"]):
        obtain(toy(), home, archives=[archive, other_archive(tmp_path / "other.zip")])
    assert left_in(home) == set()


def test_a_missing_archive_is_refused(home, tmp_path):
    with raises(UsageError, naming="none.zip"):
        obtain(toy(), home, archives=[tmp_path / "none.zip"])
    assert left_in(home) == set()


@pytest.mark.parametrize(
    "name", ["zip control", "zip wrong CRC", "tar symlink", "tar.gz wrong CRC"]
)
def test_a_hostile_archive_leaves_nothing(home, tmp_path, name):
    ATTACKS[name][0](tmp_path / "bad.dat")
    with pytest.raises(DamagedInput):
        obtain(toy(), home, archives=[tmp_path / "bad.dat"])
    assert left_in(home) == set()


# --- which copy -------------------------------------------------------------------------------------


def test_several_partial_copies_need_a_choice(home, archive, tmp_path):
    one = obtain(toy(), home, archives=[archive])
    two = obtain(toy(), home, archives=[other_archive(tmp_path / "other.zip")])
    with raises(UsageError, naming=[one.path, two.path]):
        obtain(toy(), home)
    assert obtain(toy(), home, archives=[two.path]) == two


def test_the_complete_copy_goes_first_and_then_the_downloaded_one(
    home, archive, tmp_path, mirrored, server
):
    one = obtain(toy(), home, archives=[archive])
    obtain(toy(), home, archives=[other_archive(tmp_path / "other.zip")])
    known = {"parts/1.bin": one.members["parts/1.bin"]}
    assert obtain(toy(known=known), home) == one
    fetch_dataset(mirrored, home, quiet=True)
    assert_right(obtain(mirrored, home), server.url("/toy.zip"))


def pinned(**pins: str) -> Manifest:
    """The toy dataset whose one mirror pins the archive."""
    mirror = Mirror(url="https://nowhere.invalid/toy.zip", **pins)
    return toy(sources=(Source(name="toy.zip", mirrors=(mirror,)),))


def digests_of(path: Path) -> dict[str, str]:
    data = path.read_bytes()
    blob = b"blob %d\0" % len(data) + data
    return {
        "sha256": hashlib.sha256(data).hexdigest(),
        "md5": hashlib.md5(data).hexdigest(),
        "git_blob": hashlib.sha1(blob).hexdigest(),
    }


@pytest.mark.parametrize("kind", ["sha256", "md5", "git_blob"])
def test_an_archive_with_the_published_digest_is_pinned(home, archive, tmp_path, kind):
    manifest = pinned(**{kind: digests_of(archive)[kind]})
    with zipfile.ZipFile(archive) as file:
        file.extractall(tmp_path / "unpacked")
    again = obtain(manifest, home, archives=[tmp_path / "unpacked"])
    assert not again.pinned  # packed in another way: its bytes are not known
    assert obtain(manifest, home, archives=[archive]).pinned
    assert obtain(manifest, home).pinned
    assert not obtain(manifest, home, sample=True).pinned
    assert not obtain(toy(), Home(tmp_path / "second"), archives=[archive]).pinned


def test_a_download_is_hashed_for_its_pin_once(home, archive, server, monkeypatch):
    url = server.route("/toy.zip", File(archive.read_bytes()))
    mirror = Mirror(url=url, md5=digests_of(archive)["md5"])
    monkeypatch.setattr(find_or_download, "first_differing_digest", None)
    assert obtain(toy(sources=(Source(name="toy.zip", mirrors=(mirror,)),)), home).pinned


@pytest.mark.parametrize("kind", ["sha256", "md5", "git_blob", "known_sha256", "known_md5"])
def test_a_file_unlike_its_pin_is_refused_unless_unpinned(home, tmp_path, kind):
    """Before anything is stored, and a copy that was accepted once is not taken later."""
    good = tmp_path / "labels.csv.gz"
    good.write_bytes(b"good")
    source = two_sources().sources[1]
    content = source.content
    mirrors = source.mirrors
    if kind.startswith("known_"):
        known = {good.name: digests_of(good)[kind.removeprefix("known_")]}
        content = content.model_copy(update={kind: known})
    else:
        mirrors = (mirrors[0].model_copy(update={kind: digests_of(good)[kind]}),)
    source = source.model_copy(update={"content": content, "mirrors": mirrors})
    manifest = toy(sources=(source,))
    assert obtain(manifest, Home(tmp_path / "second"), archives=[good]).pinned

    good.write_bytes(b"evil")
    with raises(DamagedInput, naming=good.name) as caught:
        obtain(manifest, home, archives=[good])
    assert "--unpinned" in caught.value.steps[-1].words
    assert not list_copies(home.raw / "toy")
    assert not obtain(manifest, home, archives=[good], unpinned=True).pinned
    with raises(DamagedInput, naming=good.name):
        obtain(manifest, home, archives=[good])
    with pytest.raises(SourceUnavailable):
        obtain(manifest, home, offline=True)
    assert not obtain(manifest, home, offline=True, unpinned=True).pinned


def test_an_archive_packed_anew_for_each_request_is_pinned_by_its_members(
    home, archive, server, tmp_path
):
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in sorted(WANTED.items())}
    url = server.route("/toy.zip", File(archive.read_bytes()))
    mirror = Mirror(url=url, members_sha256=json_digest(digests))
    manifest = toy(sources=(Source(name="toy.zip", mirrors=(mirror,)),))
    assert not mirror.is_pinned  # its bytes may change
    assert manifest.pins == {"toy.zip": ["SHA-256 of the members"]}
    assert obtain(manifest, home).pinned

    # Other members are refused, and stay; what the error names accepts them.
    server.route("/toy.zip", File(other_archive(tmp_path / "other.zip").read_bytes()))
    second = Home(tmp_path / "second")
    with raises(DamagedInput, naming="toy.zip") as caught:
        obtain(manifest, second)
    assert caught.value.steps[-1] == Command("kmip-data", "build", "toy", "--unpinned")
    assert obtain(manifest, second, offline=True, unpinned=True).pinned is False

    # An archive that is given may come from another mirror.
    other = other_archive(tmp_path / "given.zip")
    assert obtain(manifest, Home(tmp_path / "third"), archives=[other]).pinned is None


def test_a_file_may_differ_where_one_of_its_mirrors_has_no_pin(home, tmp_path):
    good = tmp_path / "labels.csv.gz"
    good.write_bytes(b"good")
    source = two_sources().sources[1]
    mirrors = (
        source.mirrors[0].model_copy(update={"md5": digests_of(good)["md5"]}),
        source.mirrors[0],
    )
    manifest = toy(sources=(source.model_copy(update={"mirrors": mirrors}),))
    assert obtain(manifest, Home(tmp_path / "second"), archives=[good]).pinned
    good.write_bytes(b"form")
    assert obtain(manifest, home, archives=[good]).pinned is None


def test_fetch_does_not_accept_a_partial_copy(home, tmp_path, server, mirrored):
    obtain(mirrored, home, archives=[other_archive(tmp_path / "other.zip")])
    with pytest.raises(SourceUnavailable):
        fetch_dataset(mirrored, home, offline=True, quiet=True)
    assert fetch_dataset(mirrored, home, quiet=True)[0].origin == server.url("/toy.zip")


@pytest.mark.parametrize("damage", ["change", "grow", "remove", "receipt"])
def test_a_damaged_copy_is_detected_and_replaced(home, archive, damage):
    raw = obtain(toy(), home, archives=[archive])
    part, receipt = raw.path / "parts" / "1.bin", raw.path / "receipt.json"
    data = part.read_bytes()
    {
        "change": lambda: part.write_bytes(data[:-1] + b"x"),
        "grow": lambda: part.write_bytes(data + b"x"),
        "remove": part.unlink,
        "receipt": lambda: receipt.write_text(
            receipt.read_text().replace(raw.members["parts/1.bin"], "0" * 64)
        ),
    }[damage]()
    with raises(DamagedInput, naming="receipt.json" if damage == "receipt" else "1.bin") as caught:
        obtain(toy(), home, offline=True)
    assert "given.zip" in caught.value.steps[0]
    assert obtain(toy(), home, archives=[archive]) == raw
    assert_right(obtain(toy(), home))
    assert left_in(home) == {raw.path.name}


def test_files_of_the_user_in_a_damaged_copy_stay(home, archive):
    raw = obtain(toy(), home, archives=[archive])
    (raw.path / "index.txt").write_bytes(b"other")
    (raw.path / "parts/notes").write_text("mine")
    with raises(UsageError, naming=[raw.path, "notes"]):
        obtain(toy(), home, archives=[archive])
    assert [path.name for path in raw.path.rglob("*") if path.is_file()] == ["notes"]
    (raw.path / "parts/notes").unlink()
    assert obtain(toy(), home, archives=[archive]) == raw


def test_only_folders_of_killed_runs_are_cleared_away(home, archive):
    folder = home.raw / "toy"
    folder.mkdir(parents=True)
    for name in (".unpacking", ".unpacking-mine"):
        (folder / name).mkdir()
        (folder / name / "notes").write_text("half")
    obtain(toy(), home, archives=[archive])
    assert {path.name for path in folder.glob(".*")} == {".unpacking-mine"}
    assert (folder / ".unpacking-mine/notes").exists()


def test_a_damaged_copy_of_a_download_is_unpacked_again(home, server, mirrored):
    raw = obtain(mirrored, home)
    (raw.path / "index.txt").write_bytes(b"other")
    assert obtain(mirrored, home, offline=True) == raw
    assert_right(obtain(mirrored, home), server.url("/toy.zip"))
    assert len(server.requests) == 1


# --- downloads --------------------------------------------------------------------------------------


def test_a_download_is_kept_and_enough_for_another_machine(home, server, tmp_path, mirrored):
    receipts = fetch_dataset(mirrored, home, quiet=True)
    assert receipts[0].origin == server.url("/toy.zip")
    raw = obtain(mirrored, home, offline=True)
    assert_right(raw, server.url("/toy.zip"))
    assert left_in(home) >= {"toy.zip", "toy.zip.receipt.json", raw.path.name}
    assert fetch_dataset(mirrored, home, quiet=True) == receipts
    assert len(server.requests) == 1
    second = Home(tmp_path / "second")
    (second.raw / "toy").mkdir(parents=True)
    for name in ("toy.zip", "toy.zip.receipt.json"):
        shutil.copy(home.raw / "toy" / name, second.raw / "toy" / name)
    assert_right(obtain(mirrored, second, offline=True), server.url("/toy.zip"))


def test_an_archive_put_in_place_by_hand_is_used(home, archive):
    (home.raw / "toy").mkdir(parents=True)
    archive.rename(home.raw / "toy" / "toy.zip")
    assert_right(obtain(toy(), home, offline=True), "toy.zip")


def test_a_mirror_with_another_archive_is_left_for_the_next(home, archive, tmp_path, server):
    with zipfile.ZipFile(tmp_path / "wrong.zip", "w") as wrong:
        wrong.writestr("something", "else")
    urls = [
        server.route("/html", page()),
        server.route("/wrong", File((tmp_path / "wrong.zip").read_bytes())),
        server.route("/cut", File(archive.read_bytes()[:-20], length=None)),
        server.route("/good", File(archive.read_bytes())),
    ]
    assert_right(obtain(toy(*urls), home), urls[-1])


def test_a_download_that_cannot_be_unpacked_is_removed(home, tmp_path, server):
    ATTACKS["zip wrong CRC"][0](tmp_path / "bad.zip")
    manifest = toy(server.route("/toy.zip", File((tmp_path / "bad.zip").read_bytes())))
    with pytest.raises(DamagedInput) as caught:
        obtain(manifest, home)
    assert caught.value.left is None
    assert caught.value.steps[-1] == Setting()
    assert "toy.zip" not in left_in(home)
    good_zip(tmp_path / "good.zip")
    server.route("/toy.zip", File((tmp_path / "good.zip").read_bytes()))
    assert_right(obtain(manifest, home), server.url("/toy.zip"))


def test_a_changed_download_is_repeated(home, server, mirrored):
    raw = obtain(mirrored, home)
    shutil.rmtree(raw.path)
    (home.raw / "toy" / "toy.zip").write_bytes(b"PK\3\4 rubbish")
    with pytest.raises(SourceUnavailable):
        obtain(mirrored, home, offline=True)
    assert obtain(mirrored, home) == raw
    assert len(server.requests) == 2


def test_offline_with_an_empty_home_names_every_source(home):
    manifest = load_manifest("shapenet-part")
    with pytest.raises(SourceUnavailable) as caught:
        obtain_by(load_pipeline(manifest), home, offline=True)
    text = str(caught.value)
    assert caught.value.exit_code == 3
    assert all(mirror.url in text for mirror in manifest.sources[0].mirrors)
    assert "kmip-data build shapenet-part --archive PATH" in text
    assert manifest.content.anchor in text
    assert not [path for path in home.path.rglob("*") if path.is_file()]


def test_a_dataset_without_an_address_asks_for_the_files(home):
    manifest = load_manifest("malnet-tiny").model_copy(update={"sources": ()})
    pipeline = load_pipeline(manifest)
    with pytest.raises(SourceUnavailable) as caught:
        obtain_by(pipeline, home)
    assert Command("kmip-data build malnet-tiny --archive PATH") in caught.value.steps
    pinned = manifest.content.model_copy(update={"known_sha256": {"a": "0" * 64}})
    member = pinned.members[0].model_copy(update={"pattern": "a"})
    content = pinned.model_copy(update={"members": (member,)})
    assert manifest.model_copy(update={"content": content}).pins == {
        "malnet-tiny": ["SHA-256 of the members"]
    }


# --- license ----------------------------------------------------------------------------------------


def test_agreement_is_needed_only_to_download(home, archive, server):
    manifest = toy(server.route("/toy.zip", File(archive.read_bytes())), agreement=True)
    with pytest.raises(LicenseNotAccepted):
        obtain(manifest, home)
    assert server.requests == []
    with pytest.raises(SourceUnavailable):
        obtain(manifest, home, offline=True)
    assert_right(obtain(manifest, home, archives=[archive]))
    assert fetch_dataset(manifest, home, accept_license=True, quiet=True)[0].origin == server.url(
        "/toy.zip"
    )
    assert json.loads((home.path / "licenses.json").read_text())["toy"]["how"] == "flag"


def test_the_licence_is_shown(home, archive, mirrored, capsys):
    obtain(mirrored, home, archives=[archive], quiet=False)
    assert "Toy license. (https://l.example)" in capsys.readouterr().err
    fetch_dataset(mirrored, home, quiet=True)
    assert "Toy license." in capsys.readouterr().err  # even when quiet: it is a download


# --- samples ----------------------------------------------------------------------------------------


def test_samples_are_generated_once_and_apart(home):
    pipeline = ToySamples(toy())
    raw = obtain_by(pipeline, home, sample=True, limit=3)
    assert raw.sample
    assert raw.path.parent == home.raw / "toy-sample"
    assert list(raw.members) == sorted(WANTED)
    assert (raw.path / "index.txt").read_bytes().endswith(b"limit 3")
    assert raw.receipts[0].origin == "generated sample"
    again = obtain_by(pipeline, home, sample=True, limit=3, offline=True)
    assert again == raw
    assert pipeline.calls == 1
    other = obtain_by(pipeline, home, sample=True, limit=4)
    assert other.path != raw.path
    pipeline.version = 2
    obtain_by(pipeline, home, sample=True, limit=3)
    assert pipeline.calls == 3
    with pytest.raises(SourceUnavailable):
        obtain(toy(), home, offline=True)


def test_a_damaged_sample_is_generated_again(home):
    pipeline = ToySamples(toy())
    raw = obtain_by(pipeline, home, sample=True)
    (raw.path / "index.txt").write_bytes(b"other")
    assert obtain_by(pipeline, home, sample=True) == raw
    assert pipeline.calls == 2


def test_a_sample_in_another_layout_is_refused(home):
    with pytest.raises(DamagedInput):
        obtain_by(ToySamples(toy(), {"toy/wrong.txt": b"x"}), home, sample=True)


def test_a_sample_of_a_million_records_is_refused(home):
    with raises(UsageError, naming=1_000_001):
        obtain_by(ToySamples(toy()), home, sample=True, limit=1_000_001)


# --- several sources --------------------------------------------------------------------------------


def two_sources() -> Manifest:
    graphs = Content(
        anchor="graphs/a.txt",
        members=(MemberPattern(pattern="graphs/*.txt", max_bytes=100, max_count=9),),
        max_total_bytes=1000,
    )
    labels = Content(
        anchor="labels.csv.gz",
        members=(MemberPattern(pattern="labels.csv.gz", max_bytes=200),),
        max_total_bytes=200,
    )
    mirrors = {name: (Mirror(url=f"https://nowhere.invalid/{name}"),) for name in "gl"}
    return toy(
        sources=(
            Source(name="graphs.tar.gz", mirrors=mirrors["g"], content=graphs),
            Source(name="labels.csv.gz", container="file", mirrors=mirrors["l"], content=labels),
        )
    )


def test_the_content_of_a_dataset_joins_the_contents_of_its_sources():
    graphs, labels = (source.content for source in two_sources().sources)
    joined = two_sources().content
    assert joined.anchor == graphs.anchor
    assert joined.members == (*graphs.members, *labels.members)
    assert joined.max_total_bytes == 1200


@pytest.mark.parametrize("given", ["both", "one source"])
def test_a_manifest_gives_content_for_the_dataset_or_for_every_source(given):
    values = dict(two_sources())
    if given == "one source":
        bare = values["sources"][1].model_copy(update={"content": None})
        values |= {"content": NO_CONTENT, "sources": (values["sources"][0], bare)}
    with pytest.raises(ValidationError):
        Manifest.model_validate(values)


def test_two_sources_become_one_copy(home, tmp_path):
    """The second is a file, which is not opened, although it could be."""
    manifest = two_sources()
    good_tar(
        tmp_path / "g.dat", members={"x/graphs/a.txt": b"ok", "x/graphs/b.txt": b"ok"}, mode="w:gz"
    )
    good_zip(tmp_path / "labels.csv.gz", members={"x": b"y"})
    each = [tmp_path / "g.dat", tmp_path / "labels.csv.gz"]
    raw = obtain(manifest, home, archives=each)
    assert list(raw.members) == ["graphs/a.txt", "graphs/b.txt", "labels.csv.gz"]
    assert (raw.path / "labels.csv.gz").read_bytes() == each[1].read_bytes()
    assert [receipt.name for receipt in raw.receipts] == ["graphs.tar.gz", "labels.csv.gz"]
    assert [receipt.origin for receipt in raw.receipts] == ["g.dat", "labels.csv.gz"]
    assert obtain(manifest, home, archives=each[::-1]) == raw
    assert obtain(manifest, home, archives=[raw.path]) == raw
    with pytest.raises(SourceUnavailable) as caught:
        obtain(manifest, Home(tmp_path / "second"), archives=each[:1], offline=True)
    assert "https://nowhere.invalid/l" in str(caught.value)
    assert "https://nowhere.invalid/g" not in str(caught.value)


def test_a_downloaded_file_may_differ_in_name_from_its_anchor(home, server):
    source = two_sources().sources[1]
    mirrors = (Mirror(url=server.route("/labels", File(b"a,b"))),)
    source = source.model_copy(update={"name": "elsewhere.gz", "mirrors": mirrors})
    raw = obtain(toy(sources=(source,)), home)
    assert (raw.path / "labels.csv.gz").read_bytes() == b"a,b"


# --- at once, and interrupted -----------------------------------------------------------------------


def test_four_at_once_download_and_unpack_once(home, archive, server):
    manifest = toy(server.route("/toy.zip", File(archive.read_bytes(), pace=0.02)))
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: obtain(manifest, home), range(4)))
    assert results == [results[0]] * 4
    assert len(server.requests) == 1


CHILD = """
import os, signal, sys
from pathlib import Path
moment, call = int(sys.argv[4]), sys.argv[3]
count, original = 0, getattr(os, call)
def counted(*args, **options):
    global count
    count += 1
    if count == moment:
        os.kill(os.getpid(), signal.SIGKILL)
    return original(*args, **options)
import kmip_data
from kmip_data.builds.home import Home
from kmip_data.manifest import load_manifest
from kmip_data.pipelines.raw.find_or_download import fetch_dataset
setattr(os, call, counted)
options = {"archives": [Path(sys.argv[2])], "unpinned": True, "quiet": True}
fetch_dataset(load_manifest("s3dis"), Home(Path(sys.argv[1])), **options)
"""


def small_s3dis(path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for i in range(3):
            archive.writestr(f"root/ply_data_all_{i}.h5", bytes([i]) * 700_000)
        archive.writestr("root/all_files.txt", "x")
        archive.writestr("root/room_filelist.txt", "x")
    return path


@pytest.mark.parametrize(
    ("call", "moment"), [("write", 1), ("fsync", 2), ("replace", 1), ("replace", 2)]
)
def test_killed_imports_leave_nothing_half_done(home, tmp_path, call, moment):
    """Killed just before the ``moment``-th call."""
    archive, folder = small_s3dis(tmp_path / "a.zip"), home.raw / "s3dis"
    command = [sys.executable, "-c", CHILD, home.path, archive, call, str(moment)]
    done = subprocess.run(command, check=False, capture_output=True)
    assert done.returncode in {-signal.SIGKILL, *([0] if moment > 1 else [])}, done.stderr
    assert all(
        copy_problems(copy) == [] for copy in list_copies(folder)
    )  # what is visible is whole
    options = {"archives": [archive], "unpinned": True, "quiet": True}
    fetch_dataset(load_manifest("s3dis"), home, **options)
    (copy,) = list_copies(folder)
    assert {path.name for path in folder.iterdir()} == {copy.path.name}
