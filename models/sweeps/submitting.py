"""Submit the cells of a sweep to a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kmip_data.builds.execution_options import BuildArguments
from kmip_data.builds.home import Home
from kmip_data.errors import UsageError
from kmip_data.files.atomic_writes import folder_lock
from kmip_data.models.sweeps.cells import Cell
from kmip_data.models.sweeps.running import build_missing_data, make_folders, run_cells

CLUSTER = "slurm"  #: kind of cluster, for submitit
TIME_LIMIT_MINUTES = 24 * 60  #: default time limit of a job; longer runs are requeued and resume
MAX_REQUEUES = 1000  #: largest number of restarts after a time limit, not counting preemptions


@dataclass(frozen=True)
class Submission:
    """Cluster job that runs or resumes a cell."""

    cell: Cell
    home: Home
    folder: Path  #: folder of the sweep
    options: BuildArguments

    def __call__(self) -> None:
        """Run the cell as a sweep of one run."""
        run_cells(
            [self.cell],
            home=self.home,
            folder=self.folder,
            jobs=1,
            options=self.options,
        )

    def checkpoint(self) -> object:
        """Requeue the same job, to resume after preemption or a time-out."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def submit_cells(
    cells: Sequence[Cell],
    *,
    home: Home,
    folder: Path,
    options: BuildArguments,
    settings: Mapping[str, int | str],
) -> None:
    """Build missing data on this machine, and submit the cells that are not done.

    A job waits if its cell is already running. ``settings`` are options of ``sbatch``:
    ``partition``, ``time`` in minutes, ``array_parallelism`` and so on. Raises ``UsageError``
    without a cluster, for an unknown setting, or if a folder is a link.
    """
    from submitit import AutoExecutor
    from submitit.core.utils import FailedJobError

    jobs = folder / "jobs"
    make_folders(cells, home, folder, jobs)
    with folder_lock(folder / "data", quiet=options.get("quiet", False)):
        ready = build_missing_data(
            [cell for cell in cells if not cell.is_done], home, folder, options
        )
        if not ready:
            return
        gpus = 0 if all(cell.config.system.device == "cpu" for cell in cells) else 1
        try:
            executor = AutoExecutor(jobs, cluster=CLUSTER, slurm_max_num_timeout=MAX_REQUEUES)
            executor.update_parameters(
                name=folder.name, timeout_min=TIME_LIMIT_MINUTES, gpus_per_node=gpus
            )
            executor.update_parameters(**{f"slurm_{key}": value for key, value in settings.items()})
            with executor.batch():
                for cell in ready:
                    executor.submit(Submission(cell, home, folder, options))
        except (RuntimeError, NameError, ValueError, FailedJobError) as error:
            raise UsageError(
                f"The runs of {folder.name} cannot be submitted: {' '.join(str(error).split())}",
                next="use a machine with sbatch and srun, other --slurm KEY=VALUE, or --jobs without --submit",
            ) from error
