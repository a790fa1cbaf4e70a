"""Links in a build folder lead nowhere, whatever the command; of two builders of one, one waits."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from support.attacks.links import Command, Kind, Sandbox
from support.cli import kmip

ENCODE = ("degree-profile-2.0",)


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
            patch.setattr(f"kmip_data.pipelines.engine.resumable_build.{where}", stop)
            assert kmip(*build(top / name)).code == 130
        return top / name

    whole, bare = top / "whole", top / "bare"
    for folder in (whole, bare):
        assert kmip(*build(folder)).code == 0
    assert kmip("encode", whole, *ENCODE, "--jobs", "1", "-q").code == 0
    begun, ended = stopped("begun", "run_units"), stopped("ended", "finish_build")
    repair = ["--repair", "--home", home, "--jobs", "1", "-q"]

    def without_page(folder: Path) -> None:
        (folder / "README.md").write_text("")

    commands = {
        "build again": Command(whole, build),
        "add a split": Command(whole, lambda folder: build(folder, "--split-rule", "room")),
        "go on, nothing built": Command(begun, build),
        "go on, all built": Command(ended, build),
        "repair the page": Command(
            bare, lambda folder: ["verify", folder, *repair], without_page, True
        ),
        "encode again": Command(
            whole, lambda folder: ["encode", folder, *ENCODE, "--jobs", "1", "-q"]
        ),
    }
    steps = {path.name: path.read_bytes() for path in (begun / "work").glob("*.json")}
    assert sorted(steps) == ["prepared.json", "units.json"]
    return SimpleNamespace(steps=steps, by_name=commands)


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
        ("build again", "../.D.lock"),
        ("add a split", "../.D.lock"),
        ("go on, all built", "../.D.lock"),
    ],
)
def test_commands_keep_the_target_of_a_link_in_a_build(
    commands: SimpleNamespace, tmp_path: Path, command: str, name: str, kind: Kind
) -> None:
    assert Sandbox(tmp_path, commands.steps).run(commands.by_name[command], name, kind)
