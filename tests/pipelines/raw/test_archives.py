"""Local archives: recognised by content, unpacked whole; hostile ones leave nothing anywhere."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from support.attacks.archives import (
    ATTACKS,
    CONTENT,
    GOOD,
    WANTED,
    good_tar,
    good_zip,
    tar_info,
    zip_info,
)
from support.cases import check_each, read_contents, steps_of
from support.raises import raises

from kmip_data.errors import DamagedInput, UsageError
from kmip_data.manifest import Content, load_manifest
from kmip_data.pipelines.raw import extract
from kmip_data.pipelines.raw.archives import files_in
from kmip_data.pipelines.raw.extract import recognise_dataset, write_members


def tree(folder: Path) -> dict[str, tuple[int, bytes]]:
    """All that lies below a folder: mode and content."""
    files = {}
    for path in sorted(folder.rglob("*")):
        data = path.read_bytes() if path.is_file() else b""
        files[path.relative_to(folder).as_posix()] = (path.lstat().st_mode, data)
    return files


def unpack(path: Path, target: Path) -> dict[str, str]:
    return write_members(recognise_dataset(path, CONTENT), target)


def assert_unpacks(path: Path, target: Path) -> None:
    digests = unpack(path, target)
    assert read_contents(target) == WANTED
    assert digests == {
        name: hashlib.sha256(data).hexdigest() for name, data in sorted(WANTED.items())
    }


# --- what is accepted ------------------------------------------------------------------------------


def _folder(path: Path) -> None:
    for name, data in GOOD.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)


def _renamed(root: str, build, path: Path, **options) -> None:
    build(
        path, members={name.replace("toy/", root): data for name, data in GOOD.items()}, **options
    )


def _much_besides(path: Path) -> None:
    """Hold much more than the data: in size, in number, and hidden copies of a system's own."""
    good_zip(
        path,
        ("besides/large.bin", bytes(12_000_000)),
        *((f"besides/{i}", b"") for i in range(10_200)),
        *((f"toy/parts/._{i}.bin", b"mac") for i in range(25)),
        ("toy/parts/0.npz", b"extra"),
        ("toy/parts/sub/2.bin", b"deeper"),
        (zip_info("toy/parts/", 0o040755), b""),
    )


LARGE = ("besides/large.bin", random.Random(0).randbytes(3_000_000) * 4)
LONG = "/".join(["n" * 90] * 4) + "/"
ACCEPTED = {
    "zip renamed root": lambda p: _renamed("Größe/deeper/", good_zip, p),
    "zip no root": lambda p: _renamed("", good_zip, p),
    "zip with much more": _much_besides,
    "tar ./": lambda p: _renamed("./a b/", good_tar, p),
    "tar ustar": lambda p: good_tar(p, form=tarfile.USTAR_FORMAT),
    "tar long names gnu": lambda p: _renamed(LONG, good_tar, p, form=tarfile.GNU_FORMAT),
    "tar long names pax": lambda p: _renamed(LONG, good_tar, p),
    "tar.gz with more": lambda p: good_tar(p, LARGE, mode="w:gz"),
    "tar.bz2": lambda p: good_tar(p, mode="w:bz2"),
    "tar.xz": lambda p: good_tar(p, mode="w:xz"),
    "tar.gz padded": lambda p: (
        good_tar(p, mode="w:gz"),
        p.write_bytes(p.read_bytes() + bytes(5000)),
    ),
    "folder": _folder,
}


def test_every_form_gives_the_same_members(tmp_path):
    def check(name):
        folder = tmp_path / name
        folder.mkdir()
        path = folder / "archive.dat"  # the name says nothing: all are called alike
        ACCEPTED[name](path)
        before = tree(folder)
        assert_unpacks(path, folder / "target")
        shutil.rmtree(folder / "target")
        assert tree(folder) == before

    check_each(check, ACCEPTED)


def test_mode_bits_are_not_taken_over(tmp_path):
    good_zip(tmp_path / "a", (zip_info("toy/parts/2.bin", 0o104777), b"x"))
    good_tar(tmp_path / "b", (tar_info("toy/parts/2.bin", mode=0o6777), b"x"))
    for name in "ab":
        unpack(tmp_path / name, tmp_path / f"target-{name}")
        assert (tmp_path / f"target-{name}/parts/2.bin").stat().st_mode & 0o7777 & ~0o644 == 0


@pytest.fixture
def mine(tmp_path) -> Path:
    """A folder of the user with the data."""
    _folder(tmp_path / "mine")
    return tmp_path / "mine"


