"""The build engine: units through worker processes into shards, journaled, resumable, the card last.

Order on disk, and what a crash between two steps leaves, is the table in ``docs/building.md``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from kmip_data.builds.home import BuildOptions
from kmip_data.errors import DamagedInput, KmipDataError, writing
from kmip_data.files import changes as files
from kmip_data.files.reading import sha256_file
from kmip_data.format.card import CARD_NAME, Card
from kmip_data.pipelines.base import Prepared, SplitParams, Unit
from kmip_data.pipelines.engine.finish import BuildPlan, finish_build
from kmip_data.pipelines.engine.journal import (
    BEGUN,
    JOURNAL,
    PREPARED,
    WORK,
    Journal,
    UnitResult,
    finished_card,
    journal_entries,
    remove_begun,
    remove_partials,
    remove_work,
    shard_name,
)
from kmip_data.pipelines.engine.pool import (
    Executor,
    InProcess,
    UnitTask,
    Workers,
    count_jobs,
    worker_died,
)
from kmip_data.pipelines.engine.workers import BuildTask, build_unit, prepare
from kmip_data.runtime.progress import Progress, say
from kmip_data.wording import counted


def open_executor(
    options: BuildOptions, work: Path, *, jobs: int, needs: Iterable[Path], here: bool = False
) -> Executor:
    """Return the executor that the options, already checked, mean; it is not entered yet.

    ``work`` is for the stop file and what else executors keep on disk; every worker must see the folders that
    it ``needs``. ``here``: run in this process, for work that is done before a worker has started.
    """
    if options.engine == "dask":
        from kmip_data.pipelines.engine.cluster import DaskWorkers

        return DaskWorkers(work, options.scheduler, jobs=jobs, needs=needs, quiet=options.quiet)
    return InProcess(work / "stop") if here else Workers(work / "stop")


def run_build(plan: BuildPlan, split_params: Sequence[SplitParams], *, again: bool = False) -> Card:
    """Build every shard that is missing, then splits, README and card; the caller holds the lock.

    The bytes on disk are a function of the plan alone: not of ``plan.options.jobs``, of the order in
    which units finish, or of how often an earlier run was killed. A finished build is returned as it
    is, unless it is to be built ``again``; an unfinished one is resumed. Each of ``split_params`` is written
    once; the first is the default.

    Raises ``OutOfResources`` where disk or memory ran out (the next run resumes); ``DamagedInput``, which
    names unit and record, where one could not be built; ``KeyboardInterrupt`` or ``SystemExit`` when it is
    interrupted. Workers are gone then, and finished shards stay.
    """
    folder = plan.folder
    files.refuse_links(folder)
    if not again:
        if (finished := finished_card(folder)) is not None:
            remove_work(folder)
            return finished
        with writing(folder):
            files.remove_file(folder / CARD_NAME)
    run = _Run(plan, count_jobs(plan.options.jobs))
    with run.opened():
        units = run.units()
        if not units:
            raise DamagedInput(
                "There is nothing to build: the raw files have no record for these parameters."
            )
        if not any("units" in entry for entry in run.journal.entries):
            run.journal.append({"units": len(units)})  # for `kmip-data list`
        results = run.build(units)
        about = plan.pipeline.about(run.prepared, plan.params)
    card = finish_build(plan, split_params, [results[unit.index] for unit in units], about)
    remove_work(folder)
    text = f"built {plan.pipeline.manifest.name}: {counted(card.counts['graphs'], 'graph')} in {folder}"
    say(text, quiet=plan.options.quiet)
    return card


@dataclass
class _Run:
    """One run of the engine over a build folder; inside :meth:`opened` with its journal and executor."""

    plan: BuildPlan
    jobs: int
    journal: Journal = field(init=False)
    executor: Executor = field(init=False)
    prepared: Prepared = field(init=False)

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """Make the folders, open journal and executor, and leave nothing half-written in the end."""
        folder, work = self.plan.folder, self.plan.folder / WORK
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            for place in (work, folder / "shards", folder / "splits"):
                files.make_folder(place, root=folder)
            remove_partials(folder)
        small = self.plan.pipeline.is_small(self.plan.raw)
        try:
            self.executor = open_executor(
                self.plan.options, work, jobs=self.jobs, needs=[self.plan.raw.path], here=small
            )
            with Journal(work / JOURNAL, self.plan.key) as self.journal, self.executor:
                yield
        except BaseException:
            remove_partials(folder)  # of workers that were ended while they wrote
            if (entries := journal_entries(work / JOURNAL, self.plan.key)) is not None:
                remove_begun(folder, entries)
            raise
        remove_partials(folder)  # of workers that died and whose unit was built by another

    def units(self) -> list[Unit]:
        """Deal the records to units; the pipeline's ``prepare`` runs before, once, in a worker."""
        self.prepared = self._prepare()
        units = self.plan.pipeline.units(self.prepared, self.plan.params)
        if [unit.index for unit in units] != list(range(len(units))):
            raise ValueError("a pipeline must number its units 0, 1, 2, …")
        return units

    def _prepare(self) -> Prepared:
        work = self.plan.folder / WORK
        for done in (entry["prepared"] for entry in self.journal.entries if "prepared" in entry):
            inside = done["inside"]
            return Prepared(self.plan.raw.path if inside is None else work / inside, done["plan"])
        with writing(work):
            remove_begun(self.plan.folder, self.journal.entries)
            # An earlier one is still there where files of the user's lie in it.
            count = len([path for path in work.iterdir() if path.name.startswith(PREPARED)])
            pieces = work / (f"{PREPARED}-{count}" if count else PREPARED)
            mark = work / f"{pieces.name}{BEGUN}"
            mark.touch()
            pieces.mkdir()
        # A second process costs no time here, and many builds need no more than these two.
        expect = 1 if self.plan.pipeline.one_unit else min(self.jobs, 2)
        arguments = self.plan.pipeline, self.plan.raw, self.plan.params, pieces, self.jobs
        prepared = self.executor.call(prepare, *arguments, expect=expect)
        inside = None if prepared.path == self.plan.raw.path else prepared.path.relative_to(work).as_posix()
        made = [path.relative_to(pieces).as_posix() for path in sorted(pieces.rglob("*")) if path.is_file()]
        entry = {"inside": inside, "plan": dict(prepared.plan), "folder": pieces.name, "files": made}
        self.journal.append({"prepared": entry})
        files.remove_file(mark, root=self.plan.folder)
        return prepared

    def build(self, units: Sequence[Unit]) -> dict[int, UnitResult]:
        """Build the units that are not on disk already; return all, by index."""
        names = {unit.index: (unit.name, shard_name(unit)) for unit in units}
        results = finished_units(self.journal, self.plan.folder, names)
        missing = [unit for unit in units if unit.index not in results]
        # A city is one unit: what the jobs cannot share among units, threads share inside one.
        common: dict[str, Any] = {
            "folder": self.plan.folder,
            "stop": self.executor.stop,
            "key": self.plan.key,
            "compression": self.plan.options.compression,
            "threads": max(1, self.jobs // max(1, len(missing))),
        }
        tasks = [
            BuildTask(self.plan.pipeline, self.plan.params, self.prepared, unit, **common) for unit in missing
        ]
        return run_units(
            self.executor,
            build_unit,
            tasks,
            results,
            self.journal,
            jobs=self.jobs,
            description=f"build {self.plan.pipeline.manifest.name}",
            quiet=self.plan.options.quiet,
        )


T = TypeVar("T", bound=UnitTask)


def finished_units(
    journal: Journal, folder: Path, wanted: Mapping[int, tuple[str, str]]
) -> dict[int, UnitResult]:
    """Return the units whose file lies there with the digest that the journal gives it.

    ``wanted`` has name and file of each unit by index: a line about another one counts for nothing.
    """
    found = {}
    for entry in journal.entries:
        if "unit" not in entry:
            continue
        with contextlib.suppress(TypeError, ValueError):  # of a journal that somebody else has written
            result = UnitResult(**entry["unit"])
            path = folder / result.file
            known = wanted.get(result.index) == (result.name, result.file) and path.is_file()
            if known and sha256_file(path)[0] == result.sha256:
                found[result.index] = result
    return found


def run_units(
    executor: Executor,
    function: Callable[[T], UnitResult],
    tasks: Sequence[T],
    results: dict[int, UnitResult],
    journal: Journal,
    *,
    jobs: int,
    description: str,
    quiet: bool,
) -> dict[int, UnitResult]:
    """Run ``tasks`` and add what they give to ``results``, those that are finished already.

    What a task raised says what is on disk; a task that takes its worker down twice is an error, too.
    """
    total = len(results) + len(tasks)
    with Progress(description, total, unit="shards", initial=len(results), quiet=quiet) as progress:
        if results:
            progress.message(f"resumed: {len(results)} of {total} shards are there already")

        def done(result: UnitResult) -> None:
            journal.append({"unit": asdict(result)})
            results[result.index] = result
            progress.update(1)

        try:
            waiting = list(tasks)
            while waiting:
                lost, waiting = executor.run_all(function, waiting, jobs=jobs, done=done)
                if lost:
                    progress.message(f"a worker process died; trying its {len(lost)} shards one by one")
                for task in lost:  # tried alone: that shows whose fault it was
                    if executor.run_all(function, [task], jobs=1, done=done)[0]:
                        raise worker_died(f"unit {task.name!r}, also when it ran alone")  # noqa: TRY301
        except BaseException as error:
            state = f"{len(results)} of {total} shards are finished and stay; the same command resumes"
            if isinstance(error, KmipDataError):
                error.parts["on disk"] = state
            elif isinstance(error, KeyboardInterrupt | SystemExit):
                progress.message(f"interrupted: {state}")
            raise
    return results
