"""Rule: commands change folders of ours, and in them their own names; anything else stays."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.builds.learnable import learnable_build, tiny_config
from support.cases import damage_file, read_contents
from support.cli import expect_refusal, expect_success, kmip

from kmip_data.builds.home import Home
from kmip_data.errors import UsageError
from kmip_data.files.atomic_writes import MARKER_NAME, marker_content
from kmip_data.format.card import read_card
from kmip_data.models.training.config.overrides import read_config
from kmip_data.models.training.push_run import push_run
from kmip_data.models.training.run.train import train

MINE = b"years of work"
BUILD = ("build", "long-range", "--limit", "4", "--jobs", "1", "-q")


@dataclass
class World:
    """Build with an added column, and a run, both pushed; tests copy them."""

    build: Path
    pushed: Path
    run: Path
    pushed_run: Path


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("ours")
    home = Home(folder / "home")
    assert kmip(*BUILD, "--home", home.path).code == 0
    (build,) = home.built.iterdir()
    assert kmip("encode", build, "rwse4", "-q").code == 0
    expect_success("push", build, folder / "pushed", "-q")
    config = tiny_config(learnable_build(folder / "data"), training={"epochs": 1})
    run = train(config, home=home, name="one", quiet=True).runs[0]
    push_run(run, str(folder / "pushed-run"), quiet=True)
    return World(build, folder / "pushed", run, folder / "pushed-run")


def copied(source: Path, target: Path, *, marked: bool = True) -> Path:
    """Copy a folder, without the marker if it is not ``marked``."""
    shutil.copytree(source, target)
    if not marked:
        (target / MARKER_NAME).unlink()
    return target


def plant(folder: Path, *names: str) -> dict[str, bytes]:
    """Write files of the user's, and return them."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(MINE)
    return dict.fromkeys(names, MINE)