def _moved(part: Path, place: Path) -> None:
    """Move a file elsewhere and leave a link to it."""
    place.parent.mkdir(exist_ok=True)
    part.rename(place)
    part.symlink_to(place)


def test_a_link_inside_a_folder_is_followed(mine, tmp_path):
    _moved(mine / "toy/parts/0.bin", mine / ".store/blob")
    assert_unpacks(mine, tmp_path / "target")


def test_a_link_out_of_a_folder_is_followed(mine, tmp_path):
    """Folders of the Hugging Face cache hold such links."""
    (tmp_path / "store").mkdir()
    _moved(mine / "toy/parts/0.bin", tmp_path / "store/blob")
    assert_unpacks(mine, tmp_path / "target")


def test_a_link_to_a_folder_is_that_folder(mine, tmp_path):
    (tmp_path / "link").symlink_to(mine)
    assert_unpacks(tmp_path / "link", tmp_path / "target")


def test_a_folder_may_hold_anything_else_and_is_only_read(tmp_path):
    _folder(tmp_path / "mine")
    (tmp_path / "mine" / "bad\x01name").write_bytes(b"x")
    (tmp_path / "mine" / os.fsdecode(b"\xff\xfe")).write_bytes(b"x")
    os.mkfifo(tmp_path / "mine" / "toy" / "fifo")
    (tmp_path / "mine" / "loop").symlink_to(tmp_path / "mine")
    (tmp_path / "mine" / "toy" / "parts").chmod(0o555)
    before = [(path, path.lstat()[:7]) for path in sorted((tmp_path / "mine").rglob("*"))]
    assert_unpacks(tmp_path / "mine", tmp_path / "target")
    assert [(path, path.lstat()[:7]) for path in sorted((tmp_path / "mine").rglob("*"))] == before
    assert (tmp_path / "target" / "index.txt").stat().st_nlink == 1  # a copy, not a link


@pytest.mark.parametrize(
    "name", ["~$0.bin", "0.bin~", "desktop.ini", "Thumbs.db", ".~lock.0.bin#", ".DS_Store"]
)
def test_files_that_offices_and_editors_leave_are_passed_over(tmp_path, name):
    content = Content.model_validate(
        {
            "anchor": "*",
            "max_total_bytes": 100,
            "members": [{"pattern": "*", "max_bytes": 9, "max_count": 9}],
        }
    )
    (tmp_path / "mine").mkdir()
    for member in ("nodes.csv", name):
        (tmp_path / "mine" / member).write_bytes(b"x")
    assert [*recognise_dataset(tmp_path / "mine", content).members] == ["nodes.csv"]


def test_folders_of_a_zip_may_be_separated_by_backslashes(tmp_path):
    members = {name.replace("/", "\\"): data for name, data in GOOD.items()}
    good_zip(tmp_path / "a.zip", members=members)
    assert_unpacks(tmp_path / "a.zip", tmp_path / "target")


def test_data_in_two_folders_are_named_in_words(tmp_path):
    """A pattern such as * is none."""
    content = Content.model_validate(
        {
            "anchor": "*",
            "max_total_bytes": 100,
            "members": [{"pattern": "*", "max_bytes": 9, "max_count": 9}],
        }
    )
    for folder in ("a", "b"):
        (tmp_path / "mine" / folder).mkdir(parents=True)
        (tmp_path / "mine" / folder / "nodes.csv").write_bytes(b"x")
    (tmp_path / "mine/b/edges.csv").write_bytes(b"x")
    with raises(UsageError, naming=["'a/'", "'b/'"]) as caught:
        recognise_dataset(tmp_path / "mine", content)
    assert "archive" not in steps_of(caught.value)


def test_a_folder_that_holds_the_others_is_the_folder_of_the_data(tmp_path):
    """A table of labels lies next to the folder of its graphs."""
    sizes = {"max_bytes": 9, "max_count": 9}
    members = [{"pattern": "*", **sizes}, {"pattern": "*/*", "min_count": 0, **sizes}]
    content = Content.model_validate({"anchor": "*", "max_total_bytes": 100, "members": members})
    (tmp_path / "graphs").mkdir()
    for name in ("graphs/a.dot", "labels.csv"):
        (tmp_path / name).write_bytes(b"x")
    assert {*recognise_dataset(tmp_path, content).members} == {"graphs/a.dot", "labels.csv"}
    # Folders of one folder are one set.
    (tmp_path / "labels.csv").unlink()
    (tmp_path / "others").mkdir()
    (tmp_path / "others/a.dot").write_bytes(b"x")
    assert {*recognise_dataset(tmp_path, content).members} == {"graphs/a.dot", "others/a.dot"}
    # So they are below a table, at any depth.
    deep = tmp_path / "deep"
    (deep / "json").mkdir(parents=True)
    for name in ("graphs", "others"):
        (tmp_path / name).rename(deep / "json" / name)
    (deep / "labels.csv").write_bytes(b"x")
    selection = recognise_dataset(deep, content)
    assert selection.root == ""
    assert {*selection.members} == {"json/graphs/a.dot", "json/others/a.dot", "labels.csv"}


