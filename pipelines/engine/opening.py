"""From the options ``--jobs`` and ``--dask`` to an executor."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import get_args

from kmip_data.builds.options import BuildOptions, EngineName
from kmip_data.errors import UsageError
from kmip_data.pipelines.engine.executors import Executor
from kmip_data.pipelines.engine.pool import InProcess, Workers
from kmip_data.pipelines.raw.extras import require_extra


def count_jobs(jobs: int | None) -> int:
    """``jobs``, at least 1, or the cores this process may use (affinity and container limits)."""
    if jobs is not None and jobs < 1:
        raise UsageError("--jobs is too small.", expected="1 or more", found=str(jobs))
    if jobs is None:
        import loky

        jobs = int(loky.cpu_count())
    return jobs


def check_options(options: BuildOptions) -> None:
    """Refuse options that no build can have, before anything is read or written.

    Raises ``UsageError`` where compression, engine, scheduler or jobs are wrong, or what the engine needs is
    not installed.
    """
    if options.compression not in {None, "gzip", "zstd"}:
        raise UsageError("Unknown compression.", expected="gzip or zstd", found=str(options.compression))
    count_jobs(options.jobs)
    engines = get_args(EngineName)
    if options.engine not in engines:
        raise UsageError("There is no such engine.", expected=", ".join(engines), found=repr(options.engine))
    if options.engine == "dask":
        require_extra("distributed", "The engine dask")
    elif options.scheduler is not None:
        raise UsageError(
            "A scheduler belongs to the engine dask.",
            expected="engine='dask' with it",
            found=f"scheduler={options.scheduler!r} with worker processes",
            next=f"--dask {options.scheduler}",
        )


def open_executor(
    options: BuildOptions, work: Path, *, jobs: int, needs: Iterable[Path], here: bool = False
) -> Executor:
    """Return the executor that the options, already checked, mean; it is not entered yet.

    ``work`` is for the stop file and what else executors keep on disk; every worker must see the folders that
    it ``needs``. ``here``: run in this process, for work that is done before a worker has started.
    """
    if options.engine == "dask":
        from kmip_data.pipelines.engine.cluster import DaskWorkers

        return DaskWorkers(work, options.scheduler, jobs=jobs, needs=tuple(needs), quiet=options.quiet)
    return InProcess(work / "stop") if here else Workers(work / "stop")
