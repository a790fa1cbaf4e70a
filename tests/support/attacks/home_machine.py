"""A home that anything happens to, and a model in memory of what must be readable in it.

Each step is what a user, a disk or a killer does to builds, pushes and files in one home. After every
step the user's files are as they were; what is read is what the model says, or a refusal that
names the file, and whose remedy, run as printed, brings the data back.
"""

from __future__ import annotations

import copy
import os
import re
import shlex
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.attacks.crash_points import Fault, count_calls, run_in_fork
from support.attacks.home_model import (
    CLASSES,
    COLUMNS,
    PARTS,
    SEEDS,
    SPECS,
    Known,
    Truth,
    keys_by_part,
    make_truths,
    opened,
    split_options,
    values_of,
)
from support.cli import expect_success, kmip

from kmip_data.builds.files_of_build import files_of_build
from kmip_data.builds.home import added_column_names
from kmip_data.errors import KmipDataError
from kmip_data.files.atomic_writes import MARKER_NAME
from kmip_data.files.folder_marker import PICTURE_NAME
from kmip_data.format.build_files import CROISSANT_NAME, PAGE_NAME
from kmip_data.format.card import CARD_NAME, read_card
from kmip_data.reading.dataset import ShardedDataset
from kmip_data.reading.loader import GraphLoader
from kmip_data.sharing.push_index import SHARE_NAME

NAMES = ("a", "b", "c", "d")
#: Names of the user's files, many of them like ours.
LIKE_OURS = (
    *("notes.txt", "splits/mine.h5", "shards/00099.h5", "shards/00000-00009.h5", "preview.png"),
    *("columns/mine/00000.h5", "columns/rwse3/00077.h5", "columns/rwse3/notes.txt"),
    *("columns/mine/card.json", "explore.html", "checkpoints/last.ckpt", "shards/old/00000.h5"),
)
MOST_KEPT = 4  #: open datasets
#: Kinds of steps, each as often as its name occurs.
#: Work is also what a kill becomes if its command ended before.
KINDS = ("work", *["damage"] * 8, *["kill"] * 10, *["files"] * 7)

STEPS_DONE: Counter[str] = Counter()  #: by name
KINDS_DONE: Counter[str] = Counter()  #: by kind
EVENTS: Counter[str] = Counter()  #: refusals, remedies that were run, kills without power


@dataclass(frozen=True)
class Step:
    """Something that can happen, and what it can happen to: its arguments, one tuple a choice."""

    kind: str
    act: Callable[..., None]
    choices: Callable[[Any], Sequence[tuple[Any, ...]]]

    @property
    def name(self) -> str:
        return self.act.__name__.replace("_", " ")


STEPS: dict[str, Step] = {}