# --- what is refused --------------------------------------------------------------------------------


def wrong_about(name: str, top: Path) -> str | None:
    """Return what is wrong with how a hostile archive ends, if anything."""
    build, message = ATTACKS[name]
    target = top / "home" / "target"
    path = top / "in" / "archive.dat"
    (path.parent / "outside").mkdir(parents=True)
    (top / "home").mkdir()
    build(path)
    before = tree(top)
    try:
        unpack(path, target)
    except DamagedInput as error:
        text = str(error)
        if (
            message is None
            or message not in text
            or "archive.dat" not in text
            or error.exit_code != 4
        ):
            return text
        if "\x1b" in text or not text.replace("\n", "").isprintable():
            return f"controls in {text!a}"
        return None if tree(top) == before else "something was left"
    except Exception as error:
        return repr(error)
    if message is not None or read_contents(target) != WANTED:
        return "accepted"
    shutil.rmtree(target)
    return None if tree(top) == before else "something was written elsewhere"


#: Attacks on memory and time, which a process of its own meets.
HEAVY = {name for name in ATTACKS if re.search("bomb|000 members|huge|pax h", name)}


def test_a_hostile_archive_is_refused_or_read_as_the_libraries_read_it(tmp_path):
    def check(name):
        why = wrong_about(name, tmp_path / "case")
        shutil.rmtree(tmp_path / "case")
        assert why is None

    check_each(check, ATTACKS.keys() - HEAVY)


MEASURE = """
import json, re, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from support.attacks.archives import ATTACKS, CONTENT
from kmip_data.errors import DamagedInput, UsageError
from kmip_data.pipelines.raw.extract import recognise_dataset, write_members
for path in sorted(Path(sys.argv[1]).iterdir()):
    end, begun = None, time.process_time()
    try:
        write_members(recognise_dataset(path, CONTENT), path.with_name("target of " + path.name))
    except (DamagedInput, UsageError) as error:
        end = str(error)
    peak = int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024
    print(json.dumps([path.name, end, peak, time.process_time() - begun]))
"""


@pytest.mark.slow
def test_bombs_and_a_large_good_archive_need_little_memory(tmp_path):
    """All in one process, which keeps the largest memory that one of them took."""
    for name in HEAVY:
        ATTACKS[name][0](tmp_path / name)
    members = {"toy/index.txt": b"x"} | {
        f"toy/parts/{i}.bin": os.urandom(1_900_000) for i in range(5)
    }
    good_tar(tmp_path / "good", members=members, mode="w:gz")
    command = [sys.executable, "-c", MEASURE, tmp_path, Path(__file__).resolve().parents[2]]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    outcomes = [json.loads(line) for line in done.stdout.splitlines()]
    refusals = {"good": None, **{name: ATTACKS[name][1] for name in HEAVY}}
    assert {name for name, *_ in outcomes} == refusals.keys()
    for name, end, *_ in outcomes:
        assert (end is None) if refusals[name] is None else refusals[name] in (end or ""), (
            name,
            end,
        )
    assert max(peak for _, _, peak, _ in outcomes) < 300e6
    assert max(seconds for *_, seconds in outcomes) < 30


def test_data_of_another_kind_are_described(tmp_path):
    cases = {
        "other, top.txt": {"other/readme.md": b"x", "other/data.bin": b"y", "top.txt": b"z"},
        "0 of parts/*.bin": {"toy/index.txt": b"x"},
    }
    for text, members in cases.items():
        good_zip(tmp_path / "a.zip", members=members)
        with raises(DamagedInput, naming=text) as caught:
            unpack(tmp_path / "a.zip", tmp_path / "target")
        assert caught.value.expected == "1 × index.txt, 1 to 20 × parts/*.bin"


@pytest.mark.parametrize("more", [0, 1])
def test_a_member_may_have_its_limit_and_not_a_byte_more(tmp_path, more):
    good_zip(tmp_path / "a.zip", members={**GOOD, "toy/index.txt": bytes(1_000 + more)})
    with contextlib.nullcontext() if not more else raises(DamagedInput, naming=1001):
        unpack(tmp_path / "a.zip", tmp_path / "target")


