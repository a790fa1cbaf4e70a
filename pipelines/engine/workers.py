"""Code of a worker process: one unit becomes one shard file, and only its description returns.

A worker needs numpy, h5py and numba, never torch. It writes the shard itself, so no large array
crosses a process boundary.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final

from kmip_data.errors import DamagedInput, KmipDataError, OutOfResources
from kmip_data.files.changes import fsync_path, write_file
from kmip_data.files.errors import FULL
from kmip_data.format import writer
from kmip_data.format.writer import GraphRecord, Skipped
from kmip_data.graphs.statistics import UnitStatistics
from kmip_data.pipelines.base import Params, Pipeline, Prepared, RawFolder, Unit
from kmip_data.pipelines.engine.executors import UNIT_MEMORY
from kmip_data.runtime import signals, threads

#: Environment of the workers: one thread each, and no hash seed that differs between runs.
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
}
PARENT_CHECK_SECONDS = 0.2


class StopRequestedError(Exception):
    """The build was interrupted; the unit ends between two records and nothing of it is kept."""


@dataclass(frozen=True)
class Task:
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
        """The shard, relative to the build folder."""
        return shard_name(self.unit)

    memory: ClassVar[int] = UNIT_MEMORY  #: bytes a worker needs: one shard and what becomes it

    @property
    def name(self) -> str:
        """The unit's."""
        return self.unit.name


@dataclass(frozen=True)
class UnitResult:
    """A shard that is complete on disk; ``UnitResult(**entry)`` reads its line in the journal."""

    index: int
    name: str
    file: str
    sha256: str
    bytes: int
    graphs: int
    nodes: int
    edges: int
    statistics: dict[str, Any]
    skipped: list[list[str]] = field(default_factory=list)  #: key and reason of each record left out

    @property
    def facts(self) -> dict[str, Any]:
        """Entry of the file on a card, without its name."""
        return {name: getattr(self, name) for name in ("sha256", "bytes", "graphs", "nodes", "edges")}


SHARD_FILE: Final = re.compile(r"\d{5,}\.h5")


def shard_name(unit: Unit) -> str:
    """Path of the shard of ``unit`` relative to the build folder."""
    return f"shards/{unit.index:05d}.h5"


def start_worker(parent: int) -> None:
    """Set a new worker process up: signals, one thread, and an end with its parent."""
    signals.ignore_ends()
    threads.set_num_threads(1)
    threading.Thread(target=_end_with, args=(parent,), daemon=True, name="parent-watch").start()


def _end_with(parent: int) -> None:
    # A parent that was killed cannot end its workers: they look for themselves.
    while os.getppid() == parent:
        time.sleep(PARENT_CHECK_SECONDS)
    os._exit(1)


def prepare(
    pipeline: Pipeline[Any, Any], raw: RawFolder, params: Params, workdir: Path, count: int = 1
) -> Prepared:
    """Run the pipeline's ``prepare`` with ``count`` threads; wait until what it wrote is on disk.

    Errors are those of :func:`build_unit`.
    """
    threads.set_num_threads(count)
    with explained(pipeline.manifest.name, "the preparation of the raw files", pipeline.advice()):
        prepared = pipeline.prepare(raw, params, workdir)
        for path in sorted(workdir.rglob("*")):
            fsync_path(path)
    return prepared


def build_unit(task: Task) -> UnitResult:
    """Build the records of one unit, encode them, write the shard and describe it.

    Raises ``KmipDataError`` as the pipeline raised it, with the unit and the record named; ``DamagedInput``
    where the pipeline failed on a record in a way it has no message for; ``OutOfResources`` where disk or
    memory ran out; ``StopRequestedError`` once the stop file appeared.
    """
    threads.set_num_threads(task.threads)
    schema = task.pipeline.schema(task.params)
    statistics = UnitStatistics(schema)
    place = _Place(task.unit)
    skipped: list[list[str]] = []
    name = task.pipeline.manifest.name
    with explained(name, place, task.pipeline.advice()):
        shard = writer.encode_shard(
            _watched(task, statistics, place, skipped),
            schema,
            dataset=name,
            build_key=task.key,
            compression=task.compression,
        )
        write_file(task.folder / task.file, shard.data, root=task.folder)
    return UnitResult(
        index=task.unit.index,
        name=task.unit.name,
        file=task.file,
        statistics=statistics.to_json(),
        skipped=skipped,
        **shard.facts,
    )


class _Place:
    """Where in the unit the work is, for messages."""

    def __init__(self, unit: Unit) -> None:
        self.unit, self.count, self.last, self.encoding = unit, 0, "", False

    def __str__(self) -> str:
        if self.encoding:
            return f"unit {self.unit.name!r}, encoding its {self.count} records"
        after = f" (after {self.last!r})" if self.last else ""
        return f"unit {self.unit.name!r}, record {self.count}{after}"


def _watched(
    task: Task, statistics: UnitStatistics, place: _Place, skipped: list[list[str]]
) -> Iterator[GraphRecord]:
    for record in task.pipeline.records(task.prepared, task.unit, task.params):
        if task.stop.exists():
            raise StopRequestedError
        if isinstance(record, Skipped):
            skipped.append([record.key, record.reason])
            continue
        yield record
        statistics.add(record)
        place.count += 1
        place.last = record.key
    place.encoding = True


@contextlib.contextmanager
def explained(dataset: str, place: _Place | str, advice: str | None = None) -> Iterator[None]:
    """Turn whatever goes wrong inside into an error that says where: ``str(place)`` at that moment."""
    try:
        yield
    except StopRequestedError:
        raise
    except KmipDataError as error:
        if isinstance(place, _Place):
            error.parts["found"] = f"{error.parts['found'] or error.what} [{place}]"
        error.parts["on disk"] = error.parts["on disk"] or "the raw files, which a build only reads"
        if isinstance(error, DamagedInput):
            error.parts["next"] = error.parts["next"] or advice
        raise
    except Exception as error:
        if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in FULL):
            full = "Memory ran out" if isinstance(error, MemoryError) else "The disk is full"
            raise OutOfResources(
                f"{full} at {place}.",
                expected="room on the disk, and memory for one shard in each worker (about 1 GiB)",
                found=str(error) or type(error).__name__,
                left="finished shards; the next run resumes from them",
                next="free some, or use fewer --jobs, and run the same command again",
            ) from error
        raise DamagedInput(
            f"Building stopped at {place}.",
            expected="raw files that the pipeline understands, records that follow its schema",
            found=f"{type(error).__name__}: {error}",
            left="the shards that are finished; nothing of this one",
            next=f"kmip-data info {dataset}; check the raw files, then build again",
        ) from error
