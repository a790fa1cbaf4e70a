"""Run a build: workers turn units into shards, and the card is written last.

A build can resume after every shard. ``docs/building.md`` has a table of the steps, and of the
files that a crash between two of them leaves.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from kmip_data.builds.execution_options import ExecutionOptions
from kmip_data.builds.files_of_build import WORK_FOLDER
from kmip_data.errors import DamagedInput, KmipDataError
from kmip_data.files import atomic_writes
from kmip_data.files.path_errors import convert_write_errors
from kmip_data.files.small_files import sha256_file
from kmip_data.format.card import Card, FileDigests, FileEntry
from kmip_data.pipelines.base import JsonObject, Prepared, needs_no_worker
from kmip_data.pipelines.engine.finish import finish_build
from kmip_data.pipelines.engine.plan import BuildPlan
from kmip_data.pipelines.engine.pool import (
    BuildTask,
    Executor,
    InProcessExecutor,
    LocalWorkers,
    T,
    build_unit,
    count_jobs,
    read_progress,
    run_prepare,
    run_tasks,
)
from kmip_data.pipelines.engine.unfinished_builds import (
    UNITS_STEP,
    StepResults,
    UnitResult,
    finished_card,
    remove_half_written_files,
    remove_work,
)
from kmip_data.pipelines.parameters import BaseSplitParams
from kmip_data.runtime.progress import Progress, print_status
from kmip_data.text import count_with_noun

PREPARED = "prepared"  #: step and folder in ``work`` with what ``prepare`` wrote


def executor_for(
    options: ExecutionOptions,
    work: Path,
    *,
    jobs: int,
    needs: Iterable[Path],
    in_process: bool = False,
) -> Executor:
    """Return the executor for the options, before it is entered.

    ``work`` is the folder for its files. Every worker must see the folders in ``needs``.
    ``in_process`` avoids the start of a worker process for short work.
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
    return InProcessExecutor(work / "stop") if in_process else LocalWorkers(work / "stop", memory)


def run_build(
    plan: BuildPlan,
    splits_to_write: Callable[[Any], Sequence[BaseSplitParams]],
    *,
    rebuild: bool = False,
) -> Card:
    """Build missing shards, then splits, README and card; the caller holds the lock.

    The bytes on disk depend only on pipeline, parameters and raw files, not on the number of jobs,
    the order in which units finish, or earlier runs that were killed. A finished build is returned
    unchanged unless ``rebuild``; an unfinished one is resumed. ``splits_to_write`` returns the
    splits for parameters with inferred values; each is written once, and the first is the default.

    Raises ``OutOfResources`` if disk or memory runs out (the next run resumes), ``DamagedInput``
    with unit and record if a record cannot be built, and ``KeyboardInterrupt`` or ``SystemExit`` if
    interrupted. The workers have then ended, and finished shards stay.
    """
    folder = plan.folder
    atomic_writes.refuse_links(folder)
    existing_card = None if rebuild else finished_card(folder)
    if existing_card is not None:
        remove_work(folder)
        return existing_card

    with _ResumableBuild.open(plan) as build:
        prepared = build.prepare()
        params = plan.pipeline.with_inferred(plan.params, prepared)
        build.plan = plan = replace(plan, params=params)
        results = build.build_units(prepared)
        additions = plan.pipeline.card_additions(prepared, params)
    card = finish_build(plan, splits_to_write(params), results, additions)
    remove_work(folder)

    graphs = count_with_noun(card.counts["graphs"], "graph")
    print_status(
        f"built {plan.pipeline.manifest.name}: {graphs} in {folder}", quiet=plan.options.quiet
    )
    return card


