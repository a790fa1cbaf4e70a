"""From the options ``--engine`` and ``--scheduler`` to an executor."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kmip_data.builds.options import BuildOptions
from kmip_data.pipelines.engine.executors import Executor, check_engine


def open_executor(
    options: BuildOptions, work: Path, *, jobs: int, needs: Iterable[Path], here: bool = False
) -> Executor:
    """Return the executor that the options mean, not yet entered.

    Parameters
    ----------
    options
        ``engine``, ``scheduler`` and ``quiet`` count.
    work
        Folder for the stop file and what else executors keep on disk.
    needs
        Folders that every worker must see.
    here
        Run in this process what would run in worker processes: for work that is done before one has started.
    """
    check_engine(options.engine, options.scheduler)
    if options.engine == "dask":
        from kmip_data.pipelines.engine.cluster import DaskWorkers

        return DaskWorkers(work, options.scheduler, jobs=jobs, needs=tuple(needs), quiet=options.quiet)
    if here:
        from kmip_data.pipelines.engine.in_process import InProcess

        return InProcess(work / "stop")
    from kmip_data.pipelines.engine.pool import Workers

    return Workers(work / "stop")
