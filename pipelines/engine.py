"""The build engine: units through worker processes into shards, journaled, resumable, the card last.

Order on disk, and what a crash between two steps leaves, is the table in ``docs/building.md``.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kmip_data.card import CARD_NAME, Card, read_card
from kmip_data.errors import DamagedInput, KmipDataError, OutOfResources, UsageError
from kmip_data.pipelines.base import Params, Pipeline, Prepared, RawFolder, SplitParams, Unit
from kmip_data.pipelines.disk import sha256_file, writing
from kmip_data.pipelines.finish import finish_build, nothing_to_build
from kmip_data.pipelines.journal import Journal
from kmip_data.pipelines.pool import Workers
from kmip_data.pipelines.workers import Compression, Task, UnitResult, build_unit, prepare, shard_name
from kmip_data.progress import Progress

WORK = "work"  #: folder inside an unfinished build: journal, stop file, what ``prepare`` wrote
JOURNAL = "journal.jsonl"
STOP = "stop"


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
        The splits to write, each once; the first becomes the card's default.
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
    if (finished := finished_card(folder)) is not None:
        remove_work(folder)
        return finished
    (folder / CARD_NAME).unlink(missing_ok=True)
    with _run(pipeline, params, raw, folder, key, compression, jobs, quiet=quiet) as run:
        units = run.units()
        if not units:
            raise nothing_to_build()
        if not any("units" in entry for entry in run.journal.entries):
            run.journal.append({"units": len(units)})  # for `kmip-data list`
        results = run.build(units)
        about = pipeline.about(run.prepared, params)
    ordered = [results[unit.index] for unit in units]
    card = finish_build(
        pipeline, params, split_params, raw, folder, ordered, key=key, compression=compression, about=about
    )
    remove_work(folder)
    if not quiet:
        text = f"built {pipeline.manifest.name}: {card.counts['graphs']:,} graphs in {folder}"
        print(text, file=sys.stderr, flush=True)  # noqa: T201
    return card


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
    remove_work(folder)
    with _run(pipeline, params, raw, folder, key, compression, jobs, quiet=quiet) as run:
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


@dataclass
class _Run:
    """One run of the engine over a build folder, with its journal and workers open."""

    pipeline: Pipeline[Any, Any]
    params: Params
    raw: RawFolder
    folder: Path
    key: str
    compression: Compression
    jobs: int
    quiet: bool
    journal: Journal
    workers: Workers
    prepared: Prepared = field(init=False)

    def units(self) -> list[Unit]:
        """Deal the records to units; the pipeline's ``prepare`` runs before, once, in a worker."""
        self.prepared = self._prepare()
        units = self.pipeline.units(self.prepared, self.params)
        if [unit.index for unit in units] != list(range(len(units))):
            message = "a pipeline must number its units 0, 1, 2, …"
            raise ValueError(message)
        return units

    def _prepare(self) -> Prepared:
        work = self.folder / WORK
        for entry in self.journal.entries:
            if "prepared" in entry:
                place = entry["prepared"]["inside"]
                return Prepared(self.raw.path if place is None else work / place, entry["prepared"]["plan"])
        pieces = work / "prepared"
        with writing(pieces):
            shutil.rmtree(pieces, ignore_errors=True)
            pieces.mkdir()
        # A second process costs no time here, and many builds need no more than these two.
        self.workers.ensure(1 if self.pipeline.one_unit else min(self.jobs, 2))
        try:
            future = self.workers.submit(prepare, self.pipeline, self.raw, self.params, pieces, self.jobs)
            prepared = future.result()
        except BrokenExecutor as error:
            raise _worker_died("the preparation of the raw files") from error
        inside = None if prepared.path == self.raw.path else prepared.path.relative_to(work).as_posix()
        self.journal.append({"prepared": {"inside": inside, "plan": dict(prepared.plan)}})
        return prepared

    def build(self, units: Sequence[Unit]) -> dict[int, UnitResult]:
        """Build the units that are not on disk already; return all, by index."""
        results = self._finished(units)
        stop, total = self.workers.stop, len(units)
        missing = [unit for unit in units if unit.index not in results]
        # A city is one unit: what the jobs cannot share among units, threads share inside one.
        count = max(1, self.jobs // max(1, len(missing)))
        tasks = [
            Task(
                pipeline=self.pipeline,
                params=self.params,
                prepared=self.prepared,
                unit=unit,
                folder=self.folder,
                stop=stop,
                key=self.key,
                compression=self.compression,
                threads=count,
            )
            for unit in missing
        ]
        description = f"build {self.pipeline.manifest.name}"
        with Progress(description, total, unit="shards", initial=len(results), quiet=self.quiet) as progress:
            if results:
                progress.message(f"going on: {len(results)} of {total} shards are there already")

            def done(result: UnitResult) -> None:
                self.journal.append({"unit": result.to_json()})
                results[result.index] = result
                progress.update(1)

            try:
                self._build(tasks, done, progress.message)
            except BaseException as error:
                state = f"{len(results)} of {total} shards are finished and stay; the same command goes on"
                if isinstance(error, KmipDataError):
                    error.parts["on disk"] = state
                elif isinstance(error, KeyboardInterrupt | SystemExit):
                    progress.message(f"interrupted: {state}")
                raise
        return results

    def _build(
        self, tasks: Sequence[Task], done: Callable[[UnitResult], None], say: Callable[[str], None]
    ) -> None:
        """Run all tasks; those in hand when a worker dies are tried alone: that shows whose fault it was."""
        waiting = list(tasks)
        while waiting:
            lost, waiting = self.workers.run_all(build_unit, waiting, jobs=self.jobs, done=done)
            if lost:
                say(f"a worker process died; trying its {len(lost)} shards one by one")
            for task in lost:
                died, _ = self.workers.run_all(build_unit, [task], jobs=1, done=done)
                if died:
                    raise _worker_died(f"unit {task.unit.name!r}, also when it ran alone")

    def _finished(self, units: Sequence[Unit]) -> dict[int, UnitResult]:
        """Units whose shard lies there with the digest that the journal gives it."""
        names = {unit.index: (unit.name, shard_name(unit)) for unit in units}
        found = {}
        for entry in self.journal.entries:
            if "unit" not in entry:
                continue
            result = UnitResult(**entry["unit"])
            path = self.folder / result.file
            if names.get(result.index) != (result.name, result.file) or not path.is_file():
                continue
            if sha256_file(path)[0] == result.sha256:
                found[result.index] = result
        return found


@contextlib.contextmanager
def _run(
    pipeline: Pipeline[Any, Any],
    params: Params,
    raw: RawFolder,
    folder: Path,
    key: str,
    compression: Compression,
    jobs: int | None,
    *,
    quiet: bool,
) -> Iterator[_Run]:
    jobs = count_jobs(jobs)
    work = folder / WORK
    with writing(folder):
        for place in (work, folder / "shards", folder / "splits"):
            place.mkdir(parents=True, exist_ok=True)
        remove_partials(folder)
    try:
        with Journal(work / JOURNAL, key) as journal, Workers(work / STOP) as workers:
            yield _Run(pipeline, params, raw, folder, key, compression, jobs, quiet, journal, workers)
    except BaseException:
        remove_partials(folder)  # of workers that were ended while they wrote
        raise


def _worker_died(place: str) -> OutOfResources:
    return OutOfResources(
        f"The worker process died on {place}.",
        expected="memory for one shard in each worker (about 1 GiB)",
        found="a process killed by the system (out of memory?) or crashed",
        left="the shards that are finished; the next run goes on from them",
        next="free some memory and run the same command again; dmesg says whether the system killed it",
    )
