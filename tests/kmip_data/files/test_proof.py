"""Rule: proof is bytes, not names.

A file of the user's stays, whatever its name, and the command says so.

Each case plants files under names that kmip-data writes, runs one command, and compares what was
planted byte for byte, with modes. ``python -m pytest -s`` prints the table of all cases, before and
after the rule.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.builds.learnable import learnable_build, tiny_config
from support.cases import contents
from support.cli import kmip
from support.runs.sweeps import PROGRAM, environment

from kmip_data.builds.home import Build, Home
from kmip_data.errors import OutOfResources
from kmip_data.files.changes import build_lock
from kmip_data.format.card import Card, read_card
from kmip_data.models.sweeps import running
from kmip_data.models.training.run.train import train
from kmip_data.models.training.sharing import push_run
from kmip_data.sharing.push import push_build

MINE = b"years of work"
BUILD = ("build", "long-range", "--limit", "4", "--jobs", "1", "-q")
SECRET = "Xq7-s3cr3t"


@dataclass
class World:
    """What all cases start from; each copies what it needs."""

    root: Path  #: of one case
    build: Path  #: a finished build with one added column
    pushed: Path  #: it, pushed
    run: Path
    pushed_run: Path

    @property
    def home(self) -> Path:
        """Home of the case."""
        return self.root / "home"

    @property
    def built(self) -> Path:
        """Folder of the build in the home of the case, which need not exist."""
        return self.home / "built" / self.build.name

    def plant(self, folder: Path, *names: str, data: bytes = MINE) -> list[Path]:
        """Write files of the user's below a folder."""
        paths = [folder / name for name in names]
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists():
                path.chmod(0o644)
            path.write_bytes(data)
        return paths

    def copy(self, source: Path, target: Path) -> Path:
        """Copy a folder of ours."""
        shutil.copytree(source, target)
        return target

    def copy_file(self, name: str, folder: Path) -> Path:
        """Copy one file of the build."""
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(self.build / name, target)
        return target


@dataclass
class Case:
    """A command, the files that must stay, its exit code, and a word of what it says."""

    command: tuple[object, ...] | Callable[[], object]
    mine: list[Path]
    code: int = 2
    says: str = ""
    never: str = ""  #: what no output may have
    gone: list[Path] = field(default_factory=list)
    there: list[Path] = field(default_factory=list)
    patch: tuple[str, Any] | None = None


Make = Callable[[World], Case]
CASES: dict[str, Make] = {}


def case(name: str) -> Callable[[Make], Make]:
    """Add a case to the table."""

    def add(make: Make) -> Make:
        CASES[name] = make
        return make

    return add


# Builds.

for _name in ("README.md", "croissant.json", "card.json", "shards/00000.h5", "splits/upstream.h5"):

    @case(f"build at home over own {_name}")
    def _(w: World, name: str = _name) -> Case:
        return Case(BUILD, w.plant(w.built, name), says=name.partition("/")[0])

    @case(f"build at home over own {_name} in the work of a build")
    def _(w: World, name: str = _name) -> Case:
        key = read_card(w.build).key
        w.plant(w.built, "work/journal.jsonl", data=_journal(key))
        code = 0 if name in {"README.md", "croissant.json"} else 2  # texts stay, and that is said
        return Case(BUILD, w.plant(w.built, name), code=code, says=name)


for _name in ("work/stop", "work/token"):

    @case(f"build at home over own {_name}")
    def _(w: World, name: str = _name) -> Case:
        return Case(BUILD, w.plant(w.built, name))

    @case(f"finished build with own {_name}")
    def _(w: World, name: str = _name) -> Case:
        w.copy(w.build, w.built)
        w.plant(w.built, "work/journal.jsonl", data=_journal(read_card(w.build).key))
        return Case(BUILD, w.plant(w.built, name), code=0)


@case("build where shards is a file, next to a damaged card")
def _(w: World) -> Case:
    return Case(BUILD, w.plant(w.built, "card.json", "shards"))


@case("build --output onto one copied shard")
def _(w: World) -> Case:
    folder = w.root / "out"
    w.copy_file("shards/00000.h5", folder)
    mine = w.plant(folder, "README.md", "card.json", "splits/upstream.h5")
    return Case((*BUILD, "--output", folder), [*mine, folder / "shards/00000.h5"])


@case("build --output onto a copied journal")
def _(w: World) -> Case:
    folder = w.root / "out"
    w.plant(folder, "work/journal.jsonl", data=_journal(read_card(w.build).key))
    mine = w.plant(folder, "shards/00000.h5", "README.md", "work/stop")
    return Case((*BUILD, "--output", folder), mine)


@case("a folder work/prepared of the user's, with a mark, goes with an unfinished build")
def _(w: World) -> Case:
    w.plant(w.built, "work/journal.jsonl", data=_journal(read_card(w.build).key))
    w.plant(w.built, "work/prepared.begun", data=b"")
    mine = w.plant(w.built, "work/prepared/notes.txt", "work/prepared/sub/more.txt")
    return Case(("remove", w.built.name, "--yes"), mine, code=0)


@case("the same, when the build is resumed")
def _(w: World) -> Case:
    w.plant(w.built, "work/journal.jsonl", data=_journal(read_card(w.build).key))
    w.plant(w.built, "work/prepared.begun", data=b"")
    return Case(BUILD, w.plant(w.built, "work/prepared/notes.txt"), code=0)


