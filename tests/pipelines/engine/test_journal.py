"""The journal: torn lines, other builds, a full disk."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from kmip_data.errors import OutOfResources, UsageError
from kmip_data.pipelines.engine.journal import Journal


def _write(path: Path, count: int) -> bytes:
    with Journal(path, "k") as journal:
        for i in range(count):
            journal.append({"unit": i})
    return path.read_bytes()


def test_cut_at_every_byte_only_the_torn_line_is_lost(tmp_path: Path) -> None:
    text = _write(tmp_path / "whole", 3)
    for cut in range(text.index(b"\n") + 1, len(text)):  # the first line is written at once
        path = tmp_path / "cut"
        path.write_bytes(text[:cut])
        complete = max(0, text[:cut].count(b"\n") - 1)
        with Journal(path, "k") as journal:
            assert journal.entries == [{"unit": i} for i in range(complete)]
            journal.append({"unit": "new"})
        with Journal(path, "k") as journal:
            assert journal.entries == [*({"unit": i} for i in range(complete)), {"unit": "new"}]


def test_an_unreadable_line_in_the_middle_is_left_out(tmp_path: Path) -> None:
    lines = _write(tmp_path / "j", 3).splitlines(keepends=True)
    (tmp_path / "j").write_bytes(lines[0] + lines[1] + b"\xff{]\n" + b"7\n" + lines[3])
    with Journal(tmp_path / "j", "k") as journal:
        assert journal.entries == [{"unit": 0}, {"unit": 2}]


def test_another_file_and_the_journal_of_another_build_are_refused(tmp_path: Path) -> None:
    ours = _write(tmp_path / "j", 2)
    cases = (
        (b"notes" + b"\xff\0" * 50 + b"\n", "not the journal"),
        (ours, "other parameters .build key k"),
    )
    for content, message in cases:
        (tmp_path / "j").write_bytes(content)
        with pytest.raises(UsageError, match=message):
            Journal(tmp_path / "j", "other")
        assert (tmp_path / "j").read_bytes() == content


def test_a_full_disk_is_said_and_leaves_a_journal_that_goes_on(tmp_path: Path) -> None:
    _write(tmp_path / "j", 1)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Journal(tmp_path / "j", "k") as journal:
        resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "j").stat().st_size + 4, limits[1]))
        try:
            with pytest.raises(OutOfResources, match="no room to write"):
                journal.append({"unit": 1})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    with Journal(tmp_path / "j", "k") as journal:
        assert journal.entries == [{"unit": 0}]


def test_a_journal_of_another_version_begins_anew(tmp_path: Path) -> None:
    lines = _write(tmp_path / "j", 2).splitlines(keepends=True)
    (tmp_path / "j").write_bytes(b'{"journal":2,"key":"k"}\n' + b"".join(lines[1:]))
    with Journal(tmp_path / "j", "k") as journal:
        assert journal.entries == []
        journal.append({"unit": 7})
    with Journal(tmp_path / "j", "k") as journal:
        assert journal.entries == [{"unit": 7}]
    assert (tmp_path / "j").read_bytes().startswith(lines[0])
