"""Build engine: workers turn units into shards, resumable after each, and the card comes last.

Order on disk, and what a crash between two steps leaves, is the table in ``docs/building.md``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Self

from kmip_data.builds.added_columns import WORK
from kmip_data.builds.execution_options import ExecutionOptions
from kmip_data.errors import DamagedInput, KmipDataError, UsageError
from kmip_data.files import atomic_writes
from kmip_data.files.path_errors import convert_write_errors
from kmip_data.files.reading import sha256_file
from kmip_data.format.card import Card, FileEntry, ShardMember
from kmip_data.pipelines.base import BaseSplitParams, Facts, Prepared, RawFolder, needs_no_worker
from kmip_data.pipelines.engine.finish import finish_build
from kmip_data.pipelines.engine.plan import BuildPlan
from kmip_data.pipelines.engine.pool import (
    BuildTask,
    Executor,
    InProcess,
    T,
    Workers,
    build_unit,
    count_finished_graphs,
    count_jobs,
    run_pass,
    run_tasks,
)
from kmip_data.pipelines.engine.unfinished_builds import (
    UNITS,
    Steps,
    UnitResult,
    finished_card,
    remove_half_written_files,
    remove_work,
)
from kmip_data.runtime.memory import half_of_memory
from kmip_data.runtime.progress import Progress, print_status
from kmip_data.text import count_with_noun


def executor_for(
    options: ExecutionOptions,
    work: Path,
    *,
    jobs: int,
    needs: Iterable[Path],
    here: bool = False,
) -> Executor:
    """Return the executor for the options, not yet entered.

    ``work`` is for its files; every worker must see the folders it ``needs``. ``here``: run in this
    process, for work shorter than the start of a worker.
    """
    if options.engine == "dask":
        from kmip_data.pipelines.engine.cluster import DaskWorkers

        return DaskWorkers(
            work,
            options,
            jobs=jobs,
            needs=needs,
        )
    memory = None if options.memory is None else int(options.memory)
    return InProcess(work / "stop") if here else Workers(work / "stop", memory)


def run_build(
    plan: BuildPlan,
    split_params: Sequence[BaseSplitParams],
    *,
    rebuild: bool = False,
) -> Card:
    """Build missing shards, then splits, README and card; the caller holds the lock.

    The bytes on disk depend on the plan alone, not on ``plan.options.jobs``, the order in which
    units finish, or previous killed runs. A finished build is returned unchanged, unless ``rebuild``;
    an unfinished one is resumed. Each of ``split_params`` is written once; the first is the
    default.

    Raises ``OutOfResources`` where disk or memory ran out (the next run resumes); ``DamagedInput``,
    which names unit and record, where one could not be built; ``KeyboardInterrupt`` or
    ``SystemExit`` when it is interrupted. Workers are gone then, and finished shards stay.
    """
    folder = plan.folder
    atomic_writes.refuse_links(folder)
    if not rebuild and (finished := finished_card(folder)) is not None:
        if finished.schema_ != plan.pipeline.schema(plan.params):
            raise UsageError(
                f"{folder} has other columns than its pipeline gives now, and the same build key.",
                next=f"raise `version` of {type(plan.pipeline).__name__}, now {plan.pipeline.version}",
            )
        remove_work(folder)
        return finished
    with _Run.opened(plan) as run:
        prepared = run.run_passes()
        results = run.build(prepared)
        about = plan.pipeline.card_additions(prepared, plan.params)
    card = finish_build(plan, split_params, results, about)
    remove_work(folder)
    text = f"built {plan.pipeline.manifest.name}: {count_with_noun(card.counts['graphs'], 'graph')} in {folder}"
    print_status(text, quiet=plan.options.quiet)
    return card


@dataclass
class _Run:
    """One run of the engine over a build folder."""

    plan: BuildPlan
    jobs: int
    steps: Steps
    executor: Executor

    @classmethod
    @contextlib.contextmanager
    def opened(cls, plan: BuildPlan) -> Iterator[Self]:
        """Create the folders, start an executor, and remove half-written files at the end."""
        folder = plan.folder
        work = folder / WORK
        with convert_write_errors(folder):
            atomic_writes.create_marked_folder(folder, atomic_writes.build_marker_content(plan.key))
            for inside in (work, folder / "shards", folder / "splits"):
                atomic_writes.make_folder(inside, root=folder)
            remove_half_written_files(folder)
        options = plan.options
        # Only the memory of a worker can be bounded.
        here = options.memory is None and needs_no_worker(plan.pipeline, plan.raw)
        if options.memory is None and plan.pipeline.one_unit:
            options = replace(options, memory=half_of_memory())
        jobs = count_jobs(options.jobs)
        try:
            with executor_for(
                options,
                work,
                jobs=jobs,
                needs=[plan.raw.path],
                here=here,
            ) as executor:
                yield cls(plan, jobs, Steps(work), executor)
        finally:
            # Left by workers that died or were killed while writing.
            remove_half_written_files(folder)

    def run_passes(self) -> Prepared:
        """Run ``prepare`` and further passes in a worker, each once, even if the build is interrupted."""
        raw = self.plan.raw
        work = self.steps.work
        prepared = Prepared(raw.path)
        for number, name in enumerate(("prepare", *self.plan.pipeline.passes)):
            step = f"prepared-{number}"
            result = self.steps.finished_result(step)
            if not {"inside", "plan"} <= result.keys():  # not done, or of another version
                result = self._run_pass(name, prepared if number else raw, step)
            inside = result["inside"]
            prepared = Prepared(raw.path if inside is None else work / inside, result["plan"])
            if number:
                # Remove the files of a pass as soon as the next one is done.
                atomic_writes.remove_tree(work / f"prepared-{number - 1}", root=self.plan.folder)
        return prepared

    def _run_pass(self, name: str, source: RawFolder | Prepared, step: str) -> Facts:
        """Run one pass in a worker, into the folder of the step; return its result."""
        plan = self.plan
        work = self.steps.work
        pieces = work / step
        with convert_write_errors(pieces):
            atomic_writes.remove_tree(pieces, root=plan.folder)  # left by a killed run
            atomic_writes.make_folder(pieces, root=plan.folder)
        # A second process starts meanwhile; many builds need no more than these two.
        self.executor.start(1 if plan.pipeline.one_unit else min(self.jobs, 2))
        prepared = self.executor.call_alone(
            run_pass,
            plan.pipeline,
            name,
            source,
            plan.params,
            pieces,
            self.jobs,
        )
        inside = None
        if prepared.path != plan.raw.path:
            inside = prepared.path.relative_to(work).as_posix()
        result = {"inside": inside, "plan": dict(prepared.plan)}
        self.steps.finish(step, result)
        return result

    def build(self, prepared: Prepared) -> list[UnitResult]:
        """Assign the records to units and build missing ones; return all, in order."""
        plan = self.plan
        units = plan.pipeline.units(prepared, plan.params)
        if [unit.index for unit in units] != list(range(len(units))):
            raise ValueError("a pipeline must number its units 0, 1, 2, …")
        if not units:
            raise DamagedInput(
                "There is nothing to build: the raw files have no record for these parameters."
            )
        # Surplus jobs become threads within units: a city is one unit.
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
                threads,
            )
            for unit in units
        ]
        # Before the first of them is written, so that nothing is left that no list has.
        self.steps.finish(UNITS, {"files": [task.file for task in tasks]})
        return run_units(
            self.executor,
            build_unit,
            tasks,
            self.steps,
            plan.folder,
            jobs=self.jobs,
            name=f"build {plan.pipeline.manifest.name}",
            quiet=plan.options.quiet,
        )


def _finished_units(
    steps: Steps,
    folder: Path,
    tasks: Iterable[T],
) -> dict[str, UnitResult]:
    """Return the units of ``tasks`` whose file exists with the digest of their result, by file."""
    finished = {}
    for task in tasks:
        # Not done, or of another version.
        with contextlib.suppress(TypeError, ValueError):
            result = UnitResult(**steps.finished_result(task.step))
            members = FileEntry(file=Path(task.file).name, **result.facts).files
            if result.name == task.name and _are_intact(folder / task.file, members):
                finished[task.file] = result
    return finished


def _are_intact(path: Path, members: Mapping[str, ShardMember]) -> bool:
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
    steps: Steps,
    folder: Path,
    *,
    jobs: int,
    name: str,
    quiet: bool,
) -> list[UnitResult]:
    """Run the ``tasks`` whose file is not in ``folder`` yet; return the results of all, in order.

    An exception ends the build at once and says what is on disk.
    """
    results = _finished_units(steps, folder, tasks)
    total = len(tasks)
    graphs = sum(task.graphs for task in tasks)
    finished = sum(task.graphs for task in tasks if task.file in results)
    with Progress(name, graphs, unit="graphs", initial=finished, quiet=quiet) as progress:
        if results:
            progress.print_line(f"resumed: {len(results)} of {total} shards were finished before")

        def done(task: T, result: UnitResult) -> None:
            steps.finish(task.step, asdict(result))
            results[task.file] = result
            nonlocal finished
            finished += task.graphs

        def show(running: Iterable[T]) -> None:
            """Count the graphs of finished units, and what ``running`` units have done so far."""
            progress.update(finished + sum(map(count_finished_graphs, running)) - progress.done)

        try:
            run_tasks(
                executor,
                function,
                [task for task in tasks if task.file not in results],
                jobs=jobs,
                done=done,
                message=progress.print_line,
                waiting_for=show,
            )
            show(())
        except BaseException as error:
            state = (
                f"{len(results)} of {total} shards are finished and stay; the same command resumes"
            )
            if isinstance(error, KmipDataError):
                error.left = state if results else None
            elif isinstance(error, KeyboardInterrupt | SystemExit):
                progress.print_line(f"interrupted: {state}")
            raise
    return [results[task.file] for task in tasks]
