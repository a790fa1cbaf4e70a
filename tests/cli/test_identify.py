"""``kmip-data identify``: raw files, members, files of builds, and files that nobody knows."""

import os
import shlex

from support.cli import expect_refusal, expect_success
from support.shared import shared_data

from kmip_data.manifest import load_manifest
from kmip_data.pipelines.build import build_dataset


def test_real_files_are_identified_and_their_command_works(home, tmp_path):
    """A source, a member that another dataset shares, and an unknown file."""
    graph = shared_data("node_benchmarks", "chameleon_filtered.npz")
    rooms = shared_data("s3dis_meta", "all_files.txt")
    unknown = tmp_path / "unknown"
    unknown.write_bytes(b"unknown")
    printed = expect_success("identify", graph, rooms, unknown, "--json").json["files"]
    assert [[(file["dataset"], file["name"]) for file in each["known"]] for each in printed] == [
        [("chameleon-filtered", "chameleon_filtered.npz")],
        [("s3dis", "all_files.txt")],
        [],
    ]
    assert printed[0]["known"][0]["publisher"].startswith("https://raw.githubusercontent.com/")
    text = expect_success("identify", graph, unknown).out
    assert f"{unknown}: no known file has its SHA-256 " in text
    line = text.partition("kmip-data ")[2].splitlines()[0]
    assert f"--archive {graph.parent}" in line
    expect_success(*shlex.split(line), "--quiet")


def test_files_of_builds_are_identified(home, tmp_path):
    """A shard is that of the published sample and of the build in the home."""
    build = build_dataset("minesweeper", sample=True, home=home, quiet=True)
    shard = build.path / build.card.shards[0].file
    assert "use      kmip-data info " in expect_success("identify", shard).out
    (printed,) = expect_success("identify", shard, "--json").json["files"]
    commands = [file["command"] for file in printed["known"]]
    info = ["kmip-data", "info"]
    assert commands == [[*info, "minesweeper"], [*info, build.name_or_path]]
    for command in commands:
        expect_success(*command[1:])


def test_what_is_no_file_is_named_without_the_same_command_again(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("nothing")
    (tmp_path / "folder").mkdir()
    kinds = {"pipe": "a pipe or a device", "link": "a link to nothing", "folder": "a folder"}
    for name, kind in kinds.items():
        message = expect_refusal("identify", tmp_path / name)
        assert f"{tmp_path / name} is {kind}, not a file.\n" in message
        assert "next: " not in message


def test_members_of_ogb_are_those_of_one_repository():
    """Each member that a build reads has a digest, and the publication is named."""
    for name in ("ogbg-molhiv", "ogbn-arxiv"):
        content = load_manifest(name).content
        assert content.known_sha256.keys() == {member.pattern for member in content.members}
        assert "one repository" in content.pin_source
    for name in ("ogbg-molpcba", "ogbn-products"):
        assert not load_manifest(name).content.known_sha256
