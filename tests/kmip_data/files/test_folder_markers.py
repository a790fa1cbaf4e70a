"""Rule: a folder of ours begins missing or empty, and has a marker; in another nothing is changed."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest
from support.cases import read_contents

from kmip_data.errors import UsageError
from kmip_data.files import atomic_writes, folder_marker
from kmip_data.files.atomic_writes import (
    MARKER_NAME,
    create_marked_folder,
    marker_content,
    refuse_occupied_folder,
    write_output,
)
from kmip_data.files.folder_marker import unchanged_outputs

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


def test_every_prediction_of_a_run_counts_as_an_output(tmp_path: Path) -> None:
    """Also beyond 64 KiB of digests; 16 MiB are more files than a folder should have."""
    create_marked_folder(tmp_path, "run")
    names = [f"predictions-{number:0200d}.npz" for number in range(260)]
    for name in names:
        write_output(tmp_path / name, name.encode())
    assert (tmp_path / MARKER_NAME).stat().st_size > 2**16
    assert marker_content(tmp_path) == "run"
    assert unchanged_outputs(tmp_path) == names
    # A file written again is one entry, and a removed or changed one none.
    write_output(tmp_path / names[0], b"again")
    (tmp_path / names[1]).unlink()
    (tmp_path / names[2]).write_text(MINE)
    write_output(tmp_path / names[3], b"again")
    assert unchanged_outputs(tmp_path) == [*names[4:], names[0], names[3]]
    entries = (tmp_path / MARKER_NAME).read_text().splitlines()[1:]
    assert len(entries) == len(names) - 1


def test_beyond_the_limit_a_marker_drops_its_oldest_outputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's command replaces these only with ``--force``; the folder stays one of ours."""
    monkeypatch.setattr(folder_marker, "MAX_MARKER_BYTES", 1_000)
    create_marked_folder(tmp_path, "run")
    names = [f"predictions-{number}.npz" for number in range(20)]
    for count, name in enumerate(names, 1):
        write_output(tmp_path / name, name.encode())
        outputs = unchanged_outputs(tmp_path)
        assert outputs == names[count - len(outputs) : count]
        assert marker_content(tmp_path) == "run"
    assert 5 < len(outputs) < 20
    assert (tmp_path / MARKER_NAME).stat().st_size <= 1_000
    # Of a larger one, which only others write, the first lines count.
    with (tmp_path / MARKER_NAME).open("a") as file:
        file.write("x" * 1_000)
    assert marker_content(tmp_path) == "run"
    assert unchanged_outputs(tmp_path) == outputs


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
