"""The build engine: units through worker processes into shards, journaled, resumable, the card last.

Order on disk, and what a crash between two steps leaves, is the table in ``docs/building.md``.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import BrokenExecutor
from pathlib import Path
from typing import Any

from kmip_data.card import CARD_NAME, Card, read_card
from kmip_data.errors import DamagedInput, KmipDataError, OutOfResources, UsageError
from kmip_data.pipelines import pool
from kmip_data.pipelines.base import Params, Pipeline, Prepared, RawFolder, SplitParams, Unit
from kmip_data.pipelines.finish import finish_build, nothing_to_build
from kmip_data.pipelines.journal import Journal
from kmip_data.pipelines.workers import Compression, Task, UnitResult, build_unit, prepare, shard_name
from kmip_data.progress import Progress

WORK = "work"  #: folder inside an unfinished build: journal, stop file, what ``prepare`` wrote
JOURNAL = "journal.jsonl"


def run_build(
    pipeline: Pipeline[Any, Any],
    params: Params,
    split_params: Sequence[SplitParams],
    raw: RawFolder,
    folder: Path,
    *,
    key: str,
    jobs: int | None = None,
    compression: Compression = None,
    quiet: bool = False,
) -> Card:
    """Build every shard that is missing, then splits, README and card; the caller holds the lock.

    The bytes on disk are a function of the arguments alone: not of ``jobs``, of the order in
    which units finish, or of how often an earlier run was killed.

    Parameters
    ----------
    pipeline, params, raw
        What to build from.
    split_params
        The splits to write; the first becomes the card's default.
    folder
        The build folder. A finished build is returned as it is; an unfinished one goes on.
    key
        Build key (12 hex digits).
    jobs
        Worker processes; ``None``: the cores this process may use.
    compression
        ``None`` (contiguous, can be mapped), ``"gzip"`` or ``"zstd"``.

    Raises
    ------
    OutOfResources
        Disk or memory ran out; finished shards stay and the next run goes on.
    DamagedInput
        A record could not be built; unit and record are named.
    KeyboardInterrupt, SystemExit
        Interrupted. Workers are gone and finished shards stay.
    """
    if (done := finished_card(folder)) is not None:
        remove_work(folder)
        return done
    (folder / CARD_NAME).unlink(missing_ok=True)
    jobs = count_jobs(jobs)
    work = folder / WORK
    work.mkdir(parents=True, exist_ok=True)
    for name in ("shards", "splits"):
        (folder / name).mkdir(exist_ok=True)
    remove_partials(folder)
    with Journal(work / JOURNAL, key) as journal:
        prepared = _prepare(pipeline, raw, params, work, journal)
        units = pipeline.units(prepared, params)
        _check_units(units)
        if not any("units" in entry for entry in journal.entries):
            journal.append({"units": len(units)})  # for `kmip-data list`
        finished = _finished(journal, folder, units)
        tasks = [
            Task(pipeline, params, prepared, unit, folder, work / "stop", key, compression)
            for unit in units
            if unit.index not in finished
        ]
        _build_units(tasks, finished, journal, jobs=jobs, name=pipeline.manifest.name, quiet=quiet)
    results = [finished[unit.index] for unit in units]
    card = finish_build(
        pipeline, params, split_params, raw, folder, results, key=key, compression=compression
    )
    remove_work(folder)
    _say(f"built {pipeline.manifest.name}: {card.counts['graphs']:,} graphs in {folder}", quiet=quiet)
    return card


def finished_card(folder: Path) -> Card | None:
    """Return the card of a finished build; ``None`` where there is none, or one that is damaged.

    A damaged card has lost the digests of the shards, so nothing in the folder can be trusted: a
    build there begins anew, to the same bytes.
    """
    if not (folder / CARD_NAME).is_file():
        return None
    try:
        return read_card(folder)
    except DamagedInput:
        return None


def rebuild_units(
    pipeline: Pipeline[Any, Any],
    params: Params,
    raw: RawFolder,
    folder: Path,
    chosen: Collection[int],
    *,
    key: str,
    jobs: int | None,
    compression: Compression,
    quiet: bool,
) -> dict[int, UnitResult]:
    """Build the chosen units of a finished build again; the caller holds the lock and compares."""
    if not chosen:
        return {}
    work = folder / WORK
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    remove_partials(folder)
    results: dict[int, UnitResult] = {}
    with Journal(work / JOURNAL, key) as journal:
        prepared = _prepare(pipeline, raw, params, work, journal)
        tasks = [
            Task(pipeline, params, prepared, unit, folder, work / "stop", key, compression)
            for unit in pipeline.units(prepared, params)
            if unit.index in chosen
        ]
        name = pipeline.manifest.name
        _build_units(tasks, results, journal, jobs=count_jobs(jobs), name=name, quiet=quiet)
    return results


def count_jobs(jobs: int | None) -> int:
    """``jobs``, or the cores this process may use (affinity and container limits).

    Raises
    ------
    UsageError
        ``jobs`` is less than 1.
    """
    if jobs is None:
        import loky

        return int(loky.cpu_count())
    if jobs < 1:
        raise UsageError("--jobs is too small.", expected="1 or more", found=str(jobs))
    return jobs


def remove_work(folder: Path) -> None:
    """Remove the work folder of a finished build, if a crash left it."""
    if (folder / WORK).exists():
        shutil.rmtree(folder / WORK)


def remove_partials(folder: Path) -> None:
    """Remove half-written files of a dead run."""
    for place in (folder, folder / "shards", folder / "splits"):
        for path in place.glob("*.partial"):
            path.unlink(missing_ok=True)


def file_sha256(path: Path) -> str:
    """SHA-256 of a file in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _prepare(
    pipeline: Pipeline[Any, Any], raw: RawFolder, params: Params, work: Path, journal: Journal
) -> Prepared:
    """Cut the raw files in pieces, in a worker, once; the journal remembers where they lie."""
    pieces = work / "prepared"
    for entry in journal.entries:
        if "prepared" in entry:
            place = entry["prepared"]["inside"]
            return Prepared(raw.path if place is None else work / place, entry["prepared"]["plan"])
    shutil.rmtree(pieces, ignore_errors=True)
    pieces.mkdir()
    try:
        with pool.Workers(1, work / "stop") as workers:
            prepared = workers.submit(prepare, pipeline, raw, params, pieces).result()
    except BrokenExecutor as error:
        raise _worker_died("the preparation of the raw files") from error
    inside = None if prepared.path == raw.path else prepared.path.relative_to(work).as_posix()
    journal.append({"prepared": {"inside": inside, "plan": dict(prepared.plan)}})
    return prepared