@case("a journal that begins like ours")
def _(w: World) -> Case:
    text = b'{"journal": "of my travels", "key": 1}\nMonday\n'
    return Case(BUILD, w.plant(w.built, "work/journal.jsonl", data=text))


@case("a torn journal with own words")
def _(w: World) -> Case:
    return Case(BUILD, w.plant(w.built, "work/journal.jsonl", data=b'{"journal": my diary'))


@case("a journal with a hard link elsewhere")
def _(w: World) -> Case:
    (journal,) = w.plant(w.built, "work/journal.jsonl", data=_journal(read_card(w.build).key))
    backup = w.root / "backup"
    os.link(journal, backup)
    return Case(BUILD, [backup], code=0)


def _journal(key: str, *lines: str) -> bytes:
    header = json.dumps({"journal": 1, "key": key}, separators=(",", ":"))
    return "".join(f"{line}\n" for line in (header, '{"units":1}', *lines)).encode()


# Locks.


@case("own words in .locks/NAME.lock")
def _(w: World) -> Case:
    return Case(BUILD, w.plant(w.home / "built/.locks", f"{w.build.name}.lock"))


@case("own words in DIR/.lock")
def _(w: World) -> Case:
    folder = w.root / "disk/out"
    w.plant(w.root / "disk", ".locks")  # a file: the lock lies inside
    return Case((*BUILD, "--output", folder), w.plant(folder, ".lock"))


@case("an empty .locks of the user's")
def _(w: World) -> Case:
    locks = w.home / "built/.locks"
    locks.mkdir(parents=True)
    return Case(BUILD, [], code=0, there=[locks])


for _size in (250, 251, 255):

    @case(f"a name of {_size} bytes leaves .locks")
    def _(w: World, size: int = _size) -> Case:
        (w.root / "disk").mkdir()
        folder = w.root / "disk" / ("x" * size)
        return Case((*BUILD, "--output", folder), [], code=0, gone=[folder.parent / ".locks"])


# Pages and shares.


@case("README.md edited at an address, pushed again")
def _(w: World) -> Case:
    to = w.copy(w.pushed, w.root / "to")
    return Case(("push", w.build, to, "-q"), _edited(to), code=0, says="README.md")


@case("README.md edited at an address, pushed again with another column")
def _(w: World) -> Case:
    to, build = w.copy(w.pushed, w.root / "to"), w.copy(w.build, w.root / w.build.name)
    assert kmip("encode", build, "rwse2", "-q").code == 0
    return Case(("push", build, to, "-q"), _edited(to), code=0, says="README.md")


@case("README.md edited in a copy, pulled again")
def _(w: World) -> Case:
    to = w.root / "copy"
    assert kmip("pull", w.pushed, "--to", to, "-q").code == 0
    return Case(("pull", w.pushed, "--to", to, "-q"), _edited(to), code=0, says="README.md")


@case("croissant.json edited in a copy, pulled again")
def _(w: World) -> Case:
    to = w.root / "copy"
    assert kmip("pull", w.pushed, "--to", to, "-q").code == 0
    mine = w.plant(to, "croissant.json", data=b"{}\n")
    return Case(("pull", w.pushed, "--to", to, "-q"), mine, code=0, says="croissant.json")


@case("pull A --to A")
def _(w: World) -> Case:
    to = w.copy(w.pushed, w.root / "to")
    (to / "shards/00000.h5").chmod(0o444)  # as pull leaves it
    mine = [path for path in to.rglob("*") if path.is_file()]
    return Case(("pull", to, "--to", to, "-q"), mine, code=0)


@case("pull A --to A after an edit")
def _(w: World) -> Case:
    to = w.copy(w.pushed, w.root / "to")
    return Case(("pull", to, "--to", to, "-q"), _edited(to), code=0)


@case("README.md edited at the address of a run, pulled")
def _(w: World) -> Case:
    to = w.copy(w.pushed_run, w.root / "to")
    mine = _edited(to)
    copy = w.root / "copy"
    return Case(("pull", to, "--to", copy, "-q"), mine, code=0, there=[copy / "config.toml"])


@case("README.md edited at the address of a run, pushed again")
def _(w: World) -> Case:
    to = w.copy(w.pushed_run, w.root / "to")
    return Case(("push", w.run, to, "-q"), _edited(to), code=0, says="README.md")


for _name in ("README.md", "croissant.json"):

    @case(f"{_name} edited at home, another split added")
    def _(w: World, name: str = _name) -> Case:
        build = w.copy(w.build, w.built)
        mine = w.plant(build, name, data=(build / name).read_bytes() + b"\nMy notes.\n")
        command = (*BUILD, "--split-rule", "stratified", "--split-seed", "3")
        return Case(command, mine, code=0, says=name)


def _edited(folder: Path, name: str = "README.md") -> list[Path]:
    """Edit a file so that JSON and TOML stay what they are."""
    path = folder / name
    note = b"\nMy notes.\n" if name.endswith(".md") else b"\n"
    path.chmod(0o644)
    path.write_bytes(path.read_bytes() + note)
    return [path]


