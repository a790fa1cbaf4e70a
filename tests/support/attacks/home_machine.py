"""A home that anything happens to, and a model in memory of what must be readable in it.

Each rule is what a user, a disk or a killer does to builds, pushes and files in one home. After every
step the user's files are as they were; what is read is what the model says, or a refusal that
names the file, and whose remedy, run as printed, brings the data back.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.attacks.crash_points import Fault, in_a_fork
from support.cli import Outcome, kmip

from kmip_data.builds.columns import files_of_build
from kmip_data.builds.home import Build
from kmip_data.errors import KmipDataError
from kmip_data.files.changes import MARKER
from kmip_data.format.card import CARD_NAME, read_card
from kmip_data.reading.dataset import ShardedDataset
from kmip_data.sharing.push import push_build

EDGES = "graph,source,target\n" + "".join(
    f"g{graph},{i},{(i + 1) % 6}\n" for graph in range(12) for i in range(6)
)
NODES = "graph,node,mass\n" + "".join(
    f"g{graph},{i},{graph + i / 8}\n" for graph in range(12) for i in range(6)
)
GRAPHS = "graph,label\n" + "".join(f"g{graph},{'ab'[graph % 2]}\n" for graph in range(12))
COLUMNS = ("rwse3", "lappe2")
#: Dataset, and the options that choose the build.
SPECS = {
    "sample": ("build", "zinc", "--sample", "--limit", "7"),
    "less": ("build", "zinc", "--sample", "--limit", "4"),
    "own": ("build", "graphs", "--name", "own", "--set", "feature=mass", "--archive"),
}
NAMES = ("a", "b", "c", "d")
#: Names of the user's files, many of them like ours.
LIKE_OURS = (
    *("notes.txt", "splits/mine.h5", "shards/00099.h5", "shards/00000-00009.h5", "preview.png"),
    *("columns/mine/00000.h5", "columns/rwse3/00077.h5", "columns/rwse3/notes.txt"),
    *("columns/mine/card.json", "explore.html", "checkpoints/last.ckpt", "shards/old/00000.h5"),
)
CALLS = ("write", "fsync", "replace")
#: Writes at which a command is killed, about as many as it has.
MOST = {"a build": 15, "an encoding": 4, "a repair": 12, "a push": 8, "a removal": 8}
COUNTS: Counter[str] = Counter()  #: steps by action
GROUPS: Counter[str] = Counter()  #: steps by group
KINDS: Counter[str] = Counter()  #: kills that happened, refusals, remedies that were run
Values = dict[str, bytes]


@dataclass
class Known:
    """A build that the model knows, by its folder."""

    spec: str
    columns: set[str] = field(default_factory=set)
    #: Damaged files with what they held, and its time.
    hurt: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    unsure: bool = False  #: a killed command may have written part of something
    finished: bool = True
    removing: bool = False


@dataclass
class Truth:
    """What a build that nothing happened to holds."""

    records: list[Values]
    parts: dict[str, list[str]]


def values_of(item: Any) -> Values:
    return {name: np.asarray(item[name]).tobytes() for name in item.keys()}  # noqa: SIM118


def truth_of(folder: Path) -> Truth:
    records = [values_of(item) for item in ShardedDataset(folder, columns=list_columns(folder))]
    parts = {part: ShardedDataset(folder, part).keys for part in ("train", "val", "test")}
    return Truth(records, parts)


def list_columns(folder: Path, names: Iterator[str] | tuple[str, ...] = COLUMNS) -> list[str]:
    """Return names of stored attributes of a build, and of added columns."""
    stored = [column.attribute for column in read_card(folder).schema_.columns]
    return [*stored, "edge_index", *names]


Action = tuple[Callable[..., None], Callable[[Any], Any], dict[str, Any]]
#: What can happen, by group; each group is a rule, so that none is rare.
ACTIONS: dict[str, list[Action]] = {"work": [], "damage": [], "kill": [], "files": []}


def action(
    group: str, needs: Callable[[Any], Any] = lambda _: True, **strategies: Any
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a method, which ``needs`` something, be one of a group; count in it what really happened."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        ACTIONS[group].append((function, needs, strategies))
        return function

    return register


def any_build(machine: Any) -> bool:
    return any(not known.removing for known in machine.builds.values())


class HomeMachine(RuleBasedStateMachine):
    """See the rules; ``truths`` are made once, by :func:`make_truths`."""

    truths: dict[str, Truth]
    source: Path  #: raw files of the user's own graphs

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="kmip-machine-"))
        self.home = self.root / "home"
        self.built = self.home / "built"
        self.pushed = self.root / "pushed"
        self.patch = pytest.MonkeyPatch()
        self.patch.setenv("KMIP_DATA_HOME", str(self.home))
        self.builds: dict[str, Known] = {}
        self.shares: dict[str, tuple[str, set[str], bool]] = {}  # spec, columns, complete
        self.mine: dict[Path, bytes] = {}
        self.foreign: set[str] = set()  # folders that are the user's alone
        self.kept: list[tuple[Any, Truth]] = []

    def teardown(self) -> None:
        self.kept.clear()
        self.patch.undo()
        shutil.rmtree(self.root)

    # --- commands -------------------------------------------------------------------------------

    def folder(self, name: str) -> Path:
        return self.built / name

    def line(self, spec: str, name: str) -> tuple[object, ...]:
        more = (self.source,) if spec == "own" else ()
        return (*SPECS[spec], *more, "--output", self.folder(name), "--jobs", "1", "-q")

    def attempt(self, name: str, *args: object) -> None:
        """Run a command until it succeeds, with the remedies that it prints."""
        outcome = kmip(*args)
        for _ in range(5):
            if outcome.code == 0:
                return
            self.expect(name, f"{args}\n{outcome.err}")
            self.follow(name, outcome.err)
            outcome = kmip(*args)
        raise AssertionError(f"{args} after its remedies\n{outcome.err}")

    def follow(self, name: str, error: str) -> None:
        """Do what an error says is to be done next."""
        KINDS["refusals"] += 1
        folder = self.folder(name)
        assert str(folder) in error, error
        step = re.search(r"^  next: (.*)$", error, re.MULTILINE)
        assert step, error
        text = step[1]
        KINDS[f"remedy: {re.sub(r'/[^ ]*', 'PATH', text)[:60]}"] += 1
        card = folder / CARD_NAME
        if text.startswith(f"move {card} away"):
            card.rename(folder / "moved.json")
            (folder / "moved.json").unlink()
            self.rebuild(name)
        elif text.startswith("build it again with the same command"):
            self.rebuild(name)
        else:
            command = re.search(r"kmip-data ([^;(,]*)", text)
            assert command, error
            outcome = kmip(*shlex.split(command[1]))
            if outcome.code == 0 and "--repair" in text:
                self.healed(name)
            elif outcome.code:
                assert "next: " in outcome.err, outcome.err
                self.follow(name, outcome.err)

    def rebuild(self, name: str) -> None:
        known = self.builds[name]
        outcome = kmip(*self.line(known.spec, name))
        if outcome.code:
            self.follow(name, outcome.err)
        else:
            self.built_anew(name)

    def built_anew(self, name: str) -> None:
        """All but the added columns was written again."""
        known = self.builds[name]
        known.hurt = {file: held for file, held in known.hurt.items() if "columns/" in file}
        known.finished = True

    def healed(self, name: str) -> None:
        known = self.builds[name]
        known.hurt.clear()
        known.unsure = False
        known.finished = True

    # --- the rules ------------------------------------------------------------------------------

    def one_of(self, data: st.DataObject, group: str) -> None:
        """Do the first action, in any order, that can be done now."""
        before = COUNTS.total()
        for number in data.draw(st.permutations(range(len(ACTIONS[group])))):
            function, needs, strategies = ACTIONS[group][number]
            if needs(self):
                values = {name: data.draw(strategy) for name, strategy in strategies.items()}
                function(self, data, **values)
            if COUNTS.total() > before:
                GROUPS[group] += 1
                return

    @rule(data=st.data())
    def ordinary_work(self, data: st.DataObject) -> None:
        self.one_of(data, "work")

    @rule(data=st.data())
    def damage(self, data: st.DataObject) -> None:
        self.one_of(data, "damage")

    @rule(data=st.data())
    def kill(self, data: st.DataObject) -> None:
        self.one_of(data, "kill")

    @rule(data=st.data())
    def files_of_the_user(self, data: st.DataObject) -> None:
        self.one_of(data, "files")

    # --- what must hold -------------------------------------------------------------------------

    @invariant()
    def the_users_files_stay(self) -> None:
        for path, data in self.mine.items():
            assert path.is_file(), f"{path} is gone"
            assert path.read_bytes() == data, f"{path} changed"

    def check_record(self, name: str, number: int) -> None:
        """Read a record; where that is refused, the remedy brings it back."""
        known = self.builds[name]
        truth = self.truths[known.spec]
        number %= len(truth.records)
        for _ in range(5):
            try:
                columns = list_columns(self.folder(name), tuple(sorted(known.columns)))
                values = values_of(ShardedDataset(self.folder(name), columns=columns)[number])
                keys = {part: ShardedDataset(self.folder(name), part).keys for part in truth.parts}
            except KmipDataError as error:
                KINDS["refused reads"] += 1
                self.expect(name, error)
                self.follow(name, str(error))
                continue
            for attribute, data in values.items():
                assert data == truth.records[number][attribute], f"{name}: other {attribute}"
            assert keys == truth.parts
            return
        raise AssertionError(f"{name} cannot be read after its remedies")

    def expect(self, name: str, error: object) -> None:
        """Only a build that something happened to may be refused."""
        known = self.builds[name]
        check(known.hurt or known.unsure or not known.finished, error)

    def choose(self, data: st.DataObject, *, damaged: bool = True) -> str:
        names = [
            name
            for name, known in self.builds.items()
            if not known.removing and (damaged or not (known.hurt or known.unsure))
        ]
        return data.draw(st.sampled_from(sorted(names)))

    # --- ordinary work --------------------------------------------------------------------------

    @initialize(data=st.data(), spec=st.sampled_from(sorted(SPECS)), name=st.sampled_from(NAMES))
    def begin(self, data: st.DataObject, spec: str, name: str) -> None:
        self.build(data, spec, name)

    @action("work", spec=st.sampled_from(sorted(SPECS)), name=st.sampled_from(NAMES))
    def build(self, data: st.DataObject, spec: str, name: str) -> None:
        if name in self.builds:
            if self.builds[name].removing:
                return
            COUNTS["build again"] += 1
            was_finished = self.builds[name].finished
            self.attempt(name, *self.line(self.builds[name].spec, name))
            if not was_finished:
                self.built_anew(name)
            return
        COUNTS["build"] += 1
        outcome = kmip(*self.line(spec, name))
        if name in self.foreign:
            assert outcome.code == 2, outcome.err
            assert str(self.folder(name)) in outcome.err
            return
        assert outcome.code == 0, outcome.err
        self.builds[name] = Known(spec)

    @action("work", any_build, column=st.sampled_from(COLUMNS))
    def encode(self, data: st.DataObject, column: str) -> None:
        COUNTS["encode"] += 1
        name = self.choose(data)
        self.attempt(name, "encode", self.folder(name), column, "--jobs", "1", "-q")
        self.builds[name].columns.add(column)

    @action("work", any_build, seed=st.integers(1, 3))
    def add_a_split(self, data: st.DataObject, seed: int) -> None:
        name = self.choose(data)
        known = self.builds[name]
        if known.spec == "own":
            COUNTS["add a split"] += 1
            more = ("--split-rule", "random", "--split-seed", str(seed))
            was_finished = known.finished
            self.attempt(name, *self.line(known.spec, name), *more)
            if not was_finished:
                self.built_anew(name)

    @action("work", any_build, number=st.integers(0, 20))
    def read(self, data: st.DataObject, number: int) -> None:
        COUNTS["read"] += 1
        self.check_record(self.choose(data), number)

    @action("work", any_build)
    def open_and_keep(self, data: st.DataObject) -> None:
        COUNTS["open and keep"] += 1
        name = self.choose(data)
        known = self.builds[name]
        try:
            columns = list_columns(self.folder(name), tuple(sorted(known.columns)))
            kept = ShardedDataset(self.folder(name), columns=columns)
        except KmipDataError as error:
            self.expect(name, error)
            return
        self.kept.append((kept, self.truths[known.spec]))

    @action("work", lambda self: self.kept, which=st.integers(0, 9), number=st.integers(0, 20))
    def read_what_is_kept(self, data: st.DataObject, which: int, number: int) -> None:
        COUNTS["read what is kept"] += 1
        dataset, truth = self.kept[which % len(self.kept)]
        number %= len(truth.records)
        try:
            values = values_of(dataset[number])
        except KmipDataError as error:
            check(str(self.built) in str(error), error)
            return
        for attribute, value in values.items():
            assert value == truth.records[number][attribute], f"an open dataset: {attribute}"

    @action("work", any_build)
    def verify(self, data: st.DataObject) -> None:
        name = self.choose(data)
        known = self.builds[name]
        COUNTS["verify"] += 1
        outcome = kmip("verify", self.folder(name))
        soft = {"README.md", "croissant.json", MARKER}
        if known.unsure or not known.finished:
            return
        if known.hurt.keys() - soft:
            assert outcome.code in {1, 4}, outcome
            assert str(self.folder(name)) in outcome.err
        elif MARKER not in known.hurt:
            assert outcome.code == 0, outcome.err

    @action("work", any_build)
    def repair(self, data: st.DataObject) -> None:
        name = self.choose(data)
        if not self.builds[name].finished:
            return
        COUNTS["repair"] += 1
        self.attempt(name, "verify", self.folder(name), "--repair", "--jobs", "1", "-q")
        self.healed(name)
        outcome = kmip("verify", self.folder(name))
        assert outcome.code == 0, outcome.err
        assert "writes it again" not in outcome.out
        for number in range(3):
            self.check_record(name, number)

    @action("work", any_build, other=st.sampled_from(NAMES), renamed=st.booleans())
    def copy_or_rename(self, data: st.DataObject, other: str, *, renamed: bool) -> None:
        name = self.choose(data)
        source = self.folder(name)
        target = self.folder(other)
        if target.exists() or other in self.builds:
            return
        COUNTS["rename" if renamed else "copy"] += 1
        known = self.builds[name]
        inside = {path: held for path, held in self.mine.items() if path.is_relative_to(source)}
        for path, held in inside.items():
            self.mine[target / path.relative_to(source)] = held
        self.builds[other] = replace(known, hurt=dict(known.hurt), columns=set(known.columns))
        if renamed:
            source.rename(target)
            del self.builds[name]
            for path in inside:
                del self.mine[path]
        else:
            shutil.copytree(source, target)

    @action("work", any_build, address=st.sampled_from(NAMES))
    def push(self, data: st.DataObject, address: str) -> None:
        self.push_to(self.choose(data), address)

    def push_to(self, name: str, address: str) -> None:
        known = self.builds[name]
        if not known.finished or self.shares.get(address, (known.spec,))[0] != known.spec:
            return
        COUNTS["push"] += 1
        place = self.pushed / address
        self.pushed.mkdir(exist_ok=True)
        build = Build(self.folder(name), self.readable_card(name))
        for _ in range(4):
            try:
                push_build(build, str(place), quiet=True)
                self.shares[address] = (known.spec, set(known.columns), True)
                return
            except KmipDataError as error:
                self.expect(name, error)
                check("kmip-data verify" in str(error.parts["next"]), error)
                self.attempt(name, "verify", self.folder(name), "--repair", "-q")
                self.healed(name)
                build = Build(self.folder(name), read_card(self.folder(name)))
        raise AssertionError("not pushed")

    def readable_card(self, name: str) -> Any:
        try:
            return read_card(self.folder(name))
        except KmipDataError as error:
            self.follow(name, str(error))
            return read_card(self.folder(name))

    @action("work", lambda self: self.shares, name=st.sampled_from(NAMES))
    def pull(self, data: st.DataObject, name: str) -> None:
        address = data.draw(st.sampled_from(sorted(self.shares)))
        if name in self.builds or self.folder(name).exists():
            return
        COUNTS["pull"] += 1
        spec, columns, complete = self.shares[address]
        outcome = kmip("pull", self.pushed / address, "--output", self.folder(name), "-q")
        if not complete:
            assert outcome.code in {0, 2, 4}, outcome
        else:
            assert outcome.code == 0, outcome.err
        if outcome.code == 0:
            self.builds[name] = Known(spec, set(columns))
            self.check_record(name, 0)

    @action("work", lambda self: len(self.builds) > 1)
    def remove(self, data: st.DataObject) -> None:
        COUNTS["remove"] += 1
        name = data.draw(st.sampled_from(sorted(self.builds)))
        outcome = kmip("remove", self.folder(name), "--yes")
        if outcome.code and MARKER in self.builds[name].hurt:
            self.follow(name, outcome.err)
            outcome = kmip("remove", self.folder(name), "--yes")
        assert outcome.code == 0, outcome.err
        self.gone(name)

    def gone(self, name: str) -> None:
        """What is left is the user's, or what a damaged card did not list."""
        known = self.builds.pop(name)
        folder = self.folder(name)
        if not folder.exists():
            return
        left = {path for path in folder.rglob("*") if path.is_file()}
        others = left - set(self.mine)
        if known.hurt or known.unsure or not known.finished:
            for path in others:
                path.unlink()
            left -= others
        else:
            assert not others, others
        if left:
            self.foreign.add(name)
        else:
            shutil.rmtree(folder)

    # --- damage ---------------------------------------------------------------------------------

    def files(self, name: str) -> list[str]:
        return [*files_of_build(self.folder(name)), MARKER]

    def hurt(self, data: st.DataObject, change: Callable[[bytes], bytes | None]) -> Path | None:
        """Change a file of a finished build, by rename where a dataset may have it mapped."""
        name = self.choose(data)
        known = self.builds[name]
        if not known.finished or known.unsure:
            return None
        file = data.draw(st.sampled_from([f for f in self.files(name) if "work/" not in f]))
        path = self.folder(name) / file
        if not path.is_file() or path in self.mine:
            return None
        before = path.read_bytes()
        # Without its card a column is unfinished, and nothing of it is read.
        card = path.parent / CARD_NAME
        if file.startswith("columns/") and (not card.is_file() or change(before) is None):
            return None
        # A folder without its marker, or with neither its marker nor its card, is anybody's.
        pair = {MARKER, CARD_NAME}
        if (file == MARKER and change(before) is None) or (
            file in pair and known.hurt.keys() & (pair - {file})
        ):
            return None
        held = known.hurt.get(file, (before, path.stat().st_mtime_ns))
        after = change(before)
        if after is None:
            path.unlink()
        else:
            self.put(path, after)
        if after == held[0]:
            known.hurt.pop(file, None)
        else:
            known.hurt[file] = held
        return path

    def put(self, path: Path, data: bytes) -> None:
        if self.kept:  # rewriting a mapped file is not defended against
            (self.root / "new").write_bytes(data)
            (self.root / "new").rename(path)
        else:
            path.chmod(0o644)
            path.write_bytes(data)

    @action("damage", any_build, position=st.integers(0, 2**20), bit=st.integers(0, 7))
    def flip(self, data: st.DataObject, position: int, bit: int) -> None:
        COUNTS["flip"] += self.hurt(data, lambda before: flipped(before, position, bit)) is not None

    @action("damage", any_build, position=st.integers(0, 2**20), bit=st.integers(0, 7))
    def flip_and_put_the_time_back(self, data: st.DataObject, position: int, bit: int) -> None:
        name = self.choose(data)
        if self.builds[name].finished and not self.builds[name].unsure:
            self.check_record(name, position)  # so that what was checked is remembered
        path = self.hurt(data, lambda before: flipped(before, position, bit))
        if path is not None:
            COUNTS["flip, time put back"] += 1
            time = next(
                known.hurt[str(path.relative_to(self.folder(name)))][1]
                for name, known in self.builds.items()
                if path.is_relative_to(self.folder(name))
                and str(path.relative_to(self.folder(name))) in known.hurt
            )
            os.utime(path, ns=(time, time))

    @action("damage", any_build, share=st.floats(0, 1))
    def cut_short(self, data: st.DataObject, share: float) -> None:
        COUNTS["cut short"] += (
            self.hurt(data, lambda before: before[: int(len(before) * share)]) is not None
        )

    @action("damage", any_build)
    def lose(self, data: st.DataObject) -> None:
        COUNTS["lose"] += self.hurt(data, lambda _: None) is not None

    @action("damage", any_build)
    def put_back(self, data: st.DataObject) -> None:
        name = self.choose(data)
        known = self.builds[name]
        if not known.hurt:
            return
        COUNTS["put back"] += 1
        file = data.draw(st.sampled_from(sorted(known.hurt)))
        held, time = known.hurt.pop(file)
        path = self.folder(name) / file
        if path.parent.is_dir():
            self.put(path, held) if path.exists() else path.write_bytes(held)
            os.utime(path, ns=(time, time))

    # --- kills ----------------------------------------------------------------------------------

    def killed(self, data: st.DataObject, what: str, act: Callable[[], int]) -> int | None:
        """Kill a command at a random write; return its exit code, ``None`` where it was killed."""
        call = "unlink" if what == "a removal" else data.draw(st.sampled_from(CALLS))
        number = data.draw(st.integers(1, MOST[what]))
        when = data.draw(st.sampled_from(["before", "after"]))
        power = data.draw(st.booleans())
        fault = Fault(str(self.root), "builder", call, number, when)
        code = in_a_fork(fault, act, power=power)
        KINDS["kills with what was not synced lost"] += code is None and power
        COUNTS[f"kill {what}" if code is None else f"{what} that ended before its kill"] += 1
        assert code != 99, "an unexpected error before the kill"
        return code

    @action("kill", spec=st.sampled_from(sorted(SPECS)), name=st.sampled_from(NAMES))
    def kill_a_build(self, data: st.DataObject, spec: str, name: str) -> None:
        if name in self.builds or name in self.foreign:
            return
        code = self.killed(data, "a build", lambda: kmip(*self.line(spec, name)).code)
        assert code in {None, 0}
        if code is None and not self.folder(name).exists():
            return
        self.builds[name] = Known(spec, finished=code == 0, unsure=code is None)

    @action("kill", lambda self: any(not known.finished for known in self.builds.values()))
    def kill_a_build_again(self, data: st.DataObject) -> None:
        names = [name for name, known in self.builds.items() if not known.finished]
        name = data.draw(st.sampled_from(sorted(names)))
        known = self.builds[name]
        if not known.removing:
            line = self.line(known.spec, name)
            if self.killed(data, "a build", lambda: kmip(*line).code) == 0:
                self.built_anew(name)

    @action("kill", any_build, column=st.sampled_from(COLUMNS))
    def kill_an_encoding(self, data: st.DataObject, column: str) -> None:
        name = self.choose(data)
        known = self.builds[name]
        if not known.finished or known.hurt or known.unsure:
            return
        line = ("encode", self.folder(name), column, "--jobs", "1", "-q")
        code = self.killed(data, "an encoding", lambda: kmip(*line).code)
        if code == 0:
            known.columns.add(column)
        else:
            self.check_record(name, 0)

    @action("kill", any_build)
    def kill_a_repair(self, data: st.DataObject) -> None:
        name = self.choose(data)
        known = self.builds[name]
        if not known.finished:
            return
        line = ("verify", self.folder(name), "--repair", "--jobs", "1", "-q")
        if not known.hurt:
            return
        if self.killed(data, "a repair", lambda: kmip(*line).code) is None:
            known.unsure = True
            known.hurt.clear()

    @action("kill", any_build, address=st.sampled_from(NAMES))
    def kill_a_push(self, data: st.DataObject, address: str) -> None:
        name = self.choose(data)
        known = self.builds[name]
        same = self.shares.get(address, (known.spec,))[0] == known.spec
        if not known.finished or known.hurt or known.unsure or not same:
            return
        self.pushed.mkdir(exist_ok=True)
        build = Build(self.folder(name), read_card(self.folder(name)))

        def act() -> int:
            push_build(build, str(self.pushed / address), quiet=True)
            return 0

        code = self.killed(data, "a push", act)
        self.shares[address] = (known.spec, set(known.columns), code == 0)

    @action("kill", any_build)
    def kill_a_removal(self, data: st.DataObject) -> None:
        name = self.choose(data)
        line = ("remove", self.folder(name), "--yes")
        code = self.killed(data, "a removal", lambda: kmip(*line).code)
        if code is None and self.folder(name).exists():
            self.builds[name].removing = True
            self.builds[name].unsure = True
        elif code is None or code == 0:
            self.gone(name)

    # --- files of the user's ----------------------------------------------------------------------

    def add(self, path: Path, data: bytes) -> bool:
        if path.exists() or any(parent.is_file() for parent in path.parents):
            return False
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        self.mine[path] = data
        return True

    @action("files", file=st.sampled_from(LIKE_OURS), held=st.binary(max_size=40))
    def add_a_file_to_a_build(self, data: st.DataObject, file: str, held: bytes) -> None:
        if self.builds:
            name = data.draw(st.sampled_from(sorted(self.builds)))
            COUNTS["a file in a build"] += self.add(self.folder(name) / file, held)

    @action(
        "files",
        name=st.sampled_from(NAMES),
        file=st.sampled_from(LIKE_OURS),
        held=st.binary(max_size=9),
    )
    def add_a_file_to_a_push(self, data: st.DataObject, name: str, file: str, held: bytes) -> None:
        if name in self.shares and (self.pushed / name).is_dir():
            COUNTS["a file in a push"] += self.add(self.pushed / name / file, held)

    @action("files", file=st.sampled_from(LIKE_OURS), held=st.binary(max_size=40))
    def add_a_file_to_raw(self, data: st.DataObject, file: str, held: bytes) -> None:
        for folder in sorted(self.home.glob("raw/*/members-*"))[:1]:
            COUNTS["a file in raw"] += self.add(folder / file, held)

    @action(
        "files",
        name=st.sampled_from(NAMES),
        file=st.sampled_from(LIKE_OURS),
        held=st.binary(max_size=9),
    )
    def begin_a_folder(self, data: st.DataObject, name: str, file: str, held: bytes) -> None:
        if name not in self.builds and not self.folder(name).exists():
            COUNTS["a folder of the user's"] += self.add(self.folder(name) / file, held)
            self.foreign.add(name)

    @action("files", held=st.binary(max_size=40))
    def edit(self, data: st.DataObject, held: bytes) -> None:
        if self.mine:
            COUNTS["edit"] += 1
            path = data.draw(st.sampled_from(sorted(self.mine)))
            path.write_bytes(held)
            self.mine[path] = held

    @action("files")
    def take_away(self, data: st.DataObject) -> None:
        if self.mine:
            COUNTS["take away"] += 1
            path = data.draw(st.sampled_from(sorted(self.mine)))
            path.unlink()
            del self.mine[path]


def check(holds: object, error: object) -> None:
    assert holds, error


def flipped(before: bytes, position: int, bit: int) -> bytes:
    if not before:
        return b"x"
    after = bytearray(before)
    after[position % len(before)] ^= 1 << bit
    return bytes(after)


def make_truths(folder: Path) -> None:
    """Build each of :data:`SPECS` undisturbed, with all columns, and note what it holds."""
    HomeMachine.source = folder / "graphs"
    HomeMachine.source.mkdir(parents=True)
    tables = {"edges.csv": EDGES, "nodes.csv": NODES, "graphs.csv": GRAPHS}
    for name, text in tables.items():
        (HomeMachine.source / name).write_text(text)
    HomeMachine.truths = {}
    for spec, line in SPECS.items():
        more = (HomeMachine.source,) if spec == "own" else ()
        target = folder / spec
        for command in (
            (*line, *more, "--output", target, "--home", folder / "home", "--jobs", "1", "-q"),
            ("encode", target, *COLUMNS, "--jobs", "1", "-q"),
        ):
            outcome: Outcome = kmip(*command)
            assert outcome.code == 0, outcome.err
        HomeMachine.truths[spec] = truth_of(target)