def step(
    kind: str, choices: Callable[[Any], Sequence[tuple[Any, ...]]]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a method a step of the machine."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        made = Step(kind, function, choices)
        STEPS[made.name] = made
        return function

    return register


class HomeMachine(RuleBasedStateMachine):
    """See the steps; the class attributes are made once, by :meth:`set_up`."""

    truths: dict[str, Truth]
    source: Path  #: raw files of the user's own graphs
    #: Calls at which a command can be killed, by command, spec and call.
    calls: dict[tuple[str, str], Counter[str]]

    @classmethod
    def set_up(cls, folder: Path) -> None:
        """Note what each build holds, and count the writes of each command."""
        cls.source, cls.truths = make_truths(folder)
        cls.calls = {}
        home = folder / "counted"
        for spec in SPECS:
            target = home / "built" / spec
            more = (cls.source,) if spec == "own" else ()
            pushed = home / "pushed" / spec
            pushed.parent.mkdir(parents=True, exist_ok=True)
            commands = {
                "build": (*SPECS[spec], *more, "--output", target),
                "encode": ("encode", target, COLUMNS[0]),
                "push": ("push", target, pushed),
                "pull": ("pull", pushed, "--output", home / "built" / f"pulled-{spec}"),
                "repair": ("verify", target, "--repair"),
                "remove": ("remove", target, "--yes"),
            }
            for name, command in commands.items():
                if name == "repair":
                    (target / "shards" / "00000.h5").unlink()
                with count_calls(home) as calls:
                    expect_success(*command, "--home", home)
                cls.calls[name, spec] = calls

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="kmip-machine-"))
        self.home = self.root / "home"
        self.built = self.home / "built"
        self.pushed = self.root / "pushed"
        self.pushed.mkdir()
        self.patch = pytest.MonkeyPatch()
        self.patch.setenv("KMIP_DATA_HOME", str(self.home))
        self.builds: dict[str, Known] = {}
        #: Contents that may have been pushed, one only unless the last push was killed.
        self.shares: dict[str, list[Known]] = {}
        self.mine: dict[Path, bytes] = {}
        self.foreign: set[str] = set()  #: folders that are the user's alone
        self.kept: list[tuple[Any, Truth]] = []

    def teardown(self) -> None:
        self.kept.clear()
        self.patch.undo()
        shutil.rmtree(self.root)

    # --- one step -------------------------------------------------------------------------------

    @initialize(data=st.data(), spec=st.sampled_from(sorted(SPECS)), name=st.sampled_from(NAMES))
    def begin(self, data: st.DataObject, spec: str, name: str) -> None:
        self.build(data, spec, name, SEEDS[0])

    @rule(data=st.data())
    def anything(self, data: st.DataObject) -> None:
        """Do one of the steps that can be done now: first its kind is drawn, then which."""
        possible: dict[str, dict[str, Sequence[tuple[Any, ...]]]] = {kind: {} for kind in KINDS}
        for name, described in STEPS.items():
            if choices := described.choices(self):
                possible[described.kind][name] = choices
        kind = data.draw(st.sampled_from([kind for kind in KINDS if possible[kind]]))
        name = data.draw(st.sampled_from(list(possible[kind])))
        arguments = data.draw(st.sampled_from(possible[kind][name]))
        happened = STEPS[name].act(self, data, *arguments)
        if happened is False:  # a command that ended before its kill
            kind, name = "work", f"{name}, which ended before"
        STEPS_DONE[name] += 1
        KINDS_DONE[kind] += 1

    @invariant()
    def the_users_files_stay(self) -> None:
        for path, data in self.mine.items():
            assert path.is_file(), f"{path} is gone"
            assert path.read_bytes() == data, f"{path} changed"

    # --- what can be chosen ---------------------------------------------------------------------

    def names(self, holds: Callable[[Known], bool] = lambda _: True) -> list[str]:
        """Return the builds that are not half removed and for which this holds."""
        return sorted(
            name for name, known in self.builds.items() if not known.removing and holds(known)
        )

    def choices(self, holds: Callable[[Known], bool] = lambda _: True) -> list[tuple[str]]:
        return [(name,) for name in self.names(holds)]

    def free_names(self) -> list[str]:
        return [
            name for name in NAMES if name not in self.builds and not self.folder(name).exists()
        ]

    def with_free(self, holds: Callable[[Known], bool] = lambda _: True) -> list[tuple[str, str]]:
        return [(name, free) for name in self.names(holds) for free in self.free_names()]

    def new_builds(self) -> list[tuple[str, str, int]]:
        specs = [
            (spec, seed) for spec in sorted(SPECS) for seed in SEEDS if spec == "own" or not seed
        ]
        return [(spec, name, seed) for spec, seed in specs for name in self.free_names()]

    def addresses(self, name: str) -> list[str]:
        """Return the addresses to which a build can be pushed."""
        spec = self.builds[name].spec
        return [
            address
            for address in NAMES
            if all(pushed.spec == spec for pushed in self.shares.get(address, []))
        ]

    # --- commands -------------------------------------------------------------------------------

    def folder(self, name: str) -> Path:
        return self.built / name

    def line(self, spec: str, name: str, seed: int = SEEDS[0]) -> tuple[object, ...]:
        more = (self.source,) if spec == "own" else ()
        return (
            *(*SPECS[spec], *more, "--output", self.folder(name)),
            *("--jobs", "1", "-q"),
            *split_options(spec, seed),
        )

    def attempt(self, name: str, *args: object) -> None:
        """Run a command until it succeeds, with the remedies that it prints."""
        for _ in range(6):
            outcome = kmip(*args)
            if outcome.code == 0:
                return
            self.expect(name, f"{args}\n{outcome.err}")
            self.follow(name, outcome.err)
        raise AssertionError(f"{args} after its remedies\n{outcome.err}")

    def follow(self, name: str, error: str) -> None:
        """Do what an error says is to be done next."""
        EVENTS["refusals"] += 1
        folder = self.folder(name)
        assert str(folder) in error, error
        # A remedy that is not a whole command stands on a line of its own.
        advice = dict(re.findall(r"^  (next|remedy): (.*)$", error, re.MULTILINE))
        assert advice, error
        text = advice.get("next") or advice["remedy"]
        EVENTS[f"remedy: {re.sub(r'/[^ ]*', 'PATH', text)[:60]}"] += 1
        card = folder / CARD_NAME
        if text.startswith(f"move {card} away"):
            card.unlink()
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
                self.follow(name, outcome.err)

    def rebuild(self, name: str) -> None:
        known = self.builds[name]
        outcome = kmip(*self.line(known.spec, name))
        if outcome.code:
            self.follow(name, outcome.err)
        else:
            self.built_anew(name, SEEDS[0])

    def built_anew(self, name: str, seed: int) -> None:
        """All but the added columns was written again; other splits are not on the new card."""
        known = self.builds[name]
        known.damaged = {file: held for file, held in known.damaged.items() if "columns/" in file}
        known.finished = True
        known.unsure &= bool(known.columns)
        known.default = seed
        known.seeds = {SEEDS[0], seed} if known.spec == "own" else {seed}

    def healed(self, name: str) -> None:
        known = self.builds[name]
        known.damaged.clear()
        known.unsure = False
        known.finished = True

    def expect(self, name: str, error: object) -> None:
        """Only a build that something happened to may be refused."""
        check(not self.builds[name].sound, error)

    def readable(self, name: str, read: Callable[[Path, Known, Truth], None]) -> None:
        """Read and compare; where that is refused, the remedy brings the data back."""
        known = self.builds[name]
        for _ in range(6):
            try:
                read(self.folder(name), known, self.truths[known.spec])
            except KmipDataError as error:
                EVENTS["refused reads"] += 1
                self.expect(name, error)
                self.follow(name, str(error))
                continue
            return
        raise AssertionError(f"{name} cannot be read after its remedies")

    def check_record(self, name: str, number: int) -> None:
        """Read a record alone, in a batch of all and with its part, and the names of all parts."""

        def read(folder: Path, known: Known, truth: Truth) -> None:
            columns = sorted(known.columns)
            dataset = opened(folder, columns)
            check_opened(known)
            assert dataset.keys == list(truth.records)
            position = number % len(dataset)
            check_values(dataset[position], truth, dataset.keys[position])
            (batch,) = GraphLoader(dataset, batch_size=len(dataset), prefetch=0)
            check_values(batch.get_example(position), truth, dataset.keys[position])

            splits = {known.default: dataset}
            if known.spec == "own":
                for seed in known.seeds - {known.default}:
                    splits[seed] = ShardedDataset(folder, split_name=f"random-seed{seed}")
            for seed, split in splits.items():
                assert keys_by_part(split) == truth.parts[seed], f"{name}: other parts, {seed}"
            check_part(opened(folder, columns, PARTS[(number + 1) % len(PARTS)]), known, truth)

        self.readable(name, read)

    # --- ordinary work --------------------------------------------------------------------------

    @step("work", new_builds)
    def build(self, data: st.DataObject, spec: str, name: str, seed: int) -> None:
        expect_success(*self.line(spec, name, seed))
        self.builds[name] = Known(spec)
        self.built_anew(name, seed)

    @step("work", lambda self: [(name,) for name in sorted(self.foreign) if self.is_there(name)])
    def build_into_a_folder_of_the_user(self, data: st.DataObject, name: str) -> None:
        outcome = kmip(*self.line("less", name))
        assert outcome.code == 2, outcome.err
        assert str(self.folder(name)) in outcome.err

    def is_there(self, name: str) -> bool:
        return any(path.is_file() for path in self.folder(name).rglob("*"))

    @step("work", choices)
    def build_again(self, data: st.DataObject, name: str) -> None:
        self.finish(name, SEEDS[0])

    @step("work", lambda self: self.choices(lambda known: not known.finished))
    def resume(self, data: st.DataObject, name: str) -> None:
        self.finish(name, SEEDS[0])
        self.check_record(name, 0)

    @step("work", lambda self: [
        (name, seed)
        for name in self.names(lambda known: known.spec == "own")
        for seed in SEEDS[1:]
    ])  # fmt: skip
    def add_a_split(self, data: st.DataObject, name: str, seed: int) -> None:
        self.finish(name, seed)

    def finish(self, name: str, seed: int) -> None:
        """Build what may be finished already; a split that is asked for then is a further one."""
        known = self.builds[name]
        # Without its card it is unfinished: the build command writes a new one, of this split.
        known.finished &= (self.folder(name) / CARD_NAME).exists()
        was_finished = known.finished
        self.attempt(name, *self.line(known.spec, name, seed))
        if not was_finished:
            self.built_anew(name, known.default if known.finished else seed)
        known.seeds.add(seed)

    @step("work", lambda self: [(name, column) for name in self.names() for column in COLUMNS])
    def encode(self, data: st.DataObject, name: str, column: str) -> None:
        self.attempt(name, "encode", self.folder(name), column, "--jobs", "1", "-q")
        self.builds[name].columns.add(column)

    @step("work", choices)
    def read(self, data: st.DataObject, name: str) -> None:
        self.check_record(name, data.draw(st.integers(0, 5)))

    @step("work", choices)
    def open_and_keep(self, data: st.DataObject, name: str) -> None:
        known = self.builds[name]
        try:
            kept = opened(self.folder(name), sorted(known.columns))
        except KmipDataError as error:
            self.expect(name, error)
            return
        check_opened(known)
        self.kept = [*self.kept, (kept, self.truths[known.spec])][-MOST_KEPT:]

    @step("work", lambda self: [(number,) for number in range(len(self.kept))])
    def read_what_is_kept(self, data: st.DataObject, which: int) -> None:
        dataset, truth = self.kept[which]
        number = data.draw(st.integers(0, 5)) % len(truth.records)
        try:
            item = dataset[number]
        except KmipDataError as error:
            check(str(self.built) in str(error), error)
            return
        check_values(item, truth, list(truth.records)[number])

    @step("work", choices)
    def verify(self, data: st.DataObject, name: str) -> None:
        known = self.builds[name]
        outcome = kmip("verify", self.folder(name))
        if known.unsure or not known.finished:
            return
        # What is made of the card is a note alone.
        if known.damaged.keys() - {PAGE_NAME, CROISSANT_NAME, MARKER_NAME}:
            # Without its card it is unfinished, which is said in other words.
            assert outcome.code in {1, 2, 4}, outcome
            assert str(self.folder(name)) in outcome.err
        elif MARKER_NAME not in known.damaged:
            assert outcome.code == 0, outcome.err

    @step("work", lambda self: self.choices(lambda known: known.finished))
    def repair(self, data: st.DataObject, name: str) -> None:
        self.attempt(name, "verify", self.folder(name), "--repair", "--jobs", "1", "-q")
        self.healed(name)
        outcome = kmip("verify", self.folder(name))
        assert outcome.code == 0, outcome.err
        assert "writes it again" not in outcome.out
        self.check_record(name, data.draw(st.integers(0, 5)))

    @step("work", with_free)
    def copy(self, data: st.DataObject, name: str, other: str) -> None:
        self.take_along(name, other)
        shutil.copytree(self.folder(name), self.folder(other))

    @step("work", with_free)
    def rename(self, data: st.DataObject, name: str, other: str) -> None:
        source = self.folder(name)
        for path in self.take_along(name, other):
            del self.mine[path]
        del self.builds[name]
        source.rename(self.folder(other))

    def take_along(self, name: str, other: str) -> list[Path]:
        """Note that a build and the user's files in it lie in another folder, too; return these."""
        source = self.folder(name)
        inside = [path for path in self.mine if path.is_relative_to(source)]
        for path in inside:
            self.mine[self.folder(other) / path.relative_to(source)] = self.mine[path]
        self.builds[other] = copy.deepcopy(self.builds[name])
        return inside

    @step("work", lambda self: [
        (name, address)
        for name in self.names(lambda known: known.finished)
        for address in self.addresses(name)
    ])  # fmt: skip
    def push(self, data: st.DataObject, name: str, address: str) -> None:
        self.attempt(name, "push", self.folder(name), self.pushed / address, "-q")
        self.shares[address] = [copy.deepcopy(self.builds[name])]

    @step("work", lambda self: [
        (address, name) for address in sorted(self.shares) for name in self.free_names()
    ])  # fmt: skip
    def pull(self, data: st.DataObject, address: str, name: str) -> None:
        pushes = self.shares[address]
        outcome = kmip("pull", self.pushed / address, "--output", self.folder(name), "-q")
        assert outcome.code == 0 or len(pushes) > 1, outcome.err
        if outcome.code == 0:
            self.pulled(name, pushes)

    def pulled(self, name: str, pushes: Sequence[Known]) -> None:
        """Know a build as the pushed one that it can be."""
        card = read_card(self.folder(name))
        columns = set(added_column_names(self.folder(name)))
        fitting = []
        for pushed in pushes:
            seeds = {f"random-seed{seed}" for seed in pushed.seeds}
            same = pushed.spec != "own" or card.splits.keys() == seeds
            if same and pushed.columns <= columns:
                fitting.append(pushed)
        assert fitting, "another build than any that was pushed"
        self.builds[name] = copy.deepcopy(fitting[-1])
        self.healed(name)
        self.check_record(name, 0)

    @step("work", lambda self: [(name,) for name in sorted(self.builds)])
    def remove(self, data: st.DataObject, name: str) -> None:
        known = self.builds[name]
        outcome = kmip("remove", self.folder(name), "--yes")
        # A killed repair may leave a damaged marker as it is.
        if outcome.code and (MARKER_NAME in known.damaged or known.unsure):
            self.follow(name, outcome.err)
            outcome = kmip("remove", self.folder(name), "--yes")
        assert outcome.code == 0, outcome.err
        self.gone(name)

    def gone(self, name: str) -> None:
        """Left files are the user's, or files that a damaged card did not list."""
        known = self.builds.pop(name)
        folder = self.folder(name)
        if not folder.exists():
            return
        left = {path for path in folder.rglob("*") if path.is_file()}
        others = left - set(self.mine)
        if known.sound:
            # A split that only an earlier card listed is no longer ours.
            splits = {folder / f"splits/random-seed{seed}.h5" for seed in SEEDS}
            # Nor is a picture that changed after it was drawn.
            allowed = splits | {folder / PICTURE_NAME}
            assert others <= allowed, others - allowed
        for path in others:
            path.unlink()
        if left - others:
            self.foreign.add(name)
        else:
            shutil.rmtree(folder)

    # --- damage ---------------------------------------------------------------------------------

    def targets(self, *, lost: bool = False) -> list[tuple[str, str]]:
        """Return the files of finished builds that can be damaged, or lost."""
        targets = []
        for name in self.names(lambda known: known.finished and not known.unsure):
            folder = self.folder(name)
            damaged = self.builds[name].damaged.keys()
            for file in [*files_of_build(folder), MARKER_NAME]:
                path = folder / file
                if path in self.mine or not path.is_file() or "work/" in file:
                    continue
                # Without its card a column is unfinished, and nothing of it is read.
                is_column = file.startswith("columns/")
                if is_column and (not (path.parent / CARD_NAME).is_file() or lost):
                    continue
                # A folder with neither marker nor card, or a lost marker, is anybody's.
                pair = {MARKER_NAME, CARD_NAME}
                if (file in pair and damaged & (pair - {file})) or (file == MARKER_NAME and lost):
                    continue
                targets.append((name, file))
        return targets

    def damage(self, name: str, file: str, after: bytes | None) -> None:
        """Change a file, by rename where a dataset may have it mapped."""
        known = self.builds[name]
        path = self.folder(name) / file
        held = known.damaged.pop(file, (path.read_bytes(), path.stat().st_mtime_ns))
        if after is None:
            path.unlink()
        else:
            self.put(path, after)
        if after != held[0]:
            known.damaged[file] = held

    def put(self, path: Path, data: bytes) -> None:
        if self.kept:  # rewriting a mapped file is not defended against
            (self.root / "new").write_bytes(data)
            (self.root / "new").rename(path)
        else:
            path.chmod(0o644)
            path.write_bytes(data)

    def flipped(self, data: st.DataObject, name: str, file: str) -> bytes:
        before = bytearray((self.folder(name) / file).read_bytes()) or bytearray(b"\0")
        position = data.draw(st.integers(0, len(before) - 1))
        before[position] ^= 1 << data.draw(st.integers(0, 7))
        return bytes(before)

    @step("damage", targets)
    def flip(self, data: st.DataObject, name: str, file: str) -> None:
        self.damage(name, file, self.flipped(data, name, file))

    @step("damage", targets)
    def flip_and_put_the_time_back(self, data: st.DataObject, name: str, file: str) -> None:
        known = self.builds[name]
        if known.sound:
            self.check_record(name, 0)  # so that what was checked is remembered
        path = self.folder(name) / file
        time = path.stat().st_mtime_ns
        self.damage(name, file, self.flipped(data, name, file))
        os.utime(path, ns=(time, time))
        if data.draw(st.booleans()):
            self.check_record(name, 0)

    @step("damage", targets)
    def cut_short(self, data: st.DataObject, name: str, file: str) -> None:
        before = (self.folder(name) / file).read_bytes()
        self.damage(name, file, before[: data.draw(st.integers(0, max(len(before) - 1, 0)))])

    @step("damage", lambda self: self.targets(lost=True))
    def lose(self, data: st.DataObject, name: str, file: str) -> None:
        self.damage(name, file, None)

    @step("damage", lambda self: [
        (name, file) for name in self.names() for file in sorted(self.builds[name].damaged)
    ])  # fmt: skip
    def put_back(self, data: st.DataObject, name: str, file: str) -> None:
        held, time = self.builds[name].damaged.pop(file)
        path = self.folder(name) / file
        if path.parent.is_dir():
            self.put(path, held) if path.exists() else path.write_bytes(held)
            os.utime(path, ns=(time, time))

    # --- kills ----------------------------------------------------------------------------------

    def killed(self, data: st.DataObject, what: str, spec: str, *line: object) -> int | None:
        """Kill a command at a random write; return its exit code, ``None`` where it was killed."""
        calls = self.calls[what, spec]
        call = "unlink"
        if what != "remove":
            call = data.draw(st.sampled_from(["write", "fsync", "replace"]))
        number = data.draw(st.integers(1, calls[call]))
        when = data.draw(st.sampled_from(["before", "middle", "after"]))
        if when == "middle" and call != "write":
            when = "before"
        power = data.draw(st.booleans())
        fault = Fault(str(self.root), "builder", call, number, when)
        code = run_in_fork(fault, lambda: kmip(*line).code, power=power)
        EVENTS["kills with what was not synced lost"] += code is None and power
        assert code != 99, "an unexpected error before the kill"
        return code

    @step("kill", new_builds)
    def kill_a_build(self, data: st.DataObject, spec: str, name: str, seed: int) -> bool:
        code = self.killed(data, "build", spec, *self.line(spec, name, seed))
        assert code in {None, 0}
        if not (self.folder(name) / MARKER_NAME).exists():
            expect_success(*self.line(spec, name, seed))  # until then the folder is anybody's
        self.builds[name] = Known(spec, unsure=True, finished=False)
        self.finish_if_killed_late(name, seed)
        return code is None

    def finish_if_killed_late(self, name: str, seed: int) -> None:
        if (self.folder(name) / CARD_NAME).exists():  # which comes last
            self.built_anew(name, seed)

    @step("kill", lambda self: self.choices(lambda known: not known.finished))
    def kill_a_build_that_resumes(self, data: st.DataObject, name: str) -> bool:
        known = self.builds[name]
        code = self.killed(data, "build", known.spec, *self.line(known.spec, name))
        self.finish_if_killed_late(name, SEEDS[0])
        return code is None

    @step("kill", lambda self: [
        (name, column)
        for name in self.names(lambda known: known.sound)
        for column in COLUMNS
        if column not in self.builds[name].columns
    ])  # fmt: skip
    def kill_an_encoding(self, data: st.DataObject, name: str, column: str) -> bool:
        known = self.builds[name]
        line = ("encode", self.folder(name), column, "--jobs", "1", "-q")
        code = self.killed(data, "encode", known.spec, *line)
        if code == 0:
            known.columns.add(column)
        self.check_record(name, 0)
        return code is None

    @step("kill", lambda self: self.choices(lambda known: known.finished and known.damaged))
    def kill_a_repair(self, data: st.DataObject, name: str) -> bool:
        known = self.builds[name]
        line = ("verify", self.folder(name), "--repair", "--jobs", "1", "-q")
        code = self.killed(data, "repair", known.spec, *line)
        if code is None:
            known.unsure = True
            known.damaged.clear()
        elif code == 0:
            self.healed(name)
        return code is None

    @step("kill", lambda self: [
        (name, address)
        for name in self.names(lambda known: known.sound)
        for address in self.addresses(name)
    ])  # fmt: skip
    def kill_a_push(self, data: st.DataObject, name: str, address: str) -> bool:
        known = self.builds[name]
        line = ("push", self.folder(name), self.pushed / address, "-q")
        code = self.killed(data, "push", known.spec, *line)
        assert code in {None, 0}
        earlier = [] if code == 0 else self.shares.get(address, [])
        # The second of two equal ones says that it may be incomplete.
        self.shares[address] = [*earlier, *[copy.deepcopy(known)] * (1 if code == 0 else 2)]
        return code is None

    @step("kill", lambda self: [
        (address, name)
        for address, pushes in sorted(self.shares.items())
        for name in self.free_names()
        if len(pushes) == 1
    ])  # fmt: skip
    def kill_a_pull(self, data: st.DataObject, address: str, name: str) -> bool:
        (pushed,) = self.shares[address]
        line = ("pull", self.pushed / address, "--output", self.folder(name), "-q")
        code = self.killed(data, "pull", pushed.spec, *line)
        assert code in {None, 0}
        if code is None:
            expect_success(*line)  # the same call resumes
        self.pulled(name, [pushed])
        return code is None

    @step("kill", lambda self: [(name,) for name in sorted(self.builds)])
    def kill_a_removal(self, data: st.DataObject, name: str) -> bool:
        known = self.builds[name]
        line = ("remove", self.folder(name), "--yes")
        code = self.killed(data, "remove", known.spec, *line)
        if code is None and (self.folder(name) / MARKER_NAME).exists():
            known.removing = True
        elif code is None or code == 0:
            self.gone(name)
        return code is None

    # --- files of the user ----------------------------------------------------------------------

    def new_files(self, folders: Sequence[Path]) -> list[tuple[Path]]:
        """Return paths in these folders where the user may put a file."""
        paths = [folder / file for folder in folders for file in LIKE_OURS]
        return [
            (path,)
            for path in paths
            if not path.exists() and not any(parent.is_file() for parent in path.parents)
        ]

    def add(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.write_mine(path)

    def write_mine(self, path: Path) -> None:
        self.mine[path] = f"mine {sum(KINDS_DONE.values())}".encode()
        path.write_bytes(self.mine[path])

    @step("files", lambda self: self.new_files([self.folder(name) for name in sorted(self.builds)]))
    def add_a_file_to_a_build(self, data: st.DataObject, path: Path) -> None:
        self.add(path)

    @step("files", lambda self: self.new_files(
        # Before its first file is there, a folder is anybody's.
        [self.pushed / name for name in sorted(self.shares) if (self.pushed / name / SHARE_NAME).exists()]
    ))  # fmt: skip
    def add_a_file_to_a_push(self, data: st.DataObject, path: Path) -> None:
        self.add(path)

    @step("files", lambda self: self.new_files(sorted(self.home.glob("raw/*/members-*"))))
    def add_a_file_to_raw(self, data: st.DataObject, path: Path) -> None:
        self.add(path)

    @step(
        "files", lambda self: self.new_files([self.folder(name) for name in self.free_names()[1:]])
    )
    def begin_a_folder(self, data: st.DataObject, path: Path) -> None:
        self.add(path)
        self.foreign.add(path.relative_to(self.built).parts[0])

    @step("files", lambda self: [(path,) for path in sorted(self.mine)])
    def edit(self, data: st.DataObject, path: Path) -> None:
        self.write_mine(path)

    @step("files", lambda self: [(path,) for path in sorted(self.mine)])
    def take_away(self, data: st.DataObject, path: Path) -> None:
        path.unlink()
        del self.mine[path]

    @step("files", lambda self: [
        (name,) for name in sorted(self.foreign) if self.folder(name).exists()
    ])  # fmt: skip
    def clear_a_folder(self, data: st.DataObject, name: str) -> None:
        """The user removes a folder of theirs, so that its name is free again."""
        shutil.rmtree(self.folder(name))
        self.mine = {path: held for path, held in self.mine.items() if path.exists()}
        self.foreign.discard(name)


def check_opened(known: Known) -> None:
    """Builds that open were compared with their card."""
    damaged_shards = {file for file in known.damaged if file.startswith("shards/")}
    assert not damaged_shards


def check_values(item: Any, truth: Truth, key: str) -> None:
    expected = truth.records[key]
    values = values_of(item)
    encodings = tuple(column.rstrip("0123456789") for column in COLUMNS)
    missing = expected.keys() - values.keys()
    assert all(name.startswith(encodings) for name in missing), missing
    for attribute, data in values.items():
        assert data == expected[attribute], f"{key}: other {attribute}"


def check_part(dataset: ShardedDataset, known: Known, truth: Truth) -> None:
    """Read all records of a part, and one behind them; its classes are the build's."""
    keys = truth.parts[known.default][dataset.split]
    assert dataset.keys == keys
    for key, item in zip(keys, dataset, strict=True):
        check_values(item, truth, key)
    with pytest.raises(IndexError):
        dataset[len(keys)]
    if known.spec == "own":
        assert dataset.num_classes == len(CLASSES)


def check(holds: object, error: object) -> None:
    assert holds, error
