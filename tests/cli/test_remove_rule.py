"""Rule: ``remove`` takes only files that a card, journal, receipt, result or checkpoint proves to be ours."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.builds.learnable import learnable_build, tiny_config
from support.cases import Cases, contents
from support.cli import done, kmip, refused

from kmip_data.builds.home import Home
from kmip_data.models.training.run.train import train

MINE = "a file of the user"
PROJECT = [
    "config.toml",
    "metrics.csv",
    "model.safetensors",
    "map.html",
    "checkpoints/last.ckpt",
    "train.py",
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("r")
    config = tiny_config(learnable_build(folder / "data"), training={"epochs": 1})
    return train(config, home=Home(folder / "home"), name="one", quiet=True).runs[0]


def write(folder: Path, names: list[str]) -> dict[str, bytes]:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(MINE)
    return contents(folder)


def test_folders_outside_of_the_home_are_left_alone(run, make_build, tmp_path, monkeypatch) -> None:
    build, home = make_build(), Path(os.environ["KMIP_DATA_HOME"])
    folders: dict[str, Callable[[Path], object]] = {
        "a project": lambda to: write(to, PROJECT),
        "a project with a result": lambda to: write(to, [*PROJECT, "result.json"]),
        "a build": lambda to: shutil.copytree(build.path, to),
        "a run": lambda to: shutil.copytree(run, to),
        "a card alone": lambda to: (to.mkdir(), shutil.copy(build.path / "card.json", to)),
    }
    with Cases() as cases:
        for number, (name, make) in enumerate(folders.items()):
            folder = tmp_path / f"outside-{number}"
            make(folder)
            for target, work in ((folder, tmp_path), (".", folder)):
                with cases(f"{name} as {'.' if target == '.' else 'a path'}"):
                    before = contents(folder)
                    monkeypatch.chdir(work)
                    message = refused("remove", target, "--yes")
                    assert contents(folder) == before
                    assert {"a build": "card.json", "a run": "last.ckpt"}.get(name, "") in message
        before = contents(tmp_path)
        for target in (
            home,
            home / "built",
            tmp_path,
            "/",
            "/etc",
            "..",
            "~",
            "~nobody",
            "x\0y",
            "x" * 300,
        ):
            with cases(f"{str(target)[:40]!r}"):
                refused("remove", target, "--yes")
                assert contents(tmp_path) == before


#: Name of a journal that somebody else wrote, or a disk damaged, and its text.
JOURNALS = {
    "torn": '{"journal":1,"ke',
    "the user's": "my diary\n",
    "units": '{"journal":1,"key":"k"}\n{"units":9' + "9" * 30 + "}\n",
    "climbing": '{"journal":1,"key":"k"}\n{"prepared":{"folder":"../../../away","files":["a"]}}\n',
    "odd names": '{"journal":1,"key":"k"}\n{"prepared":{"folder":"a","files":["\\u0000","../b"]}}\n',
    "no text": "\udcff\udc80",
}
#: Files of the user below a build.
STRANGERS = ("columns/mine/card.json", "columns/mine/00000.h5", "shards/00007.h5", "splits/mine.h5")


def test_files_that_are_not_proven_to_be_ours_stay(run, make_build, home, tmp_path) -> None:
    projects = {"project": PROJECT, "result": [*PROJECT, "result.json"], "config": ["config.toml"]}
    with Cases() as cases:
        for name, names in projects.items():
            with cases(f"runs/…/{name}"):
                before = write(home / "runs/mine/work" / name, names)
                refused("remove", f"work/{name}", "--yes")
                assert contents(home / "runs/mine/work" / name) == before
        with cases("a run with files of the user"):
            folder = home / "runs/mine/gcn/one"
            shutil.copytree(run, folder)
            mine = write(
                tmp_path / "mine", ["notes.txt", "checkpoints/mine.ckpt", "sub/config.toml"]
            )
            shutil.copytree(tmp_path / "mine", folder, dirs_exist_ok=True)
            done("remove", "gcn/one", "--yes")
            assert contents(folder) == mine
        with cases("a run with an edited configuration, twice"):
            folder = home / "runs/mine/gcn/edited"
            shutil.copytree(run, folder)
            config = (folder / "config.toml").read_text() + "# mine\n"
            (folder / "config.toml").write_text(config)
            done("remove", "gcn/edited", "--yes")
            before = contents(folder)
            assert before["config.toml"] == config.encode()
            refused("remove", "gcn/edited", "--yes")
            assert contents(folder) == before
            (folder / "config.toml").unlink()
            done("remove", "gcn/edited", "--yes")
            assert not folder.exists()
        with cases("a run that was stopped before its first checkpoint"):
            folder = home / "runs/mine/gcn/two"
            folder.mkdir(parents=True)
            shutil.copy(run / "config.toml", folder)
            done("remove", "gcn/two", "--yes")
            assert not folder.exists()
        with cases("its folder with a file of the user"):
            before = write(folder, ["train.py"])
            shutil.copy(run / "config.toml", folder)
            refused("remove", "gcn/two", "--yes")
            assert contents(folder).items() >= before.items()
        for name in (*STRANGERS, "work/journal.jsonl"):
            with cases(f"build: {name}"):
                shutil.rmtree(home / "built", ignore_errors=True)
                build = make_build()
                mine = write(tmp_path / name.replace("/", "-"), [name])
                shutil.copytree(tmp_path / name.replace("/", "-"), build.path, dirs_exist_ok=True)
                done("remove", build.path.name, "--yes")
                assert contents(build.path) == mine
        for name, text in JOURNALS.items():
            with cases(f"journal: {name}"):
                folder = home / "built" / f"other-{name.replace(' ', '-')}"
                before = write(folder, ["shards/00001.h5", "notes.txt"])
                write(home / "away", ["a"])
                (folder / "work").mkdir()
                (folder / "work/journal.jsonl").write_bytes(text.encode(errors="surrogateescape"))
                outcome = kmip("remove", folder.name, "--yes")
                assert outcome.code in {0, 2}, outcome.err
                assert contents(folder).items() >= before.items()
                assert (home / "away/a").exists()


def test_nothing_is_removed_through_a_link(run, make_build, home, tmp_path, monkeypatch) -> None:
    def targets() -> dict[str, tuple[Path, Path]]:
        """Name to the folder that is removed, and the one of its path that becomes a link."""
        build, folder = make_build(), home / "runs/mine/gcn/one"
        shutil.copytree(run, folder)
        found = {"build": (build.path, build.path), "shards": (build.path, build.path / "shards")}
        return found | {f"run {up}": (folder, [folder, *folder.parents][up]) for up in range(3)}

    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    with Cases() as cases:
        for name in targets():
            for when in ("before", "after the question"):
                with cases(f"{name} {when}"):
                    shutil.rmtree(home)
                    shutil.rmtree(tmp_path / "away", ignore_errors=True)
                    folder, link = targets()[name]
                    before = contents(link)

                    def swap(link: Path = link) -> bool:
                        shutil.move(link, tmp_path / "away")
                        link.symlink_to(tmp_path / "away")
                        return True

                    late = when != "before" or not swap()
                    answer = swap if late else lambda: True
                    monkeypatch.setattr("click.confirm", lambda *_, answer=answer, **__: answer())
                    kmip("remove", folder)
                    assert contents(tmp_path / "away") == before
