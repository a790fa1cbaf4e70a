"""Errors of the operating system become ours, with the right exit code and a way on."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kmip_data.errors import OutOfResources, UsageError
from kmip_data.files.errors import disk_error, human_bytes, require_room, writing
from kmip_data.files.reading import sha256_file


@pytest.mark.parametrize(
    ("number", "kind", "says"),
    [
        (errno.ENOSPC, OutOfResources, "There is no room to write"),
        (errno.EDQUOT, OutOfResources, "There is no room to write"),
        (errno.EFBIG, OutOfResources, "There is no room to write"),
        (errno.EIO, OutOfResources, "could not be written"),
        (errno.EROFS, UsageError, "cannot be written"),
        (errno.EACCES, UsageError, "cannot be written"),
        (errno.ENAMETOOLONG, UsageError, "too long for this file system"),
        (errno.ELOOP, UsageError, "is a symbolic link"),
        (errno.ENOTDIR, UsageError, "in the way"),
        (errno.EEXIST, UsageError, "in the way"),
    ],
)
def test_each_error_is_told_apart(number, kind, says):
    with pytest.raises(kind, match=says) as caught, writing(Path("/data/home/raw/x"), left="half of it"):
        raise OSError(number, os.strerror(number))
    text = str(caught.value)
    assert "/data/home/raw/x" in text
    assert os.strerror(number) in text
    assert "on disk: half of it" in text
    assert "next: " in text
    assert type(disk_error(OSError(number, "x"), Path("x"))) is kind


def test_room_is_required_beforehand(tmp_path):
    require_room(tmp_path, 1, "A byte")
    with pytest.raises(OutOfResources, match="A mountain does not fit on the disk"):
        require_room(tmp_path, 10**18, "A mountain")


def test_bytes_for_people():
    assert [human_bytes(n) for n in (0, 999, 3000, 1_234_567, 1.7e9, 5e12)] == [
        *("0 B", "999 B", "3 kB", "1.2 MB", "1.7 GB", "5.0 TB"),
    ]


def test_digest_of_a_file(tmp_path):
    (tmp_path / "x").write_bytes(b"abc")
    assert sha256_file(tmp_path / "x") == (
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        3,
    )
