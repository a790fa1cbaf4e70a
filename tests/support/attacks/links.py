"""Symbolic links in folders of this package: what they lead to stays as it was, whatever a command does.

A case puts a link in the place of one file or folder, runs a command line, and compares all that
lies outside: contents, modes and times, also of folders, so that nothing comes and goes there
unseen.
"""

from __future__ import annotations

import hashlib
import shutil
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from support.cli import kmip

from kmip_data.files.atomic_writes import _MACHINE

Kind = Literal["moved", "other", "bait", "dangling"]
KINDS: tuple[Kind, ...] = ("moved", "other", "bait", "dangling")
PRECIOUS = b"years of work"
#: Names that this package gives to files and folders: each lies in a bait, ready to be taken for ours.
NAMES = (
    *(
        "card.json",
        "README.md",
        "mine.txt",
        "00000.h5",
        "00001.h5",
        "00099.h5",
        "stop",
        "prepared.begun",
    ),
    *("config.toml", "metrics.csv", "result.json", "model.safetensors", "last.ckpt"),
    *("best.safetensors", "receipt.json", "statistics.txt", "preview.png", ".lock"),
    *(
        "prepared/half",
        "shards/00000.h5",
        "work/mine",
        ".unpacking-abcdefgh/0/mine",
    ),
    f"00000.h5.{_MACHINE}-{'0' * 16}.partial",
)
Act = Callable[[Path], Sequence[object]]


@dataclass(frozen=True)
class Command:
    """A command line on a copy of ``original``, made by ``line``.

    ``before`` disturbs the copy first.
    """

    original: Path
    line: Act
    before: Callable[[Path], Any] = lambda _: None
    repairs: bool = False  #: True if it puts a file in the place of a link


@dataclass(frozen=True)
class Sandbox:
    """A folder in ``place`` to put links into, and ``away``, where they lead."""

    root: Path
    #: Files that make a bait look like the work folder of a build that was stopped.
    bait: Mapping[str, bytes] = field(default_factory=dict)
    name: str = "D"

    @property
    def folder(self) -> Path:
        """The copy that a command works on."""
        return self.root / "place" / self.name

    def run(self, command: Command, name: str, kind: Kind) -> bool:
        """Run one case; return whether there was one: what is not there cannot be moved."""
        for part in ("place", "away"):
            shutil.rmtree(self.root / part, ignore_errors=True)
        (self.root / "away").mkdir(parents=True)
        shutil.copytree(command.original, self.folder)
        command.before(self.folder)
        link = self.folder / name
        if kind == "moved" and not link.exists():
            return False
        if not (link.parent.resolve() / "x").is_relative_to(self.root.resolve() / "place"):
            return False
        self._put(link, kind)
        before = states(self.root / "away")
        around = self._around(link)
        outcome = kmip(*command.line(self.folder))
        case = f"{kind} {name}: {command.line(self.folder)} ended with {outcome.code}\n{outcome.err[-2000:]}"
        after = states(self.root / "away")
        changed = {name for name in before | after if before.get(name) != after.get(name)}
        assert not changed, f"{case}\nnew, gone or changed: {changed}"
        assert outcome.code in {0, 1, 2, 3, 4, 5, 6}, case
        assert link.is_symlink() or command.repairs, case
        assert self._around(link) == around, case
        return True

    def _put(self, link: Path, kind: Kind) -> None:
        away = self.root / "away" / "target"
        folder = link.is_dir() or not (link.exists() or link.suffix)
        link.parent.mkdir(parents=True, exist_ok=True)
        if kind == "moved":
            link.rename(away)
        elif link.is_dir():
            shutil.rmtree(link)
        else:
            link.unlink(missing_ok=True)
        if kind in {"bait", "other"}:
            if folder == (kind == "bait"):
                self._bait(away)
            else:
                away.write_bytes(PRECIOUS)
        link.symlink_to(away)

    def _bait(self, away: Path) -> None:
        folder_name = self.folder.name
        for name in (*NAMES, f"{folder_name}.lock", f"{folder_name}.owner.json"):
            (away / name).parent.mkdir(parents=True, exist_ok=True)
            (away / name).write_bytes(PRECIOUS)
        for name, data in self.bait.items():
            (away / name).write_bytes(data)

    def _around(self, link: Path) -> set[str]:
        """Return the entries next to the folder, by name."""
        return {path.name for path in self.folder.parent.iterdir()} | {link.name}


def states(folder: Path) -> dict[str, tuple[Any, ...]]:
    """Kind, mode, time and content of all that lies in ``folder``."""
    by_name = {}
    for path in sorted([folder, *folder.rglob("*")]):
        status = path.lstat()
        content = (
            hashlib.sha256(path.read_bytes()).hexdigest() if stat.S_ISREG(status.st_mode) else ""
        )
        by_name[path.relative_to(folder).as_posix()] = (status.st_mode, status.st_mtime_ns, content)
    return by_name


def run_all(
    sandbox: Sandbox, commands: Mapping[str, Command], made: Iterable[str], kind: Kind
) -> tuple[int, list[str]]:
    """Run every command with a link in every place; return the number of cases and their faults."""
    count, failed, made = 0, [], list(made)
    for title, command in commands.items():
        there = [
            path.relative_to(command.original).as_posix()
            for path in sorted(command.original.rglob("*"))
        ]
        for name in dict.fromkeys([*there, *made]):
            try:
                count += sandbox.run(command, name, kind)
            except AssertionError as error:
                failed.append(f"{title}, {error}")
    return count, failed
