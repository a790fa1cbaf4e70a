"""Links in a build folder lead nowhere, whatever the command; of two builders of one, one waits."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.cli import kmip
from support.links import KINDS, Command, Kind, Sandbox, run_all
from support.training_data import learnable_build

MADE = (
    *("work", "work/journal.jsonl", "work/prepared", "work/prepared.begun", "work/stop", "columns/work"),
    *("columns/work/journal.jsonl", "columns/rwse3", "columns/rwse3/00000.h5", "columns/rwse3/card.json"),
    *("preview.png", "preview.html", ".lock", "splits/room-area6-seed0.h5"),
    *("../.locks", "../.locks/D.lock"),
)
ENCODE = ("degree-profile-2.0",)
SMALL = [
    word
    for key in ("layers=1", "hidden_dim=32", "attention.heads=2", "attention.k=3")
    for word in ("--set", f"model.{key}")
]


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """Every command that writes into a build folder, on a finished build and on two that were stopped."""
    top = tmp_path_factory.mktemp("originals")
    home = top / "home"
    start = ("build", "s3dis", "--sample", "--limit", "2", "--home", home, "--jobs", "1", "-q")

    def build(folder: Path, *more: object) -> list[object]:
        return [*start, "--k", "4", "--output", folder, *more]

    def stopped(name: str, where: str) -> Path:
        def stop(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(f"kmip_data.pipelines.engine.run.{where}", stop)
            assert kmip(*build(top / name)).code == 130
        return top / name

    whole, bare = top / "whole", top / "bare"
    for folder in (whole, bare):
        assert kmip(*build(folder)).code == 0
    assert kmip("encode", whole, *ENCODE, "--jobs", "1", "-q").code == 0
    begun, ended = stopped("begun", "run_units"), stopped("ended", "finish_build")
    small = learnable_build(top / "small").path

    def repair(folder: Path) -> list[object]:
        return ["verify", folder, "--repair", "--home", home, "--jobs", "1", "-q"]

    def put(name: str, text: str) -> Callable[[Path], object]:
        return lambda folder: (folder / name).write_text(text)

    def train(folder: Path) -> list[object]:
        words = ["train", "--dataset", folder, "--home", top / "runs", "--epochs", "1", "--device", "cpu"]
        return [*words, "-q", "--set", "model.positional=rwse", *SMALL]

    found = {
        "build again": Command(whole, build),
        "build with another k": Command(whole, lambda folder: [*start, "--k", "5", "--output", folder]),
        "add a split": Command(whole, lambda folder: build(folder, "--split-rule", "room")),
        "go on, nothing built": Command(begun, build),
        "go on, all built": Command(ended, build),
        "another k, stopped": Command(begun, lambda folder: [*start, "--k", "5", "--output", folder]),
        "build over a damaged card": Command(bare, build, put("card.json", "{")),
        "verify": Command(whole, lambda folder: ["verify", folder]),
        "repair a shard": Command(bare, repair, lambda folder: _flip(folder / "shards/00000.h5")),
        "repair the page": Command(bare, repair, put("README.md", "")),
        "repair the splits": Command(bare, repair, lambda folder: _flip(next((folder / "splits").iterdir()))),
        "repair the card": Command(
            bare,
            repair,
            lambda folder: put("card.json", (folder / "card.json").read_text() + " ")(folder),
        ),
        "repair a column": Command(
            whole, repair, lambda folder: _flip(folder / "columns/degree-profile-2.0/00000.h5")
        ),
        "encode again": Command(whole, lambda folder: ["encode", folder, *ENCODE, "--jobs", "1", "-q"]),
        "encode": Command(bare, lambda folder: ["encode", folder, "rwse3", "--jobs", "1", "-q"]),
        "preview": Command(whole, lambda folder: ["preview", folder, "--records", "0"]),
        "preview as a page": Command(whole, lambda folder: ["preview", folder, "--records", "0", "--html"]),
        "info": Command(whole, lambda folder: ["info", folder]),
        "train": Command(small, train),
    }
    header = (begun / "work/journal.jsonl").read_bytes().splitlines()[0]
    prepared = {"files": ["half"], "folder": "prepared-1", "inside": None, "plan": {}}
    journal = b"\n".join([header, json.dumps({"prepared": prepared}).encode(), b'{"units":1}', b""])
    return SimpleNamespace(journal=journal, found=found)


def _sandbox(commands: SimpleNamespace, place: Path) -> Sandbox:
    return Sandbox(place, commands.journal)


@pytest.mark.parametrize("kind", ["bait", "dangling"])
@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("build again", "work"),
        ("go on, nothing built", "work"),
        ("go on, all built", "shards"),
        ("add a split", "splits"),
        ("repair the page", "README.md"),
        ("encode again", "columns/work"),
        ("build again", "../.locks"),
        ("add a split", "../.locks"),
        ("go on, all built", "../.locks/D.lock"),
    ],
)
def test_what_a_link_in_a_build_leads_to_stays(
    commands: SimpleNamespace, tmp_path: Path, command: str, name: str, kind: Kind
) -> None:
    assert _sandbox(commands, tmp_path).run(commands.found[command], name, kind)


@pytest.mark.torture
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_every_link_in_a_build_under_every_command(
    commands: SimpleNamespace, tmp_path: Path, kind: Kind, torture_count: Callable[..., None]
) -> None:
    count, failed = run_all(_sandbox(commands, tmp_path), commands.found, MADE, kind)
    assert not failed, "\n\n".join(failed)
    torture_count("links", count)
