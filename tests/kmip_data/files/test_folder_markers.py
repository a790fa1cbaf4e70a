"""Rule: a folder of ours begins missing or empty, and has a marker; in another nothing is changed."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest
from support.cases import read_contents

from kmip_data.errors import UsageError
from kmip_data.files import atomic_writes
from kmip_data.files.atomic_writes import (
    MARKER_NAME,
    create_marked_folder,
    marker_content,
    refuse_occupied_folder,
)

MINE = "years of work"


def test_a_missing_or_empty_folder_gets_a_marker(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("new", "a/b/c", "empty"):
        folder = tmp_path / name
        for _ in range(2):  # again: the same content
            create_marked_folder(folder, "build 0123456789ab")
        assert marker_content(folder) == "build 0123456789ab"
        assert read_contents(folder) == {MARKER_NAME: b"kmip-data: build 0123456789ab\n"}


@pytest.mark.parametrize("name", ["thesis.tex", "card.json", "sub/.kmip-data", "x.partial"])
def test_a_folder_with_anything_in_it_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(MINE)
    with pytest.raises(UsageError) as caught:
        create_marked_folder(tmp_path, "run")
    assert Path(name).parts[0] in caught.value.found
    assert read_contents(tmp_path) == {name: MINE.encode()}


@pytest.mark.parametrize(
    ("name", "content"), [("D", "build ba9876543210"), ("D", "run"), ("file", "run")]
)
def test_a_folder_for_something_else_is_refused(tmp_path: Path, name: str, content: str) -> None:
    create_marked_folder(tmp_path / "D", "build 0123456789ab")
    (tmp_path / "file").write_text(MINE)
    before = read_contents(tmp_path)
    with pytest.raises(UsageError, match=name):
        create_marked_folder(tmp_path / name, content)
    assert read_contents(tmp_path) == before


@pytest.mark.parametrize("text", ["", "notes", "my: run", "\0", "x" * 1000])
def test_a_foreign_file_is_not_taken_for_a_marker(tmp_path: Path, text: str) -> None:
    (tmp_path / MARKER_NAME).write_text(text)
    assert marker_content(tmp_path) is None
    with pytest.raises(UsageError):
        refuse_occupied_folder(tmp_path, "run")


def test_a_link_is_not_taken_for_a_marker(tmp_path: Path) -> None:
    create_marked_folder(tmp_path / "ours", "run")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / MARKER_NAME).symlink_to(tmp_path / "ours" / MARKER_NAME)
    with pytest.raises(UsageError):
        create_marked_folder(tmp_path / "mine", "run")


def test_a_folder_killed_before_its_marker_starts_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "D"
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", _killed)
        patch.setattr(os, "unlink", _killed)  # a killed process cleans nothing
        with pytest.raises(KeyboardInterrupt):
            create_marked_folder(folder, "run")
    (folder / ".lock").touch()
    assert len(read_contents(folder)) == 2
    create_marked_folder(folder, "run")
    assert marker_content(folder) == "run"


def _killed(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_scratch_folders_are_removed_and_user_folders_stay(tmp_path: Path) -> None:
    for begin in (
        atomic_writes.scratch_folder,
        lambda path: atomic_writes.new_folder(path, "export"),
    ):
        with contextlib.suppress(KeyboardInterrupt), begin(tmp_path / "s") as folder:
            (folder / "sub").mkdir()
            (folder / "sub/half").touch()
            (folder / "link").symlink_to(tmp_path)
            raise KeyboardInterrupt
        assert not list(tmp_path.iterdir())
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.tex").write_text(MINE)
    atomic_writes.remove_scratch(mine)
    assert read_contents(tmp_path) == {"mine/thesis.tex": MINE.encode()}
    atomic_writes.remove_tree(tmp_path / "mine/thesis.tex")  # no folder
    (tmp_path / "link").symlink_to(mine)
    atomic_writes.remove_tree(tmp_path / "link")
    assert read_contents(mine) == {"thesis.tex": MINE.encode()}


def test_a_folder_is_removed_only_with_its_marker(tmp_path: Path) -> None:
    create_marked_folder(tmp_path / "D", "run")
    (tmp_path / "D/notes.txt").write_text(MINE)
    atomic_writes.remove_empty_folder(tmp_path / "D")
    assert marker_content(tmp_path / "D") == "run"
    (tmp_path / "D/notes.txt").unlink()
    atomic_writes.remove_empty_folder(tmp_path / "D")
    assert not (tmp_path / "D").exists()