for _name in ("card.json", "columns/rwse4/card.json"):

    @case(f"{_name} edited at an address, pushed again")
    def _(w: World, name: str = _name) -> Case:
        to = w.copy(w.pushed, w.root / "to")
        return Case(("push", w.build, to, "-q"), _edited(to, name), says=name)

    @case(f"{_name} edited in a copy, pulled again")
    def _(w: World, name: str = _name) -> Case:
        to = w.root / "copy"
        assert kmip("pull", w.pushed, "--to", to, "-q").code == 0
        return Case(("pull", w.pushed, "--to", to, "-q"), _edited(to, name), says="card.json")


for _name in ("config.toml", "metrics.csv", "result.json"):

    @case(f"{_name} edited at the address of a run, pushed again")
    def _(w: World, name: str = _name) -> Case:
        to = w.copy(w.pushed_run, w.root / "to")
        return Case(("push", w.run, to, "-q"), _edited(to, name), says=name)

    @case(f"{_name} edited in a pulled run, pulled again")
    def _(w: World, name: str = _name) -> Case:
        to = w.root / "copy"
        assert kmip("pull", w.pushed_run, "--to", to, "-q").code == 0
        return Case(("pull", w.pushed_run, "--to", to, "-q"), _edited(to, name), says=name)


for _size in ("the right size", "no bytes"):

    @case(f"damaged data of {_size} at an address, pushed again; in a copy, pulled again")
    def _(w: World, size: str = _size) -> Case:
        to, copy = w.copy(w.pushed, w.root / "to"), w.root / "copy"
        run, run_copy = w.copy(w.pushed_run, w.root / "run"), w.root / "run-copy"

        def work() -> None:
            for source, address, folder, name in (
                (w.build, to, copy, "shards/00000.h5"),
                (w.run, run, run_copy, "model.safetensors"),
            ):
                whole = (address / name).read_bytes()
                damaged = b"" if size == "no bytes" else whole[:-1] + bytes([whole[-1] ^ 1])
                w.plant(address, name, data=damaged)
                assert kmip("push", source, address, "-q").code == 0
                assert kmip("pull", address, "--to", folder, "-q").code == 0
                w.plant(folder, name, data=damaged)
                assert kmip("pull", address, "--to", folder, "-q").code == 0
                assert whole == (folder / name).read_bytes() == (address / name).read_bytes()

        return Case(work, [], code=0)


@case("a push of a changed build, killed after each file, resumes")
def _(w: World) -> Case:
    from kmip_data.sharing.remote import Remote

    changed = w.copy(w.build, w.built)
    command = (*BUILD, "--split-rule", "stratified", "--split-seed", "3")
    assert kmip(*command, "--home", w.home).code == 0
    put = Remote.put

    def work() -> None:
        for number in range(8):
            to = w.copy(w.pushed, w.root / f"to-{number}")
            left = number

            def dying(at: Remote, name: str, content: Path | bytes) -> None:
                nonlocal left
                if not left:
                    raise KeyboardInterrupt
                left -= 1
                put(at, name, content)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Remote, "put", dying)
                with contextlib.suppress(KeyboardInterrupt):
                    push_build(Build(changed, read_card(changed)), str(to), quiet=True)
            push_build(Build(changed, read_card(changed)), str(to), quiet=True)
            assert (to / "card.json").read_bytes() == (changed / "card.json").read_bytes()

    return Case(work, [], code=0)


# A card or a push.json alone.

_PARTS = ("shards/00000.h5", "splits/upstream.h5", "README.md", "croissant.json")


def _bare(w: World, folder: Path, *, sealed: bool = True) -> list[Path]:
    card = json.loads((w.build / "card.json").read_bytes())
    if not sealed:
        own = {"sha256": hashlib.sha256(MINE).hexdigest(), "bytes": len(MINE)}
        card["shards"][0] |= own
    folder.mkdir(parents=True, exist_ok=True)
    text = (w.build / "card.json").read_text()
    (folder / "card.json").write_text(text if sealed else json.dumps(card))
    return w.plant(folder, *_PARTS, "thesis.tex", "preview.png", "explore.html")


@case("remove by a bare card")
def _(w: World) -> Case:
    return Case(("remove", w.built.name, "--yes"), _bare(w, w.built), code=0, says="README.md")


@case("remove by a card whose seal is broken")
def _(w: World) -> Case:
    mine = _bare(w, w.built, sealed=False)
    mine.append(w.built / "card.json")
    return Case(("remove", w.built.name, "--yes"), mine, code=4, says="was changed after")


@case("remove by the card of a column alone")
def _(w: World) -> Case:
    w.copy(w.build, w.built)
    return Case(
        ("remove", w.built.name, "--yes"), w.plant(w.built, "columns/rwse4/00000.h5"), code=0
    )


for _sealed in (True, False):

    @case(f"verify --repair by a bare card, sealed: {_sealed}")
    def _(w: World, sealed: bool = _sealed) -> Case:
        folder = w.root / "folder"
        mine = _bare(w, folder, sealed=sealed)
        return Case(("verify", folder, "--repair", "-q"), mine, code=2 if sealed else 4)

    @case(f"build at home by a bare card, sealed: {_sealed}")
    def _(w: World, sealed: bool = _sealed) -> Case:
        return Case(BUILD, _bare(w, w.built, sealed=sealed), code=4 if sealed else 2)

    @case(f"pull --to a bare card, sealed: {_sealed}")
    def _(w: World, sealed: bool = _sealed) -> Case:
        folder = w.root / "folder"
        return Case(("pull", w.pushed, "--to", folder, "-q"), _bare(w, folder, sealed=sealed))


