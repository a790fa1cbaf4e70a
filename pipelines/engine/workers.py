"""Code of a worker process: one unit becomes one shard file, and only its description returns.

A worker needs numpy, h5py and numba, never torch. It writes the shard itself, so no large array
crosses a process boundary.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kmip_data.errors import FULL, DamagedInput, KmipDataError, OutOfResources
from kmip_data.files.changes import fsync_path
from kmip_data.format import writer
from kmip_data.format.writer import GraphRecord, Skipped
from kmip_data.graphs.statistics import UnitStatistics
from kmip_data.pipelines.base import Params, Pipeline, Prepared, RawFolder, Unit
from kmip_data.pipelines.engine.journal import PREPARATION, RESUMES, UnitResult
from kmip_data.runtime import threads


class StopRequestedError(Exception):
    """The build was interrupted; the unit ends between two records and nothing of it is kept."""


@dataclass(frozen=True)
class BuildTask:
    """Everything that one unit needs, picklable."""

    pipeline: Pipeline[Any, Any]
    params: Params
    prepared: Prepared
    unit: Unit
    folder: Path  #: the build folder
    stop: Path  #: a file; the worker stops when it appears
    key: str
    compression: writer.Compression
    threads: int = 1  #: for compiled kernels: more than one where there are fewer units than jobs

    @property
    def file(self) -> str:
        """Path of the shard relative to the build folder."""
        return f"shards/{self.unit.index:05d}.h5"

    @property
    def name(self) -> str:
        """Name of the unit."""
        return self.unit.name


def prepare(
    pipeline: Pipeline[Any, Any], raw: RawFolder, params: Params, workdir: Path, count: int = 1
) -> Prepared:
    """Run the pipeline's ``prepare`` with ``count`` threads; wait until what it wrote is on disk.

    Errors are those of :func:`build_unit`.
    """
    threads.set_num_threads(count)
    with explained(pipeline.manifest.name, PREPARATION, pipeline.advice()):
        prepared = pipeline.prepare(raw, params, workdir)
        for path in sorted(workdir.rglob("*")):
            fsync_path(path)
    return prepared


def build_unit(task: BuildTask) -> UnitResult:
    """Build the records of one unit, encode them, write the shard and describe it.

    Raises ``KmipDataError`` as the pipeline raised it, with the unit and the record named; ``DamagedInput``
    for any other exception; ``OutOfResources`` where disk or memory ran out; ``StopRequestedError`` once the
    stop file appeared.
    """
    threads.set_num_threads(task.threads)
    schema = task.pipeline.schema(task.params)
    statistics = UnitStatistics(schema)
    where = _Location(task.unit)
    skipped: list[list[str]] = []
    name = task.pipeline.manifest.name
    with explained(name, where, task.pipeline.advice()):
        facts = writer.write_shard(
            task.folder / task.file,
            _watched(task, statistics, where, skipped),
            schema,
            root=task.folder,
            dataset=name,
            build_key=task.key,
            compression=task.compression,
        )
    return UnitResult(task.name, task.file, statistics=statistics.to_json(), skipped=skipped, **facts)


class _Location:
    """Position of the work inside a unit, for messages."""

    def __init__(self, unit: Unit) -> None:
        self.unit, self.count, self.last, self.encoding = unit, 0, "", False

    def __str__(self) -> str:
        if self.encoding:
            return f"unit {self.unit.name!r}, encoding its {self.count} records"
        after = f" (after {self.last!r})" if self.last else ""
        return f"unit {self.unit.name!r}, record {self.count}{after}"


def _watched(
    task: BuildTask, statistics: UnitStatistics, where: _Location, skipped: list[list[str]]
) -> Iterator[GraphRecord]:
    for record in task.pipeline.records(task.prepared, task.unit, task.params):
        if task.stop.exists():
            raise StopRequestedError
        if isinstance(record, Skipped):
            skipped.append([record.key, record.reason])
            continue
        yield record
        statistics.add(record)
        where.count += 1
        where.last = record.key
    where.encoding = True


@contextlib.contextmanager
def explained(dataset: str, where: _Location | str, advice: str | None = None) -> Iterator[None]:
    """Turn any exception inside into an error that names its place: ``str(where)`` at that moment."""
    try:
        yield
    except StopRequestedError:
        raise
    except KmipDataError as error:
        if isinstance(where, _Location):
            error.what = f"{error.what} [{where}]"
        if isinstance(error, DamagedInput):
            error.parts["next"] = error.parts["next"] or advice
        raise
    except Exception as error:
        memory = isinstance(error, MemoryError)
        if memory or (isinstance(error, OSError) and error.errno in FULL):
            full = "Memory ran out" if memory else "The disk is full"
            raise OutOfResources(
                f"{full} at {where}: {str(error) or type(error).__name__}.",
                left=RESUMES,
                next="free some (a worker needs about 1 GiB), or fewer --jobs; then the same command again",
            ) from error
        raise DamagedInput(
            f"Building stopped at {where}: {type(error).__name__}: {error}",
            left="the shards that are finished",
            next=f"kmip-data info {dataset}; check the raw files, then build again",
        ) from error