def _check_units(units: Sequence[Unit]) -> None:
    if not units:
        raise nothing_to_build()
    if [unit.index for unit in units] != list(range(len(units))):
        message = "a pipeline must number its units 0, 1, 2, …"
        raise ValueError(message)


def _finished(journal: Journal, folder: Path, units: Sequence[Unit]) -> dict[int, UnitResult]:
    """Units whose shard lies there with the digest that the journal gives it."""
    names = {unit.index: (unit.name, shard_name(unit)) for unit in units}
    finished = {}
    for entry in journal.entries:
        if "unit" not in entry:
            continue
        result = UnitResult(**entry["unit"])
        path = folder / result.file
        if names.get(result.index) != (result.name, result.file) or not path.is_file():
            continue
        if file_sha256(path) == result.sha256:
            finished[result.index] = result
    return finished


def _build_units(
    tasks: Sequence[Task],
    finished: dict[int, UnitResult],
    journal: Journal,
    *,
    jobs: int,
    name: str,
    quiet: bool,
) -> None:
    """Build all ``tasks`` and add their results to ``finished`` and the journal."""
    total = len(tasks) + len(finished)
    if finished and tasks:
        _say(f"going on: {len(finished)} of {total} shards are there already", quiet=quiet)
    with Progress(f"build {name}", total, unit="shard", initial=len(finished), quiet=quiet) as progress:

        def done(result: UnitResult) -> None:
            journal.append({"unit": result.to_json()})
            finished[result.index] = result
            progress.update(1)

        try:
            _run_units(tasks, jobs=jobs, done=done, say=progress.message)
        except BaseException as error:
            if tasks:
                remove_partials(tasks[0].folder)
            state = f"{len(finished)} of {total} shards are finished and stay; the same command goes on"
            if isinstance(error, KmipDataError):
                error.parts["on disk"] = state
            elif isinstance(error, KeyboardInterrupt | SystemExit):
                progress.message(f"interrupted: {state}")
            raise


def _run_units(
    tasks: Sequence[Task], *, jobs: int, done: Callable[[UnitResult], None], say: Callable[[str], None]
) -> None:
    """Run all tasks; those in hand when a worker dies are tried alone, which shows whose fault it was."""
    waiting = list(tasks)
    while waiting:
        stop = waiting[0].stop
        lost, waiting = pool.run_all(build_unit, waiting, jobs=jobs, stop=stop, done=done)
        if lost:
            say(f"a worker process died; trying its {len(lost)} shards one by one")
        for task in lost:
            died, _ = pool.run_all(build_unit, [task], jobs=1, stop=stop, done=done)
            if died:
                raise _worker_died(f"unit {task.unit.name!r}, also when it ran alone")


def _worker_died(place: str) -> OutOfResources:
    return OutOfResources(
        f"The worker process died on {place}.",
        expected="memory for one shard in each worker (about 1 GiB)",
        found="a process killed by the system (out of memory?) or crashed",
        next="free some memory and run the same command again; dmesg says whether the system killed it",
    )


def _say(text: str, *, quiet: bool) -> None:
    if not quiet:
        print(text, file=sys.stderr, flush=True)  # noqa: T201
