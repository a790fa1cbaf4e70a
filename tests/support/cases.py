"""One check over many cases: a failure names each case that fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from kmip_data.errors import KmipDataError


def check_each(check: Callable[[Any], None], cases: Iterable[Any]) -> None:
    """Call ``check`` with each case; fail with the errors of all that fail."""
    tried, errors = 0, []
    for tried, case in enumerate(cases, start=1):  # noqa: B007 -- counted
        try:
            check(case)
        except (Exception, pytest.fail.Exception) as error:
            error.add_note(f"Case {case!r}")
            errors.append(error)
    assert tried, "there are no cases"
    if errors:
        raise BaseExceptionGroup(f"{len(errors)} of {tried} cases fail", errors)


def steps_of(error: KmipDataError) -> str:
    """All steps of an error as one text."""
    return "; ".join(map(str, error.steps))


def count_descriptors() -> int:
    """Number of file descriptors this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def read_contents(folder: Path) -> dict[str, bytes]:
    """Every regular file below a folder with its bytes; links are named, not followed."""
    return {
        path.relative_to(folder).as_posix(): b"a link" if path.is_symlink() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


def flip_bit(path: Path, position: int = -1) -> None:
    """Change one bit of a file."""
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def wait_until(condition: Callable[[], object], seconds: float = 600) -> None:
    """Wait until a condition holds; fail after so many seconds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def damage_file(path: Path, data: bytes, way: str) -> None:
    """Damage a file in one of the ways that disks do."""
    path.chmod(0o644)
    if way == "missing":
        path.unlink()
    elif way == "flipped":
        path.write_bytes(data)
        flip_bit(path, len(data) // 2)
    else:
        path.write_bytes(data + b"x" if way == "longer" else data[: len(data) // 2])
