"""Rule: an address is empty, or of the same build or run; then a push mends every file but the page."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from support.builds.learnable import learnable_build, tiny_config
from support.cases import damage_file, read_contents
from torch_geometric.data import Data

import kmip_data
from kmip_data.builds.home import Build, Home
from kmip_data.errors import UsageError
from kmip_data.models.training.push_run import push_run
from kmip_data.models.training.run.train import train
from kmip_data.sharing import remote
from kmip_data.sharing.pull import pull
from kmip_data.sharing.push import push_build

MINE = b"a file of the user"


class Killed(BaseException):
    """A process that ends here."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two finished runs of one epoch."""
    folder = tmp_path_factory.mktemp("r")
    data = learnable_build(folder / "data")
    config = tiny_config(data, training={"epochs": 1})
    home = Home(folder / "home")
    return [
        train(config, home=home, name=name, seeds=[seed], quiet=True).runs[0]
        for seed, name in enumerate("ab")
    ]


@pytest.fixture(scope="module")
def pushes(small: Build, runs: list[Path]) -> dict[str, Callable[[str], object]]:
    """A push of a build, and one of a run."""
    return {
        "build": lambda to: push_build(small, to, quiet=True),
        "run": lambda to: push_run(runs[0], to, quiet=True),
    }


@contextlib.contextmanager
def kill_at_copy(number: int) -> Iterator[None]:
    """Simulate a kill before the write with this number."""
    write_file, calls = remote.Remote.write_file, iter(range(1000))

    def dying(at: remote.Remote, name: str, content: Path | bytes) -> None:
        if next(calls) == number:
            raise Killed
        write_file(at, name, content)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remote.Remote, "write_file", dying)
        yield


def test_a_push_refuses_and_keeps_other_files(small, runs, pushes, tmp_path, subtests) -> None:
    ring = torch.stack([torch.arange(9), torch.arange(9).roll(1)])
    other = kmip_data.save(
        [Data(x=torch.ones(9, 2), edge_index=ring)], tmp_path / "rings", name="rings"
    )
    for kind, first, second in (
        ("another run", pushes["run"], lambda to: push_run(runs[1], to, quiet=True)),
        ("a run over a build", pushes["build"], pushes["run"]),
        ("a build over a run", pushes["run"], pushes["build"]),
        ("another build", pushes["build"], lambda to: push_build(other, to, quiet=True)),
    ):
        with subtests.test(str(kind)):
            folder = tmp_path / kind
            first(str(folder))
            before = read_contents(folder)
            with pytest.raises(UsageError):
                second(str(folder))
            assert read_contents(folder) == before
    for inside in ("", "share", "shards"):
        with subtests.test(f"itself {inside}"):
            copy = tmp_path / f"copy{inside}"
            shutil.copytree(small.path, copy)
            (copy / "README.md").unlink()
            before = read_contents(copy)
            with pytest.raises(UsageError):
                push_build(Build(copy, small.card), str(copy / inside), quiet=True)
            assert read_contents(copy) == before
    with subtests.test("a store"):
        import fsspec

        store = fsspec.filesystem("memory")
        store.pipe_file("/mine/card.json", MINE)
        with pytest.raises(UsageError):
            push_build(small, "memory://mine", quiet=True)
        assert store.cat_file("/mine/card.json") == MINE
        store.rm("/mine", recursive=True)


def test_a_push_that_was_killed_at_any_file_resumes(pushes, tmp_path, subtests) -> None:
    home = Home(tmp_path / "home")
    for kind, push in pushes.items():
        push(str(tmp_path / kind))
        whole = read_contents(tmp_path / kind)
        for number in range(len(whole) + 1):
            folder = tmp_path / f"{kind}-{number}"
            with subtests.test(f"{kind} at file {number}"):
                with kill_at_copy(number), contextlib.suppress(Killed):
                    push(str(folder))
                torn = folder / f"shards/00000.h5.00000000-{'0' * 16}.partial"
                if number == 1 and kind == "build":  # the machine went down
                    torn.parent.mkdir()
                    torn.write_bytes(b"half")
                    os.utime(torn, (0, 0))
                if kind == "build" and folder.exists():
                    with pytest.raises(UsageError):
                        kmip_data.open(folder.as_uri(), home=home.path)
                push(str(folder))
                assert read_contents(folder) == whole
                pull(str(folder), home, output=tmp_path / f"pulled-{kind}-{number}", quiet=True)


def test_a_push_repairs_a_damaged_push(pushes, tmp_path, subtests) -> None:
    for kind, push in pushes.items():
        folder = tmp_path / kind
        push(str(folder))
        whole = read_contents(folder)
        for name, way in itertools.product(whole, ("missing", "cut", "flipped", "longer")):
            with subtests.test(f"{kind}: {name} {way}"):
                for each, content in whole.items():  # as the case before has left them
                    (folder / each).write_bytes(content)
                damage_file(folder / name, whole[name], way)
                damaged = read_contents(folder)
                if name == "share.json":
                    with pytest.raises(UsageError):
                        push(str(folder))
                    assert read_contents(folder) == damaged
                elif way != "missing" and name == "README.md":
                    push(str(folder))
                    assert read_contents(folder) == damaged
                else:
                    push(str(folder))
                    assert read_contents(folder) == whole
