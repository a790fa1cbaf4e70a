"""The build engine: units through worker processes into shards, journaled, resumable, the card last.

Order on disk, and what a crash between two steps leaves, is the table in ``docs/building.md``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kmip_data.builds.options import BuildOptions
from kmip_data.errors import DamagedInput, UsageError
from kmip_data.files import changes as files
from kmip_data.files.errors import writing
from kmip_data.format.card import CARD_NAME, Card, read_card
from kmip_data.pipelines.base import Params, Pipeline, Prepared, RawFolder, SplitParams, Unit
from kmip_data.pipelines.engine.executors import (
    EXECUTOR_FILES,
    Executor,
    WorkerDiedError,
    worker_died,
)
from kmip_data.pipelines.engine.journal import Journal, journal_entries, planned_units
from kmip_data.pipelines.engine.opening import open_executor
from kmip_data.pipelines.engine.units import finished_units, run_units
from kmip_data.pipelines.engine.workers import (
    SHARD_FILE,
    Task,
    UnitResult,
    build_unit,
    prepare,
    shard_name,
)
from kmip_data.pipelines.finishing.finish import finish_build, nothing_to_build
from kmip_data.runtime.progress import say
from kmip_data.wording import counted

WORK = "work"  #: folder inside an unfinished build: journal, stop file, what ``prepare`` wrote
JOURNAL = "journal.jsonl"
PREPARED = "prepared"  #: folder inside ``work/`` that ``prepare`` writes
BEGUN = ".begun"  #: ends the name of an empty file beside that folder while it is being written


def run_build(
    pipeline: Pipeline[Any, Any],
    params: Params,
    split_params: Sequence[SplitParams],
    raw: RawFolder,
    folder: Path,
    *,
    key: str,
    options: BuildOptions,
) -> Card:
    """Build every shard that is missing, then splits, README and card; the caller holds the lock.

    The bytes on disk are a function of the arguments alone: not of ``options.jobs``, of the order in
    which units finish, or of how often an earlier run was killed.

    Parameters
    ----------
    split_params
        The splits to write, each once; the first becomes the card's default.
    folder
        The build folder. A finished build is returned as it is; an unfinished one goes on.
    options
        ``jobs``, ``compression``, ``engine``, ``scheduler`` and ``quiet`` count.

    Raises
    ------
    OutOfResources
        Disk or memory ran out; finished shards stay and the next run goes on.
    DamagedInput
        A record could not be built; unit and record are named.
    KeyboardInterrupt, SystemExit
        Interrupted. Workers are gone and finished shards stay.
    """
    files.refuse_links(folder)
    if (finished := finished_card(folder)) is not None:
        remove_work(folder)
        return finished
    with writing(folder):
        files.remove_file(folder / CARD_NAME)
    run = _Run(pipeline, params, raw, folder, key, options, count_jobs(options.jobs))
    with run.opened():
        units = run.units()
        if not units:
            raise nothing_to_build()
        if not any("units" in entry for entry in run.journal.entries):
            run.journal.append({"units": len(units)})  # for `kmip-data list`
        results = run.build(units)
        about = pipeline.about(run.prepared, params)
    ordered = [results[unit.index] for unit in units]
    card = finish_build(
        pipeline, params, split_params, raw, folder, ordered, key=key,
        compression=options.compression, about=about,
    )  # fmt: skip
    remove_work(folder)
    text = f"built {pipeline.manifest.name}: {counted(card.counts['graphs'], 'graph')} in {folder}"
    say(text, quiet=options.quiet)
    return card


def rebuild_units(
    pipeline: Pipeline[Any, Any],
    params: Params,
    raw: RawFolder,
    folder: Path,
    chosen: Collection[int],
    *,
    key: str,
    options: BuildOptions,
) -> dict[int, UnitResult]:
    """Build the chosen units of a finished build again; the caller holds the lock and compares."""
    if not chosen:
        return {}
    files.refuse_links(folder)
    remove_work(folder)
    run = _Run(pipeline, params, raw, folder, key, options, count_jobs(options.jobs))
    with run.opened():
        return run.build([unit for unit in run.units() if unit.index in chosen])


def finished_card(folder: Path) -> Card | None:
    """Return the card of a finished build; ``None`` where there is none, or one that is damaged.

    A damaged card has lost the digests of the shards, so nothing in the folder can be trusted: a
    build there begins anew, to the same bytes.

    Raises
    ------
    UsageError
        A newer kmip-data wrote the build.
    """
    if not (folder / CARD_NAME).is_file():
        return None
    try:
        return read_card(folder)
    except DamagedInput:
        return None


def count_jobs(jobs: int | None) -> int:
    """``jobs``, or the cores this process may use (affinity and container limits).

    Raises
    ------
    UsageError
        ``jobs`` is less than 1.
    """
    if jobs is not None and jobs < 1:
        raise UsageError("--jobs is too small.", expected="1 or more", found=str(jobs))
    if jobs is None:
        import loky

        jobs = int(loky.cpu_count())
    return jobs


def remove_work(folder: Path) -> None:
    """Remove what a build keeps in its work folder, by the journal there, which goes last."""
    work = folder / WORK
    entries = journal_entries(work / JOURNAL)
    if entries is not None:
        _remove_begun(work, entries)
        for entry in entries:
            if "prepared" in entry and "folder" in entry["prepared"]:
                inside = entry["prepared"]["folder"]
                names = [f"{WORK}/{inside}/{name}" for name in entry["prepared"]["files"]]
                files.remove_files(folder, names, folders=[f"{WORK}/{inside}"])
        files.remove_files(folder, [f"{WORK}/{name}" for name in (*EXECUTOR_FILES, JOURNAL)])
    files.remove_empty(work, root=folder)


def remove_unfinished(folder: Path, key: str) -> bool:
    """Remove what the build of this key made in ``folder``, by its journal; return whether it was one.

    The folder stays, and so does a finished build.
    """
    journal = folder / WORK / JOURNAL
    if journal_entries(journal, key) is None or (folder / CARD_NAME).exists():
        return False
    remove_partials(folder)
    units = planned_units(journal, key) or 0
    numbers = [path.stem for path in (folder / "shards").glob("*.h5") if SHARD_FILE.fullmatch(path.name)]
    names = [f"shards/{number}.h5" for number in numbers if int(number) < units]
    files.remove_files(folder, names, folders=("shards", "splits"))
    remove_work(folder)
    return True


def _remove_begun(work: Path, entries: Iterable[Mapping[str, Any]]) -> None:
    """Remove what a ``prepare`` that did not end has written into a folder of its own."""
    ended = {entry["prepared"].get("folder") for entry in entries if "prepared" in entry}
    for mark in work.glob(f"{PREPARED}*{BEGUN}"):
        if mark.stem not in ended:
            files.remove_scratch(work / mark.stem)
        files.remove_file(mark, root=work)


def remove_partials(folder: Path) -> None:
    """Remove half-written files of writers that are gone."""
    for place in (folder, folder / "shards", folder / "splits"):
        files.remove_partials(place, root=folder)


@dataclass
class _Run:
    """One run of the engine over a build folder; inside :meth:`opened` with its journal and executor."""

    pipeline: Pipeline[Any, Any]
    params: Params
    raw: RawFolder
    folder: Path
    key: str
    options: BuildOptions
    jobs: int
    journal: Journal = field(init=False)
    executor: Executor = field(init=False)
    prepared: Prepared = field(init=False)

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """Make the folders, open journal and executor, and leave nothing half-written in the end."""
        folder, work = self.folder, self.folder / WORK
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            for place in (work, folder / "shards", folder / "splits"):
                files.make_folder(place, root=folder)
            remove_partials(folder)
        small = self.pipeline.is_small(self.raw)
        try:
            self.executor = open_executor(
                self.options, work, jobs=self.jobs, needs=[self.raw.path], here=small
            )
            with Journal(work / JOURNAL, self.key) as self.journal, self.executor:
                yield
        except BaseException:
            remove_partials(folder)  # of workers that were ended while they wrote
            if (entries := journal_entries(work / JOURNAL, self.key)) is not None:
                _remove_begun(work, entries)
            raise
        remove_partials(folder)  # of workers that died and whose unit was built by another

    def units(self) -> list[Unit]:
        """Deal the records to units; the pipeline's ``prepare`` runs before, once, in a worker."""
        self.prepared = self._prepare()
        units = self.pipeline.units(self.prepared, self.params)
        if [unit.index for unit in units] != list(range(len(units))):
            raise ValueError("a pipeline must number its units 0, 1, 2, …")
        return units

    def _prepare(self) -> Prepared:
        work = self.folder / WORK
        for entry in self.journal.entries:
            if "prepared" in entry:
                place = entry["prepared"]["inside"]
                return Prepared(self.raw.path if place is None else work / place, entry["prepared"]["plan"])
        with writing(work):
            _remove_begun(work, self.journal.entries)
            # An earlier one is still there where files of the user's lie in it.
            count = len([path for path in work.iterdir() if path.name.startswith(PREPARED)])
            pieces = work / (f"{PREPARED}-{count}" if count else PREPARED)
            mark = work / f"{pieces.name}{BEGUN}"
            mark.touch()
            pieces.mkdir()
        # A second process costs no time here, and many builds need no more than these two.
        expect = 1 if self.pipeline.one_unit else min(self.jobs, 2)
        arguments = self.pipeline, self.raw, self.params, pieces, self.jobs
        try:
            prepared = self.executor.call(prepare, *arguments, expect=expect)
        except WorkerDiedError as error:
            raise worker_died("the preparation of the raw files") from error
        inside = None if prepared.path == self.raw.path else prepared.path.relative_to(work).as_posix()
        made = [path.relative_to(pieces).as_posix() for path in sorted(pieces.rglob("*")) if path.is_file()]
        entry = {"inside": inside, "plan": dict(prepared.plan), "folder": pieces.name, "files": made}
        self.journal.append({"prepared": entry})
        files.remove_file(mark, root=work)
        return prepared

    def build(self, units: Sequence[Unit]) -> dict[int, UnitResult]:
        """Build the units that are not on disk already; return all, by index."""
        names = {unit.index: (unit.name, shard_name(unit)) for unit in units}
        results = finished_units(self.journal, self.folder, names)
        missing = [unit for unit in units if unit.index not in results]
        # A city is one unit: what the jobs cannot share among units, threads share inside one.
        common: dict[str, Any] = {
            "folder": self.folder,
            "stop": self.executor.stop,
            "key": self.key,
            "compression": self.options.compression,
            "threads": max(1, self.jobs // max(1, len(missing))),
        }
        tasks = [Task(self.pipeline, self.params, self.prepared, unit, **common) for unit in missing]
        return run_units(
            self.executor,
            build_unit,
            tasks,
            results,
            self.journal,
            jobs=self.jobs,
            description=f"build {self.pipeline.manifest.name}",
            quiet=self.options.quiet,
        )
