"""One check over many cases: a failure names each case that fails."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Self

import pytest


def check_each(check: Callable[[Any], None], cases: Iterable[Any]) -> None:
    """Call ``check`` with each case.

    Fail with the cases that raise and what they raise, if there are any.
    """
    tried, failed = 0, []
    for tried, case in enumerate(cases, start=1):  # noqa: B007 -- counted
        try:
            check(case)
        except (Exception, pytest.fail.Exception) as error:
            failed.append(f"{case!r}: {type(error).__name__}: {error}")
    assert tried, "there are no cases"
    assert not failed, f"{len(failed)} of {tried} cases fail:\n" + "\n".join(failed)


class Cases:
    """Run cases in ``with cases("name"):`` blocks.

    Leaving ``with Cases() as cases:`` fails if one failed.
    """

    def __init__(self) -> None:
        self.tried, self.failed = 0, dict[str, str]()

    def __enter__(self) -> Self:
        return self

    @contextlib.contextmanager
    def __call__(self, name: object) -> Iterator[None]:
        self.tried += 1
        try:
            yield
        except (Exception, pytest.fail.Exception) as error:
            self.failed[str(name)] = f"{type(error).__name__}: {str(error).splitlines()[:1]}"

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            print(f"{self.tried} cases, {len(self.failed)} failed")  # noqa: T201
            text = "".join(f"\n  {name}: {why}" for name, why in self.failed.items())
            assert not self.failed, f"{len(self.failed)} of {self.tried} cases failed{text}"


def open_descriptors() -> int:
    """Number of file descriptors this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def contents(folder: Path) -> dict[str, bytes]:
    """Every regular file below a folder with its bytes; links are named, not followed."""
    return {
        path.relative_to(folder).as_posix(): b"a link" if path.is_symlink() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


def flip(path: Path, position: int = -1) -> None:
    """Change one bit of a file."""
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def until(condition: Callable[[], object], seconds: float = 600) -> None:
    """Wait until a condition holds; fail after so many seconds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def damage(path: Path, data: bytes, way: str) -> None:
    """Damage a file in one of the ways that disks do."""
    path.chmod(0o644)
    if way == "missing":
        path.unlink()
    elif way == "flipped":
        path.write_bytes(data)
        flip(path, len(data) // 2)
    else:
        path.write_bytes(data + b"x" if way == "longer" else data[: len(data) // 2])
