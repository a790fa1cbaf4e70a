"""From the options ``--engine`` and ``--scheduler`` to an executor."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kmip_data.pipelines.engine.executors import EngineName, Executor, check_engine


def open_executor(
    engine: EngineName,
    scheduler: str | None,
    work: Path,
    *,
    jobs: int,
    needs: Iterable[Path],
    quiet: bool,
    here: bool = False,
) -> Executor:
    """Return the executor that the options ``--engine`` and ``--scheduler`` mean, not yet entered.

    Parameters
    ----------
    work
        Folder for the stop file and what else executors keep on disk.
    needs
        Folders that every worker must see.
    here
        Run in this process what would run in worker processes: for work that is done before one has started.
    """
    check_engine(engine, scheduler)
    if engine == "dask":
        from kmip_data.pipelines.engine.cluster import DaskWorkers

        return DaskWorkers(work, scheduler, jobs=jobs, needs=tuple(needs), quiet=quiet)
    if here:
        from kmip_data.pipelines.engine.in_process import InProcess

        return InProcess(work / "stop")
    from kmip_data.pipelines.engine.pool import Workers

    return Workers(work / "stop")
