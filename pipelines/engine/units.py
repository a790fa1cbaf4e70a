"""Run the units that are not on disk yet through an executor, journaled one by one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

from kmip_data.errors import KmipDataError
from kmip_data.files.digests import sha256_file
from kmip_data.pipelines.engine.executors import Executor, Job, worker_died
from kmip_data.pipelines.engine.journal import Journal
from kmip_data.pipelines.engine.workers import UnitResult
from kmip_data.runtime.progress import Progress

T = TypeVar("T", bound=Job)


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
            progress.message(f"going on: {len(results)} of {total} shards are there already")

        def done(result: UnitResult) -> None:
            journal.append({"unit": asdict(result)})
            results[result.index] = result
            progress.update(1)

        try:
            _run(executor, function, tasks, jobs, done, progress.message)
        except BaseException as error:
            state = f"{len(results)} of {total} shards are finished and stay; the same command goes on"
            if isinstance(error, KmipDataError):
                error.parts["on disk"] = state
            elif isinstance(error, KeyboardInterrupt | SystemExit):
                progress.message(f"interrupted: {state}")
            raise
    return results


def _run(
    executor: Executor,
    function: Callable[[T], UnitResult],
    tasks: Iterable[T],
    jobs: int,
    done: Callable[[UnitResult], None],
    say: Callable[[str], None],
) -> None:
    """Run all tasks; those in hand when a worker dies are tried alone: that shows whose fault it was."""
    waiting = list(tasks)
    while waiting:
        lost, waiting = executor.run_all(function, waiting, jobs=jobs, done=done)
        if lost:
            say(f"a worker process died; trying its {len(lost)} shards one by one")
        for task in lost:
            died, _ = executor.run_all(function, [task], jobs=1, done=done)
            if died:
                raise worker_died(f"unit {task.name!r}, also when it ran alone")