@case("push by a bare push.json")
def _(w: World) -> Case:
    folder = w.root / "folder"
    folder.mkdir()
    shutil.copyfile(w.pushed / "push.json", folder / "push.json")
    mine = w.plant(folder, *_PARTS, "card.json")
    return Case(("push", w.build, folder, "-q"), mine)


@case("push of a run by a bare push.json")
def _(w: World) -> Case:
    folder = w.root / "folder"
    folder.mkdir()
    shutil.copyfile(w.pushed_run / "push.json", folder / "push.json")
    mine = w.plant(folder, "config.toml", "result.json", "model.safetensors", "metrics.csv")
    return Case(("push", w.run, folder, "-q"), mine)


@case("verify --repair of a damaged shard")
def _(w: World) -> Case:
    folder = w.copy(w.build, w.root / "folder")
    path = folder / "shards/00000.h5"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    w.plant(folder, "shards/00000.h5", data=bytes(data))
    return Case(("verify", folder, "--repair", "-q"), [], code=0)


@case("verify --repair of a cut shard, and of an empty split")
def _(w: World) -> Case:
    folder = w.copy(w.build, w.root / "folder")
    shard = folder / "shards/00000.h5"
    w.plant(folder, "shards/00000.h5", data=shard.read_bytes()[:9000])
    w.plant(folder, "splits/upstream.h5", data=b"")
    return Case(("verify", folder, "--repair", "-q"), [], code=0)


for _name in ("shards/00000.h5", "splits/upstream.h5", "columns/rwse4/00000.h5"):

    @case(f"verify --repair over own HDF5 {_name} under a sealed card")
    def _(w: World, name: str = _name) -> Case:
        import h5py

        buffer = io.BytesIO()
        with h5py.File(buffer, "w") as file:
            file["thesis"] = [1, 2, 3]
        folder = w.copy(w.build, w.root / "folder")
        mine = w.plant(folder, name, data=buffer.getvalue())
        return Case(("verify", folder, "--repair", "-q"), mine, says=name)


# Raw files.


@case("remove raw/NAME takes an own X.partial")
def _(w: World) -> Case:
    mine = w.plant(w.home / "raw/s3dis", "X.partial", "X.partial.json")
    return Case(("remove", "raw/s3dis", "--yes"), mine)


@case("remove raw/NAME takes an own X.partial next to a state")
def _(w: World) -> Case:
    folder = w.home / "raw/s3dis"
    w.plant(folder, "X.partial.json", data=b"{}")
    mine = w.plant(folder, "X.partial")
    return Case(("remove", "raw/s3dis", "--yes"), mine)


@case("fetch over an own X.partial")
def _(w: World) -> Case:
    name = "indoor3d_sem_seg_hdf5_data.zip"
    mine = w.plant(w.home / "raw/s3dis", f"{name}.partial", f"{name}.partial.json")
    return Case(lambda: _download(w.home / "raw/s3dis" / name), mine)


def _download(target: Path) -> object:
    from support.attacks.http_server import File, serving

    from kmip_data.manifest import Mirror, Source
    from kmip_data.pipelines.raw.download import fetch

    buffer = io.BytesIO()
    import zipfile

    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a.txt", "a")
    with serving() as server:
        url = server.route("/a.zip", *[File(buffer.getvalue())] * 9)
        source = Source(name=target.name, mirrors=(Mirror(url=url),))
        return fetch(source, target.parent, hint="", quiet=True)


@case("an own folder .unpacking-abcdefgh")
def _(w: World) -> Case:
    mine = w.plant(w.home / "raw/s3dis-sample", ".unpacking-abcdefgh/thesis.tex")
    from kmip_data.pipelines.raw.copies import staging

    def work() -> None:
        with staging(mine[0].parents[1]):
            pass

    return Case(work, mine, code=0)


@case("an own folder that is called like an unfinished export")
def _(w: World) -> Case:
    (mine,) = w.plant(w.root / f".out.{'0' * 32}.partial", "thesis.tex")
    command = ("export", w.build, "--to", "pt", "--output", w.root / "out", "-q")
    return Case(command, [mine], code=0)


@case("fetch --accept-license over a licences.json it cannot read")
def _(w: World) -> Case:
    from kmip_data.manifest import load_manifest
    from kmip_data.pipelines.raw.obtain import require_agreement

    manifest = load_manifest("shapenet-part")
    mine = w.plant(w.home, "licences.json", data=b'{"shapenet-part": "my notes"')
    return Case(lambda: require_agreement(manifest, Home(w.home), accept=True), mine)


@case("the same over notes in it")
def _(w: World) -> Case:
    from kmip_data.manifest import load_manifest
    from kmip_data.pipelines.raw.obtain import require_agreement

    manifest = load_manifest("shapenet-part")
    mine = w.plant(w.home, "licences.json", data=b'{"notes": "years of work"}')
    return Case(lambda: require_agreement(manifest, Home(w.home), accept=True), mine)


# Columns.