def test_two_copies_in_one_archive_need_a_choice(tmp_path):
    good_zip(
        tmp_path / "a.zip", *[(name.replace("toy", "two"), data) for name, data in GOOD.items()]
    )
    with raises(UsageError, naming=["'toy/'", "'two/'"]):
        unpack(tmp_path / "a.zip", tmp_path / "target")


NO_ARCHIVES = {
    "empty": b"",
    "web page": b"<!DOCTYPE html>",
    "two bytes of a zip": b"PK",
    "gzip of a text": gzip.compress(b"text"),
    "zeros": bytes(2048),
}


@pytest.mark.parametrize("data", NO_ARCHIVES.values(), ids=NO_ARCHIVES)
def test_a_file_that_is_no_archive_is_refused(tmp_path, data):
    (tmp_path / "a.zip").write_bytes(data)
    with pytest.raises(DamagedInput) as caught:
        unpack(tmp_path / "a.zip", tmp_path / "target")
    assert repr(data[:24]) in caught.value.found


def test_an_archive_instead_of_a_plain_file_is_reported(tmp_path):
    good_zip(tmp_path / "a.zip")
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        tar.add(tmp_path / "a.zip", "index.txt")
    for kind in ("zip", "tar"):
        with pytest.raises(DamagedInput) as caught:
            recognise_dataset(tmp_path / f"a.{kind}", CONTENT, as_member=f"a.{kind}")
        assert kind in caught.value.found
        assert kind not in steps_of(caught.value)


def test_a_missing_path_is_reported(tmp_path):
    with pytest.raises(UsageError):
        list(files_in(tmp_path / "nothing.zip"))


def test_a_pipe_is_no_archive(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(DamagedInput):
        list(files_in(tmp_path / "fifo"))


def test_too_large_a_folder_is_not_searched_for_ever(tmp_path, monkeypatch):
    for i in range(30):
        (tmp_path / str(i) / "deep").mkdir(parents=True)
        (tmp_path / str(i) / "deep" / "file").touch()
    assert len(list(files_in(tmp_path))) == 30
    monkeypatch.setattr(extract, "_MAX_ENTRIES", 20)
    few = CONTENT.model_copy(update={"members": CONTENT.members[:1]})
    with raises(UsageError, naming=20):
        recognise_dataset(tmp_path, few)


def _mutations(tmp_path: Path, change) -> None:
    """Damage good archives in random places: our errors or the right members, never anything else."""
    builders = {
        "zip": good_zip,
        "tar": good_tar,
        "gz": ACCEPTED["tar.gz padded"],
        "xz": ACCEPTED["tar.xz"],
    }
    for kind, build in builders.items():
        path, target = tmp_path / f"archive.{kind}", tmp_path / "target"
        build(path)
        data = path.read_bytes()
        for seed in range(60):
            path.write_bytes(change(bytearray(data), random.Random(seed)))
            with contextlib.suppress(DamagedInput, UsageError):
                unpack(path, target)
                assert {p.relative_to(target).as_posix() for p in target.rglob("*.bin")} <= set(
                    WANTED
                )
                shutil.rmtree(target)
            assert not target.exists()
        path.unlink()
    assert list(tmp_path.iterdir()) == []


def _flip(data: bytearray, rng: random.Random) -> bytes:
    for _ in range(rng.randint(1, 3)):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def _cut(data: bytearray, rng: random.Random) -> bytes:
    return bytes(data[: rng.randrange(len(data))])


def test_randomly_damaged_archives_are_refused(tmp_path):
    for change in (_flip, _cut):
        _mutations(tmp_path, change)


@pytest.mark.parametrize("kind", ["zip", "tar", "folder"])
def test_own_graphs_have_a_limit_of_files_whatever_their_size(tmp_path, kind):
    content = load_manifest("graphs").content
    assert content.members[0].max_count == 100_000
    small = content.members[0].model_copy(update={"max_count": 20})
    content = content.model_copy(update={"members": (small,)})
    for count in (20, 21, 90):
        folder = tmp_path / str(count)
        folder.mkdir()
        for number in range(count):
            (folder / f"{number}.csv").touch()
        path = folder
        if kind != "folder":
            path = Path(shutil.make_archive(str(folder), kind, folder))
        if count <= 20:
            assert len(recognise_dataset(path, content).members) == count
            continue
        with raises(UsageError, naming=20):
            recognise_dataset(path, content)
