"""Submit the cells of a sweep as one array job of SLURM, through submitit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kmip_data.builds.home import BuildArguments, Home
from kmip_data.errors import UsageError
from kmip_data.files.changes import make_folder, refuse_links, write_file
from kmip_data.files.errors import writing
from kmip_data.files.locking import build_lock
from kmip_data.models.sweeps.cells import Cell
from kmip_data.models.sweeps.running import make_folders, run_cells, with_data
from kmip_data.models.sweeps.state import is_done, job_of, job_path

CLUSTER = "slurm"  #: submitit's name of it
MINUTES = 24 * 60  #: default time limit of a job; a run that needs more is queued again and resumes
REQUEUES = 1000  #: of a job that reached its time limit; preemptions are not counted
LIVE = {"PENDING", "RUNNING", "CONFIGURING", "REQUEUED", "SUSPENDED", "COMPLETING", "READY"}


@dataclass(frozen=True)
class Submission:
    """One job of the cluster: run a cell, or resume it."""

    cell: Cell
    home: Home
    folder: Path  #: the sweep's
    options: BuildArguments

    def __call__(self) -> None:
        """Run the cell as a sweep of one run."""
        run_cells([self.cell], home=self.home, folder=self.folder, jobs=1, options=self.options)

    def checkpoint(self) -> Any:
        """Return the work that submitit queues when the job is preempted or reaches its time limit.

        The run keeps its own checkpoints: an exception leaves :meth:`__call__`, which ends the run and lets
        it write its last one.
        """
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def submit_cells(
    cells: Sequence[Cell],
    *,
    home: Home,
    folder: Path,
    options: BuildArguments,
    settings: Mapping[str, int | str],
) -> list[Cell]:
    """Build missing data here, submit the cells that are neither done nor queued, and return those cells.

    ``settings`` are options of ``sbatch``: ``partition``, ``time`` in minutes, ``array_parallelism`` and so
    on. Raises ``UsageError`` if there is no cluster, it has no such setting, or a folder is a link.
    """
    from submitit import AutoExecutor
    from submitit.core.utils import FailedJobError

    make_folders(cells, home, folder)
    with writing(folder / "jobs"):
        make_folder(folder / "jobs", root=home.root)
        refuse_links(folder / "jobs")
    with build_lock(folder / "data", quiet=options.get("quiet", False)):
        fresh = [cell for cell in cells if not is_done(cell) and not is_queued(cell, folder)]
        if not (fresh := with_data(fresh, home, folder, options)):
            return []
        gpus = 0 if all(cell.config.system.device == "cpu" for cell in cells) else 1
        try:
            executor = AutoExecutor(folder / "jobs", cluster=CLUSTER, slurm_max_num_timeout=REQUEUES)
            executor.update_parameters(name=folder.name, timeout_min=MINUTES, gpus_per_node=gpus)
            executor.update_parameters(**{f"slurm_{key}": value for key, value in settings.items()})
            with executor.batch():
                jobs = [executor.submit(Submission(cell, home, folder, options)) for cell in fresh]
        except (RuntimeError, NameError, ValueError, FailedJobError) as error:
            raise UsageError(
                f"The runs of {folder.name} cannot be submitted: {' '.join(str(error).split())}",
                next="a machine with sbatch and srun, other --slurm KEY=VALUE, or --jobs without --submit",
            ) from error
        for cell, job in zip(fresh, jobs, strict=True):
            write_file(job_path(cell, folder), job.job_id.encode())
    return fresh


def is_queued(cell: Cell, folder: Path) -> bool:
    """Return True if the cluster says that the cell's job waits or runs."""
    from submitit import SlurmJob

    job = job_of(cell, folder)
    return bool(job) and SlurmJob(folder / "jobs", job).state.partition(" ")[0] in LIVE