for _name in ("00000.h5", "card.json"):

    @case(f"encode over own columns/NAME/{_name}")
    def _(w: World, name: str = _name) -> Case:
        build = w.copy(w.build, w.built)
        mine = w.plant(build, f"columns/rwse3/{name}")
        return Case(("encode", build, "rwse3", "-q"), mine, says=f"columns/rwse3/{name}")

    @case(f"pull with columns over own columns/NAME/{_name}")
    def _(w: World, name: str = _name) -> Case:
        build = w.copy(w.build, w.built)
        shutil.rmtree(build / "columns")
        mine = w.plant(build, f"columns/rwse4/{name}")
        command = ("pull", w.pushed, "--to", build, "-q")
        return Case(command, mine, says=f"columns/rwse4/{name}")


@case("encode with own words in columns/work")
def _(w: World) -> Case:
    build = w.copy(w.build, w.built)
    return Case(("encode", build, "rwse3", "-q"), w.plant(build, "columns/work/stop"))


# Runs.


@case("train --name over an own initial.safetensors")
def _(w: World) -> Case:
    from kmip_data.models.training.config.overrides import read_config

    config = read_config(w.run / "config.toml")
    training = config.training.model_copy(update={"init_from": str(w.run)})
    folder = w.home / "runs" / w.run.parts[-3] / w.run.parts[-2] / "mine"
    mine = w.plant(folder, "initial.safetensors")
    begin = config.model_copy(update={"training": training})
    return Case(lambda: train(begin, home=Home(w.home), name="mine", quiet=True), mine)


@case("sweep over an own log")
def _(w: World) -> Case:
    name = f"{w.run.parts[-3]}.gcn.{_SWEPT}"
    (w.home / "built").mkdir(parents=True)
    (w.home / "built" / w.build.name).symlink_to(w.build)
    command = ("sweep", "--dataset", "long-range", "--model", "gcn", "--epochs", "1", "-q")
    listed = kmip(*command, "--home", w.home, "--dry-run", "--json").json["runs"]
    run = Path(listed[0]["path"])
    name = ".".join(run.parts[-3:])
    (folder,) = {
        w.home / "sweeps" / kmip(*command, "--home", w.home, "--dry-run", "--json").json["sweep"]
    }
    return Case((*command, "--home", w.home), w.plant(folder, f"{name}.log"))


_SWEPT = "seed0"


# Files that a user names.

_GAUSSIAN = ("analyze", "approximation", "--gaussian", "20x4", "--k", "1", "-q")

for _name in ("approximation.csv", "approximation.png"):

    @case(f"analyze over own {_name}")
    def _(w: World, name: str = _name) -> Case:
        words = (*_GAUSSIAN, "--save", w.root / "approximation")
        return Case(words, w.plant(w.root, name), says=name)

    @case(f"analyze through a link {_name}")
    def _(w: World, name: str = _name) -> Case:
        (mine,) = w.plant(w.root / "elsewhere", "thesis.tex")
        (w.root / name).symlink_to(mine)
        return Case((*_GAUSSIAN, "--save", w.root / "approximation"), [mine], says=name)


@case("--save results.png takes results.csv with it")
def _(w: World) -> Case:
    mine = w.plant(w.root, "results.csv")
    return Case((*_GAUSSIAN, "--save", w.root / "results.png"), mine, says="results.csv")


for _command, *_rest in (
    ("preview", "x.png"),
    ("explore", "x.html", "--no-open"),
    ("report", "x.csv", "--format", "csv"),
    ("predict", "x.npz"),
):

    @case(f"--output of {_command} onto a read-only file")
    def _(w: World, name: str = _command, rest: list[str] = _rest) -> Case:
        target = {"report": w.run, "predict": w.run}.get(name, w.build)
        (mine,) = w.plant(w.root, rest[0])
        mine.chmod(0o400)
        home = ("--home", w.run.parents[3]) if target == w.run else ()
        return Case((name, target, "--output", mine, *rest[1:], *home), [mine], says="read-only")


for _command, _file in (("preview", "preview.png"), ("explore", "explore.html")):

    @case(f"{_command} over own {_file} in the build folder")
    def _(w: World, command: str = _command, file: str = _file) -> Case:
        build = w.copy(w.build, w.built)
        rest = ["--no-open"] if command == "explore" else []
        return Case((command, build, *rest), w.plant(build, file), says=file)

    @case(f"{_command} over an edited {_file} in the build folder")
    def _(w: World, command: str = _command, file: str = _file) -> Case:
        build = w.copy(w.build, w.built)
        rest = ["--no-open"] if command == "explore" else []
        assert kmip(command, build, *rest).code == 0
        data = (build / file).read_bytes()
        edited = data[:200] + bytes([data[200] ^ 1]) + data[201:]
        return Case((command, build, *rest), w.plant(build, file, data=edited), says=file)

    @case(f"{_command} over its own {_file} of another record")
    def _(w: World, command: str = _command, file: str = _file) -> Case:
        build = w.copy(w.build, w.built)
        rest = ["--no-open", "--record", "1"] if command == "explore" else ["--records", "1"]
        assert kmip(command, build, *rest[:-1], "0").code == 0
        return Case((command, build, *rest), [], code=0, there=[build / file])

    @case(f"{_command} through a link {_file} in the build folder")
    def _(w: World, command: str = _command, file: str = _file) -> Case:
        build = w.copy(w.build, w.built)
        (mine,) = w.plant(w.root / "elsewhere", "thesis.tex")
        (build / file).symlink_to(mine)
        rest = ["--no-open"] if command == "explore" else []
        return Case((command, build, *rest), [mine], says="link")


