"""Rule: a pull into a folder of the same push mends every file that differs; other folders stay."""

from __future__ import annotations

import itertools
import os
import shutil
from pathlib import Path

import pytest
from support.builds.shares import share_folder
from support.cases import damage_file, read_contents

import kmip_data
from kmip_data.builds.home import Build, Home
from kmip_data.errors import UsageError
from kmip_data.files.atomic_writes import MARKER_NAME, create_marked_folder
from kmip_data.sharing.pull import pull
from kmip_data.sharing.push import push_build

MINE = b"a file of the user"
RUN = {
    "config.toml": b"a = 1",
    "metrics.csv": b"1",
    "model.safetensors": b"w",
    "result.json": b"{}",
}


@pytest.fixture(scope="module")
def shares(small: Build, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("shares")
    push_build(small, str(folder / "build"), quiet=True)
    (folder / "mine").mkdir()
    for name, data in RUN.items():
        (folder / "mine" / name).write_bytes(data)
    share_folder(folder / "mine", folder / "run", "run")
    return {"build": folder / "build", "run": folder / "run"}


def test_files_with_names_of_partial_files_are_kept(small, tmp_path) -> None:
    home, digest = Home(tmp_path / "home"), small.card.shards[0].sha256
    for number, end in enumerate((".partial", f".{digest}.partial")):
        source, share = tmp_path / f"source-{number}", tmp_path / f"share-{number}"
        shutil.copytree(small.path, source)
        first = source / "columns/degree-profile-2.8/00000.h5"
        second = first.with_name(first.name + end)
        second.write_bytes(b"the second")
        share_folder(source, share)
        for stopped in (True, False):
            to = tmp_path / f"pulled-{number}-{stopped}"
            if stopped:  # after the second file
                create_marked_folder(to, f"build {small.card.key}")
                target = to / second.relative_to(source)
                target.parent.mkdir(parents=True)
                shutil.copy(second, target)
            pull(str(share), home, output=to, quiet=True)
            for path in (first, second):
                assert (to / path.relative_to(source)).read_bytes() == path.read_bytes()


def test_a_damaged_copy_is_repaired(shares, tmp_path, subtests) -> None:
    home = Home(tmp_path / "home")
    for kind, share in shares.items():
        folder = pull(str(share), home, output=tmp_path / kind, quiet=True).path
        whole = read_contents(folder)
        mine = {"notes.txt": MINE, "shards/00000.h5.partial": MINE} if kind == "build" else {}
        names = whole.keys() - {MARKER_NAME}
        for name, way in itertools.product(names, ("missing", "cut", "flipped", "longer")):
            with subtests.test(f"{kind}: {name} {way}"):
                for each, content in (whole | mine).items():  # as the case before has left them
                    (folder / each).unlink(missing_ok=True)
                    (folder / each).write_bytes(content)
                damage_file(folder / name, whole[name], way)
                assert not pull(str(share), home, output=folder, quiet=True).was_complete
                assert read_contents(folder) == whole | mine
                assert pull(str(share), home, output=folder, quiet=True).was_complete
    folder = pull(str(shares["build"]), home, output=tmp_path / "more", quiet=True).path
    assert not os.access(folder / "shards/00000.h5", os.W_OK) or os.geteuid() == 0
    assert kmip_data.open(folder)[0].num_nodes == 9


@pytest.mark.parametrize("address", ["notes.txt", "notes.txt/share", "notes.txt/a/b"])
def test_an_address_through_a_file_has_no_share(tmp_path, address) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError):
        pull(str(tmp_path / address), Home(tmp_path / "home"), quiet=True)
