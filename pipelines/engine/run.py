"""The build engine: units through worker processes into shards, journaled, resumable, the card last.

Order on disk, and what a crash between two steps leaves, is the table in ``docs/building.md``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from kmip_data.builds.home import BuildOptions
from kmip_data.errors import DamagedInput, KmipDataError, writing
from kmip_data.files import changes as files
from kmip_data.files.reading import sha256_file
from kmip_data.format.card import Card, FileEntry, Member
from kmip_data.pipelines.base import Prepared, RawFolder, SplitParams, is_small
from kmip_data.pipelines.engine.finish import BuildPlan, finish_build
from kmip_data.pipelines.engine.journal import (
    JOURNAL,
    PREPARED,
    WORK,
    Journal,
    UnitResult,
    finished_card,
    remove_half_done,
    remove_work,
)
from kmip_data.pipelines.engine.pool import (
    BuildTask,
    Executor,
    InProcess,
    T,
    Workers,
    build_unit,
    count_jobs,
    prepare,
    run_all,
)
from kmip_data.runtime.memory import half_of_memory
from kmip_data.runtime.progress import Progress, say
from kmip_data.wording import counted


def open_executor(
    options: BuildOptions,
    work: Path,
    *,
    jobs: int,
    needs: Iterable[Path],
    here: bool = False,
) -> Executor:
    """Return the executor that the options mean; it is not entered yet.

    ``work`` is for its files; every worker must see the folders that it ``needs``. ``here``: run in
    this process, for work that is done before a worker has started.
    """
    if options.engine == "dask":
        from kmip_data.pipelines.engine.cluster import DaskWorkers

        return DaskWorkers(
            work,
            options.scheduler,
            jobs=jobs,
            needs=needs,
            quiet=options.quiet,
        )
    memory = None if options.memory is None else int(options.memory)
    return InProcess(work / "stop") if here else Workers(work / "stop", memory)


def run_build(
    plan: BuildPlan,
    split_params: Sequence[SplitParams],
    *,
    again: bool = False,
) -> Card:
    """Build every shard that is missing, then splits, README and card; the caller holds the lock.

    The bytes on disk are a function of the plan alone: not of ``plan.options.jobs``, of the order
    in which units finish, or of how often an earlier run was killed. A finished build is returned
    as it is, unless it is to be built ``again``; an unfinished one is resumed. Each of
    ``split_params`` is written once; the first is the default.

    Raises ``OutOfResources`` where disk or memory ran out (the next run resumes); ``DamagedInput``,
    which names unit and record, where one could not be built; ``KeyboardInterrupt`` or
    ``SystemExit`` when it is interrupted. Workers are gone then, and finished shards stay.
    """
    folder = plan.folder
    files.refuse_links(folder)
    if not again and (finished := finished_card(folder)) is not None:
        remove_work(folder)
        return finished
    run = _Run(plan, count_jobs(plan.options.jobs))
    with run.opened():
        prepared = run.prepare()
        results = run.build(prepared)
        about = plan.pipeline.about(prepared, plan.params)
    card = finish_build(plan, split_params, results, about)
    remove_work(folder)
    text = f"built {plan.pipeline.manifest.name}: {counted(card.counts['graphs'], 'graph')} in {folder}"
    say(text, quiet=plan.options.quiet)
    return card


@dataclass
class _Run:
    """One run of the engine over a build folder.

    Journal and executor are there inside :meth:`opened`.
    """

    plan: BuildPlan
    jobs: int
    journal: Journal = field(init=False)
    executor: Executor = field(init=False)

    @contextlib.contextmanager
    def opened(self) -> Iterator[None]:
        """Make the folders, open journal and executor, and leave nothing half-written in the end."""
        folder = self.plan.folder
        work = self.plan.folder / WORK
        with writing(folder):
            files.begin_folder(folder, files.build_content(self.plan.key))
            for inside in (work, folder / "shards", folder / "splits"):
                files.make_folder(inside, root=folder)
            remove_half_done(folder)
        options = self.plan.options
        pipeline = self.plan.pipeline
        raw = self.plan.raw
        # Only the memory of a worker can be bounded.
        here = options.memory is None and is_small(pipeline, raw)
        if options.memory is None and pipeline.one_unit:
            options = replace(options, memory=half_of_memory())
        try:
            self.executor = open_executor(
                options,
                work,
                jobs=self.jobs,
                needs=[raw.path],
                here=here,
            )
            with Journal(work / JOURNAL, self.plan.key) as self.journal, self.executor:
                yield
        finally:
            # Of workers that died or were ended while they wrote.
            remove_half_done(folder)

    def prepare(self) -> Prepared:
        """Run the pipeline's ``prepare`` and the passes after it, each once for all runs, in a worker."""
        raw = self.plan.raw
        folder = self.plan.folder
        finished = [entry["prepared"] for entry in self.journal.entries if "prepared" in entry]
        prepared = Prepared(raw.path)
        for number, name in enumerate(("prepare", *self.plan.pipeline.passes)):
            if number == len(finished):
                finished.append(self._run_pass(name, prepared if number else raw, number))
            result = finished[number]
            inside = result["inside"]
            path = raw.path if inside is None else folder / WORK / inside
            prepared = Prepared(path, result["plan"])
            if number:
                # Runs on disk go as soon as what is made of them is there.
                files.remove_tree(folder / WORK / _pass_name(number - 1), root=folder)
        return prepared

    def _run_pass(self, name: str, given: RawFolder | Prepared, number: int) -> dict[str, Any]:
        """Run one pass in a worker, the ``number``-th; return its line in the journal."""
        plan = self.plan
        work = plan.folder / WORK
        pieces = work / _pass_name(number)
        with writing(pieces):
            files.remove_tree(pieces, root=plan.folder)  # of a run that was killed
            files.make_folder(pieces, root=plan.folder)
        # A second process costs no time here, and many builds need no more than these two.
        self.executor.start(1 if plan.pipeline.one_unit else min(self.jobs, 2))
        prepared = self.executor.prepare(
            prepare,
            plan.pipeline,
            name,
            given,
            plan.params,
            pieces,
            self.jobs,
        )
        inside = None
        if prepared.path != plan.raw.path:
            inside = prepared.path.relative_to(work).as_posix()
        result = {"inside": inside, "plan": dict(prepared.plan)}
        self.journal.append({"prepared": result})
        return result

    def build(self, prepared: Prepared) -> list[UnitResult]:
        """Deal the records to units and build those that are not on disk; return all, in order."""
        plan = self.plan
        units = plan.pipeline.units(prepared, plan.params)
        if [unit.index for unit in units] != list(range(len(units))):
            raise ValueError("a pipeline must number its units 0, 1, 2, …")
        if not units:
            raise DamagedInput(
                "There is nothing to build: the raw files have no record for these parameters."
            )
        if not any("units" in entry for entry in self.journal.entries):
            self.journal.append({"units": len(units)})  # for `kmip-data list`
        # A city is one unit: what the jobs cannot share among units, threads share inside one.
        threads = max(1, self.jobs // len(units))
        tasks = [
            BuildTask(
                plan.pipeline,
                plan.params,
                prepared,
                unit,
                plan.folder,
                self.executor.stop,
                plan.key,
                plan.options.compression,
                threads,
            )
            for unit in units
        ]
        return run_units(
            self.executor,
            build_unit,
            tasks,
            self.journal,
            plan.folder,
            jobs=self.jobs,
            name=f"build {plan.pipeline.manifest.name}",
            quiet=plan.options.quiet,
        )


def _pass_name(number: int) -> str:
    """Return the folder in ``work/`` that a pass writes into."""
    return f"{PREPARED}-{number}"


def _finished_units(
    journal: Journal,
    folder: Path,
    tasks: Iterable[T],
) -> dict[str, UnitResult]:
    """Return the units of ``tasks`` whose file lies there with the digest in the journal, by file."""
    names = {task.file: task.name for task in tasks}
    finished = {}
    for entry in journal.entries:
        # Other lines, or somebody else's journal.
        with contextlib.suppress(KeyError, TypeError, ValueError):
            result = UnitResult(**entry["unit"])
            members = FileEntry(file=Path(result.file).name, **result.facts).files
            if names.get(result.file) == result.name and _are_whole(folder / result.file, members):
                finished[result.file] = result
    return finished


def _are_whole(path: Path, members: Mapping[str, Member]) -> bool:
    """True if all members of the shard at ``path`` are on disk with their digests."""
    for name, member in members.items():
        file = path.with_name(name)
        if not file.is_file() or sha256_file(file)[0] != member.sha256:
            return False
    return True


def run_units(
    executor: Executor,
    function: Callable[[T], UnitResult],
    tasks: Sequence[T],
    journal: Journal,
    folder: Path,
    *,
    jobs: int,
    name: str,
    quiet: bool,
) -> list[UnitResult]:
    """Run the ``tasks`` whose file is not in ``folder`` yet; return the results of all, in order.

    An exception ends the build at once and says what is on disk.
    """
    results = _finished_units(journal, folder, tasks)
    total = len(tasks)
    with Progress(name, total, unit="shards", initial=len(results), quiet=quiet) as progress:
        if results:
            progress.message(f"resumed: {len(results)} of {total} shards are there already")

        def done(result: UnitResult) -> None:
            journal.append({"unit": asdict(result)})
            results[result.file] = result
            progress.update(1)

        try:
            run_all(
                executor,
                function,
                [task for task in tasks if task.file not in results],
                jobs=jobs,
                done=done,
                message=progress.message,
            )
        except BaseException as error:
            finished = f"{len(results)} of {total} shards"
            state = f"{finished} are finished and stay; the same command resumes"
            if isinstance(error, KmipDataError):
                error.parts["on disk"] = state
            elif isinstance(error, KeyboardInterrupt | SystemExit):
                progress.message(f"interrupted: {state}")
            raise
    return [results[task.file] for task in tasks]
