"""Rule: a link, folder or pipe in the place of a file is never sound, and each remedy works as printed."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from support.builds.learnable import TINY_RUN
from support.cases import read_contents
from support.cli import Outcome, expect_success, kmip

KINDS = ("file link", "folder link", "dangling link", "folder", "pipe")
#: Two cases stand for the others: one that is followed, one that is not.
CORE = {("build", "folder"), ("run", "file link")}
MAX_STEPS = 4  #: remedies that lead to further remedies


@dataclass
class World:
    """A home with a build and a run, of which each case gets a fresh copy."""

    pristine: Path
    home: Path
    outside: Path  #: where links lead
    build: Path
    run: Path
    build_command: tuple[object, ...]

    def reset(self) -> None:
        for folder in (self.home, self.outside):
            shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.pristine, self.home)
        self.outside.mkdir()

    def replace(self, path: Path, kind: str) -> bytes:
        """Put something else in the place of a file; return the file's content."""
        data = path.read_bytes()
        target = self.outside / path.name
        path.unlink()
        if kind == "file link":
            target.write_bytes(data)
        elif kind == "folder link":
            (target / "mine").mkdir(parents=True)
        if kind.endswith("link"):
            path.symlink_to(target)
        elif kind == "folder":
            (path / "mine").mkdir(parents=True)
        else:
            os.mkfifo(path)
        return data


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("replaced")
    home = folder / "home"
    edges = np.random.default_rng(0).integers(0, 40, (90, 2))
    labels = np.arange(40) % 3
    archive = folder / "friends.npz"
    np.savez(archive, edges=edges, node_features=np.eye(40), node_labels=labels)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KMIP_DATA_HOME", str(home))
        options = ("--name", "friends", "--archive", archive, "--set", "undirected=true", "-q")
        build_command = ("build", "graphs", *options)
        build = Path(expect_success(*build_command, "--json").json["path"])
        expect_success("encode", build, "rwse4", "-q")
        expect_success("train", build, "--model", "gcn", "--epochs", "1", "--name", "a", *TINY_RUN)
        (run,) = (home / "runs").glob("*/*/*")
        shutil.copytree(home, folder / "pristine")
        yield World(folder / "pristine", home, folder / "outside", build, run, build_command)


def type_remedy(world: World, message: str) -> list[str] | None:
    """Do by hand what a remedy says, and return the command that it names, if any."""
    _, _, remedy = message.rpartition("Error: ")
    remedy = remedy.partition("\n")[2]
    if moved := re.search(r"(?:move|replace the link) (\S+)", remedy):
        shutil.move(moved[1].rstrip(","), world.outside / "moved")
    if "build it again with the same command" in remedy:
        return [str(word) for word in world.build_command]
    command = re.search(r"next: kmip-data (.+)", remedy)
    assert command or moved, message
    return shlex.split(command[1]) if command else None


def follow(world: World, line: list[str]) -> Outcome:
    """Type a command, then what its refusals name; each is new, and the last command succeeds."""
    typed = []
    while (outcome := kmip(*line)).code:
        state = (line, sorted(world.outside.rglob("*")))
        assert state not in typed, outcome.err
        typed.append(state)
        assert len(typed) <= MAX_STEPS, typed
        line = type_remedy(world, outcome.err) or line
    return outcome


def check_replaced(world: World, folder: Path, name: str, kind: str) -> None:
    """Put something in the place of a file, and type each command and its remedies."""
    is_run = folder == world.run
    lines: list[tuple[object, ...]] = [
        ("verify", folder),
        ("verify", folder, "--repair", "-q"),
        ("remove", folder, "--yes"),
        ("info", folder),
    ]
    if is_run:
        lines += [("evaluate", folder), ("train", "--resume", folder, "-q")]
    else:
        train = ("train", folder, "--model", "gcn", "--epochs", "1", "--name", "b", *TINY_RUN)
        lines += [train]
    for words in lines:
        world.reset()
        data = world.replace(folder / name, kind)
        targets = read_contents(world.outside)
        line = [str(word) for word in words]
        outcome = kmip(*line)
        if words[0] == "verify" and "--repair" not in words:
            assert outcome.code, outcome.out
        if words[0] == "verify" and outcome.code == 0:
            assert (folder / name).is_file()
            assert not (folder / name).is_symlink()
            assert (folder / name).read_bytes() == data
        if outcome.code:
            follow(world, line)
        assert targets.items() <= read_contents(world.outside).items(), "targets of links stay"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "kind"),
    [
        pytest.param(*case, marks=[] if case in CORE else pytest.mark.torture)
        for case in itertools.product(("build", "run"), KINDS)
    ],
)
def test_replaced_files_are_repaired_or_refused(
    world: World,
    part: str,
    kind: str,
    subtests: pytest.Subtests,
    torture_count: Callable[..., None],
) -> None:
    folder = getattr(world, part)
    names = sorted(read_contents(world.pristine / folder.relative_to(world.home)))
    assert len(names) > 7
    for name in names:
        with subtests.test(f"{name}: {kind}"):
            check_replaced(world, folder, name, kind)
            torture_count("links")


def test_a_linked_folder_of_a_run_is_replaced_by_its_files(world: World) -> None:
    world.reset()
    before = read_contents(world.run)
    shutil.move(world.run / "checkpoints", world.outside / "checkpoints")
    (world.run / "checkpoints").symlink_to(world.outside / "checkpoints")
    follow(world, ["verify", str(world.run)])
    assert read_contents(world.run) == before