@dataclass
class _ResumableBuild:
    """Build whose finished steps and shards are reused after an interruption."""

    plan: BuildPlan
    jobs: int
    steps: StepResults
    executor: Executor

    @classmethod
    @contextlib.contextmanager
    def open(cls, plan: BuildPlan) -> Iterator[Self]:
        """Create the folders and enter an executor; remove half-written files at the end."""
        folder = plan.folder
        work = folder / WORK_FOLDER
        with convert_write_errors(folder):
            atomic_writes.create_marked_folder(folder, atomic_writes.build_marker_content(plan.key))
            for subfolder in (work, folder / "shards", folder / "splits"):
                atomic_writes.make_folder(subfolder, root=folder)
            remove_half_written_files(folder)

        import psutil

        options = plan.options
        # A memory limit applies to worker processes only.
        in_process = options.memory is None and needs_no_worker(plan.pipeline, plan.raw)
        if options.memory is None and plan.pipeline.one_unit:
            options = replace(options, memory=psutil.virtual_memory().total // 2)
        jobs = count_jobs(options.jobs)

        try:
            with executor_for(
                options,
                work,
                jobs=jobs,
                needs=[plan.raw.path],
                in_process=in_process,
            ) as executor:
                yield cls(plan, jobs, StepResults(work), executor)
        finally:
            # Workers that died or were killed while writing leave such files.
            remove_half_written_files(folder)

    def prepare(self) -> Prepared:
        """Run ``prepare`` in a worker, unless an earlier run finished it."""
        plan = self.plan
        work = self.steps.work
        result = self.steps.finished_result(PREPARED)
        if not {"path_in_work", "facts"} <= result.keys():  # unfinished, or of another version
            result = self._prepare_in_worker(work / PREPARED)
        path_in_work = result["path_in_work"]  # None: nothing was written
        path = plan.raw.path if path_in_work is None else work / path_in_work
        return Prepared(path, result["facts"])

    def _prepare_in_worker(self, folder: Path) -> JsonObject:
        """Run ``prepare`` in a worker, which writes to ``folder``; return its result."""
        plan = self.plan
        with convert_write_errors(folder):
            atomic_writes.remove_tree(folder, root=plan.folder)  # left by a killed run
            atomic_writes.make_folder(folder, root=plan.folder)
        # Start a second process in the meantime; many builds need no more than two.
        self.executor.start(1 if plan.pipeline.one_unit else min(self.jobs, 2))
        prepared = self.executor.call_and_wait(
            run_prepare, plan.pipeline, plan.raw, plan.params, folder, self.jobs
        )
        path_in_work = None
        if prepared.path != plan.raw.path:
            path_in_work = prepared.path.relative_to(self.steps.work).as_posix()
        result = {"path_in_work": path_in_work, "facts": dict(prepared.facts)}
        self.steps.finish(PREPARED, result)
        return result

    def build_units(self, prepared: Prepared) -> list[UnitResult]:
        """Assign the records to units, build the missing ones, and return all results in order."""
        plan = self.plan
        units = plan.pipeline.units(prepared, plan.params)
        if [unit.index for unit in units] != list(range(len(units))):
            raise ValueError("a pipeline must number its units 0, 1, 2, …")
        if not units:
            raise DamagedInput(
                "There is nothing to build: the raw files have no records for these parameters."
            )
        # Surplus jobs become threads inside units; a city is a single unit.
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
        # List the files before the first one is written, so that clean-up knows all of them.
        self.steps.finish(UNITS_STEP, {"files": [task.file for task in tasks]})
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
    steps: StepResults,
    folder: Path,
    tasks: Iterable[T],
) -> dict[str, UnitResult]:
    """Return the results of ``tasks`` whose file on disk matches the recorded digest, by file."""
    finished = {}
    for task in tasks:
        # TypeError and ValueError: unfinished, or of another version.
        with contextlib.suppress(TypeError, ValueError):
            result = UnitResult(**steps.finished_result(task.step))
            members = FileEntry(file=Path(task.file).name, **result.card_fields).files
            if result.name == task.name and _are_intact(folder / task.file, members):
                finished[task.file] = result
    return finished


def _are_intact(path: Path, members: Mapping[str, FileDigests]) -> bool:
    """True if all files of the shard at ``path`` exist and have their digests."""
    for name, member in members.items():
        file = path.with_name(name)
        if not file.is_file() or sha256_file(file)[0] != member.sha256:
            return False
    return True


def run_units(
    executor: Executor,
    function: Callable[[T], UnitResult],
    tasks: Sequence[T],
    steps: StepResults,
    folder: Path,
    *,
    jobs: int,
    name: str,
    quiet: bool,
) -> list[UnitResult]:
    """Run the unfinished ``tasks``; return the results of all, in order.

    An exception ends the build at once; its message describes what is on disk.
    """
    results = _finished_units(steps, folder, tasks)
    total = len(tasks)
    total_graphs = sum(task.graphs for task in tasks)
    finished_graphs = sum(task.graphs for task in tasks if task.file in results)
    with Progress(
        name, total_graphs, unit="graphs", initial=finished_graphs, quiet=quiet
    ) as progress:
        if results:
            progress.print_line(f"resumed: {len(results)} of {total} shards were finished before")

        def record_result(task: T, result: UnitResult) -> None:
            steps.finish(task.step, result.recorded_fields)
            results[task.file] = result
            nonlocal finished_graphs
            finished_graphs += task.graphs

        def show_progress(running: Iterable[T]) -> None:
            """Show the graphs of finished units and those that ``running`` units have built so far."""
            graphs = finished_graphs + sum(map(read_progress, running))
            progress.note = "" if graphs else "starting workers, compiling, reading the first graph"
            progress.update(graphs - progress.done)

        try:
            run_tasks(
                executor,
                function,
                [task for task in tasks if task.file not in results],
                jobs=jobs,
                on_result=record_result,
                print_line=progress.print_line,
                on_wait=show_progress,
            )
            show_progress(())
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