def test_folders_without_a_marker_are_refused_and_left_unchanged(
    world: World, home: Path, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    """A folder without a marker is refused even if it holds only files with our names."""
    commands: dict[str, tuple[Any, ...]] = {
        "build": (*BUILD, "--output", "DIR"),
        "pull": ("pull", world.pushed, "--output", "DIR", "-q"),
        "pull run": ("pull", world.pushed_run, "--output", "DIR", "-q"),
        "push": ("push", world.build, "DIR", "-q"),
        "push run": ("push", world.run, "DIR", "-q", "--home", world.run.parents[3]),
        "export": ("export", world.build, "--output", "DIR", "-q"),
    }
    for number, (name, command) in enumerate(commands.items()):
        for file in ("thesis.tex", "shards/00000.h5", "work/00000.json", "card.json"):
            with subtests.test(f"{name} onto {file}"):
                folder = tmp_path / f"{number}-{file.replace('/', '-')}"
                plant(folder, file)
                before = read_contents(folder)
                expect_refusal(*(folder if word == "DIR" else word for word in command))
                assert read_contents(folder) == before
    with subtests.test("build onto a copied card"):
        plant(tmp_path / "bare", "README.md", "shards/00000.h5")
        shutil.copy(world.build / "card.json", tmp_path / "bare")
        before = read_contents(tmp_path / "bare")
        for command in (
            ("verify", tmp_path / "bare"),
            ("verify", tmp_path / "bare", "--repair", "-q"),
            ("encode", tmp_path / "bare", "rwse3", "-q"),
            (*BUILD, "--output", tmp_path / "bare"),
        ):
            assert kmip(*command).code in {1, 2, 4}
        assert read_contents(tmp_path / "bare") == before
    for file in ("notes.txt", "model.safetensors", "config.toml"):
        with subtests.test(f"train onto {file}"):
            shutil.rmtree(home, ignore_errors=True)
            folder = home.joinpath("runs", *world.run.parts[-3:])
            mine = plant(folder, file)
            config = read_config(world.run / "config.toml")
            with pytest.raises(UsageError):
                train(config, home=Home(home), name=folder.name, quiet=True)
            assert read_contents(folder) == mine


def test_a_folder_for_another_build_is_refused(world: World, tmp_path: Path) -> None:
    folder = copied(world.build, tmp_path / "D")
    before = read_contents(folder)
    expect_refusal("build", "long-range", "--limit", "5", "--jobs", "1", "-q", "--output", folder)
    (folder / "card.json").unlink()
    expect_refusal("build", "long-range", "--limit", "5", "--jobs", "1", "-q", "--output", folder)
    expect_refusal("pull", world.pushed_run, "--output", folder, "-q")
    assert read_contents(folder) == {
        name: data for name, data in before.items() if name != "card.json"
    }


def test_verify_adopts_a_sound_folder_of_an_earlier_version(
    world: World, home: Path, tmp_path: Path
) -> None:
    folder = copied(world.build, home / "built" / world.build.name, marked=False)
    run = copied(world.run, home / "runs/x/gcn/one", marked=False)
    for command in (("encode", folder, "rwse3", "-q"), ("remove", folder, "--yes")):
        assert f"kmip-data verify {folder}" in expect_refusal(*command)
    assert f"kmip-data verify {run}" in expect_refusal("remove", "gcn/one", "--yes")
    whole = (folder / "shards/00000.h5").read_bytes()
    for path in (folder / "shards/00000.h5", run / "model.safetensors"):
        data = path.read_bytes()
        damage_file(path, data, "flipped")
        expect_refusal("verify", folder if path.is_relative_to(folder) else "gcn/one", code=1)
        path.write_bytes(data)
    assert marker_content(folder) is marker_content(run) is None
    assert whole == (folder / "shards/00000.h5").read_bytes()
    expect_success("verify", folder)
    assert expect_success("verify", "gcn/one", "--json").json["ok"]
    assert marker_content(folder) == f"build {read_card(folder).key}"
    assert marker_content(run) == "run"
    expect_success("encode", folder, "rwse3", "-q")
    expect_success("remove", folder, "gcn/one", "--yes")
    assert not folder.exists()
    assert not run.exists()


def test_unlisted_files_are_kept_and_named(world: World, home: Path) -> None:
    build = copied(world.build, home / "built" / world.build.name)
    run = copied(world.run, home / "runs/x/gcn/one")
    mine = plant(build, "notes.txt", "shards/notes", "splits/a.csv", "columns/b/c.txt", "x.partial")
    mine |= plant(build, "splits/mine.h5", "shards/00077.h5", "shards/00000-00007.h5")
    mine |= plant(build, "columns/b/00000.h5", "columns/rwse4/00077.h5", "preview.png")
    mine_of_run = plant(run, "train.py", "checkpoints/mine.ckpt", "sub/config.toml")
    mine_of_run |= plant(run, "checkpoints/epoch-3.safetensors", "predictions.npz", "explore.html")
    notes = expect_success("verify", build).out
    for name in ("splits/mine.h5", "shards/00077.h5", "columns/b", "columns/rwse4/00077.h5"):
        assert f"{name} is not part of the build" in notes
    text = expect_success("remove", build, "gcn/one", "--yes").out
    for name in ("notes.txt", "train.py"):
        assert name in text
    assert read_contents(build) == mine
    assert read_contents(run) == mine_of_run


def test_a_push_keeps_the_files_of_the_user(world: World, tmp_path: Path) -> None:
    to = copied(world.pushed, tmp_path / "to")
    mine = plant(to, "notes.txt")
    assert "notes.txt" in kmip("push", world.build, to, "-q").err
    assert read_contents(to) == read_contents(world.pushed) | mine


def test_repair_restores_every_file_of_a_build(
    world: World, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    whole = read_contents(world.build)
    shard = "shards/00000.h5"

    def folder(build: Path) -> None:
        (build / shard).unlink()
        plant(build, f"{shard}/notes.txt")

    def cut(name: str, build: Path) -> None:
        damage_file(build / name, whole[name], "cut")

    def linked(name: str, build: Path) -> None:
        (build / name).rename(build.parent / f"{build.name}-away")
        (build / name).symlink_to(build.parent / f"{build.name}-away")

    damages: dict[str, Any] = {
        "marker": lambda build: (build / MARKER_NAME).write_text("kmip-data: build 000000000000\n"),
        "page": lambda build: (build / "README.md").write_text("x"),
        "metadata": lambda build: (build / "croissant.json").unlink(),
        "split": lambda build: cut("splits/upstream.h5", build),
        "column": lambda build: cut("columns/rwse4/00000.h5", build),
        "link": lambda build: linked(shard, build),
        "linked folder": lambda build: linked("shards", build),
        "linked card": lambda build: linked("card.json", build),
        "folder": folder,
    }
    for name, spoil in damages.items():
        with subtests.test(name):
            build = copied(world.build, tmp_path / name.replace(" ", "-"))
            spoil(build)
            assert name == "folder" or read_contents(build) != whole or "link" in name
            expect_success("verify", build, "--repair", "-q")
            left = read_contents(build)
            moved = {file: left.pop(file) for file in [*left] if ".moved/" in file}
            assert left == whole
            assert [*moved.values()] == [MINE] * (name == "folder")
            assert not [path for path in build.rglob("*") if path.is_symlink()]
            assert "writes it again" not in expect_success("verify", build).out


def test_push_keeps_an_existing_readme(world: World, tmp_path: Path) -> None:
    to = tmp_path / "to"
    plant(to, "README.md")  # of a new repository
    command = ("push", world.build, to, "-q")
    for notice in ("README.md exists and is kept", ""):  # the second push writes nothing
        assert notice in kmip(*command).err
        assert (to / "README.md").read_bytes() == MINE
    (to / "README.md").unlink()
    expect_success(*command)
    assert read_contents(to) == read_contents(world.pushed)


def test_user_files_are_replaced_only_with_force(
    world: World, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    home = ("--home", world.run.parents[3])
    commands: dict[str, tuple[Any, ...]] = {
        "x.png": ("preview", world.build, "--output", "FILE"),
        "x.html": ("explore", world.build, "--no-open", "--output", "FILE"),
        "x.csv": ("report", world.run, "--format", "csv", *home, "--output", "FILE"),
        "x.npz": ("predict", world.run, *home, "--output", "FILE"),
    }
    for name, command in commands.items():
        with subtests.test(command[0]):
            path = tmp_path / name
            words = [path if word == "FILE" else word for word in command]
            plant(tmp_path, name)
            path.chmod(0o600)
            # Advice removes no file: the option that replaces one is in the help alone.
            refusal = expect_refusal(*words)
            assert name in refusal
            assert "--force" not in refusal
            assert path.read_bytes() == MINE
            expect_success(*words, "--force")
            assert path.read_bytes() != MINE
            assert path.stat().st_mode & 0o777 == 0o600
            path.unlink()


def test_the_default_picture_is_replaced_in_a_marked_folder(world: World, tmp_path: Path) -> None:
    build = copied(world.build, tmp_path / "B")
    plant(build, "preview.png")
    expect_refusal("preview", build)
    assert (build / "preview.png").read_bytes() == MINE
    expect_success("preview", build, "--force")
    expect_success("preview", build)  # ours by now
    plant(build, "preview.png")
    expect_refusal("preview", build)
    (build / "preview.png").unlink()
    plant(tmp_path, "far.png")
    (build / "preview.png").symlink_to(tmp_path / "far.png")
    expect_refusal("preview", build)
    assert (tmp_path / "far.png").read_bytes() == MINE
    old = copied(world.build, tmp_path / "old", marked=False)
    plant(old, "explore.html")
    expect_refusal("explore", old, "--no-open")


def test_nothing_is_removed_through_a_link(
    world: World,
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    subtests: pytest.Subtests,
) -> None:
    """A folder on the way becomes a link before, or after, the question."""
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    for name in ("build", "shards", "run", "model", "dataset"):
        for late in (False, True):
            with subtests.test(f"{name}, late: {late}"):
                shutil.rmtree(home, ignore_errors=True)
                shutil.rmtree(tmp_path / "away", ignore_errors=True)
                build = copied(world.build, home / "built" / world.build.name)
                run = copied(world.run, home / "runs/x/gcn/one")
                link, target = {
                    "build": (build, build),
                    "shards": (build / "shards", build),
                    "run": (run, run),
                    "model": (run.parent, run),
                    "dataset": (run.parents[1], run),
                }[name]
                before = read_contents(link)

                def swap(link: Path = link) -> bool:
                    shutil.move(link, tmp_path / "away")
                    link.symlink_to(tmp_path / "away")
                    return True

                if not late:
                    swap()
                answer = swap if late else lambda: True
                monkeypatch.setattr("click.confirm", lambda *_, answer=answer, **__: answer())
                kmip("remove", target)
                assert read_contents(tmp_path / "away") == before


def test_an_interrupted_removal_resumes(
    world: World, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A removal that was killed, or failed at any file, resumes."""
    build = home / "built" / world.build.name
    unlink = os.unlink
    left = 0

    def dying(path: Any, **options: Any) -> None:
        nonlocal left
        left -= 1
        if left < 0 and not os.fspath(path).endswith(".lock"):
            raise error
        unlink(path, **options)

    for number in range(len(read_contents(world.build))):
        copied(world.build, build)
        error = (KeyboardInterrupt(), PermissionError(1, "Operation not permitted"))[number % 2]
        left = number
        with monkeypatch.context() as patch:
            patch.setattr(os, "unlink", dying)
            outcome = kmip("remove", build.name, "--yes")
        assert outcome.code != 0
        if number % 2:
            assert outcome.code == 6
            assert "cannot be removed" in outcome.err
        assert marker_content(build) is not None
        expect_success("remove", build.name, "--yes")
        assert not build.exists()


def test_an_address_is_not_treated_as_a_path(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    """No folder ``s3:`` is made, and no password of an address is shown."""
    monkeypatch.chdir(tmp_path)
    commands: tuple[tuple[Any, ...], ...] = (
        (*BUILD, "--output"),
        ("pull", world.pushed, "--output"),
        ("export", world.build, "--output"),
        ("preview", world.build, "--output"),
        ("report", "--output"),
    )
    for command in commands:
        for address in ("hf://datasets/me/x", "s3://key:Xq7-s3cr3t@bucket/x.png"):
            with subtests.test(f"{command[0]} {address}"):
                message = expect_refusal(*command, address)
                assert "Xq7-s3cr3t" not in message
                assert not list(tmp_path.iterdir())