@case("pull onto a hard-linked copy")
def _(w: World) -> Case:
    original, copy = w.root / "original", w.root / "copy"
    shutil.copytree(w.build, original)
    for path in original.rglob("*"):
        if path.is_file():
            path.chmod(0o644)
    shutil.copytree(original, copy, copy_function=os.link)
    mine = [path for path in original.rglob("*") if path.is_file()]
    return Case(("pull", w.pushed, "--to", copy, "-q"), mine, code=0)


# Remove.


@case("remove that cannot delete a file")
def _(w: World) -> Case:
    build = w.copy(w.build, w.built)
    unlink = os.unlink

    def refusing(path: Any, **options: Any) -> None:
        if os.fspath(path) == "00000.h5":
            raise PermissionError(1, "Operation not permitted", path)
        unlink(path, **options)

    card = build / "card.json"
    return Case(
        ("remove", build.name, "--yes"),
        [card],
        code=6,
        says="00000.h5",
        patch=("os.unlink", refusing),
    )


for _name in ("metrics.csv", "config.toml", "notes.txt", "README.md", "map.png", "explore.html"):

    @case(f"remove of a run with own {_name}")
    def _(w: World, name: str = _name) -> Case:
        run = w.copy(w.run, w.home / "runs/x/gcn/one")
        mine = w.plant(run, name)
        gone = [run / "model.safetensors", run / "checkpoints"]
        if name != "config.toml":  # the proof that it was edited stays with it
            gone.append(run / "result.json")
        return Case(("remove", "gcn/one", "--yes"), mine, code=0, says=name, gone=gone)


@case("remove of a run with an edited result")
def _(w: World) -> Case:
    run = w.copy(w.run, w.home / "runs/x/gcn/one")
    mine = [*_edited(run, "result.json"), run / "metrics.csv"]
    return Case(("remove", "gcn/one", "--yes"), mine, says="proves")


@case("remove of a run with its page, and of a pulled run")
def _(w: World) -> Case:
    run, copy = w.copy(w.run, w.home / "runs/x/gcn/one"), w.home / "runs/x/gcn/two"
    home = ("--home", w.home)
    assert kmip("explore", run, "--no-open", *home).code == 0
    assert kmip("pull", w.pushed_run, "--to", copy, "-q", *home).code == 0
    return Case(("remove", "gcn/one", "gcn/two", "--yes"), [], code=0, gone=[run, copy])


@case("a killed remove leaves an empty splits/")
def _(w: World) -> Case:
    for name in ("splits", "columns/rwse4"):
        (w.built / name).mkdir(parents=True)
    return Case(("remove", w.built.name, "--yes"), [], code=0, gone=[w.built])


# Addresses where a folder is expected.

for _option in (
    ("build", "long-range", "--limit", "4", "--output"),
    ("pull", "PUSHED", "--to"),
    ("export", "BUILD", "--to", "pt", "--output"),
    ("preview", "BUILD", "--output"),
    ("report", "--output"),
):
    for _address in ("hf://datasets/me/x", "s3://bucket/x.png"):

        @case(f"{_option[0]} {_option[-1]} {_address}")
        def _(w: World, option: tuple[str, ...] = _option, address: str = _address) -> Case:
            os.chdir(w.root)
            words = {"PUSHED": str(w.pushed), "BUILD": str(w.build)}
            command = tuple(words.get(word, word) for word in option)
            made = w.root / f"{address.partition(':')[0]}:"
            return Case((*command, address), [], gone=[made], says="address")


_ADDRESSES = (
    f"https://me:{SECRET}@host/p",
    f"HTTP://me:{SECRET}@host/p",
    f"simplecache::https://me:{SECRET}@host/p",
    f"me:{SECRET}@host:/p",
    f"s3://key:{SECRET}@bucket/p",
    f"https://host/p?sig={SECRET}",
)
_PATHS: tuple[tuple[str, ...], ...] = (
    ("info", "ADDRESS"),
    ("verify", "ADDRESS"),
    ("verify", "ADDRESS", "--repair"),
    ("train", "--dataset", "ADDRESS"),
    ("preview", "ADDRESS"),
    ("explore", "ADDRESS"),
    ("encode", "ADDRESS", "rwse4"),
    ("export", "ADDRESS", "--to", "pt"),
    ("export", "BUILD", "--to", "pt", "--output", "ADDRESS"),
    ("sweep", "ADDRESS"),
    ("sweep", "--dataset", "ADDRESS", "--dry-run"),
    ("build", "s3dis", "--archive", "ADDRESS"),
    ("build", "long-range", "--limit", "4", "--output", "ADDRESS/x"),
    ("build", "long-range", "--plugin", "ADDRESS"),
    ("build", "ADDRESS"),
    ("push", "ADDRESS", "to"),
    ("pull", "ADDRESS"),
    ("pull", "PUSHED", "--to", "ADDRESS/x"),
    ("remove", "ADDRESS", "--yes"),
    ("list", "--home", "ADDRESS"),
    ("runs", "--home", "ADDRESS"),
    ("evaluate", "ADDRESS"),
    ("predict", "ADDRESS"),
    ("report", "ADDRESS"),
    ("report", "RUN", "--output", "ADDRESS"),
    ("train", "--config", "ADDRESS"),
    ("fetch", "s3dis", "--archive", "ADDRESS"),
    ("analyze", "approximation", "--gaussian", "20x4", "--k", "1", "--save", "ADDRESS"),
)


