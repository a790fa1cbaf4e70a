"""Errors of the operating system become ours, with the right exit code and a way on."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kmip_data.errors import OutOfResources, UsageError
from kmip_data.files.path_errors import DISK_FULL_ERRNOS, convert_write_errors, require_disk_space
from kmip_data.text import human_bytes

WRONG_PLACE = ("EROFS", "EACCES", "ENAMETOOLONG", "ELOOP", "ENOTDIR", "EEXIST")
CASES = dict.fromkeys((*DISK_FULL_ERRNOS, errno.EIO), OutOfResources)
CASES |= {getattr(errno, name): UsageError for name in WRONG_PLACE}


@pytest.mark.parametrize(("number", "kind"), CASES.items())
def test_system_errors_become_package_errors(number, kind):
    reason = os.strerror(number)
    with (
        pytest.raises(kind) as caught,
        convert_write_errors(Path("/data/home/raw/x"), left="half of it"),
    ):
        raise OSError(number, reason)
    text = str(caught.value)
    assert type(caught.value) is kind
    for part in ("/data/home/raw/x", reason, "on disk: half of it", "remedy: "):
        assert part in text


def test_disk_space_is_checked_before_writing(tmp_path):
    require_disk_space(tmp_path, 1, "A byte")
    with pytest.raises(OutOfResources):
        require_disk_space(tmp_path, 10**18, "A mountain")


def test_bytes_are_printed_with_a_unit():
    assert [human_bytes(n) for n in (0, 999, 3000, 1_234_567, 1.7e9, 5e12)] == [
        *("0 B", "999 B", "3 kB", "1.2 MB", "1.7 GB", "5.0 TB"),
    ]
