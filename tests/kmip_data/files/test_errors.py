"""Errors of the operating system become ours, with the right exit code and a way on."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from support.cases import check_each

from kmip_data.errors import (
    FULL,
    OutOfResources,
    UsageError,
    disk_error,
    human_bytes,
    require_room,
    writing,
)

CASES = [
    *((number, OutOfResources, "There is no room to write") for number in FULL),
    (errno.EIO, OutOfResources, "could not be written"),
    *((number, UsageError, "cannot be written") for number in (errno.EROFS, errno.EACCES)),
    *((number, UsageError, "cannot be written") for number in (errno.ENAMETOOLONG, errno.ELOOP)),
    *((number, UsageError, "cannot be written") for number in (errno.ENOTDIR, errno.EEXIST)),
]


def test_errors_of_the_system_become_ours():
    def check(case):
        number, kind, says = case
        reason = os.strerror(number)
        with (
            pytest.raises(kind, match=says) as caught,
            writing(Path("/data/home/raw/x"), left="half of it"),
        ):
            raise OSError(number, reason)
        text = str(caught.value)
        assert all(
            part in text for part in ("/data/home/raw/x", reason, "on disk: half of it", "next: ")
        )
        assert type(disk_error(OSError(number, "x"), Path("x"))) is kind

    check_each(check, CASES)


def test_room_is_required_beforehand(tmp_path):
    require_room(tmp_path, 1, "A byte")
    with pytest.raises(OutOfResources, match="A mountain does not fit on the disk"):
        require_room(tmp_path, 10**18, "A mountain")


def test_bytes_for_people():
    assert [human_bytes(n) for n in (0, 999, 3000, 1_234_567, 1.7e9, 5e12)] == [
        *("0 B", "999 B", "3 kB", "1.2 MB", "1.7 GB", "5.0 TB"),
    ]