def secret_commands(w: World) -> Iterator[tuple[str, ...]]:
    """Every command with an address, where it expects a path."""
    words = {"PUSHED": str(w.pushed), "BUILD": str(w.build), "RUN": str(w.run)}
    for words_of in _PATHS:
        for address in _ADDRESSES:
            yield tuple(words.get(word, word.replace("ADDRESS", address)) for word in words_of)


# The table.

#: Outcome before the rule, by the first words of a case: as recorded when the rule was asked for,
#: not measured by this test. The first match counts; cases without one were thought of later.
BEFORE = (
    ("build where shards is a file", "card.json gone, said nothing was left"),
    ("build at home over own", "exit 0, gone"),
    ("build --output onto", "exit 0"),
    ("a journal that begins like ours", "exit 0, truncated"),
    ("a journal with a hard link", "exit 0, the linked backup changed"),
    ("a folder work/prepared", "exit 0, removed whole"),
    ("own words in .locks", "exit 0, deleted"),
    ("own words in DIR/.lock", "exit 0, deleted"),
    ("an empty .locks", "exit 0, removed"),
    ("a name of 251", "left .locks"),
    ("a name of 255", "left .locks"),
    ("README.md edited at the address of a run, pulled", "pull failed"),
    ("README.md edited at an address", "exit 0, gone"),
    ("README.md edited at the address", "exit 0, gone"),
    ("README.md edited in a copy", "exit 0, gone"),
    ("pull A --to A after an edit", "exit 0, gone"),
    ("remove by a bare card", "exit 0, removed"),
    ("remove by a card whose seal", "exit 0, removed; seal ignored"),
    ("verify --repair by", "exit 0, replaced; seal ignored"),
    ("pull --to a bare card", "exit 0, replaced; seal ignored"),
    ("push by a bare", "exit 0, replaced"),
    ("push of a run by a bare", "exit 0, replaced"),
    ("remove raw/NAME takes", "exit 0, gone"),
    ("an own folder", "exit 0, removed whole"),
    ("fetch --accept-license over", "exit 0, replaced"),
    ("encode over own columns", "exit 0, replaced"),
    ("pull with columns over own", "exit 0, replaced"),
    ("train --name over", "exit 0, replaced"),
    ("sweep over an own log", "exit 0, replaced"),
    ("analyze over own", "exit 0, replaced"),
    ("analyze through a link", "exit 0, replaced through the link"),
    ("--save results.png", "exit 0, results.csv replaced"),
    *((f"--output of {name}", "exit 0, mode 0644") for name in ("preview", "report", "predict")),
    ("pull onto a hard-linked copy", "exit 0, mode of the original changed"),
    ("remove that cannot delete", "exit 0, card gone, the rest left"),
    ("a killed remove", "the next remove refused splits/"),
    *(
        (f"{words} {address}", "exit 0, wrote ./s3:/…")
        for words in (
            "build --output",
            "pull --to",
            "export --output",
            "preview --output",
            "report --output",
        )
        for address in ("hf:", "s3:")
    ),
)


def _before(name: str) -> str:
    """Outcome of a case before the rule."""
    if name.endswith("in the work of a build"):
        return "not recorded"
    return next((text for start, text in BEFORE if name.startswith(start)), "not recorded")


def test_what_was_before_is_of_cases_that_exist() -> None:
    """Every row of the list is used by a case, so that a renamed case does not lose its own."""
    for start, text in BEFORE:
        assert any(name.startswith(start) and _before(name) == text for name in CASES), start
    assert sum(_before(name) != "not recorded" for name in CASES) > 50


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A build with a column, a run, and both pushed."""
    folder = tmp_path_factory.mktemp("proof")
    home = Home(folder / "home")
    assert kmip(*BUILD, "--home", home.root).code == 0
    (build,) = home.built.iterdir()
    assert kmip("encode", build, "rwse4", "-q").code == 0
    push_build(Build(build, read_card(build)), str(folder / "pushed"), quiet=True)
    config = tiny_config(learnable_build(folder / "data"), training={"epochs": 1})
    run = train(config, home=home, name="one", quiet=True).runs[0]
    push_run(run, str(folder / "pushed-run"), quiet=True)
    return World(folder, build, folder / "pushed", run, folder / "pushed-run")


def _outcome(w: World, chosen: Case) -> tuple[int, str]:
    """Exit code and output of a case."""
    from kmip_data.cli.main import explain

    if callable(chosen.command):
        try:
            chosen.command()
        except Exception as error:
            known = explain(error)
            return (known.exit_code if known else 70), str(error)
        return 0, ""
    outcome = kmip(*chosen.command, *(() if "--home" in chosen.command else ("--home", w.home)))
    return outcome.code, outcome.out + outcome.err


def _state(paths: list[Path]) -> dict[Path, tuple[bytes, int] | None]:
    return {
        path: (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) if path.is_file() else None
        for path in paths
    }


@pytest.mark.slow
def test_every_case(base: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One row a case: exit code, files that stayed, and the reason if it fails."""
    from kmip_data.runtime import threads

    monkeypatch.setattr(threads, "PROGRAM", PROGRAM)
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    rows, failed, planted = [], [], 0
    width = max(map(len, CASES))
    print(f"{'case':<{width}} {'before':<40} now")  # noqa: T201
    for number, (name, make) in enumerate(CASES.items()):
        root = tmp_path / str(number)
        root.mkdir()
        monkeypatch.chdir(root)
        w = World(root, base.build, base.pushed, base.run, base.pushed_run)
        chosen = make(w)
        before = _state(chosen.mine)
        planted += len(before)
        with monkeypatch.context() as patch:
            if chosen.patch is not None:
                patch.setattr(*chosen.patch)
            code, text = _outcome(w, chosen)
        kept = sum(_state([path]) == {path: state} for path, state in before.items())
        wrong = [] if kept == len(before) else [f"{len(before) - kept} of {len(before)} changed"]
        if code != chosen.code:
            wrong.append(f"exit {code}, not {chosen.code}: {text[:200]!r}")
        if chosen.says not in text:
            wrong.append(f"does not say {chosen.says!r}: {text[:300]!r}")
        wrong += [f"{path.name} is there" for path in chosen.gone if os.path.lexists(path)]
        wrong += [f"{path.name} is gone" for path in chosen.there if not os.path.lexists(path)]
        stay = f"{kept}/{len(before)} stay" if before else "none planted"
        row = f"{name:<{width}} {_before(name):<40} exit {code}  {stay}  {'; '.join(wrong)[:300]}"
        rows.append(row.rstrip())
        failed += [f"{name}: {'; '.join(wrong)}"] if wrong else []
    print(*rows, f"{len(rows)} cases, {planted} files, {len(failed)} fail", sep="\n")  # noqa: T201
    assert not failed, "\n".join(failed)


@pytest.mark.slow
def test_no_secret_of_an_address_is_printed(base: World, tmp_path: Path, monkeypatch) -> None:
    """Commands that expect a path, with every form of address."""
    monkeypatch.chdir(tmp_path)
    w = World(tmp_path, base.build, base.pushed, base.run, base.pushed_run)
    shown = []
    for words in secret_commands(w):
        home = () if "--home" in words else ("--home", w.home)
        for form in ((), ("--json",)):
            if form and words[0] in {"report", "build"}:
                continue
            outcome = kmip(*words, *home, *form)
            if SECRET in outcome.out + outcome.err:
                shown.append(f"{' '.join(map(str, (*words[:9], *form)))}: {outcome.err[:200]}")
    print(f"{len(shown)} lines show a secret", *shown, sep="\n")  # noqa: T201
    assert not shown
    folder = tmp_path / f"http:/me:{SECRET}@host"
    shutil.copytree(base.build, folder)
    for words in (("info", folder), ("info", folder, "--json"), ("verify", folder)):
        outcome = kmip(*words, "--home", w.home)
        assert outcome.code == 0
        assert SECRET not in outcome.out + outcome.err


def test_an_old_push_and_an_old_page_stay_readable(base: World, tmp_path: Path) -> None:
    """A share that lists its page, as earlier versions wrote it, edited or not."""
    from support.builds.shares import share_folder

    old = tmp_path / "old"
    share_folder(base.build, old)
    for edit in (False, True):
        if edit:
            _edited(old)
        copy = tmp_path / f"copy-{edit}"
        assert kmip("pull", old, "--to", copy, "-q").code == 0
        assert contents(copy).keys() == contents(base.build).keys()
        import kmip_data

        assert len(kmip_data.open(old.as_uri(), home=tmp_path / f"h-{edit}")) == 4


def test_a_remove_that_could_not_delete_resumes(base: World, tmp_path: Path) -> None:
    """After the cause is gone the same command ends it."""
    w = World(tmp_path, base.build, base.pushed, base.run, base.pushed_run)
    chosen = CASES["remove that cannot delete a file"](w)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(*chosen.patch)
        assert kmip(*chosen.command, "--home", w.home).code == 6
    assert kmip(*chosen.command, "--home", w.home).code == 0
    assert not w.built.exists()


def test_a_sweep_on_a_full_disk_names_that_disk(tmp_path: Path, monkeypatch) -> None:
    """Logs and runs may lie on two disks; the error is about the one that is full."""
    run = tmp_path / "runs/helsinki/gcn/one"
    cell = SimpleNamespace(folder=run, done=False)

    def full(path: Path, *, root: Path) -> None:
        if path == run.parent:
            raise OSError(errno.ENOSPC, "No space left on device")
        path.mkdir(parents=True)

    monkeypatch.setattr(running, "make_folder", full)
    with pytest.raises(OutOfResources) as caught:
        running.make_folders([cell], Home(tmp_path), tmp_path / "sweeps/mine")
    assert str(run.parent) in caught.value.what


def test_the_lock_of_a_folder_is_ours_alone(tmp_path: Path) -> None:
    """A lock that was left empty by a killed process is taken.

    .locks goes with the last of ours.
    """
    (tmp_path / ".locks").mkdir()
    (tmp_path / ".locks/x.lock").touch()
    with build_lock(tmp_path / "x"):
        pass
    assert list(tmp_path.iterdir()) == [tmp_path / ".locks"]
    with build_lock(tmp_path / "sub/x"), build_lock(tmp_path / "sub/y"):
        pass
    assert list((tmp_path / "sub").iterdir()) == []


def test_card_and_state_are_what_the_cases_take_them_for(base: World) -> None:
    """The planted names are those of a real build."""
    card = Card.model_validate_json((base.build / "card.json").read_bytes())
    assert set(card.digests) == {"shards/00000.h5", "splits/upstream.h5"}
